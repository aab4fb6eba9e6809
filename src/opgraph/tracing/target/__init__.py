"""What does a device run where the CPU, on which a trace is made, runs something else?

`Substitutes` are what a recorder runs in the place of the torch functions that it hears: the kernels of the
target, on fake CPU tensors, forward and backward. They are a table, from a torch function to what runs
instead. `opgraph.tracing.target.attention` has torch's rules for the kernels of attention.
"""

from opgraph.tracing.target.substitutes import Substitutes

__all__ = ["Substitutes"]
