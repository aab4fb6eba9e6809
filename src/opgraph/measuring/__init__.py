"""How long does a model really take, and where does the time go? It is run on a device at hand, plainly for
the time and under the profiler for its parts, which belong to nodes by marks. `measured` gives the record;
`step_of` makes what it runs."""

from opgraph.measuring.running import measured
from opgraph.measuring.steps import step_of

__all__ = ["measured", "step_of"]
