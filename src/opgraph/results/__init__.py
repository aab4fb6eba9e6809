"""What a person holds: a profile, a profile on a machine, what was measured, a comparison, a sweep, a model
served.

A result is a record with its cached answers and a face: `repr`, `print`, `.draw`, `.view`, `.save`,
`.to_pandas`, a notebook's output. The records stand in `record` and `analysis`, what they look like in
`views`; here the two meet, and nowhere else."""

from opgraph.results.comparing import (
    CheckedTracers,
    Comparison,
    Plan,
    Serving,
    ServingPlan,
    Sweep,
    compared,
)
from opgraph.results.costed import Costed, Measured, Profile, load

__all__ = [
    "CheckedTracers",
    "Comparison",
    "Costed",
    "Measured",
    "Plan",
    "Profile",
    "Serving",
    "ServingPlan",
    "Sweep",
    "compared",
    "load",
]
