"""Objects whose class runs code of its own where they are asked for something: they are looked at without
asking them, and what they count is as before."""

from __future__ import annotations

import array
import functools
import gzip
import io
import logging
import mmap
import pickle
import queue
import random
import threading
import types
import weakref
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn

import opgraph
from opgraph.tracing.state import guard

X = torch.randn(1, 4, generator=torch.Generator().manual_seed(0))


class Holding(nn.Module):
    """Does something with what it was given."""

    def __init__(self, do: Callable[[Any], Any], **held: Any) -> None:
        super().__init__()
        self.layer, self.do = nn.Linear(4, 4), do
        self.__dict__.update(held)

    def forward(self, x: Tensor) -> Tensor:
        self.do(self)
        return self.layer(x)  # type: ignore[no-any-return]


def _notes(model: nn.Module) -> tuple[str, ...]:
    return opgraph.profile(model, (X,)).model.notes


KINDS: list[tuple[type, tuple[Any, ...]]] = [
    (io.StringIO, ()), (io.BytesIO, ()), (bytearray, (b"ab",)), (array.array, ("i", [1])),
    (logging.Logger, ("answers",)), (queue.SimpleQueue, ()), (types.ModuleType, ("answers",)),
    (torch.Generator, ()), (random.Random, (1,)), (functools.partial, (int, "3")),
    (weakref.ref, (Holding,)),
]  # fmt: skip


@pytest.mark.parametrize(("base", "args"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_what_a_class_counts_whose_objects_say_their_state(
    base: type, args: tuple[Any, ...]
) -> None:
    """Of each kind of things that is looked at in a way of its own: its class, attributes and slots."""

    class Slotted(base):  # type: ignore[misc]
        __slots__ = ("slot",)

    class Counted(Slotted):
        calls = 0

        def hit(self) -> None:
            type(self).calls += 1
            self.slot += 1
            self.own += 1

    thing = Counted(*args)
    thing.slot = thing.own = 0
    assert _notes(Holding(lambda model: model.thing.hit(), thing=thing)) == ()
    assert (Counted.calls, thing.slot, thing.own) == (0, 0, 0)


class Puts(queue.SimpleQueue):  # type: ignore[type-arg]
    def put(self, *args: Any, **how: Any) -> None:
        CALLED.append("put")
        super().put(*args, **how)


class Bytes(bytearray):
    def __setitem__(self, *args: Any) -> None:
        CALLED.append("set")
        super().__setitem__(*args)


class Drawn(random.Random):
    def setstate(self, *args: Any) -> None:
        CALLED.append("state")
        super().setstate(*args)


class Mapped(mmap.mmap):
    def seek(self, *args: Any) -> None:
        CALLED.append("seek")
        super().seek(*args)


class File(io.RawIOBase):
    at = 0

    def tell(self) -> int:
        CALLED.append("tell")
        return self.at

    def seek(self, place: int, whence: int = 0) -> int:
        CALLED.append("sought")
        self.at = place
        return place


CALLED: list[str] = []
MAKE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "queue": (Puts, lambda q: q.put(1), lambda q: q.qsize()),
    "bytes": (lambda: Bytes(b"ab"), lambda b: b.__setitem__(0, 1), bytes),
    "numbers": (lambda: Drawn(1), lambda r: r.random(), lambda r: r.getstate()),
    "map": (lambda: Mapped(-1, 8), lambda m: m.write(b"abc"), lambda m: (m[:], m.tell())),
    "file": (File, lambda f: f.seek(3), lambda f: f.at),
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("used", [False, True])
def test_what_is_brought_back_is_not_by_methods_of_ones_own(
    kind: str, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "alone", lambda: True)  # a queue is set where no other thread is
    make, use, says = MAKE[kind]
    thing = make()
    before = says(thing)
    CALLED.clear()
    assert _notes(Holding(lambda model: used and use(model.thing), thing=thing)) == ()
    assert CALLED == []
    assert says(thing) == before


class Other(threading.Thread):
    pass


class Module(types.ModuleType):
    pass


@pytest.mark.parametrize(
    ("thing", "cls"), [(threading.Thread(), Other), (types.ModuleType("answers"), Module)]
)
def test_the_class_of_what_is_not_just_an_object(thing: Any, cls: type) -> None:
    before = type(thing)
    do = partial(setattr, thing, "__class__", cls)
    assert _notes(Holding(lambda _: do(), thing=thing)) == ()
    assert type(thing) is before


class Counting:
    def __init__(self) -> None:
        self.asked = 0

    def __hash__(self) -> int:
        self.asked += 1
        return 1

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return self is other


@pytest.mark.parametrize(
    "do",
    [
        lambda model: None,
        lambda model: model.table.update({3: 4}),
        lambda model: model.several.add(3),
    ],
)
def test_keys_that_count_how_often_they_are_asked(do: Callable[[Any], Any]) -> None:
    key = Counting()
    model = Holding(do, table={key: 1}, several={key})
    before = key.asked
    assert _notes(model) == ()
    assert key.asked == before
    assert (list(model.table), list(model.several)) == ([key], [key])


class Pair(tuple[Any, ...]):
    """As what `platform.uname()` gives, which starts a program when somebody goes through it."""

    went = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).went += 1
        return super().__iter__()


def test_a_tuple_that_counts_how_often_somebody_goes_through_it() -> None:
    inner = [1]
    model = Holding(lambda model: inner.append(2), pair=Pair([inner]))
    assert _notes(model) == ()
    assert (inner, Pair.went) == ([1], 0)


class Mutable:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mutable) and self.value == other.value


def test_a_key_is_found_whose_hash_was_another_one_meanwhile() -> None:
    def change(model: Any) -> None:
        model.key.value = 5
        model.table[3] = 1

    key = Mutable(1)
    table = {key: 1}
    assert _notes(Holding(change, key=key, table=table)) == ()
    assert table == {key: 1}
    assert key in table


def test_an_object_of_a_class_that_is_made_by_a_call() -> None:
    made: Any = ABCMeta("Made", (), {"calls": 0})  # which says to be of `abc`

    def change(model: Any) -> None:
        model.thing.value += 1
        type(model.thing).calls += 1

    thing = made()
    thing.value = 0
    assert _notes(Holding(change, thing=thing)) == ()
    assert (thing.value, made.calls) == (0, 0)


class Unbound:
    """Stands for something that is not there yet."""

    __slots__ = ()

    @property
    def __class__(self) -> type:
        raise RuntimeError("outside of any request")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("outside of any request")


unbound: Any = Unbound()
COUNTS = [0]


def test_a_global_that_refuses_to_say_what_it_is() -> None:
    def count(_: Any) -> None:
        COUNTS[0] += 1
        if COUNTS[0] < 0:
            unbound.user.clear()

    assert _notes(Holding(count, other=unbound)) == ()
    assert COUNTS == [0]


ASKED = slice([])
"""Has a list where nobody looks, which nobody brings back."""


class Asked:
    def __init__(self) -> None:
        object.__setattr__(self, "value", [])

    def __getattribute__(self, name: str) -> Any:
        ASKED.stop.append(name)
        return object.__getattribute__(self, name)


asked_for = Asked()


def test_attributes_are_not_asked_for() -> None:
    ASKED.stop.clear()
    model = Holding(lambda model: model.asked.value.append(1), asked=asked_for, used=Asked())
    assert _notes(model) == ()
    assert ASKED.stop == ["value"]


class Slot:
    """Has methods of the names that futures and hashes have."""

    __slots__ = ("value",)
    block_size = 64

    def __init__(self) -> None:
        self.value: list[Any] = []

    def set_result(self, value: Any) -> None:
        self.value.append(value)

    def update(self, value: Any) -> None:
        self.value = [*self.value, value]

    def digest(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("how", ["set_result", "update"])
def test_names_of_methods_make_no_future_of_an_object(how: str) -> None:
    slot = Slot()
    assert _notes(Holding(lambda model: getattr(model.slot, how)(3), slot=slot)) == ()
    assert slot.value == []


class Told(Tensor):
    """Counts in a tensor how often functions of torch are called, and every second sum is of twice as
    much."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            for each in args:
                if isinstance(each, Told) and "calls" in vars(each):
                    vars(each)["calls"].add_(1)
            if func is torch.sum:
                vars(args[0])["sums"] += 1
                if vars(args[0])["sums"] % 2:
                    return (args[0] @ args[0]).as_subclass(Tensor).sum()
        return super().__torch_function__(func, types, args, kwargs or {})


def _told() -> Any:
    tensor = torch.randn(4, 4).as_subclass(Told)
    vars(tensor).update(calls=torch.zeros(1), sums=0)
    return tensor


class OfTold(nn.Module):
    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.layer, self.reads, self.held = nn.Linear(4, 4), reads, _told()
        self.register_buffer("buffer", _told())
        self.weight = nn.Parameter(told := _told())
        vars(self.weight).update(vars(told))

    def forward(self, x: Any) -> Any:
        assert isinstance(x, Told) or not self.reads
        y = self.layer(x.as_subclass(Tensor)).mean()
        for each in (self.held, self.weight, self.buffer):
            y = y + torch.sum(each).as_subclass(Tensor)
        return y * y.item() if self.reads else y


@pytest.mark.parametrize("reads", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize(
    "options",
    [{}, {"warm_up": True}, {"mode": "train"}, {"tracer": "dynamo"}, {"tracer": "export"}],
    ids=str,
)
def test_tensors_by_which_a_class_of_tensors_counts(options: dict[str, Any], reads: bool) -> None:
    model, x = OfTold(reads=reads), _told()
    held = [vars(each)["calls"].zero_() for each in (x, model.held, model.weight, model.buffer)]
    with suppress(opgraph.TraceError):
        profile = opgraph.profile(model, (x,), **options)
        assert not any("no mode hears" in note for note in profile.model.notes)
    assert [each.item() for each in held] == [0, 0, 0, 0]


def test_what_a_class_of_tensors_does_is_not_known_from_its_last_call() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = _told()

        def forward(self, x: Tensor) -> Any:
            return x + sum(torch.sum(self.held).as_subclass(Tensor) for _ in range(4))

    profile = opgraph.profile(Twice(), (X,))
    products = [k for n in profile.graph.nodes for k in n.kernels if k.op == "aten.mm"]
    assert len(products) == 2
    assert not any("add_" in node.target for node in profile.graph.nodes)


@dataclass(frozen=True)
class Frozen(Exception):
    """What every frozen dataclass does: it refuses to be told where it was raised."""

    code: int


class Silent(Exception):
    """Says nothing of itself, and is nothing."""

    def __str__(self) -> str:
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("made", [lambda: Frozen(3), Silent], ids=["frozen", "silent"])
def test_errors_that_answer_as_they_like_fail_as_others_do(made: Callable[[], Exception]) -> None:
    def fail(model: Any) -> None:
        model.counts.append(1)
        raise made()

    model = Holding(fail, counts=[])
    with pytest.raises(opgraph.TraceError):
        opgraph.profile(model, (X,))
    assert model.counts == []


WIDE = torch.ones(2, 8)


def _layered(kind: str, path: Path) -> Any:
    """A stream of lines, and those that it reads from, which were found first."""
    if kind == "gzip":
        path.write_bytes(gzip.compress(path.read_bytes()))
        packed = gzip.GzipFile(fileobj=path.open("rb"))
        return [packed.fileobj, packed, io.TextIOWrapper(packed)]
    binary = path.open("rb")
    if kind == "raw":
        return [binary.raw, binary, io.TextIOWrapper(binary)]
    return [binary, io.TextIOWrapper(binary)]


@pytest.mark.parametrize("kind", ["plain", "raw", "gzip"])
def test_a_stream_around_others_goes_back_behind_them(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"{n}.0\n" for n in range(5000)))
    streams = _layered(kind, path)
    read: list[float] = []
    model = Using(lambda: read.append(float(streams[-1].readline())))
    model(WIDE)
    profile = opgraph.profile(model, WIDE)
    for _ in range(3):
        model(WIDE)
    assert read == [0, 1, 2, 3]
    assert not profile.remarks
    for stream in streams[::-1]:
        stream.close()


@pytest.mark.parametrize("used", [False, True])
def test_what_an_unpickler_has_read_ahead_is_said(used: bool, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(pickle.dumps(float(n)) for n in range(9)))
    with path.open("rb") as file:
        records = pickle.Unpickler(file)
        model = Using(lambda: records.load() if used else records)
        records.load()
        profile = opgraph.profile(model, WIDE)
    assert any("read ahead" in remark.text for remark in profile.remarks) is used


@pytest.mark.slow
@pytest.mark.parametrize("run", [opgraph.profile, partial(opgraph.measure, device="cpu", steps=2)])
@pytest.mark.parametrize("lazy", [False, True])
def test_how_torch_compiles_is_as_before(lazy: bool, run: Any) -> None:
    from torch._dynamo import eval_frame

    def sets() -> None:
        torch.compiler.set_stance("force_eager")
        torch.compiler.set_default_backend("eager")
        torch.compiler.set_enable_guard_collectives(True)

    before = torch.compiler.get_default_backend()
    run(nn.Sequential(nn.LazyLinear(8) if lazy else nn.Linear(8, 8), Using(sets)), WIDE)
    assert eval_frame._stance.stance == "default"
    assert torch.compiler.get_default_backend() == before
    assert not torch.compiler.set_enable_guard_collectives(False)
