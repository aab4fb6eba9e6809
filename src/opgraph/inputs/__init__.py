"""From a model to example inputs, by its signature and configuration.

`make_inputs` makes the arguments of one call, `inputs_at` the same at sizes that a person asked for, and
`open_sizes` says which sizes can be asked for. How an argument is made is a rule (see
`opgraph.inputs.rules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraph.inputs.base import Example, InputRequest, OpenSize
from opgraph.options import TensorSpec

if TYPE_CHECKING:
    from opgraph.inputs.making import inputs_at, make_inputs, open_sizes

__all__ = [
    "Example", "InputRequest", "OpenSize", "TensorSpec", "inputs_at", "make_inputs", "open_sizes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in ("inputs_at", "make_inputs", "open_sizes"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opgraph.inputs import making

    return getattr(making, name)
