"""Python signatures that are made from options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from opgraph.options.fields import NAMES, OPTIONS

F = TypeVar("F", bound=Callable[..., Any])


def named_options(options: Iterable[str] = NAMES) -> Callable[[F], F]:
    """Let help and completion show options by name where a function takes them as `**options`."""

    def name(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = {p.name for p in own}
        named = [
            inspect.Parameter(
                n, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=o.kind.python
            )
            for n in options
            if n not in taken
            for o in (OPTIONS[n],)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return function

    return name
