"""What a run does, written down: kernels, values, module calls, names and source locations."""
