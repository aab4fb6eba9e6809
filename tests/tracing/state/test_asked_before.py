"""What is asked before a run begins, and what opgraph itself calls for a step, is heard as the run is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

import opgraph

X = torch.ones(2, 8)


def run(model: nn.Module, how: str, *inputs: Any) -> list[str]:
    """What is said of what stays."""
    mode = "train" if "train" in how else "infer"
    if how == "check":
        opgraph.check(model, *inputs or (X,))
        return []
    options: dict[str, Any] = {"optimizer": "sgd"} if mode == "train" else {}
    if how.startswith("measure"):
        remarks = opgraph.measure(model, inputs or X, steps=2, mode=mode, **options).remarks
    else:
        remarks = opgraph.profile(model, inputs or X, mode=mode, **options).remarks
    return [r.text for r in remarks if r.code == "state"]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)

    def add(self) -> None:
        if "count" in self.__dict__.get("_buffers", ()):
            self._buffers["count"].add_(1)


class Setting(Plain):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.add()


class Property(Plain):
    @property
    def training(self) -> Any:
        return self.__dict__.get("_training", True)

    @training.setter
    def training(self, value: bool) -> None:
        self.__dict__["_training"] = value
        self.add()


class Modules(Plain):
    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        self.add()
        return super().named_modules(*args, **kwargs)


class Switched(Plain):
    def train(self, mode: bool = True) -> Any:
        COUNT.add_(1)
        return super().train(mode)


COUNT, ROWS = torch.zeros(()), list[int]()
DRAWS = torch.Generator()


@pytest.fixture(autouse=True)
def _as_they_were() -> Iterator[None]:
    COUNT.set_(torch.zeros(()))
    ROWS.clear()
    DRAWS.manual_seed(1)
    yield
    ROWS.clear()


def note() -> None:
    COUNT.add_(1)
    ROWS.append(1)
    torch.rand((), generator=DRAWS)


HOW = ["infer", "train", "measure", pytest.param("measure-train", marks=pytest.mark.slow)]


@pytest.mark.parametrize("how", [*HOW, pytest.param("check", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Setting, Property, Modules, Switched])
def test_modules_that_note_that_they_are_asked(kind: type[Plain], how: str) -> None:
    model = kind()
    model._buffers["count"] = torch.zeros(())
    version = COUNT._version
    assert run(model, how) == []
    count: Any = model._buffers["count"]
    assert (count.item(), count._version, COUNT.item(), COUNT._version) == (0, 0, 0, version)


class Items(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        note()
        return super().__len__()

    def __iter__(self) -> Any:
        note()
        return super().__iter__()


class Named(dict):  # type: ignore[type-arg]
    def values(self) -> Any:
        note()
        return super().values()

    def items(self) -> Any:
        note()
        return super().items()


class Batch:
    def __init__(self, x: Any) -> None:
        self.x = x


def _apart(batch: Batch) -> tuple[list[Any], None]:
    note()
    return [batch.x], None


class First(Plain):
    def forward(self, batch: Any) -> Any:
        x = batch.x if isinstance(batch, Batch) else list.__getitem__(batch, 0) if isinstance(
            batch, list) else dict.__getitem__(batch, "x")  # fmt: skip
        return self.layer(x)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("make", [lambda: Items([X]), lambda: Named(x=X), lambda: Batch(X)])
def test_arguments_that_note_that_they_are_taken_apart(make: Any, how: str) -> None:
    _pytree.register_pytree_node(Batch, _apart, lambda parts, _: Batch(*parts))
    try:
        then, version = DRAWS.get_state(), COUNT._version
        assert run(First(), how, make()) == []
        assert (COUNT.item(), COUNT._version, ROWS) == (0, version, [])
        assert torch.equal(DRAWS.get_state(), then)
    finally:
        _pytree._deregister_pytree_node(Batch)


@pytest.mark.parametrize("how", ["train", pytest.param("measure-train", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch.optim.SGD, "step"), (torch.optim.SGD, "__init__"),
        (torch.optim.Optimizer, "add_param_group"), (torch.optim.Optimizer, "zero_grad"),
    ],
)  # fmt: skip
def test_what_stands_in_the_place_of_functions_of_optimizers(
    owner: Any, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Callable[..., Any] = vars(owner)[name]
    count, rows, draws = torch.zeros(()), list[int](), torch.Generator()

    def counted(*args: Any, **kwargs: Any) -> Any:
        count.add_(1)
        rows.append(1)
        torch.rand((), generator=draws)
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    then = draws.get_state()
    assert run(Plain(), how) == []
    assert (count.item(), count._version, rows) == (0, 0, [])
    assert torch.equal(draws.get_state(), then)


@torch.compiler.allow_in_graph
def _annealed(x: Tensor) -> Tensor:
    COUNT.add_(1)
    return torch.tanh(x) / (1 + COUNT)


@pytest.mark.parametrize("options", [{"tracer": "dynamo"}, {"inductor": True}])
def test_what_is_counted_while_dynamo_compiles(options: Any) -> None:
    """It has no mode on by which that could be heard."""

    class Anneals(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return _annealed(self.layer(x))

    version = COUNT._version
    with suppress(opgraph.TraceError):  # TorchInductor compiles nothing that writes to a global
        opgraph.profile(Anneals(), X, **options)
    assert (COUNT.item(), COUNT._version) == (0, version)


def test_copies_for_that_take_no_more_than_they_may() -> None:
    limit = 1e-9
    assert opgraph.profile(Plain(), X, tracer="dynamo", memory_limit=limit).totals.flops
    with pytest.raises(opgraph.TraceError, match="--memory-limit"):
        opgraph.profile(Setting(), X, memory_limit=limit)
