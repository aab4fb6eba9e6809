"""What a forward leaves suspended or for Python to end comes to its end before all is brought back: a
generator in a frame that an error has passed, what only holds itself."""

from __future__ import annotations

import gc
import io
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn

import opgraph

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def nesting() -> int:
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


class Parts(nn.Module):
    """Hands a generator over, whose `with` or `finally` is to run when nobody has it any more."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.layer, self.run = nn.Linear(4, 4), run
        self.depth, self.free = 0, [0, 1, 2]
        self.register_buffer("closed", torch.zeros(1))

    def parts(self, x: Tensor) -> Iterator[Tensor]:
        self.depth += 1
        try:
            with torch.autocast("cpu", torch.bfloat16), redirect_stdout(io.StringIO()):
                for i in range(3):
                    yield self.layer(x[i:])
        finally:
            self.depth -= 1
            self.closed += 1

    def best(self, parts: Iterable[Tensor], lease: Lease) -> Tensor:
        lease.used = True
        first = next(iter(parts))
        if self.run == "failed":
            raise ValueError("this is wrong")
        if self.run == "real":
            return first * first.sum().item()
        return first

    def forward(self, x: Tensor) -> Tensor:
        if self.run != "cycle":
            return self.layer(x) * self.best(self.parts(x), Lease(self.free))
        parts, lease = self.parts(x), Lease(self.free)

        def again(depth: int) -> Tensor:  # is in a cell of its own
            lease.used = True
            return next(parts) if depth == 0 else again(depth - 1)

        return self.layer(x) + again(1)


class Lease:
    """A place of some that are free, which it gives back when it goes. Dynamo makes empty ones."""

    free: list[int] = []  # noqa: RUF012
    slot = -1

    def __init__(self, free: list[int]) -> None:
        self.free, self.slot = free, free.pop()
        self.used = False

    def __del__(self) -> None:
        self.free.append(self.slot)


def state(model: Parts) -> Any:
    return model.depth, model.free, model.closed.item(), nesting(), sys.stdout


@pytest.mark.parametrize("run", ["real", "failed", "cycle"])
@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "train"}, {"tracer": "eager"}, {"tracer": "dynamo"}, {"tracer": "export"}],
)
@pytest.mark.slow
def test_what_a_run_leaves_ends_before_all_is_brought_back(
    run: str, options: dict[str, Any]
) -> None:
    model = Parts(run)
    before = model.depth, [*model.free], 0.0, nesting(), sys.stdout
    with suppress(opgraph.TraceError):
        opgraph.profile(model, X, **options)
    assert state(model) == before
    gc.collect()
    assert state(model) == before


def test_training_goes_on_with_its_own_weights() -> None:
    """Casts of them are kept until the outermost context of autocast ends."""

    def losses(model: nn.Module) -> list[float]:
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.5), []
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(X).float().pow(2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    plain, other = Parts("real"), Parts("real")
    other.load_state_dict(plain.state_dict())
    opgraph.profile(other, X)
    assert losses(other.layer) == losses(plain.layer)


@pytest.mark.parametrize("program", ["export", "dynamo"])
def test_what_a_program_that_is_not_made_leaves_ends_too(program: str) -> None:
    model = Parts("failed")
    before = model.depth, [*model.free], 0.0, nesting(), sys.stdout
    profile = opgraph.profile(model, X, partial=True)
    with pytest.raises(opgraph.OpgraphError):
        getattr(profile.captured, program)
    gc.collect()
    assert state(model) == before


def test_what_a_first_run_of_lazy_layers_leaves_ends_too() -> None:
    model = nn.Sequential(nn.LazyLinear(4), Parts("failed"))
    before = nesting(), sys.stdout
    with pytest.raises(opgraph.InputError, match="learn their sizes"):
        opgraph.profile(model, X)
    gc.collect()
    assert (nesting(), sys.stdout) == before


def test_frames_of_a_callers_error_stay_as_they_are() -> None:
    """A profile that is made where an error is handled has nothing to do with it."""

    def raising(items: Iterator[int]) -> None:
        raise KeyError(next(items))

    with closing(iter_of([1, 2])) as items:
        try:
            raising(items)
        except KeyError as error:
            with suppress(opgraph.TraceError):
                opgraph.profile(Parts("failed"), X)
            trace = error.__traceback__
            assert trace is not None
            assert trace.tb_next is not None
            assert next(trace.tb_next.tb_frame.f_locals["items"]) == 2


def iter_of(items: list[int]) -> Iterator[int]:
    yield from items


class Store:
    """Files of a model, with which its folder goes; copies of it are counted, too."""

    live = 0
    users: ClassVar[dict[str, int]] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        Store.live += 1
        Store.users[str(folder)] = 1

    def __del__(self) -> None:
        global ended
        Store.live -= 1
        ended += 1
        self.users[str(self.folder)] -= 1
        if not self.users[str(self.folder)]:
            self.folder.rmdir()


class Shared(Store):
    """A store that knows of its copies."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.users[str(self.folder)] += 1


ended = 0


class Stored(nn.Module):
    def __init__(self, store: Store, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.store = layer, store

    def forward(self, x: Tensor) -> Tensor:
        if not self.store.folder.exists():
            raise OSError("the files are gone")
        return self.layer(x)


COPIED: dict[str, tuple[Callable[[], nn.Module], Tensor, dict[str, Any]]] = {
    "lora": (lambda: nn.Linear(4, 4), X, {"mode": "train", "train": "lora"}),
    "channels_last": (
        lambda: nn.Conv2d(3, 3, 1),
        torch.ones(1, 3, 4, 4),
        {"memory_format": "channels_last"},
    ),
    "lazy": (lambda: nn.LazyLinear(4), X, {}),
    "random": (lambda: Values().to("meta"), X, {}),
    "laid out": (lambda: nn.Linear(4, 4), X, {"mode": "train", "fsdp": 2}),
    "fails": (
        lambda: nn.Conv2d(5, 3, 1),
        torch.ones(1, 3, 4, 4),
        {"memory_format": "channels_last", "tracer": "export"},
    ),
}


class Values(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.layer(x).sum().item()


@pytest.mark.parametrize("how", COPIED)
@pytest.mark.parametrize("kind", [Store, Shared])
def test_a_copy_of_the_model_ends_before_all_is_brought_back(
    kind: type[Store], how: str, tmp_path: Path
) -> None:
    if how == "lora":
        pytest.importorskip("peft")
    layer, x, options = COPIED[how]
    model = Stored(kind(tmp_path / "store"), layer())
    before = Store.live, ended, dict(Store.users)
    error = None
    try:
        found = opgraph.profile(model, x, **options)
        said: Iterable[str] = found.model.notes
    except opgraph.OpgraphError as raised:
        error, said = raised, getattr(raised, "__notes__", ())
    assert (error is not None) is (how == "fails")
    del error
    gc.collect()
    assert (Store.live, ended, dict(Store.users)) == before
    gone = any("removed" in note for note in said)
    assert gone is (kind is Store) is not model.store.folder.exists()
    Store.users[str(model.store.folder)] = 5


asked: list[str] = []


class Asked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(16, 16), nn.Linear(16, 16)

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        asked.append("modules")
        return super().named_modules(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        asked.append("parameters")
        return super().named_parameters(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        asked.append(name)
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.layer(x))


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "train", "train": "lora"},
        {"mode": "train", "fsdp": 2},
        {"mode": "train", "data_parallel": 2},
        {"tensor_parallel": 2},
    ],
    ids=" ".join,
)
def test_what_code_notes_as_a_copy_is_asked_and_gets_other_parts(options: dict[str, Any]) -> None:
    if "train" in options:
        pytest.importorskip("peft")
    model = Asked()
    asked.clear()
    opgraph.profile(model, torch.ones(2, 16), **options)
    assert asked == []
    with opgraph.recording(model):
        for _ in range(3):
            model(torch.ones(2, 16))
    assert asked == []
    opgraph.check(model, torch.ones(2, 16))
    assert asked == []


class Slot:
    """A place in a pool, which has it again as this ends; and a file that goes with it."""

    def __init__(self, pool: dict[str, Any], at: Path | None = None) -> None:
        self.pool, self.number, self.at = pool, pool["free"].pop(), at
        pool["held"] += 1

    def __del__(self) -> None:
        self.pool["free"].append(self.number)
        self.pool["held"] -= 1
        self.pool["ends"] += 1
        if self.at is not None:
            self.at.unlink()


class Slotted:
    __slots__ = ("slot",)


class Pooled(nn.Module):
    """Puts one slot in the place of another, which is there again after a run."""

    def __init__(self, place: str, folder: Path, *, values: bool) -> None:
        super().__init__()
        self.place, self.folder, self.values = place, folder, values
        self.pool: dict[str, Any] = {"free": [0, 1, 2, 3, 4], "held": 0}
        self.pool["ends"] = torch.zeros(1)
        self.layer, self.inner, self.by_name, self.slotted = (
            nn.Linear(4, 4),
            nn.Module(),
            {},
            Slotted(),
        )
        self.slots: list[Any] = []

    def put(self, slot: Slot) -> None:
        if self.place == "list":
            self.slots[:] = [*self.slots, slot][-2:]
        elif self.place == "dict":
            self.by_name["last"] = slot
        elif self.place == "slot":
            self.slotted.slot = slot
        elif self.place == "class":
            type(self).last = slot
        else:
            self.inner.last = slot  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        at = self.folder / uuid4().hex
        at.touch()
        self.put(Slot(self.pool, at))
        out: Tensor = self.layer(x)
        return out * out.sum().item() if self.values else out


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("place", ["list", "dict", "slot", "class", "attribute"])
def test_what_was_in_the_place_of_what_is_there_again_ends_within_the_profile(
    place: str, values: bool, tmp_path: Path
) -> None:
    class Own(Pooled):
        pass

    model = Own(place, tmp_path, values=values)
    for _ in range(3):
        model(X)

    def state() -> Any:
        return {**model.pool, "free": [*model.pool["free"]], "ends": model.pool["ends"].tolist()}

    before = state()
    notes = opgraph.profile(model, (X,)).model.notes
    assert state() == before
    assert any("removed" in note for note in notes)  # the file that went with it


@pytest.mark.parametrize("values", [False, True])
def test_a_weak_reference_that_a_forward_makes_goes_before_what_it_is_to(values: bool) -> None:
    """Its callback would look for it in vain where it was, which is as before: an error that nobody can
    catch, of which warnings tell."""

    class Part:
        pass

    parents: dict[int, Any] = {}
    held: list[Any] = []

    def use() -> None:
        part = Part()
        key = id(part)
        parents[key] = weakref.ref(part, lambda _: parents.pop(key))
        held[:] = [part]

    opgraph.profile(Using(use, values), torch.ones(2, 8))
    gc.collect()
    assert (parents, held) == ({}, [])
