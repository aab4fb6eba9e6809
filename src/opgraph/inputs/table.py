"""The table of input rules: the name of a parameter of `forward` → the function that makes its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opgraph.inputs.context import Context

Make = Callable[["Context"], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """How to make an argument, and whether only a parameter without a default gets it."""

    make: Make
    needed: bool = False


RULES: dict[str, Rule] = {}


def rule(*names: str, needed: bool = False) -> Callable[[Make], Make]:
    """Enter a function into the table under these parameter names.

    The function returns None where the argument should be left out. With `needed` it is used only
    where the parameter has no default.
    """

    def enter(make: Make) -> Make:
        for name in names:
            if name in RULES:
                raise ValueError(f"there is already a rule for {name}")
            RULES[name] = Rule(make, needed)
        return make

    return enter
