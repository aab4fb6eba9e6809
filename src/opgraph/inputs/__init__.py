"""From a model to example inputs, by its signature and configuration."""

from __future__ import annotations

from opgraph.inputs.base import Example, InputRequest
from opgraph.options import TensorSpec
from opgraph.sources.base import Model

__all__ = ["Example", "InputRequest", "TensorSpec", "make_inputs"]


def make_inputs(model: Model, request: InputRequest | None = None) -> Example:
    """Arguments for one call of the model.

    Required parameters come as positional arguments, the others by name. Raises `InputError` naming
    the arguments that no rule makes.
    """
    from opgraph.inputs.making import make_inputs as make

    return make(model, request)
