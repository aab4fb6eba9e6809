"""What is the same to the bit, in the same order, and brought back in an order in which torch takes it;
what a profile does not keep; and what is heard within hooks."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import multiprocessing
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import _deregister_pytree_node, register_pytree_node

import opgraph
from opgraph import TraceError
from opgraph.tracing.state import guard as guarding
from opgraph.tracing.state.guard import guarded
from opgraph.tracing.state.signals import Signals

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Changing(nn.Module):
    """Changes what it was given, and looks at values if it `reads`, so that it runs on real tensors."""

    def __init__(self, held: Any, change: Callable[[Any], Any], *, reads: bool = False) -> None:
        super().__init__()
        self.layer, self.held, self.change, self.reads = nn.Linear(4, 4), held, change, reads

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        self.change(self.held)
        return y * y.sum().item() if self.reads else y


def _home_is_last(_: Any) -> None:
    os.environ["HOME"] = os.environ.pop("HOME")


def _graded(dtype: torch.dtype) -> Tensor:
    leaf = torch.ones(2, dtype=dtype, requires_grad=True)
    leaf.grad = torch.full((2,), 3, dtype=dtype)
    return leaf


def _graded_otherwise(leaf: Any) -> None:
    leaf.grad = None
    leaf.grad_dtype = torch.float32
    leaf.grad = torch.zeros(2)


def _grad_of(made: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    """Takes a gradient off its tensor, and casts or cuts it."""

    def change(leaf: Any) -> None:
        grad, leaf.grad = leaf.grad, None
        grad.data = made(grad.data)

    return change


def _by_channel() -> Tensor:
    scales, zeros = torch.full((3,), 0.5), torch.zeros(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it will be removed
        return torch.quantize_per_channel(torch.eye(3), scales, zeros, 0, torch.qint8)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "the sign of zero": (lambda: Slotted(0.0), lambda o: setattr(o, "value", -0.0), lambda o: o.value),
    "a range that counts alike": (
        lambda: Slotted(range(0, 3, 2)),
        lambda o: setattr(o, "value", range(0, 4, 2)),
        lambda o: o.value,
    ),
    "a slice of zeros": (
        lambda: Slotted(slice(0.0, 1)),
        lambda o: setattr(o, "value", slice(-0.0, 1)),
        lambda o: o.value,
    ),
    "the order of the environment": (lambda: None, _home_is_last, lambda _: list(os.environ)),
    "the debug level of distributed": (
        lambda: None,
        lambda _: dist.set_debug_level(dist.DebugLevel.DETAIL),
        lambda _: dist.get_debug_level(),
    ),
    "a gradient that was cast": (
        lambda: _graded(torch.float32), _grad_of(Tensor.half), lambda leaf: leaf.grad),
    "a gradient of another size": (
        lambda: _graded(torch.float32), _grad_of(lambda t: t[:1]), lambda leaf: leaf.grad),
    "scales of a quantized tensor": (
        _by_channel,
        lambda t: t.q_per_channel_scales().mul_(2),
        lambda t: t.q_per_channel_scales(),
    ),
    "memory on meta": (
        lambda: torch.zeros(2, device="meta"),
        lambda t: t.resize_(7),
        lambda t: (t.shape, t.untyped_storage().nbytes()),
    ),
}  # fmt: skip
if hasattr(Tensor, "grad_dtype"):
    CHANGES["a gradient of another dtype"] = (
        lambda: _graded(torch.bfloat16),
        _graded_otherwise,
        lambda leaf: (leaf.grad, leaf.grad_dtype),
    )


@pytest.mark.parametrize("reads", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_equal_and_not_the_same_or_refused_in_another_order(name: str, reads: bool) -> None:
    make, change, look = CHANGES[name]
    held = make()
    before = repr(look(held))
    profile = opgraph.profile(Changing(held, change, reads=reads), X)
    assert (profile.tracing.tensors == "real") is reads
    assert repr(look(held)) == before
    assert not [note for note in profile.model.notes if note.code == "state"]


class Hooked(nn.Module):
    """Writes by NumPy, in a hook that autograd runs."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.layer, self.run, self.mean = nn.Linear(4, 1), run, torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        y = self.layer(x)
        y.register_hook(self.seen)
        if self.run == "grad":
            (grad,) = torch.autograd.grad(y.sum(), x)
        else:
            y.sum().backward() if self.run == "Tensor.backward" else torch.autograd.backward(
                y.sum()
            )
            grad = x.grad
        return y * grad.sum().item()

    def seen(self, grad: Tensor) -> None:
        array = self.mean.numpy()
        array += 1


@pytest.mark.parametrize("run", ["grad", "backward", "Tensor.backward"])
def test_memory_that_is_handed_out_in_a_hook(run: str) -> None:
    model = Hooked(run)
    profile = opgraph.profile(model, X)
    assert profile.tracing.tensors == "real"
    assert model.mean.tolist() == [0, 0, 0]
    with guarded([model, X]):
        model(X)
        assert model.mean.tolist() == [1, 1, 1]
    assert model.mean.tolist() == [0, 0, 0]


class Logging(nn.Linear):
    def forward(self, x: Tensor, log: Any = None) -> Tensor:
        if log is not None:
            log.value += 1
        return super().forward(x)


def test_what_fx_is_given_as_it_is() -> None:
    log = Slotted(0)
    profile = opgraph.profile(Logging(4, 4), X, tracer="fx", concrete_args={"log": log})
    assert profile.tracing.tracer == "fx"
    assert log.value == 0


def test_all_signals_that_wait_are_handled() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        signals = Signals()
        for number in (signal.SIGINT, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            signals.end()
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


SOURCE = """
import torch
from torch import nn

table = torch.zeros(4)

class Part:
    __slots__ = ("__weakref__", "n")

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.part = nn.Linear(4, 4), Part()
        self.part.n = 0

    def forward(self, x):
        self.part.n += 1
        return self.layer(x) + table

model = Model()
"""


def test_a_profile_keeps_no_class_and_no_globals_of_a_model() -> None:
    space: dict[str, Any] = {"__name__": "mine"}
    exec(SOURCE, space)  # noqa: S102  (as a file that nobody imports)
    kept = [weakref.ref(space[name]) for name in ("table", "Part", "Model", "model")]
    opgraph.profile(space["model"], X)
    del space
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)


class Block(nn.Module):
    """Keeps what it made for the next call, as tables of positions are kept."""

    made: ClassVar[dict[str, Tensor]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if "table" not in self.made:
            self.made["table"] = torch.ones(4, device=x.device)
        y: Tensor = x + self.other(self.one(x) * self.made["table"])
        return y


def test_what_runs_to_cut_a_model_into_stages_is_guarded() -> None:
    model = nn.Sequential(Block(), Block())
    asked = {"mode": "train", "loss": "sum", "pipeline_parallel": 2, "micro_batches": 2}
    assert opgraph.profile(model, torch.ones(4, 4), **asked).graph.failed is None
    assert not Block.made
    model(X)
    assert type(Block.made.pop("table")) is Tensor


class Silent(Tensor):
    """Does not say what autograd knows of it."""

    @property
    def is_leaf(self) -> bool:
        raise ValueError("is_leaf")

    @property
    def grad_fn(self) -> Any:
        raise ValueError("grad_fn")


def _written_views() -> tuple[Tensor, ...]:
    """Of which torch does not say what made them, since one was written to."""
    views = torch.ones(4, requires_grad=True).mul(1).split(2)
    with torch.no_grad():
        views[0].add_(1)
    return views


def _of_inference() -> tuple[Tensor, ...]:
    with torch.inference_mode():
        made = torch.ones(4)
        return made, made[:2]


HELD: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    "views that were written to": _written_views,
    "of inference": _of_inference,
    "of a silent class": lambda: (torch.ones(2).as_subclass(Silent),),
}


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("reads", [False, True])
def test_tensors_that_do_not_say_what_made_them_are_as_before(kind: str, reads: bool) -> None:
    def write(held: tuple[Tensor, ...]) -> None:
        with torch.inference_mode():
            for each in held:
                each.add_(1)

    held = HELD[kind]()
    before = [(t, t.tolist(), t.data_ptr()) for t in held]
    profile = opgraph.profile(Changing(held, write, reads=reads), X)
    assert profile.remarks == () or [r.code for r in profile.remarks] == ["real-tensors"]
    assert [(t, t.tolist(), t.data_ptr()) for t in held] == before


@pytest.mark.parametrize("several", [False, True])
def test_a_view_knows_what_made_it_when_its_base_was_written_to(several: bool) -> None:
    base = torch.ones(4, requires_grad=True)
    views = base.split(2) if several else (base.view(2, 2), base[1:])
    made_by, versions = [v.grad_fn for v in views], [v._version for v in views]

    def write(held: Any) -> None:
        with torch.no_grad():
            held[0].add_(1)

    assert opgraph.profile(Changing([base, views], write), X).remarks == ()
    assert [v.grad_fn for v in views] == made_by
    assert [v._version for v in views] == versions
    torch.cat([v.flatten() for v in views]).sum().backward()
    assert base.grad is not None


class Doubles(nn.Module):
    """Doubles its weights in a profile, before it reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.doubles = nn.Linear(4, 4), False

    def forward(self, x: Tensor) -> Tensor:
        if self.doubles:
            with torch.no_grad():
                self.layer.weight.mul_(2)
        y: Tensor = self.layer(x)
        return y * 2 if y.sum().item() > -1e9 else y


@pytest.mark.parametrize(
    "options", [{"target": "cpu"}, {"warm_up": True}, {"tracer": "hybrid"}], ids=str
)
def test_autocast_around_has_no_weights_of_a_run(options: dict[str, Any]) -> None:
    model = Doubles()
    with torch.autocast("cpu", torch.bfloat16):
        before = model(X)
        torch.clear_autocast_cache()
        model.doubles = True
        profile = opgraph.profile(model, (X,), **options)
        model.doubles = False
        assert torch.equal(model(X), before)
    assert not any("fake tensor" in note for note in profile.model.notes)


class ByName(type):
    """Its classes are one and the same if they have one name, and it counts how often it is asked."""

    asked = 0

    def __eq__(cls, other: object) -> bool:
        ByName.asked += 1
        return type(other) is ByName and cls.__name__ == other.__name__

    def __hash__(cls) -> int:
        ByName.asked += 1
        return hash(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        ByName.asked += 1
        raise AttributeError(name)


class Unhashed(type):
    """Its classes have no hash."""

    def __eq__(cls, other: object) -> bool:
        return cls is other

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("metaclass", [ByName, Unhashed])
@pytest.mark.parametrize("reads", [False, True])
def test_classes_are_told_apart_whatever_their_own_classes_say(
    metaclass: type, reads: bool
) -> None:
    kinds = [
        metaclass("Made", (), {"__slots__": names, "number": 0}) for names in (("x",), ("x", "y"))
    ]
    held: list[Any] = [kind() for kind in kinds]
    for each in held:
        each.x = 0
    held[1].y = 0

    def change(held: list[Any]) -> None:
        for each in held:
            each.x = type(each).number = 1
        held[1].y = 1

    ByName.asked = 0
    profile = opgraph.profile(Changing(held, change, reads=reads), X)
    assert ByName.asked == 0
    assert not [remark for remark in profile.remarks if remark.code == "state"]
    assert [each.x for each in held] == [kind.number for kind in kinds] == [0, 0]
    assert held[1].y == 0


ENDING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "file": (Path(__file__).open, lambda f: f.close(), lambda f: f.read(1)),
    "text in memory": (io.StringIO, lambda f: f.close(), lambda f: f.read(1)),
    "socket": (socket.socket, lambda s: s.close(), lambda s: s.getsockname()),
    "database": (lambda: sqlite3.connect(":memory:"), lambda c: c.close(),
                 lambda c: c.execute("select 1")),
    "pool": (lambda: ThreadPoolExecutor(1), lambda p: p.shutdown(), lambda p: p.submit(int).result()),
}  # fmt: skip
_value, _first = attrgetter("value"), itemgetter(0)
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "attribute": (lambda v: SimpleNamespace(value=v), _value, lambda h, v: setattr(h, "value", v)),
    "slot": (Slotted, _value, lambda h, v: setattr(h, "value", v)),
    "class": (lambda v: type("Has", (), {"value": v}), _value, lambda h, v: setattr(h, "value", v)),
    "list": (lambda v: [v], _first, lambda h, v: h.__setitem__(0, v)),
    "dictionary": (lambda v: {0: v}, _first, lambda h, v: h.__setitem__(0, v)),
}


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    ("kind", "place"),
    [*((kind, "attribute") for kind in ENDING), *(("file", place) for place in [*PLACES][1:])],
)
def test_what_is_in_the_place_of_what_was_closed_stays(kind: str, place: str, reads: bool) -> None:
    (make, end, use), (hold, get, put) = ENDING[kind], PLACES[place]
    held = hold(make())
    model = Changing(held, lambda held: (end(get(held)), put(held, make())), reads=reads)
    remarks = opgraph.profile(model, X).remarks
    use(get(held))
    assert any("and has another in its place" in remark.text for remark in remarks)
    end(get(held))


class Counting:
    """What a class of somebody's own keeps in an object of a library's."""

    calls = 0

    def use(self) -> None:
        self.calls += 1
        self.said = self.calls
        for each in self.kept, self.mine:  # type: ignore[attr-defined]
            each.append(self.calls)


STANDING: dict[str, tuple[type, Callable[[type], Any], Callable[[Any], Any]]] = {
    "thread": (threading.Thread, lambda made: made(), lambda t: t.join()),
    "timer": (threading.Timer, lambda made: made(60, int), lambda t: t.cancel()),
    "process": (multiprocessing.Process, lambda made: made(target=int), lambda p: p.join()),
    "pool": (ThreadPoolExecutor, lambda made: made(1), lambda p: p.shutdown()),
    "socket": (socket.socket, lambda made: made(), lambda s: s.close()),
    "database": (sqlite3.Connection, lambda made: made(":memory:"), lambda c: c.close()),
    "program": (subprocess.Popen, lambda made: made([sys.executable, "-c", ""]), lambda p: p.wait()),
    "loop": (asyncio.SelectorEventLoop, lambda made: made(), lambda loop: loop.close()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "begun"),
    [*((kind, False) for kind in STANDING), *((kind, True) for kind in [*STANDING][:3])],
)
def test_what_somebody_keeps_in_what_stands_for_something(kind: str, begun: bool) -> None:
    base, make, end = STANDING[kind]
    held = make(type("Own", (Counting, base), {"__slots__": ("mine",)}))
    held.calls, held.kept, held.mine = 1, [1], [1]
    if begun:
        held.start()
    assert not opgraph.profile(Changing(held, _uses), X).remarks
    assert (held.calls, held.kept, held.mine, hasattr(held, "said")) == (1, [1], [1], False)
    if begun or not hasattr(held, "start"):
        end(held)


def _uses(held: Any) -> None:
    held.use()
    held.mine, held.kept = held.mine[:1], [0]


def test_what_somebody_keeps_in_the_thread_and_the_process_that_run() -> None:
    def running() -> tuple[Any, Any]:
        return threading.current_thread(), multiprocessing.current_process()

    def keep(_: Any = None) -> None:
        for each in running():
            each.depth = getattr(each, "depth", 0) + 1
            vars(each).setdefault("mine", []).append(1)

    def now() -> list[tuple[Any, Any]]:
        return [(getattr(each, "depth", 0), [*getattr(each, "mine", ())]) for each in running()]

    try:
        for depth in (0, 1):
            assert not opgraph.profile(Changing(None, keep), X).remarks
            assert now() == [(depth, [1] * depth)] * 2
            keep()
    finally:
        for each in running():
            del each.depth, each.mine


@pytest.mark.parametrize("kind", [threading.Thread, multiprocessing.get_context("fork").Process])
def test_what_was_begun_and_is_over_has_not_begun(kind: Any) -> None:
    """Python starts none twice."""
    held, done = kind(target=int), threading.Timer(0, int)

    def starts(held: Any) -> None:
        for each in held:
            each.start()
            each.join()

    remarks = opgraph.profile(Changing([held, done], starts), X).remarks
    assert not [each for each in remarks if "started what" in each.text]
    assert not done.finished.is_set()
    starts([held, done])
    assert done.finished.is_set()


def test_what_was_begun_and_goes_on_is_said() -> None:
    """It is not told that it has not begun, nor what its own class notes of that."""
    goes_on = threading.Event()

    class Begins(threading.Thread):
        noted = False

        def run(self) -> None:
            goes_on.wait(60)

        def begin(self) -> None:
            if not self.noted:
                self.noted = True
                self.start()

    held = Begins()
    model = Changing(held, Begins.begin)
    try:
        remarks = opgraph.profile(model, X).remarks
        assert [each for each in remarks if "started what Python starts once (" in each.text]
        model(X)
    finally:
        goes_on.set()
        held.join()


class Writer:
    """Has a file, and what ends with it."""

    def __init__(self) -> None:
        self.file = tempfile.NamedTemporaryFile("w")  # noqa: SIM115
        self.is_closed = False

    def close(self) -> None:
        self.file.close()
        self.is_closed = True


@pytest.mark.parametrize("make", [Writer, partial(tempfile.NamedTemporaryFile, "w")])
def test_what_has_another_file_stays_with_it(make: Callable[[], Any]) -> None:
    first = make()
    held = SimpleNamespace(writer=first, count=0, last=SimpleNamespace(of=first))

    def begins_anew(held: Any) -> None:
        held.count += 1
        held.writer.close()
        held.writer = make()

    remarks = opgraph.profile(Changing(held, begins_anew), X).remarks
    assert any("and has another in its place" in remark.text for remark in remarks)
    assert held.writer is not first
    assert held.count == 0
    begins_anew(held)
    held.writer.close()


def test_what_leads_to_a_closed_file_still_is_as_before() -> None:
    writer = SimpleNamespace(file=Path(__file__).open())  # noqa: SIM115
    held = SimpleNamespace(writer=writer, state=SimpleNamespace(of=writer, count=0))
    state = held.state

    def closes(held: Any) -> None:
        held.writer.file.close()
        held.state = SimpleNamespace(of=held.writer, count=held.state.count + 1)

    remarks = opgraph.profile(Changing(held, closes), X).remarks
    assert any("forward closed" in remark.text for remark in remarks)
    assert held.state is state
    assert state.count == 0


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_what_is_read_by_going_through_a_stream_is_said(
    kind: str, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "alone", lambda: True)
    with ExitStack() as stack:
        if kind == "file":
            held = stack.enter_context(Path(__file__).open("r" if text else "rb"))
        else:
            program = [sys.executable, "-c", "print('a\\n' * 9)"]
            of = stack.enter_context(subprocess.Popen(program, stdout=subprocess.PIPE, text=text))
            held = of.stdout  # type: ignore[assignment]
        next(held)
        said = [each.text for each in opgraph.profile(Changing(held, next), X).remarks]
        place = kind == "file" and not text
        assert ["took what was to be read from" in text for text in said] == [True] * (not place)
        said = [each.text for each in opgraph.profile(Changing(held, lambda _: None), X).remarks]
        assert not said
        held.read()


class Later:
    """Gives a loop of asyncio something to run when the forward is over."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.tasks: list[Any] = []

    async def sees(self, x: Any) -> None:
        self.seen.append(x)

    async def waits(self) -> None:
        await self.future  # type: ignore[attr-defined]
        self.seen.append("told")


def _gathers(held: Later, x: Any) -> None:
    held.gathered = asyncio.gather(held.sees(x), held.sees(x))  # type: ignore[attr-defined]


LATER: dict[str, Callable[[Later, Any], Any]] = {
    "next": lambda held, x: asyncio.get_running_loop().call_soon(held.seen.append, x),
    "at a time": lambda held, x: asyncio.get_running_loop().call_later(0, held.seen.append, x),
    "task": lambda held, x: held.tasks.append(asyncio.ensure_future(held.sees(x))),
    "tasks": _gathers,
}


@pytest.mark.parametrize("how", LATER)
def test_what_a_loop_was_given_is_not_run_afterwards(how: str) -> None:
    held, said = Later(), list[Any]()

    class Gives(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            LATER[how](held, y)
            return y

    async def main() -> list[Any]:
        model, loop = Gives(4, 4), asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, of: said.append(of))
        loop.call_soon(held.seen.append, "mine")
        others = asyncio.all_tasks()
        remarks = opgraph.profile(model, X).remarks
        assert asyncio.all_tasks() == others
        await asyncio.sleep(0.01)
        assert held.seen == ["mine"]
        gc.collect()
        model(X)
        await asyncio.sleep(0.01)
        assert {type(each) for each in held.seen[1:]} == {Tensor}
        return [each.code for each in remarks]

    assert asyncio.run(main()) == ["not-counted"]
    assert not said


def test_who_waits_for_a_future_is_told() -> None:
    held = Later()

    async def main() -> None:
        held.future = asyncio.get_running_loop().create_future()  # type: ignore[attr-defined]
        waits = asyncio.create_task(held.waits())
        await asyncio.sleep(0)
        remarks = opgraph.profile(Changing(held, lambda held: held.future.set_result(1)), X).remarks
        assert [each for each in remarks if "gave a future its result" in each.text]
        await waits
        assert held.seen == ["told"]

    asyncio.run(main())


def test_what_was_closed_before_is_there_again() -> None:
    closed = io.BytesIO()
    closed.close()
    held = {"file": closed}
    opgraph.profile(Changing(held, lambda held: held.update(file=io.BytesIO())), X)
    assert held["file"] is closed


class Asked(nn.Module):
    """Counts how often it is asked what it consists of."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.layer, self.run = nn.LazyLinear(4) if run == "lazy" else nn.Linear(4, 4), run
        self.asked = 0

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.asked += 1
        return super().named_modules(*args, **kwargs)

    def modules(self) -> Iterator[nn.Module]:
        self.asked += 1
        return super().modules()

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        self.asked += 1
        return super().parameters(recurse)

    def forward(self, boxed: Boxed | Tensor) -> Tensor:
        x = boxed.x if isinstance(boxed, Boxed) else boxed
        x = self.layer(x)
        if self.run == "fails":
            raise ValueError("this is wrong")
        return x * x.sum().item() if self.run == "real" else x


class Boxed:
    """An argument that counts how often it is looked into."""

    looked = 0

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def flat(self) -> tuple[list[Tensor], None]:
        Boxed.looked += 1
        return [self.x], None

    @property
    def dtype(self) -> torch.dtype:
        Boxed.looked += 1
        return self.x.dtype


FLATTENED = SimpleNamespace(times=0)


def flat(boxed: Boxed) -> tuple[list[Tensor], None]:
    FLATTENED.times += 1
    return boxed.flat()


@pytest.fixture
def _registered() -> Iterator[None]:
    register_pytree_node(Boxed, flat, lambda parts, _: Boxed(*parts))
    yield
    _deregister_pytree_node(Boxed)


@pytest.mark.parametrize(
    ("run", "options"),
    [
        ("plain", {}),
        ("real", {}),
        ("fails", {}),
        ("lazy", {}),
        ("plain", {"mode": "train"}),
        ("plain", {"tracer": "export"}),
    ],
)
def test_nothing_is_asked_of_a_model_outside_of_the_guard(
    run: str, options: dict[str, Any]
) -> None:
    model = Asked(run).train()
    with suppress(TraceError):
        opgraph.profile(model, torch.ones(2, 4), **options)
    assert model.asked == 0


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("run", ["plain", "real", "fails"])
def test_an_argument_is_taken_apart_under_the_guard(run: str) -> None:
    model, boxed = Asked(run), Boxed(torch.ones(2, 4))
    with suppress(TraceError):
        opgraph.profile(model, boxed)
    assert (model.asked, Boxed.looked, FLATTENED.times) == (0, 0, 0)


def test_an_argument_of_a_class_of_ones_own_is_asked_under_the_guard() -> None:
    opgraph.profile(Asked("plain"), Boxed(torch.ones(2, 4)))
    assert Boxed.looked == 0


class Several(dict[str, Any]):
    """Inputs that count how often they are gone through."""

    asked = 0

    def keys(self) -> Any:
        Several.asked += 1
        return super().keys()

    def __len__(self) -> int:
        Several.asked += 1
        return super().__len__()


class Equal:
    """A loss that counts what it is compared to."""

    asked = 0

    def __call__(self, result: Tensor) -> Tensor:
        return result.sum()

    def __eq__(self, other: object) -> bool:
        Equal.asked += 1
        return self is other

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("given", ["inputs", "kwargs"])
def test_arguments_of_a_class_of_ones_own_are_gone_through_as_before(given: str) -> None:
    model, several = Asked("plain"), Several(boxed=torch.ones(2, 4))
    opgraph.profile(model, **{given: several})
    assert Several.asked == 0


def test_a_loss_is_not_asked_what_it_equals() -> None:
    opgraph.profile(nn.Linear(4, 4), torch.ones(2, 4), mode="train", loss=Equal())
    assert Equal.asked == 0


class Same(io.StringIO):
    """Says that it is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = io.StringIO.__hash__


class Telling(nn.Linear):
    """Runs code that is made from text."""

    text: str

    def forward(self, x: Tensor) -> Tensor:
        exec(self.text)  # noqa: S102
        return super().forward(x)


@pytest.mark.parametrize(
    "name",
    [
        *(f"sys.std{name}" for name in ("in", "out", "err")),
        *(f"sys.{name}hook" for name in ("display", "except", "unraisable", "breakpoint")),
        "threading.excepthook",
    ],
)
def test_what_python_shows_things_by_is_as_before(name: str) -> None:
    of, _, name = name.partition(".")
    model, before = Telling(4, 4), getattr(sys.modules[of], name)
    for new in ("Same()", None):
        model.text = f"import {of}; {of}.{name} = {new}"
        try:
            opgraph.profile(model, X)
            assert getattr(sys.modules[of], name) is before
        finally:
            setattr(sys.modules[of], name, before)


class Quiet(nn.Module):
    """Nothing is shown while it runs, by hooks of which the second is not called where a forward fails."""

    def __init__(self, redirect: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.quiet = nn.Linear(4, 4), redirect(io.StringIO())
        self.register_forward_pre_hook(lambda *_: setattr(self, "said", self.quiet.__enter__()))
        self.register_forward_hook(lambda *_: self.quiet.__exit__(None, None, None))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if x.sum() > 0 else -y


@pytest.mark.parametrize("redirect", [redirect_stdout, redirect_stderr])
def test_what_is_redirected_as_a_forward_fails_is_shown_again(redirect: Any) -> None:
    before = sys.stdout, sys.stderr
    try:
        opgraph.profile(Quiet(redirect), X)
        assert (sys.stdout, sys.stderr) == before
    finally:
        sys.stdout, sys.stderr = before


def test_what_another_thread_tells_the_one_that_runs_is_told() -> None:
    """It may be the flag by which a worker ends."""
    model, told = nn.Sequential(*(nn.Linear(4, 4) for _ in range(9))), threading.Event()

    class Says(nn.Module):
        def forward(self, x: Tensor) -> Any:
            told.wait(5)
            return model(x)

    class Worker(threading.Thread):
        def __init__(self) -> None:
            super().__init__()
            self.wanted, self.log = True, list[str]()

        def run(self) -> None:
            opgraph.profile(Says(), X)

    worker = Worker()
    worker.start()
    while not worker.is_alive():
        pass
    time.sleep(0.05)
    worker.wanted = False
    worker.log.append("told")
    told.set()
    worker.join()
    assert not worker.wanted
    assert worker.log == ["told"]


def test_a_redirection_that_another_thread_ends_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    began, end, ended = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with redirect_stdout(io.StringIO()):
            began.set()
            end.wait(5)
        ended.set()

    class Waits(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            end.set()
            ended.wait(5)
            return super().forward(x)

    monkeypatch.setattr(sys, "stdout", shown := io.StringIO())
    thread = threading.Thread(target=other)
    thread.start()
    began.wait(5)
    notes = opgraph.profile(Waits(4, 4), (X,)).model.notes
    thread.join()
    assert sys.stdout is shown
    assert any("standard stream" in note for note in notes)


@pytest.mark.parametrize("kind", ["itself", "parents", "deep", "shared"])
def test_what_leads_to_itself_is_gone(kind: str) -> None:
    class Keeps(nn.Linear):
        kept: Any = None

        def forward(self, x: Tensor) -> Tensor:
            found: list[Any] = [x]
            if kind == "itself":
                found.append(found)
            elif kind == "parents":
                found.append({"parent": found})
            else:
                for _ in range(5_000 if kind == "deep" else 60):
                    found = [found] if kind == "deep" else [found, found]
            self.kept = found
            return super().forward(x)

    model = Keeps(4, 4)
    notes = opgraph.profile(model, (X,)).model.notes
    assert model.kept is None
    assert not notes


class Truncated(nn.Module):
    """Goes on from the state of its last call, of which it lets autograd know nothing any more."""

    def __init__(self, cell: nn.Module, values: bool) -> None:
        super().__init__()
        self.cell, self.values = cell, values
        self.state: Any = None

    def forward(self, x: Tensor) -> Tensor:
        for each in self.state if isinstance(self.state, tuple) else [self.state]:
            if each is not None:
                each.detach_()
        self.state = self.cell(x, self.state)
        y = self.state[0] if isinstance(self.state, tuple) else self.state
        return y * y.sum().item() if self.values else y


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("made", [nn.GRUCell, nn.LSTMCell])
def test_a_hidden_state_that_is_detached_in_place(made: Any, values: bool, mode: Any) -> None:
    """What led to it leads to it again."""
    model = Truncated(made(8, 8), values)
    model(torch.randn(2, 8))
    state = model.state if isinstance(model.state, tuple) else (model.state,)
    before, versions = [s.clone() for s in state], [s._version for s in state]
    weights = list(model.parameters())
    grads = torch.autograd.grad(sum(s.sum() for s in state), weights, retain_graph=True)
    notes = opgraph.profile(model, torch.ones(2, 8), mode=mode).model.notes
    assert not any("in place" in note for note in notes)
    assert all(map(torch.equal, state, before))
    assert [s._version for s in state] == versions
    assert all(map(torch.equal, torch.autograd.grad(sum(s.sum() for s in state), weights), grads))
    assert model(torch.randn(2, 8)).requires_grad


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "slice": lambda m, h: m.__setitem__(1, h[1]),
    "mask": lambda m, h: m.__setitem__(h[:, 0].detach() > 0, h[h[:, 0].detach() > 0]),
    "index": lambda m, h: m.__setitem__(torch.arange(3), h[:3]),
    "copy": lambda m, h: m.copy_(h),
    "several": lambda m, h: m.mul_(0.9).add_(h),
    "detached": lambda m, h: m.detach_().add_(h),
    "a view of it": lambda m, h: m.view(-1).mul_(h.sum()),
}


class Bank(nn.Module):
    """Keeps views of a memory beside it, to which it writes some times a call."""

    def __init__(self, writes: int, reads: bool) -> None:
        super().__init__()
        self.cell, self.writes, self.reads, self.at = nn.Linear(4, 4), writes, reads, 0
        self.memory = torch.zeros(6, 4)
        self.rows = [self.memory[at] for at in range(6)]

    def forward(self, x: Tensor) -> Tensor:
        read = torch.stack(self.rows).mean(0) if self.reads else 0
        h = torch.tanh(self.cell(x) + read)
        for _ in range(self.writes):
            self.memory[self.at % 6] = h + self.memory[self.at % 6] * 0.5
        self.at += 1
        return h


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_views_of_a_memory_that_are_kept(writes: int, reads: bool, mode: Any) -> None:
    """They know at which of its versions they asked what it came of, and in which order."""
    x, first = torch.randn(4), Bank(writes, reads).state_dict()
    for later in range(1, 6):
        found = []
        for profiles in (False, True):
            model, clipped = Bank(writes, reads), []
            model.load_state_dict(first)
            for _ in range(3):
                model(x)
            kept = model.rows[1]
            assert kept.grad_fn  # torch 2.14 ends the process where a hook asks for it
            kept.register_hook(lambda g, to=clipped: to.append(g) or g * 0.1)
            if profiles:
                opgraph.profile(model, x, mode=mode)
            clipped.clear()
            for _ in range(later):
                model.memory.mul_(1.5 + model.cell.bias.sum())
            (torch.stack(model.rows).pow(2).sum() + model(x).sum()).backward()
            found.append((model.cell.weight.grad, model.cell.bias.grad, *clipped))
        assert len(found[0]) == len(found[1])
        assert all(map(torch.equal, *found))


KEPT: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    "row": (lambda: torch.zeros(4, 4), lambda m: m[1]),
    "complex": (lambda: torch.ones(4, 2), torch.view_as_complex),
    "conjugate": (lambda: torch.ones(4, dtype=torch.complex64), torch.conj),
    "real": (lambda: torch.ones(4, dtype=torch.complex64), lambda m: m.real),
    "negative": (lambda: torch.ones(4, dtype=torch.complex64), lambda m: m.conj().imag),
    "diagonal": (lambda: torch.zeros(4, 4), torch.diagonal),
}


class Kept(nn.Module):
    """Writes to a memory that had no history, or wants a gradient of it, beside a view of it."""

    def __init__(self, kind: str, asks: bool, reads: bool) -> None:
        super().__init__()
        make, view = KEPT[kind]
        self.layer, self.memory = nn.Linear(4, 4), make()
        self.view, self.asks, self.reads = view(self.memory), asks, reads

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        if self.asks:
            self.memory.requires_grad_()
        else:
            self.memory.add_(h.sum())
        return h + self.view.abs().sum() if self.reads else h


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("kind", KEPT)
def test_a_view_of_what_autograd_knew_nothing_of(
    kind: str, asks: bool, reads: bool, mode: Any
) -> None:
    model = Kept(kind, asks, reads)
    view, base = model.view, model.memory
    before = view.dtype, view.is_conj(), view.is_neg(), view.stride(), view._version, view.tolist()
    notes = opgraph.profile(model, torch.ones(2, 4), mode=mode).model.notes
    assert not [n for n in notes if "not all" in n or "cannot be taken back" in n]
    assert model.view is view
    assert view._base is base
    assert not view.requires_grad
    assert not base.requires_grad
    assert view.is_leaf
    after = view.dtype, view.is_conj(), view.is_neg(), view.stride(), view._version, view.tolist()
    assert after == before
    base.add_(1 + 1j if base.is_complex() else 1)
    assert view.tolist() != before[-1]


def test_results_of_jagged_tensors_that_are_kept() -> None:
    layer = nn.Linear(4, 4)
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    model = nn.Linear(4, 4)
    model.last = layer(rows)
    model.values = model.last.values()
    node = model.last.grad_fn
    opgraph.profile(model, torch.ones(2, 4))
    assert model.last.grad_fn is node


def test_a_head_that_writes_to_what_a_backbone_made() -> None:
    """Its input is a result, and no leaf, to which nobody could write: it costs what it costs else."""
    plain, given = nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), nn.Linear(4, 4)(torch.ones(2, 4))
    head = nn.Sequential(nn.ReLU(inplace=True), plain[1])
    profiles = [
        opgraph.profile(head, given, mode="train"),
        opgraph.profile(plain, given, mode="train"),
        opgraph.profile(plain, given.detach().requires_grad_(), mode="train"),
    ]
    assert len({p.totals.flops for p in profiles}) == 1
    assert {p.graph.failed for p in profiles} == {None}


def test_a_view_of_a_weight_is_asked_by_whoever_reads_it() -> None:
    """After the weight was written to it makes its node as it is asked, and gradients are added up so."""
    found = []
    for profiles in (False, True):
        model = nn.Embedding(7, 4)
        model.head = model.weight.t()
        with torch.no_grad():
            model.weight.add_(1)
        if profiles:
            opgraph.profile(model, torch.arange(3))
        begin = torch._C._autograd._get_sequence_nr()
        assert model.head.grad_fn is not None
        found.append(torch._C._autograd._get_sequence_nr() - begin)
    assert found == [1, 1]


class Reads(nn.Module):
    """Has views of a weight from before its calls, and looks at values if it `reads`."""

    def __init__(self, kind: str, *, reads: bool) -> None:
        super().__init__()
        self.table, self.layer, self.reads = nn.Embedding(12, 4), nn.Linear(4, 4), reads
        weight, seen = self.table.weight, {}
        seen["transposed"] = lambda: weight.t().t()
        seen["rows"] = lambda: weight[:3]
        seen["repeated"] = lambda: weight[:1].expand(3, 4)
        seen["same"] = lambda: weight.view_as(weight)
        self.views = [seen[kind](), weight[3:6]]

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.table(x))
        for view in self.views:
            y = y + torch.softmax(y @ view.t(), -1) @ view
        y = y @ self.table.weight.t()
        return y * y.sum().item() if self.reads else y


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("kind", ["transposed", "rows", "repeated", "same"])
def test_a_step_with_views_of_weights_that_are_kept(kind: str, *, reads: bool) -> None:
    """Their gradients are the stand-in's, and no hook at the weight hears of them."""
    x = torch.arange(12).reshape(3, 4)
    first, found = Reads(kind, reads=reads).state_dict(), []
    for profiles in (False, True):
        model, norms = Reads(kind, reads=reads), []
        model.load_state_dict(first)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        weight, other = model.table.weight, torch.optim.Adam([model.table.weight])
        weight.register_hook(lambda g, to=norms: to.append(g.norm()))
        weight.register_post_accumulate_grad_hook(
            lambda _, of=other, to=norms: to.append(of.step())
        )
        for _ in range(3):
            model(x).tanh().sum().backward()
            assert weight.grad is not None
            version = weight.grad._version
            for _ in range(2 if profiles else 0):
                profile = opgraph.profile(model, x, mode="train")
                assert not [n for n in profile.model.notes if "fake tensor" in n]
                assert any(n.phase == "optimizer" for n in profile.graph.nodes)
            assert weight.grad._version == version
            optimizer.step()
            optimizer.zero_grad()
        found.append([weight, *(n for n in norms if n is not None)])
    assert len({len(each) for each in found}) == 1
    assert all(map(torch.equal, *found))


class Tied(nn.Module):
    """Reads a weight by a view from before its calls where that is `kept`; `reads` values."""

    def __init__(self, *, kept: bool, reads: bool) -> None:
        super().__init__()
        self.table, self.layer, self.reads = nn.Embedding(12, 4), nn.Linear(4, 4), reads
        self.head = self.table.weight.t() if kept else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) @ (self.table.weight.t() if self.head is None else self.head)
        return y * y.sum().item() if self.reads else y


def test_a_weight_that_is_read_by_a_view_alone_is_read() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(8))
    model.row = model.weight.view(1, 8)
    model.forward = lambda x: x * model.row
    assert not opgraph.profile(model, torch.ones(4, 8)).model.notes


@pytest.mark.parametrize("how", ["fake", "real", "meta"])
def test_a_step_costs_the_same_by_views_that_are_kept(how: str) -> None:
    x, found = torch.randn(2, 4), []
    for kept in (False, True):
        with torch.device("meta" if how == "meta" else "cpu"):
            model = Tied(kept=kept, reads=how == "real")
        profile = opgraph.profile(model, x, mode="train", loss=torch.mean)
        steps = sum("foreach" in k.op for n in profile.graph.nodes for k in n.kernels)
        found.append((profile.totals.flops, steps, len(profile.graph.parameters)))
    assert found[0] == found[1]


@pytest.mark.parametrize("reads", [False, True])
def test_views_through_which_no_gradients_go(*, reads: bool) -> None:
    model = Tied(kept=False, reads=reads)
    with torch.no_grad():
        model.head = model.table.weight.t()
    profile = opgraph.profile(model, torch.randn(2, 4), mode="train", loss=torch.mean)
    stepped = {n.scope for n in profile.graph.nodes if n.phase == "optimizer"}
    assert not any("table" in scope for scope in stepped)


@pytest.mark.parametrize("reads", [False, True])
def test_hooks_behind_a_gradient_that_a_forward_puts_at_a_leaf(*, reads: bool) -> None:
    class Optimizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.latents = nn.Linear(4, 4), [torch.ones(4, requires_grad=True)]

        def forward(self, x: Tensor) -> Tensor:
            for leaf in (*self.latents, self.layer.bias):
                leaf.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
            y = self.layer(x) * self.latents[0]
            return y * y.sum().item() if reads else y

    model, x = Optimizes(), torch.ones(2, 4)
    for mode in ("infer", "train"):
        opgraph.profile(model, x, mode=mode)  # type: ignore[arg-type]
    (model.layer(x) * model.latents[0]).sum().backward()
    assert model.latents[0].grad is not None
    assert model.layer.bias.grad is not None


class Listens(nn.Module):
    """Has a hook at a view, or at a result, for the time of a call."""

    def __init__(self, *, result: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.head = self.layer.weight * 2 if result else self.layer.weight.t()

    def forward(self, x: Tensor) -> Tensor:
        noted: list[Tensor] = []
        with torch.enable_grad():
            handle = self.head.register_hook(noted.append)
            y = x @ self.head
            y.sum().backward(retain_graph=True)
        handle.remove()
        return y * len(noted[0])


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("result", [False, True])
def test_hooks_at_what_had_some_before(mode: Any, *, result: bool) -> None:
    model, x = Listens(result=result), torch.ones(2, 4)
    model(x)
    table = model.head._backward_hooks
    assert opgraph.profile(model, x, mode=mode).graph.failed is None
    assert model.head._backward_hooks is table
    model(x)


class Reduces(nn.Module):
    """Has a hook at the node of a weight, as FSDP does, for each of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0
        self.flat = torch.ones(4, 4, requires_grad=True)
        self.head = self.flat.t()

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            made: Any = self.flat.expand_as(self.flat).grad_fn
            made.next_functions[0][0].register_hook(self.count)
        y = self.layer(x) @ self.head
        return y * y.sum().item()

    def count(self, *_: Any) -> None:
        self.calls += 1


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_hooks_that_a_forward_puts_at_nodes_of_weights(mode: Any) -> None:
    found = []
    for profiles in (0, 2):
        model, x = Reduces(), torch.ones(2, 4)
        kept = model.head.grad_fn  # which has the weight's
        for _ in range(profiles):
            opgraph.profile(model, x, mode=mode)
        model(x).sum().backward()
        found.append(model.calls)
        del kept
    assert found == [1, 1]


class Adapts(nn.Module):
    """Goes by the gradient of a weight which it reads by a view from before its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.ones(4, 4))
        self.head = self.weight.t()

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            (self.layer(x) @ self.head).square().mean().backward()
        with torch.no_grad():
            self.weight.sub_(self.weight.grad)
        return self.layer(x) @ self.weight.t()


def test_a_forward_that_goes_by_gradients_through_views_from_before() -> None:
    model, x = Adapts(), torch.ones(2, 4)
    for mode in ("infer", "train"):
        assert opgraph.profile(model, x, mode=mode).graph.failed is None  # type: ignore[arg-type]
    assert model.weight.grad is None


def test_views_that_torch_would_not_tell_of_are_copied() -> None:
    model, x = nn.Conv2d(3, 3, 3), torch.ones(2, 3, 8, 8)
    whole = model(x)
    model.parts = whole.unbind(0)
    whole.mul_(0.5)
    assert opgraph.profile(model, x, memory_format="channels_last").graph.nodes


class Scales(nn.Module):
    """Has what goes back into the state of its last call scaled."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.state = cell, torch.zeros(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.state.requires_grad:
            self.state.register_hook(lambda g: g * 0.5)
        self.state = self.cell(x, self.state)
        return self.state


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_hooks_that_a_forward_puts_at_results_of_before(mode: Any) -> None:
    cell, x, found = nn.GRUCell(4, 4), torch.randn(2, 4), []
    for profiles in (False, True):
        model = Scales(copy.deepcopy(cell))
        for at in range(4):
            y = model(x)
            if profiles and at < 3:
                opgraph.profile(model, x, mode=mode)
                opgraph.profile(model, x, mode=mode)
        y.sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *found))


class Watches(nn.Module):
    """Looks at what went back into its states, to which it may write, and which may have attributes."""

    def __init__(self, cell: nn.Module, writes: bool) -> None:
        super().__init__()
        self.cell, self.writes, self.states = cell, writes, [torch.zeros(2, 4)]

    def forward(self, x: Tensor) -> Tensor:
        state = self.states[-1]
        if state.requires_grad:
            state.retain_grad()
            assert state.step == len(self.states)  # type: ignore[attr-defined]
        self.states.append(self.cell(x, state))
        self.states[-1].step = len(self.states)  # type: ignore[attr-defined]
        if self.writes and state.requires_grad:
            self.states[-1].add_(state.mean())
        return self.states[-1]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("writes", [False, True])
def test_states_whose_gradient_a_forward_retains(writes: bool, mode: Any) -> None:
    cell, x, found = nn.GRUCell(4, 4), torch.randn(2, 4), []
    for profiles in (False, True):
        model = Watches(copy.deepcopy(cell), writes)
        for _ in range(4):
            model(x)
            for _ in range(2 if profiles else 0):
                notes = opgraph.profile(model, x, mode=mode).model.notes
                assert not [n for n in notes if "cannot be taken back" in n]
        assert [s.grad for s in model.states[1:-1]] == [None] * 3
        model.states[-1].sum().backward()
        grads = [s.grad for s in model.states[1:-1]]
        assert None not in grads
        found.append([*grads, *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found))


def test_what_a_run_that_failed_made_of_a_state_ends() -> None:
    """It leads to itself, as torch sees it: the state leads to what was made of it, which saved it."""

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.state = self.layer(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.layer(x) * self.state)
            self.state[0] = y[0, 0]
            return y

    def there() -> int:
        gc.collect()
        return sum(issubclass(type(each), Tensor) for each in gc.get_objects())

    model, counts = Fails(), []
    for _ in range(3):
        with pytest.raises(opgraph.TraceError, match="modified by an inplace operation"):
            opgraph.profile(model, torch.ones(2, 4), mode="train")
        counts.append(there())
    assert counts[1] == counts[2]


def test_states_of_a_class_that_wraps_others() -> None:
    model = nn.Linear(4, 4)
    model.state = TwoTensor(*(torch.ones(2, requires_grad=True) for _ in range(2))) * 2
    node = model.state.grad_fn
    for mode in ("infer", "train"):
        opgraph.profile(model, torch.ones(2, 4), mode=mode)  # type: ignore[arg-type]
    assert model.state.grad_fn is node


def test_no_gradient_is_made_where_there_was_none() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, memory: Tensor) -> Tensor:
            return memory * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            return None

    model = Segment(WRITES["copy"], False, False)
    model(torch.randn(5, 4))
    opgraph.profile(model, torch.randn(5, 4), mode="train")
    Nothing.apply(model.memory).sum().backward()
    assert model.layer.weight.grad is None


class Segment(nn.Module):
    """Writes to a memory as it goes, through which its loss goes back over several calls."""

    def __init__(self, write: Callable[[Tensor, Tensor], Any], values: bool, rows: bool) -> None:
        super().__init__()
        self.layer, self.write, self.values = nn.Linear(4, 4), write, values
        self.register_buffer("memory", torch.zeros(5, 4))
        self.rows = self.memory[:] if rows else None

    def forward(self, x: Tensor) -> Tensor:
        memory = self.memory if self.rows is None else self.rows
        h = torch.tanh(self.layer(x) + memory.clone())
        self.write(memory, h)
        return h * h.sum().item() if self.values else h


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_memory_that_is_written_to_within_a_segment_of_training(
    write: str, values: bool, rows: bool
) -> None:
    if rows and write == "detached":
        return  # torch detaches no view
    found = []
    x = torch.randn(5, 4)
    first = Segment(WRITES[write], values, rows).state_dict()
    for profiles in (False, True):
        model, fired = Segment(WRITES[write], values, rows), []
        model.load_state_dict(first)
        loss = torch.zeros(())
        for step in range(4):
            loss = loss + model(x).pow(2).mean()
            if step == 0 and model.memory.requires_grad:
                model.memory.register_hook(lambda _, to=fired: to.append(X))
            if step == 1 and profiles:
                for mode in ("train", "infer", "train"):
                    notes = opgraph.profile(model, x, mode=mode).model.notes  # type: ignore[arg-type]
                    assert not [n for n in notes if "in place" in n or "fake" in n]
        loss.backward()
        found.append((loss.detach(), model.layer.weight.grad, model.memory.detach(), *fired))
    (plain, profiled) = found
    assert len(plain) == len(profiled)
    assert all(map(torch.equal, plain, profiled))


class Continuing(nn.Module):
    """Goes on from what a forward before it left, and looks at values if it `reads`."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.layer, self.last, self.reads = nn.Linear(4, 4), torch.zeros(4), reads

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x) + self.last
        return h * h.sum().item() if self.reads else h


@pytest.mark.parametrize("reads", [False, True])
def test_a_step_runs_nothing_of_the_backward_of_what_was_there_before(*, reads: bool) -> None:
    encoder, model = nn.Linear(4, 4), Continuing(reads=reads)
    noted: list[str] = []
    encoder.register_full_backward_hook(lambda *_: noted.append("module"))
    x = torch.randn(2, 4)
    keep, give = lambda t: t, lambda t: (noted.append("saved"), t)[1]
    with torch.autograd.graph.saved_tensors_hooks(keep, give):
        inner = encoder(x.clone().requires_grad_())
        checked = torch.utils.checkpoint.checkpoint(
            lambda t: (noted.append("again"), t.sin())[1], inner, use_reentrant=False
        )
        model.last = checked.tanh()
    inner.retain_grad()
    assert checked.grad_fn is not None
    checked.grad_fn.register_hook(lambda *_: noted.append("node"))
    noted.clear()
    profile = opgraph.profile(model, x, mode="train", loss=torch.mean)
    assert any("ends at results that were there before" in note for note in profile.model.notes)
    assert not [k for n in profile.graph.nodes for k in n.kernels if "tanh" in k.op]
    assert (noted, inner.grad, encoder.weight.grad) == ([], None, None)
    model(x).sum().backward()
    assert inner.grad is not None
    assert noted.count("node") == 1
