"""Tensors without data: making them, putting them in place of weights, and the cache of calls on them."""
