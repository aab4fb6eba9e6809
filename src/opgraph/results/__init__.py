"""What a person holds: a profile, a profile on a machine, what was measured, a comparison, a sweep, a model
served.

A result is a record with its cached answers and a face: `repr`, `print`, `.draw`, `.view`, `.save`,
`.to_pandas`, a notebook's output. The records stand in `record` and `analysis`, what they look like in
`views`; here the two meet, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraph.results.costed import Costed, Measured, Profile, load

if TYPE_CHECKING:
    from opgraph.results.comparing import (
        CheckedTracers,
        Comparison,
        Plan,
        Serving,
        ServingPlan,
        Sweep,
        compared,
    )

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


def __getattr__(name: str) -> Any:
    """What is of several models or of one served, which takes as long to import as all else."""
    if name in __all__:
        from opgraph.results import comparing

        return getattr(comparing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
