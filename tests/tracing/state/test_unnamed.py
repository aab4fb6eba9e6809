"""Code that runs in a forward though no code of the model names it: methods that libraries call, functions
that C holds, what waits in generators, what is made from texts. What it changes is as before."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import enum
import json
import logging
import string
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from queue import Queue
from typing import Any

import numpy as np
import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn
from torch.distributions import constraints, transforms
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, RandomSampler

import opgraph

X = torch.ones(2, 8)
NOTED: list[Any] = []
KEPT: dict[str, list[Any]] = {"names": []}
log = logging.getLogger("opgraph_tested.unnamed")


class Collects(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        NOTED.append(record.args)
        nn.functional.relu = torch.tanh


class Filters(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        KEPT["names"].append(record.name)
        return True


class Runs(threading.Thread):
    def run(self) -> None:
        NOTED.append("ran")


class Encodes(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        NOTED.append("encoded")
        return str(o)


class Puts(Queue[Any]):
    def _put(self, item: Any) -> None:
        NOTED.append(item)
        super()._put(item)


class Visits(ast.NodeVisitor):
    def visit_Name(self, node: ast.Name) -> None:
        NOTED.append(node.id)


class Parses(HTMLParser):
    def handle_starttag(self, tag: str, attrs: Any) -> None:
        NOTED.append(tag)


class Fills(string.Formatter):
    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        NOTED.append(key)
        return super().get_value(key, args, kwargs)


class Doubles(transforms.Transform):
    domain = codomain = constraints.real
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        NOTED.append("called")
        return 2 * x


class Colour(enum.Enum):
    RED = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        NOTED.append(value)
        return cls.RED


class Resets(nn.Linear):
    def reset_parameters(self) -> None:
        NOTED.append("reset")
        super().reset_parameters()

    def train(self, mode: bool = True) -> Any:
        NOTED.append("train")
        return super().train(mode)

    def get_extra_state(self) -> Any:
        NOTED.append("state")
        return 1

    def set_extra_state(self, state: Any) -> None:
        NOTED.append(state)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2

    def right_inverse(self, x: Tensor) -> Tensor:
        NOTED.append("inverse")
        return x * 2


@dataclasses.dataclass
class Carry:
    number: int = 0

    def __post_init__(self) -> None:
        NOTED.append("made")


class Node:
    def __init__(self) -> None:
        NOTED.append("made")

    def next(self) -> Any:
        return type(self)()

    @classmethod
    def another(cls) -> Any:
        return cls()


def notes(*given: Any) -> Any:
    NOTED.append("noted")
    return given[0]


RESETS, ANOTHER = Resets(4, 4), Resets(4, 4)
PARAMETRIZED = nn.Linear(8, 8)
parametrize.register_parametrization(PARAMETRIZED, "weight", Halves())
CARRY, NODE, DOUBLES, PUTS, PARSES = Carry(), Node(), Doubles(), Puts(), Parses()
OVER = np.frompyfunc(notes, 1, 1)
BOXED = ctypes.py_object(NOTED)


def _parametrizes() -> None:
    with torch.no_grad():
        PARAMETRIZED.weight = torch.ones(4, 4)  # type: ignore[assignment]


DONE: dict[str, Callable[[], Any]] = {
    "handler of logs": lambda: log.warning("%d", 1),
    "thread": lambda: (t := Runs(), t.start(), t.join()),
    "encoder": lambda: json.dumps(1j, cls=Encodes),
    "queue": lambda: PUTS.put("x"),
    "visitor": lambda: Visits().visit(ast.parse("a")),
    "parser": lambda: PARSES.feed("<p>"),
    "formatter": lambda: Fills().format("{0}", 1),
    "transform": lambda: DOUBLES(X),
    "enumeration": lambda: Colour(5),
    "module made": lambda: type(RESETS)(4, 4),
    "module set": lambda: (RESETS.eval(), RESETS.train()),
    "state of a module": lambda: ANOTHER.load_state_dict(RESETS.state_dict()),
    "parametrization": _parametrizes,
    "replaced": lambda: dataclasses.replace(CARRY, number=1),
    "of its class": NODE.next,
    "of a class": Node.another,
    "function of arrays": lambda: OVER(np.ones(2)),
    "box": lambda: BOXED.value.append(1),
}


@pytest.fixture
def logged() -> Iterator[None]:
    handler, filters = Collects(), Filters()
    log.addHandler(handler)
    log.addFilter(filters)
    yield
    log.removeHandler(handler)
    log.removeFilter(filters)


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("what", DONE)
def test_code_that_is_called_by_others(what: str, values: bool) -> None:
    NOTED.clear()
    KEPT["names"].clear()
    relu, weight = nn.functional.relu, PARAMETRIZED.weight.clone()
    opgraph.profile(Using(DONE[what], values), X)
    assert NOTED == []
    assert KEPT["names"] == []
    assert nn.functional.relu is relu
    assert torch.equal(PARAMETRIZED.weight, weight)
    DONE[what]()
    nn.functional.relu = relu
    assert NOTED


class Slower(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self) -> list[float | Tensor]:
        NOTED.append(1)
        return [base / len(NOTED) for base in self.base_lrs]


class Steps(nn.Module):
    """Its forward is a step of training."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1)
        NOTED.clear()
        self.schedule = Slower(self.optimizer)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = self.layer(x).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
        return loss.detach()


def test_steps_of_a_schedule_of_ones_own() -> None:
    model = Steps()
    expected = [model(X).item() for _ in range(3)]
    model = Steps()
    first = model(X).item()
    opgraph.profile(model, X)
    assert [first, model(X).item(), model(X).item()] == expected


def round_and_round(items: list[int]) -> Iterator[int]:
    while True:
        yield from items


def each(items: list[Any]) -> Iterator[Any]:
    for item in items:  # noqa: UP028
        yield item


def counting() -> Iterator[int]:
    while True:
        NOTED.append(1)
        yield 1


WAITING: dict[str, Callable[[], Any]] = {
    "yield from": lambda: round_and_round([1, 2, 3]),
    "same again": lambda: each([0.1] * 4),
    "functions": lambda: each([torch.relu, torch.relu, torch.tanh]),
    "sampler": lambda: iter(RandomSampler(range(9))),  # type: ignore[arg-type]
    "loader": lambda: iter(DataLoader(range(9), batch_size=None, shuffle=True)),  # type: ignore[arg-type]
    "body": counting,
}


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("kind", WAITING)
def test_a_generator_that_has_begun_is_said_to_be_further(kind: str, values: bool) -> None:
    """What its body changes elsewhere is as before."""
    held = WAITING[kind]()
    next(held)
    model = Using(lambda: next(held), values)
    noted = len(NOTED)
    said = opgraph.profile(model, X).model.notes
    assert len(said) == (kind != "body")  # it is at the same place
    assert all("took items from an iterator" in each for each in said)
    assert len(NOTED) == noted
    other = WAITING[kind]()
    next(other)
    assert not opgraph.profile(Using(lambda: id(other)), X).model.notes


class Settings:
    """It is read when it is first asked for, and counts."""

    def __init__(self) -> None:
        self.loads, self.read, self.missed = 0, None, []

    @property
    def table(self) -> Any:
        self.loads += 1
        self.read = self.read or {}
        return self.read

    @table.setter
    def table(self, value: Any) -> None:
        self.read = value

    def __getattr__(self, name: str) -> Any:
        if name == "__setstate__":
            raise AttributeError(name)
        vars(self)["missed"].append(name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


SETTINGS = Settings()


@pytest.mark.parametrize("sets", [False, True])
def test_code_of_an_attribute_is_not_asked_for_it(sets: bool) -> None:
    def use() -> None:
        if sets:
            SETTINGS.table = {"a": 1}
            SETTINGS.step = 1  # type: ignore[attr-defined]

    SETTINGS.missed.clear()
    opgraph.profile(Using(use), X)
    assert vars(SETTINGS) == {"loads": 0, "read": None, "missed": []}


class Hides:
    """What it shows as its attributes is another's."""

    __slots__ = ("asked", "of")

    def __init__(self, of: Any) -> None:
        self.asked, self.of = 0, of

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        self.asked += 1
        raise RuntimeError("not now")


def test_an_object_is_not_asked_what_it_shows_as_its_attributes() -> None:
    model = Using(lambda: hides.of.append(1))
    hides = model.held = Hides([])  # type: ignore[assignment]
    assert not opgraph.profile(model, X).model.notes
    assert (hides.asked, hides.of) == (0, [])


TEXT = """
def act(x):
    scale[0] *= 2
    return own(x) * scale[0]
"""


@pytest.mark.parametrize("values", [False, True])
def test_a_function_that_is_made_from_text_without_a_module(values: bool) -> None:
    space: dict[str, Any] = {"own": notes, "scale": [1.0]}
    exec(TEXT, space)  # noqa: S102
    NOTED.clear()
    model = Using(lambda: space["act"](X), values)
    model.act = space["act"]
    opgraph.profile(model, X)
    assert (NOTED, space["scale"]) == ([], [1.0])


def test_what_a_proxy_of_an_extension_keeps_and_calls() -> None:
    wrapt = pytest.importorskip("wrapt")

    class Counts(wrapt.ObjectProxy):  # type: ignore[misc]
        def __init__(self, wrapped: Any) -> None:
            super().__init__(wrapped)
            self._self_calls = 0

        def __call__(self, *args: Any) -> Any:
            self._self_calls += 1
            return self.__wrapped__(*args)

    @wrapt.decorator
    def counted(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        NOTED.append(wrapped.__name__)
        return wrapped(*args, **kwargs)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.also = Counts(torch.relu), Counts(notes)

        @counted
        def forward(self, x: Tensor) -> Tensor:
            return self.also(self.act(x) * self.act._self_calls)

    NOTED.clear()
    model = Model()
    assert not opgraph.profile(model, X).model.notes
    assert (NOTED, model.act._self_calls, model.also._self_calls) == ([], 0, 0)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("by", ["backward", "grad"])
@pytest.mark.parametrize("values", [False, True])
def test_a_backward_in_forward_through_a_checkpoint_with_dropout(
    values: bool, by: str, target: str
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def _part(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.layer(x))

        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad():
                y: Any = checkpoint(self._part, x, use_reentrant=False)
                loss = (y * y.sum().item() if values else y).sum()
                if by == "backward":
                    loss.backward()  # type: ignore[no-untyped-call]
                else:
                    torch.autograd.grad(loss, [self.layer.weight])
                return loss

    model = Model()
    profile = opgraph.profile(model, X, target=target)
    assert model.layer.weight.grad is None
    ops = [node.op for node in profile.graph.nodes]
    assert sum("dropout" in op for op in ops) >= 1


class Munch(dict[str, Any]):
    """A dictionary whose entries are attributes, which it shows as those."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return dict(self)


def test_a_dictionary_that_shows_its_entries_as_attributes() -> None:
    held = Munch(a=1, b=Munch(c=[]))

    def use() -> None:
        held["a"] += 1
        held.b.c.append(1)

    assert not opgraph.profile(Using(use), X).model.notes
    assert held == {"a": 1, "b": {"c": []}}


class Loads(nn.Linear):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor

        assert not isinstance(self.weight, FakeTensor)
        return super().state_dict(*args, **kwargs)


def test_methods_that_no_code_calls_do_not_make_a_run_real() -> None:
    profile = opgraph.profile(Loads(8, 8), X)
    assert not any("real tensors" in each.text for each in profile.remarks)
    assert not profile.model.notes


def test_a_module_that_a_forward_puts_into_another_is_gone() -> None:
    def use() -> None:
        nn.functional.mine = json  # type: ignore[attr-defined]

    opgraph.profile(Using(use), X)
    assert not hasattr(nn.functional, "mine")


class NotesTensor(Tensor):
    __slots__ = ("note",)


class NotesWeight(nn.Parameter):
    __slots__ = ("note",)


class NotesArray(np.ndarray[Any, Any]):
    __slots__ = ("note",)


class NotesQueue(Queue[Any]):
    __slots__ = ("note",)


class NotesEvent(threading.Event):
    __slots__ = ("note",)


class Counted(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        (x if self.held is None else self.held).note.append("ran")
        return self.layer(x)


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(2).as_subclass(NotesTensor),
        lambda: NotesWeight(torch.ones(2)),
        lambda: np.ones(2).view(NotesArray),
        NotesQueue,
        NotesEvent,
    ],
    ids=["tensor", "weight", "array", "queue", "event"],
)
@pytest.mark.parametrize("new", [False, True], ids=["in place", "another"])
def test_slots_of_what_has_values_or_threads(made: Callable[[], Any], new: bool) -> None:
    held = made()
    held.note = note = []
    model = Counted(held)
    if new:
        model.register_forward_hook(lambda m, x, y: setattr(m.held, "note", [*m.held.note, 1]))
    profile = opgraph.profile(model, X)
    assert model.held is held
    assert held.note is note == []
    assert not profile.model.notes


@pytest.mark.parametrize("values", [False, True], ids=["fake", "real"])
def test_slots_of_what_is_given(values: bool) -> None:
    x: Any = X.clone().as_subclass(NotesTensor)
    x.note = note = []
    model: nn.Module = Counted(None)
    if values:
        model.register_forward_hook(lambda m, x, y: y * y.sum().item())
    profile = opgraph.profile(model, x)
    assert x.note is note == []
    assert profile.totals.flops == 2 * 2 * 8 * 8


class Weight(nn.Parameter):
    """One that says something of itself."""

    @property
    def scale(self) -> float:
        return 2.0

    def shown(self) -> str:
        return f"{tuple(self.shape)}"


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Weight(torch.ones(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight * self.weight.scale if self.weight.shown() else x


def test_a_weight_whose_class_says_more_of_it_leaves_nothing() -> None:
    profile = opgraph.profile(Scaled(), X)
    assert not profile.model.notes
    assert profile.totals.flops == 2 * 2 * 8 * 8


class Shows(Tensor):
    """Has what somebody gave it behind a property that nobody can set."""

    @property
    def note(self) -> list[str]:
        return self.__dict__["given"]  # type: ignore[no-any-return]


Shows.given = Shows.note  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [False, True], ids=["fake", "real"])
def test_an_input_whose_class_shows_what_it_was_given(values: bool) -> None:
    x: Any = X.clone().as_subclass(Shows)
    vars(x)["given"] = given = []
    model: nn.Module = Counted(None)
    if values:
        model.register_forward_hook(lambda m, x, y: y * y.sum().item())
    assert opgraph.profile(model, x).totals.flops == 2 * 2 * 8 * 8
    assert x.note is given == []


def test_an_attribute_of_a_function_that_is_counted_up() -> None:
    """One of a library's, which is set by the value that it has."""

    def count() -> None:
        nn.functional.silu.calls += 1  # type: ignore[attr-defined]

    nn.functional.silu.calls = 1  # type: ignore[attr-defined]
    try:
        opgraph.profile(Using(count), X)
        assert nn.functional.silu.calls == 1  # type: ignore[attr-defined]
    finally:
        del nn.functional.silu.calls  # type: ignore[attr-defined]


def test_an_attribute_of_what_a_variable_of_an_enclosing_function_is() -> None:
    library = torch

    def use() -> None:
        library.backends.opt_einsum.strategy = "greedy"  # type: ignore[assignment]
        library.utils.data._utils.MP_STATUS_CHECK_INTERVAL += 1

    before = torch.backends.opt_einsum.strategy, torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL
    opgraph.profile(Using(use), X)
    after = torch.backends.opt_einsum.strategy, torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL
    assert after == before
