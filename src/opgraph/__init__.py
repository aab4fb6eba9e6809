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
    from opgraph.document import Profile
    from opgraph.errors import (
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
    from opgraph.graph import Graph
    from opgraph.pipeline import compare, profile, trace
    from opgraph.reading import load
    from opgraph.sweeping import sweep

_HOMES = {
    "Graph": "opgraph.graph",
    "InputError": "opgraph.errors",
    "MissingDependency": "opgraph.errors",
    "OpgraphError": "opgraph.errors",
    "Profile": "opgraph.document",
    "ProfileError": "opgraph.errors",
    "RenderError": "opgraph.errors",
    "SourceError": "opgraph.errors",
    "TraceError": "opgraph.errors",
    "UnknownModel": "opgraph.errors",
    "UntrustedFile": "opgraph.errors",
    "compare": "opgraph.pipeline",
    "load": "opgraph.reading",
    "profile": "opgraph.pipeline",
    "sweep": "opgraph.sweeping",
    "trace": "opgraph.pipeline",
}

__all__ = [
    "Graph",
    "InputError",
    "MissingDependency",
    "OpgraphError",
    "Profile",
    "ProfileError",
    "RenderError",
    "SourceError",
    "TraceError",
    "UnknownModel",
    "UntrustedFile",
    "__version__",
    "compare",
    "load",
    "profile",
    "sweep",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'opgraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
