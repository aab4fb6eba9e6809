"""What does it cost at other sizes? Sweeps, exact formulas, and other batches on paper."""
