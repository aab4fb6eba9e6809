"""What changed? Module trees laid over each other, pairs of nodes, and gates."""
