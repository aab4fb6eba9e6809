"""The registry of cost formulas: what a kernel computes, by ATen operator.

Contractions (matrix products, convolutions, attention) come from torch's own registry first, so that a
custom operator's `torch.utils.flop_counter.register_flop_formula` works here too; those it lacks are
ours, registered in the same way but kept apart, so that torch's own counter is not changed. All other
work is counted by `work` formulas. An operator is named without its overload: "aten.addmm".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator as formulas see it: tensors are replaced by their shapes.

    `args` are positional by the operator's schema (defaults filled in), `inputs` and `outputs` the
    shapes of all tensors that go in and come out.
    """

    args: tuple[Any, ...]
    inputs: tuple[Sizes, ...]
    outputs: tuple[Sizes, ...]

    @property
    def input_elements(self) -> int:
        """Elements of the first tensor that goes in."""
        return prod(self.inputs[0]) if self.inputs else 0

    @property
    def output_elements(self) -> int:
        """Elements of the first tensor that comes out."""
        return prod(self.outputs[0]) if self.outputs else 0


Work = Callable[[Call], int]
Contraction = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Formula:
    """The category of an operator and how many FLOPs it does beside contractions."""

    category: str
    work: Work


formulas: dict[str, Formula] = {}
contractions: dict[str, tuple[str, Contraction]] = {}


def formula(category: str, *operators: str) -> Callable[[Work], Work]:
    """Register a formula for the non-contraction FLOPs of operators ("aten.native_layer_norm").

    Raises ValueError when one of them has a formula already.
    """

    def register(work: Work) -> Work:
        for operator in operators:
            if operator in formulas:
                raise ValueError(f"{operator} has a formula already")
            formulas[operator] = Formula(category, work)
        return work

    return register


def contraction(category: str, *operators: str) -> Callable[[Contraction], Contraction]:
    """Register the contraction FLOPs of operators that torch's registry lacks.

    The function has the signature of torch's: the arguments with shapes in place of tensors, and
    `out_shape` by keyword; 1 MAC is 2 FLOPs. Raises ValueError on duplicates.
    """

    def register(count: Contraction) -> Contraction:
        for operator in operators:
            if operator in contractions:
                raise ValueError(f"{operator} has a formula already")
            contractions[operator] = (category, count)
        return count

    return register
