"""What does it cost? Sums by module, operator and phase, and what bounds them."""
