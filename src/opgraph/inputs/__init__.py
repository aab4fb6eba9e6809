"""From a model to example inputs, by its signature and configuration."""

from __future__ import annotations

from opgraph.inputs.base import Example, InputRequest, TensorSpec
from opgraph.inputs.making import make_inputs

__all__ = ["Example", "InputRequest", "TensorSpec", "make_inputs"]
