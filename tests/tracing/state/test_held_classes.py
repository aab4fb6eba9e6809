"""Classes and modules of libraries that a model has in hand, and no code names: what they keep for all
their objects is as before."""

from __future__ import annotations

import gc
import importlib
import pydoc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
import sympy
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn
from transformers.utils.deprecation import deprecate_kwarg

import opgraph

X = torch.ones(2, 8)
TABLE = {"symbol": sympy.Dummy}
KIND = "Dummy"


class Holds:
    of_class: ClassVar[Any] = sympy.Dummy

    def __init__(self) -> None:
        self.cls, self.made, self.library = sympy.Dummy, partial(sympy.Dummy, "a"), sympy
        self.kind, self.path = "Dummy", "sympy.core.symbol.Dummy"


HELD = Holds()


def _closed_over(cls: Any) -> Callable[[], Any]:
    return lambda: cls("a")


def _given(cls: Any = sympy.Dummy) -> Any:
    return cls("a")


MADE: dict[str, Callable[[], Any]] = {
    "in a table": lambda: TABLE["symbol"]("a"),
    "in an attribute": lambda: HELD.cls("a"),
    "of a class": lambda: HELD.of_class("a"),
    "partial": lambda: HELD.made(),  # noqa: PLW0108  (found as it is called)
    "in its module": lambda: HELD.library.Dummy("a"),
    "closed over": _closed_over(sympy.Dummy),
    "as a default": _given,
    "by a text": lambda: getattr(sympy, HELD.kind)("a"),
    "by a global text": lambda: getattr(sympy, KIND)("a"),
    "where a text says": lambda: pydoc.locate(HELD.path)("a"),  # type: ignore[operator]
    "where code says": lambda: pydoc.locate("sympy.core.symbol.Dummy")("a"),  # type: ignore[operator]
    "of an imported module": lambda: importlib.import_module("sympy").Dummy("a"),
}


@pytest.mark.parametrize("values", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize("how", MADE)
def test_a_class_that_is_held(how: str, values: bool) -> None:
    before = dict(vars(sympy.Dummy))
    for options in ({}, {"mode": "train"}):
        profile = opgraph.profile(Using(MADE[how], values), X, **options)  # type: ignore[arg-type]
        assert dict(vars(sympy.Dummy)) == before
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    MADE[how]()
    assert dict(vars(sympy.Dummy)) != before


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def _around_its_forward() -> tuple[nn.Module, nn.Module]:
    model: Any = Wrapped()
    model.forward = deprecate_kwarg("none", version="99.0")(model.forward)
    return model, model


def _around_a_forward_that_it_calls() -> tuple[nn.Module, nn.Module]:
    held = Wrapped()
    step = deprecate_kwarg("none", version="99.0")(held.forward)
    return Using(lambda: step(X)), held


@pytest.mark.parametrize("made", [_around_its_forward, _around_a_forward_that_it_calls])
def test_a_model_that_a_librarys_function_is_around_ends(
    made: Callable[[], tuple[nn.Module, nn.Module]],
) -> None:
    model, held = made()
    opgraph.profile(model, X)
    ended = weakref.ref(held)
    del model, held
    gc.collect()
    assert ended() is None
