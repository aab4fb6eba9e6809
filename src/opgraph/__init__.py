"""opgraph: the operator graph of any PyTorch model, with the true cost of every operator.

>>> import opgraph
>>> p = opgraph.profile("bert-base-uncased", seq_len=128)
>>> p.totals.flops, p.totals.parameters
(22348431360, 109482240)

Importing this package imports neither torch nor a model library; they are loaded when a model is traced.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from opgraph.version import __version__

if TYPE_CHECKING:
    from opgraph.api import compare, profile, trace
    from opgraph.api.planning import plan
    from opgraph.api.serving import serve
    from opgraph.api.sweeping import sweep
    from opgraph.checking import check
    from opgraph.record.errors import (
        InputError,
        MissingDependency,
        OpgraphError,
        ProfileError,
        RenderError,
        SourceError,
        TraceError,
        UnknownModel,
        UntrustedFile,
    )
    from opgraph.record.graph import Graph
    from opgraph.results import Comparison, Costed, Measured, Profile, Serving, Sweep, load
    from opgraph.sources.ranks import ranks
    from opgraph.surveying import Atlas, atlas, survey

_HOMES = {
    "Atlas": "opgraph.surveying",
    "Comparison": "opgraph.results",
    "Costed": "opgraph.results",
    "Graph": "opgraph.record.graph",
    "Measured": "opgraph.results",
    "InputError": "opgraph.record.errors",
    "MissingDependency": "opgraph.record.errors",
    "OpgraphError": "opgraph.record.errors",
    "Profile": "opgraph.results",
    "ProfileError": "opgraph.record.errors",
    "RenderError": "opgraph.record.errors",
    "Serving": "opgraph.results",
    "SourceError": "opgraph.record.errors",
    "Sweep": "opgraph.results",
    "TraceError": "opgraph.record.errors",
    "UnknownModel": "opgraph.record.errors",
    "UntrustedFile": "opgraph.record.errors",
    "atlas": "opgraph.surveying",
    "check": "opgraph.checking",
    "compare": "opgraph.api",
    "join": "opgraph.api.measuring",
    "load": "opgraph.results",
    "measure": "opgraph.api.measuring",
    "plan": "opgraph.api.planning",
    "profile": "opgraph.api",
    "ranks": "opgraph.sources.ranks",
    "recording": "opgraph.api.measuring",
    "serve": "opgraph.api.serving",
    "survey": "opgraph.surveying",
    "sweep": "opgraph.api.sweeping",
    "trace": "opgraph.api",
}

__all__ = [
    "Atlas",
    "Comparison",
    "Costed",
    "Graph",
    "InputError",
    "Measured",
    "MissingDependency",
    "OpgraphError",
    "Profile",
    "ProfileError",
    "RenderError",
    "Serving",
    "SourceError",
    "Sweep",
    "TraceError",
    "UnknownModel",
    "UntrustedFile",
    "__version__",
    "atlas",
    "check",
    "compare",
    "join",
    "load",
    "measure",
    "plan",
    "profile",
    "ranks",
    "recording",
    "serve",
    "survey",
    "sweep",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            value = getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError:
            from opgraph.record.versions import require_torch

            require_torch()
            raise
        globals()[name] = value
        return value
    raise AttributeError(f"module 'opgraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
