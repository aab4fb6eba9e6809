"""The registry of cost formulas: what a kernel computes, by ATen operator.

Contractions (matrix products, convolutions, attention) come from torch's own registry first, so that a
custom operator's `torch.utils.flop_counter.register_flop_formula` works here too; those it lacks are
opgraph's, registered in the same way but kept apart, so that torch's own counter is not changed. All other
work is counted by `work` formulas. An operator is named without its overload: "aten.addmm".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
Traffic = Callable[[Sequence[int], int, Call], tuple[int, int]]
"""From the bytes of each tensor argument (in order), of the results, and the call: bytes read, written."""

Lesser = Callable[[Sequence[Any], Sequence[Any], int], Any]
"""From the shapes that go in and come out, and how many bytes are read beyond those that are written: which
of two the bytes go by, where they go by the lesser."""


@dataclass(frozen=True, slots=True)
class Formula:
    """The category of an operator, how many FLOPs it does beside contractions, and where that is from."""

    category: str
    work: Work
    source: str


@dataclass(frozen=True, slots=True)
class Product:
    """The category of an operator and the FLOPs of its contractions; `raw` if these are counted from
    tensors and not from shapes."""

    category: str
    count: Contraction
    raw: bool


formulas: dict[str, Formula] = {}
contractions: dict[str, Product] = {}
traffic: dict[str, Traffic] = {}
lesser: dict[Traffic, Lesser] = {}


def formula(category: str, *operators: str) -> Callable[[Work], Work]:
    """Register a formula for the non-contraction FLOPs of operators ("aten.native_layer_norm").

    Its docstring has a line `Source:` with the literature, the file or the derivation it is from.
    Raises ValueError when one of the operators has a formula already.
    """

    def register(work: Work) -> Work:
        _add(operators, Formula(category, work, source(work)))
        return work

    return register


def each(category: str, elements: Work, source: str, table: Mapping[str, str]) -> None:
    """Register operators that do the same few operations for each of some elements.

    The table goes from a list of operations ("difference, square, sum"), whose length is the number of
    FLOPs an element, to the names of operators; those without a namespace are ATen's. Choosing between
    values, moving them and casting them are no operations: "" is 0 FLOPs. Raises ValueError on duplicates.
    """
    for operations, names in table.items():
        flops = operations.count(",") + 1 if operations else 0
        found = Formula(category, _times(flops, elements), f"{source}: {operations or 'none'}")
        _add([name if "." in name else f"aten.{name}" for name in names.split()], found)


def contraction(
    category: str, *operators: str, raw: bool = False
) -> Callable[[Contraction], Contraction]:
    """Register the contraction FLOPs of operators that torch's registry lacks.

    The function has the signature of torch's: the arguments with shapes in place of tensors, and
    `out_shape` by keyword; with `raw`, tensors and `out_val`. 1 MAC is 2 FLOPs. Its docstring has a line
    `Source:`. Raises ValueError on duplicates.
    """

    def register(count: Contraction) -> Contraction:
        for operator in operators:
            if operator in contractions:
                raise ValueError(f"{operator} has a formula already")
            contractions[operator] = Product(category, count, raw)
        return count

    return register


def moves(rule: Traffic, names: str, by: Lesser | None = None) -> None:
    """Register which bytes operators touch, where that is not all that goes in and comes out; those without
    a namespace are ATen's. Where the rule takes the lesser of two, `by` says which that is.

    Raises ValueError on duplicates.
    """
    if by is not None:
        lesser[rule] = by
    for name in names.split():
        full = name if "." in name else f"aten.{name}"
        if full in traffic:
            raise ValueError(f"{full} has a rule already")
        traffic[full] = rule


def regime(operator: str, inputs: Sequence[Any], outputs: Sequence[Any], more: int) -> Any:
    """Which of two the bytes of an operator go by with these shapes, where it reads so many `more` than it
    writes: between calls of one regime they grow as the shapes do. None where its rule takes the lesser of
    nothing."""
    rule = traffic.get(operator)
    by = None if rule is None else lesser.get(rule)
    known = all(isinstance(size, int) for shape in (*inputs, *outputs) for size in shape)
    return by(inputs, outputs, more) if by is not None and known and inputs and outputs else None


def products(category: str, source: str, table: Mapping[str, str]) -> None:
    """Register operators that are one matrix product: 2 FLOPs for each combination of its sizes.

    The table goes from the sizes of the first arguments by letter ("mk,kn": 2 * m * k * n) to the names of
    operators. "..." are leading sizes, "-" is a size that does not count and "_" an argument that does not;
    sizes behind "->" are those of the result. Raises ValueError on duplicates.
    """
    for sizes, names in table.items():
        contraction(category, *names.split())(_combinations(sizes, source))


def _combinations(sizes: str, source: str) -> Contraction:
    given, _, result = sizes.partition("->")

    def count(*args: Any, out_shape: Any, **kwargs: Any) -> int:
        found: dict[str, int] = {}
        shapes = [
            *zip(given.split(","), args, strict=False),
            *([(result, out_shape)] * bool(result)),
        ]
        for letters, shape in shapes:
            if letters != "_":
                names = letters.removeprefix("...")
                inner = len(shape) - len(names)
                found |= {"...": prod(shape[:inner])} if letters != names else {}
                found |= zip(names, shape[inner:], strict=True)
        return 2 * prod(n for name, n in found.items() if name != "-")

    count.__doc__ = f"{sizes}. Source: {source}"
    return count


def source(function: Callable[..., Any]) -> str:
    """What the docstring of a formula says after "Source:"; empty where it does not."""
    return " ".join((function.__doc__ or "").partition("Source:")[2].split())


def first_input(call: Call) -> int:
    """Elements of the first tensor that goes in."""
    return call.input_elements


def first_output(call: Call) -> int:
    """Elements of the first tensor that comes out, or of the first that goes in where none does."""
    return call.output_elements or call.input_elements


def _times(flops: int, elements: Work) -> Work:
    return lambda call: flops * elements(call)


def _add(operators: Iterable[str], found: Formula) -> None:
    for operator in operators:
        if operator in formulas:
            raise ValueError(f"{operator} has a formula already")
        formulas[operator] = found
