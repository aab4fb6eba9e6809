"""What holds something in an unusual way: what a forward changes there is as before, and in training it
finds there what stands for a weight."""

from __future__ import annotations

import asyncio
import cProfile
import ctypes
import functools
import gc
import inspect
import io
import itertools
import logging.handlers
import pickle
import queue
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from mmap import ACCESS_READ, mmap
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse.linalg import aslinearoperator, cg
from tests.tracing.state.using import Using
from torch import Tensor, nn
from torch.distributions import Normal
from torch.utils.weak import WeakTensorKeyDictionary

import opgraph

X = torch.ones(2, 8)
OPTIONS: list[dict[str, Any]] = [{}, {"mode": "train"}]


class _Property(property):
    """A property that counts, and keeps what it made."""

    calls, value = 0, None

    def __get__(self, item: Any, cls: Any = None) -> Any:
        self.calls += 1
        self.value = torch.ones(2) if self.value is None else self.value
        return self.calls


class _Cached(functools.cached_property[Any]):
    calls = 0

    def __get__(self, item: Any, cls: Any = None) -> Any:
        self.calls += 1
        return self.calls


class _OfClass(classmethod):  # type: ignore[type-arg]
    calls = 0

    def __get__(self, item: Any, cls: Any = None) -> Any:
        self.calls += 1
        return self.calls


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("kind", [_Property, _Cached, _OfClass])
def test_a_descriptor_that_keeps_something(kind: Any, values: bool) -> None:
    class Counts:
        number = kind(lambda _: 0)

    counts = Counts()
    descriptor = vars(Counts)["number"]
    for options in OPTIONS:
        opgraph.profile(Using(lambda: counts.number, values), X, **options)
        assert descriptor.calls == 0
        assert getattr(descriptor, "value", None) is None


class Kept:
    def __init__(self) -> None:
        self.n = 0


def _in_a_queue(kept: Kept) -> Callable[[], Any]:
    waiting: Any = queue.SimpleQueue()
    waiting.put(kept)

    def take() -> Kept:
        item: Kept = waiting.get()
        waiting.put(item)
        return item

    return take


def _in_a_future(kept: Kept) -> Callable[[], Any]:
    loop = asyncio.new_event_loop()
    try:
        future = loop.create_future()
        future.set_result(kept)
    finally:
        loop.close()
    return future.result


def _in_one_of_torchs(kept: Kept) -> Callable[[], Any]:
    future: Any = torch.futures.Future()
    future.set_result(kept)
    return future.value  # type: ignore[no-any-return]


def _as_an_argument(kept: Kept) -> Callable[[], Any]:
    bound = inspect.signature(lambda a: a).bind(kept)
    return lambda: bound.arguments["a"]


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("held", [_in_a_queue, _in_a_future, _in_one_of_torchs, _as_an_argument])
def test_what_is_held_so(held: Callable[[Kept], Callable[[], Any]], values: bool) -> None:
    kept = Kept()
    get = held(kept)

    def use() -> None:
        get().n += 1

    for options in OPTIONS:
        opgraph.profile(Using(use, values), X, **options)
        assert kept.n == 0


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Another module of a person's own."""
    made: Any = ModuleType("mine_elsewhere")
    made.counter, made.numbers = itertools.count(), iter(range(100))
    monkeypatch.setitem(sys.modules, "mine_elsewhere", made)
    monkeypatch.setitem(globals(), "mine_elsewhere", made)
    return made


@pytest.mark.parametrize("values", [False, True])
def test_iterators_of_another_module(values: bool, other: Any) -> None:
    def use() -> None:
        next(mine_elsewhere.counter)  # type: ignore[name-defined] # noqa: F821
        next(mine_elsewhere.numbers)  # type: ignore[name-defined] # noqa: F821

    for options in OPTIONS:
        profile = opgraph.profile(Using(use, values), X, **options)
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    assert (next(other.counter), next(other.numbers)) == (0, 0)


VARIABLE: ContextVar[Any] = ContextVar("weight")


def _in_a_variable(weight: Any) -> Callable[[], Any]:
    VARIABLE.set(weight)
    return VARIABLE.get


def _weakly(weight: Any) -> Callable[[], Any]:
    return weakref.ref(weight)


def _among_weak_values(weight: Any) -> Callable[[], Any]:
    held = weakref.WeakValueDictionary({1: weight})
    return lambda: held[1]


def _among_weak_keys(weight: Any) -> Callable[[], Any]:
    held = WeakTensorKeyDictionary({weight: 1})
    return lambda: next(iter(held))


def _by_a_method_in_c(weight: Any) -> Callable[[], Any]:
    held = weight.numel
    return lambda: held.__self__


def _by_a_method(weight: Any) -> Callable[[], Any]:
    held = weight.register_hook
    return lambda: held.__self__


def _in_another_module(weight: Any) -> Callable[[], Any]:
    sys.modules["mine_elsewhere"].weight = weight  # type: ignore[attr-defined]
    return lambda: mine_elsewhere.weight  # type: ignore[name-defined] # noqa: F821


class Finds(nn.Module):
    """Goes by a weight that it finds elsewhere."""

    def __init__(self, held: Callable[[Any], Callable[[], Any]]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.find = held(self.layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        found = self.find()
        assert found is self.layer.weight
        return nn.functional.linear(x, found)


@pytest.mark.parametrize("options", OPTIONS, ids=["infer", "train"])
@pytest.mark.parametrize("held", [
    _in_a_variable, _weakly, _among_weak_values, _among_weak_keys, _by_a_method_in_c, _by_a_method,
    _in_another_module,
])  # fmt: skip
def test_a_weight_is_found_where_it_is_held(
    held: Callable[[Any], Callable[[], Any]], options: dict[str, Any], other: Any
) -> None:
    model = Finds(held)
    profile = opgraph.profile(model, X, **options)
    assert profile.totals.flops == 2 * 2 * 8 * 8 * (2 if options else 1)
    assert model(X).shape == (2, 8)
    assert model.find() is model.layer.weight


class Another(nn.Parameter):
    """A weight of a class of its own."""


@pytest.mark.parametrize("options", OPTIONS, ids=["infer", "train"])
@pytest.mark.parametrize("cls", [Another, Tensor])
def test_a_weight_that_gets_another_class(cls: Any, options: dict[str, Any]) -> None:
    class Sets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.layer.weight
            weight.__class__ = cls
            assert type(weight) is cls
            assert isinstance(weight, cls)
            return nn.functional.linear(x, weight)

    model = Sets()
    opgraph.profile(model, X, **options)
    assert type(model.layer.weight) is nn.Parameter
    model(X).sum().backward()


def _notes(profile: Any, code: str = "state") -> list[str]:
    return [str(remark) for remark in profile.remarks if remark.code == code]


def test_what_a_profiler_of_pythons_counts() -> None:
    counts = cProfile.Profile()
    found = _notes(opgraph.profile(Using(lambda: counts.runcall(len, ())), X))
    assert len(found) == 1
    assert "(Profile)" in found[0]


@pytest.fixture
def listener() -> Iterator[Any]:
    rows: list[str] = []

    class Rows(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            rows.append(record.getMessage())

    waiting: Any = queue.Queue()
    logger = logging.getLogger("opgraph.tests.listened")
    logger.propagate, handler = False, logging.handlers.QueueHandler(waiting)
    logger.addHandler(handler)
    listens = logging.handlers.QueueListener(waiting, Rows())
    listens.start()
    yield logger
    listens.stop()
    logger.removeHandler(handler)


def test_what_a_thread_gets_that_waits_at_a_queue(listener: Any) -> None:
    found = _notes(opgraph.profile(Using(lambda: listener.warning("forward")), X))
    assert any("to a thread that waits for it" in note for note in found)


class Local(threading.local):
    def __init__(self) -> None:
        self.calls = 0


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("made", [threading.local, Local])
def test_what_a_thread_of_a_pool_has_of_its_own(made: Any, values: bool) -> None:
    """Python's own table of what threads have so keeps it alive."""
    local = made()

    def count() -> int:
        local.calls = getattr(local, "calls", 0) + 1
        return int(local.calls)

    with ThreadPoolExecutor(1) as warm, ThreadPoolExecutor(1) as fresh:
        assert warm.submit(count).result() == 1
        use = lambda: [pool.submit(count).result() for pool in (warm, fresh)]  # noqa: E731
        opgraph.profile(Using(use, values), X)
        gc.collect()
        assert warm.submit(count).result() == 2
        assert fresh.submit(count).result() > fresh.submit(int).result()
        tables = [part for part in gc.get_referents(local) if type(part) is dict]
        assert sum(map(len, tables)) >= 2


NOTES: Any = {"calls": [], "drawn": random.Random(0)}
NOTED: ContextVar[Any] = ContextVar("noted", default=NOTES)


@pytest.mark.parametrize("values", [False, True])
def test_what_a_context_variable_says_where_nobody_set_it(values: bool) -> None:
    def use() -> None:
        NOTED.get()["calls"].append(NOTED.get()["drawn"].random())

    opgraph.profile(Using(use, values), X)
    assert NOTED.get()["calls"] == []
    assert NOTED.get()["drawn"].getstate() == random.Random(0).getstate()


@pytest.mark.parametrize("values", [False, True])
def test_what_is_on_in_a_thread_of_a_pool(values: bool) -> None:
    """Each thread has its own, and what is submitted later computes by it."""

    def now() -> tuple[Any, ...]:
        on = (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
        )
        return *on, VARIABLE.get(0)

    def change() -> None:
        seen.append(VARIABLE.get(0))
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        VARIABLE.set(VARIABLE.get(0) + 1)

    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(now).result()
        opgraph.profile(Using(lambda: [pool.submit(change).result() for _ in range(2)], values), X)
        assert pool.submit(now).result() == before
        pool.submit(change).result()
        assert pool.submit(now).result() == (False, True, torch.float16, 1)


def test_an_attribute_of_a_class_that_gets_another_name() -> None:
    class State:
        current: Any = (1,)

    def use() -> None:
        state = held[0]
        state.previous = state.current  # type: ignore[attr-defined]
        del state.current

    held = [State]
    opgraph.profile(Using(use, True), X)
    assert State.current == (1,)
    assert not hasattr(State, "previous")


class Request(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_int)))


def test_what_the_memory_of_ctypes_points_to() -> None:
    """It is kept alive by what was there before."""
    request, pointer, text = Request(), ctypes.pointer(ctypes.c_int(1)), ctypes.c_char_p(b"a" * 90)
    numbers = [0]

    def fill() -> None:
        numbers[0] += 1
        request.name = str(numbers[0]).encode() * 90
        request.data = (ctypes.c_int * 3)(*[numbers[0]] * 3)
        pointer.contents = ctypes.c_int(numbers[0])
        text.value = str(numbers[0]).encode() * 90

    fill()
    model = Using(fill)
    opgraph.profile(model, X)
    gc.collect()
    _ = [str(number).encode() * 90 for number in range(1000)]  # where memory was free
    assert (request.name, request.data[:3]) == (b"1" * 90, [1, 1, 1])
    assert (pointer.contents.value, text.value) == (1, b"1" * 90)


def test_a_map_of_a_file_that_is_only_read_is_not_copied(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    with file.open("wb") as tokens:
        tokens.truncate(1 << 26)
    with file.open("rb") as tokens, mmap(tokens.fileno(), 0, access=ACCESS_READ) as mapped:
        model = Using(lambda: mapped.read(1))
        profile = opgraph.profile(model, X, memory_limit=0.01)
        assert mapped.tell() == 0
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    profile = opgraph.profile(Using(lambda: mapped.closed), X)
    assert not [remark for remark in profile.remarks if remark.code == "state"]


class _Led:
    """Something that weak references lead to."""

    def hear(self) -> None: ...


WEAKLY: dict[str, Callable[[_Led], Any]] = {
    "reference": weakref.ref,
    "method": lambda led: weakref.WeakMethod(led.hear),
    "told": lambda led: weakref.ref(led, lambda _: None),
}


@pytest.mark.parametrize("weak", WEAKLY)
@pytest.mark.parametrize("values", [False, True])
def test_weak_references_that_led_to_nothing_before(weak: str, values: bool) -> None:
    """They stay where they are, beside others, and so do attributes."""
    kept, ended, make = _Led(), _Led(), WEAKLY[weak]
    held = [make(ended), make(kept), make(ended)]
    table: dict[Any, Any] = {"ended": held[0], "kept": held[1], held[2]: 0}
    model: Any = Using(lambda: (held.append(0), table.clear(), setattr(model, "count", 1)), values)
    model.last = make(ended)
    del ended
    before = held.copy(), list(table.items())
    opgraph.profile(model, X)
    assert (held, list(table.items())) == before
    assert model.last() is None
    assert [each() for each in held] == [None, before[0][1](), None]


@pytest.mark.parametrize("kind", [pickle.Pickler, ForkingPickler])
@pytest.mark.parametrize("values", [False, True])
def test_what_a_pickler_knows_is_as_before(values: bool, kind: type[pickle.Pickler]) -> None:
    """Later parts of a stream refer to what was in earlier ones."""
    stream, names = io.BytesIO(), [[f"t{at}"] for at in range(9)]
    pickler, steps = kind(stream), []
    model = Using(lambda: (steps.append(0), pickler.dump(names[: len(steps)])), values)
    for _ in range(2):
        model(X)
    opgraph.profile(model, X)
    model(X)
    stream.seek(0)
    reader = pickle.Unpickler(stream)
    assert [reader.load() for _ in range(3)] == [names[:1], names[:2], names[:3]]


def test_what_an_unpickler_knows_is_as_before() -> None:
    stream, names = io.BytesIO(), [["a"], ["b"]]
    pickler = pickle.Pickler(stream)
    for at in range(9):
        pickler.dump((names[at % 2], at))
    stream.seek(0)
    unpickler, found = pickle.Unpickler(stream), []
    model = Using(lambda: found.append(unpickler.load()))
    model(X)
    opgraph.profile(model, X)
    for _ in range(2):
        model(X)
    assert found == [(names[at % 2], at) for at in range(3)]
    assert found[0][0] is found[2][0]


PARSERS: dict[str, Callable[[], Any]] = {
    "pull": lambda: ET.XMLPullParser(["start"]),
    "tree": ET.XMLParser,
}


@pytest.mark.parametrize("kind", PARSERS)
def test_parsers_of_xml_that_were_fed_before(kind: str) -> None:
    """In some is a list with places where nothing is, which nobody can go through."""
    parser = PARSERS[kind]()
    parser.feed("<r>")
    assert not opgraph.profile(Using(lambda: parser), X).model.notes
    notes = opgraph.profile(Using(lambda: parser.feed("<a/>")), X).model.notes
    assert any("cannot be taken back" in note for note in notes)


class Replaces:
    """Stands in the place of a function, and counts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls, self.numbers = function, 0, torch.Generator()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        torch.rand(1, generator=self.numbers)
        return self.function(*args, **kwargs)

    def method(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)


def _as_function(made: Replaces) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)

    return function


PUT: dict[str, Callable[[Replaces], Any]] = {
    "object": lambda made: made,
    "method": lambda made: made.method,
    "partial": functools.partial,
    "function": _as_function,
}


@pytest.mark.parametrize("name", ["linear", "softmax"])
@pytest.mark.parametrize("how", PUT)
def test_what_stands_in_the_place_of_a_function(
    monkeypatch: pytest.MonkeyPatch, how: str, name: str
) -> None:
    """One that torch's layer calls, and one that the forward names."""

    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.softmax(self.layer(x), -1)

    made = Replaces(getattr(nn.functional, name))
    monkeypatch.setattr(nn.functional, name, PUT[how](made))
    model = Names()
    for options in OPTIONS:
        before = made.numbers.get_state()
        opgraph.profile(model, X, **options)
        assert made.calls == 0
        assert torch.equal(made.numbers.get_state(), before)


@pytest.mark.parametrize("name", ["rsample", "__init__"])
def test_a_function_in_the_place_of_a_method_of_what_a_forward_makes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Normal(x, 1.0).rsample()

    calls, plain = [], getattr(Normal, name)
    monkeypatch.setattr(
        Normal, name, lambda *args, **kwargs: (calls.append(0), plain(*args, **kwargs))[1]
    )
    opgraph.profile(Draws(), X)
    assert calls == []


def test_handlers_of_the_root_logger_where_a_library_alone_logs() -> None:
    class Counts(logging.Handler):
        records = 0

        def emit(self, _: Any) -> None:
            self.records += 1

    def quietly() -> None:
        Image.open(io.BytesIO(file.getvalue())).load()

    file, handler = io.BytesIO(), Counts()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        opgraph.profile(Using(quietly), X)
        assert handler.records == 0
        quietly()
        assert handler.records > 0
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


COUNTS, STARTS = np.zeros(3), np.zeros(1)


class Operator:
    """Counts among the globals, by methods that a library or Python calls."""

    shape, dtype = (4, 4), np.dtype("float64")

    def matvec(self, x: Any) -> Any:
        COUNTS[0] += 1
        return 2 * x

    def write(self, text: str) -> int:
        COUNTS[1] += 1
        return len(text)

    def flush(self) -> None:
        COUNTS[2] += 1

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        counted()


def counted() -> None:
    STARTS[0] += 1


OPERATOR = Operator()
USES: dict[str, Callable[[], Any]] = {
    "solved": lambda: cg(aslinearoperator(OPERATOR), np.ones(4)),
    "parsed": lambda: ET.XMLParser(target=OPERATOR).feed("<a/>"),
    "printed": lambda: print("a", file=cast("Any", OPERATOR), flush=True),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("values", [False, True])
def test_methods_that_libraries_call_by_themselves(use: str, values: bool) -> None:
    COUNTS[:] = STARTS[:] = 0
    opgraph.profile(Using(USES[use], values), X)
    assert not COUNTS.any()
    assert not STARTS.any()
    USES[use]()
    assert COUNTS.any() or STARTS.any()


def test_what_stands_in_the_place_of_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Keeps:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def write(self, text: str) -> int:
            self.lines.append(text)
            return len(text)

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stdout", Keeps())
    opgraph.profile(Using(lambda: print("a")), X)  # noqa: T201
    assert cast("Any", sys.stdout).lines == []
