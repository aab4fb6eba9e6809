"""Tensors without data: making them, putting them in place of weights, and knowing operators by heart."""
