"""Fake tensors that outlive their run: whoever keeps one would compute with it. The collector of garbage
knows who that is, and they are taken out of containers that are there to be filled."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from types import CellType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.fx.proxy import Attribute, Proxy
from torch.utils.weak import TensorWeakRef

from opgraph.record.errors import OpgraphError
from opgraph.record.remarks import Remark
from opgraph.record.turns import is_mine, replaced
from opgraph.tracing.fake.types import graded, unasked
from opgraph.tracing.state.holding import dict_class
from opgraph.tracing.state.signals import Signalled

_STEPS = 5
"""From what holds a tensor to whoever has a name, at most so many: each takes a look at everything."""
_SEARCHES = 3
"""What only holds itself, but for what torch holds of it, goes as that has gone: by the next search."""
_NAMED = 8
_SHOWN = 3
_SYMBOLS = (Proxy, Attribute)


def settle(error: BaseException | None, older: Iterable[BaseException | None] = ()) -> None:
    """Let what is left of a run come to its end: the frames that an error, and what led to it, has passed,
    whose variables are the run's, but for those of `older` errors, and what only holds itself. Generators
    there are closed, and the `with` that one is in ends. Which frames they were stays as text. What a
    backward that failed had still to do goes, too."""
    backward = False
    seen = set(map(id, older))
    waiting = [error]
    for each in waiting:
        if each is None or id(each) in seen:  # what is raised again may lead to itself
            continue
        seen.add(id(each))
        passed_by = _WHERE.__get__(each)
        if passed_by is not None:
            frames = list(traceback.walk_tb(passed_by))
            backward |= any(frame.f_code is _RUNS_BACKWARD for frame, _ in frames)
            passed = traceback.StackSummary.extract(frames).format()
            del frames
            traceback.clear_frames(passed_by)
            del passed_by
            _WHERE.__set__(each, None)  # whatever its class makes of being set something
            # The words of opgraph's own say what is to be said, and the first place is where it was.
            held = _HELD.__get__(each)
            notes = held.get("__notes__", [])
            said = type(notes) is not list or any(
                type(note) is str and note.startswith(_HERE) for note in notes
            )
            if not said and not issubclass(type(each), (OpgraphError, Signalled)):
                held["__notes__"] = [*notes, _HERE + "".join(passed).rstrip()]
        if issubclass(type(each), AttributeError) and issubclass(
            type(_OBJECT.__get__(each)), FakeTensor
        ):
            _OBJECT.__set__(each, None)  # whose class has what the one that it stands for has not
        # All that a compilation had come to:
        _HELD.__get__(each).pop("_torch_dynamo_tracer_output", None)
        waiting += _CAUSE.__get__(each), _CONTEXT.__get__(each)
    if backward:
        _end_backward()
    gc.collect(1)


_WHERE, _CAUSE, _CONTEXT, _HELD = (
    vars(BaseException)[name] for name in ("__traceback__", "__cause__", "__context__", "__dict__")
)
_OBJECT: Any = vars(AttributeError)["obj"]
_HERE = "It was raised here (most recent call last):\n"
_RUNS_BACKWARD = _engine_run_backward.__code__
"""What every backward is run by, whoever asks for one."""


def _end_backward() -> None:
    """Let go of what a backward that failed had still to do: autograd keeps it until the next one of the
    thread comes to it. One of two results begins after all that is waiting, at a root of its own."""
    with torch._C.DisableTorchFunction(), torch.inference_mode(mode=False), torch.enable_grad():
        ends = torch.zeros(2, device="cpu", requires_grad=True).unbind()
        _engine_run_backward(
            ends, tuple(end.detach() for end in ends), keep_graph=False, create_graph=False,
            inputs=(), allow_unreachable=True, accumulate_grad=True,
        )  # fmt: skip


Modes = list[weakref.ref[FakeTensorMode]]


@contextmanager
def modes_made(modes: Modes) -> Iterator[None]:
    """Within, the modes of fake tensors that torch makes for itself are added to these."""
    plain = FakeTensorMode.__init__

    def made(self: FakeTensorMode, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        if modes and is_mine():
            modes.append(weakref.ref(self))

    with replaced(FakeTensorMode, "__init__", made):
        yield


def leaks(heard: Callable[[], bool], modes: Modes) -> Iterator[Remark]:
    """What is to be said of fake tensors that live on after their run, and of symbols that lead to such.
    `heard` says at little cost whether there may be any of its own mode, the first of `modes`, but for what
    threads made in which nobody heard it."""

    def alive() -> bool:
        own, *others = (mode() for mode in modes)
        if any(mode is not None for mode in others):
            return True
        return own is not None and (getattr(own, "unheard", 0) > 0 or heard())

    if not modes or not alive():
        return
    gc.collect(0)  # what the run has made, and is only held by itself
    if not alive():
        return
    symbols, fakes, gradients = _left(modes)
    for what, left in (("symbol", symbols), ("fake tensor", fakes)):
        healed, kept = _healed(left, gradients)
        for said, names in (("was left in {}, and taken out again", healed),
                            ("is left in {}: it has no values to compute with", kept)):  # fmt: skip
            for name in names[:_SHOWN]:
                yield Remark("state", f"a {what} of the run {said.format(name)}")
            if len(names) > _SHOWN:
                yield Remark("state", f"so it is in {len(names) - _SHOWN} other places")


Left = list[Callable[[], Any]]
"""Weak references: what is dead by now is left no more."""


@unasked()
def _left(modes: Modes) -> tuple[Left, Left, Left]:
    """The symbols and the fake tensors that live on, and the other tensors that have a gradient. All that
    there is, millions of objects, is gone through once."""
    gc.collect()
    there = gc.get_objects()
    kinds = {id(kind) for kind in (*_SYMBOLS, *_kinds(torch.Tensor))}
    found = list(compress(there, map(kinds.__contains__, map(id, map(type, there)))))
    del there
    symbols: Left = [weakref.ref(thing) for thing in found if _is_symbol(thing)]
    fakes: Left = [TensorWeakRef(thing) for thing in found if _is_fake(modes, thing)]
    tensors = (t for t in found if type(t) not in _SYMBOLS and not _is_fake(modes, t))
    return symbols, fakes, [TensorWeakRef(t) for t in tensors if _own_gradient(t) is not None]


def _own_gradient(tensor: torch.Tensor) -> Any:
    return graded(tensor, "grad") if graded(tensor, "is_leaf") else None


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    narrower: type[Any]
    for narrower in type.__subclasses__(kind):
        yield from _kinds(narrower)


@unasked()
def _healed(left: Left, gradients: Left) -> tuple[list[str], list[str]]:
    """Who held some things, by name: those they were taken out of, and those that have them still when what
    went with these is gone."""
    healed: list[str] = []
    kept: list[str] = []
    if _forget(_alive(left)):
        gc.collect()
    for again in (False, True):
        things = _alive(left)
        if not things:
            return healed, []
        taken, kept = _taken_out(things)
        taken += _out_of_gradients(things, _alive(gradients))
        healed += taken
        del things
        if again or not taken:  # another look would find the same
            break
        if _alive(left):
            gc.collect()
    for _ in range(_SEARCHES if kept or not healed else 0):
        gc.collect()
        if not _alive(left):
            return healed, []
    return healed, kept if healed or kept else ["something that Python does not show"]


def _forget(left: list[Any]) -> bool:
    """Let tensors lead to nothing: what a backward that failed did not come to may have them, as hooks of
    saved tensors gave them, and nobody would end that. Whether any led somewhere."""
    led = [
        thing
        for thing in left
        if issubclass(type(thing), torch.Tensor)
        and graded(thing, "_base") is None
        and graded(thing, "grad_fn") is not None
    ]
    for thing in led:
        thing.detach_()
    return bool(led)


def _alive(left: Left) -> list[Any]:
    return [thing for thing in (one() for one in left) if thing is not None]


def _is_fake(modes: Modes, thing: Any) -> bool:
    return type(thing) is FakeTensor and any(mode() is thing.fake_mode for mode in modes)


def _is_symbol(thing: Any) -> bool:
    return type(thing) in _SYMBOLS and type(thing.tracer).__module__.startswith("opgraph.")


class _Holders:
    """Who holds what. A look goes through all objects that there are, which takes about as long for many
    things as for one, so that what it has shown is kept."""

    def __init__(self, *own: Any) -> None:
        self._of: dict[int, list[Any]] = {}
        self._seen: list[Any] = []  # so that no other thing gets the id of one
        self._own = {id(self._seen)}
        self.is_own(*own)

    def is_own(self, *containers: Any) -> None:
        """These were made to look for holders, and are none."""
        self._own.update(map(id, containers))

    def look(self, things: Iterable[Any]) -> None:
        """Look for the holders of these, of all at once."""
        new = {id(thing): thing for thing in things if id(thing) not in self._of}
        if not new:
            return
        found = gc.get_referrers(*new.values())
        self._of.update((i, []) for i in new)
        self.is_own(new, found, *(self._of[i] for i in new))
        for holder in found:
            if id(holder) not in self._own and not isinstance(holder, (FrameType, TracebackType)):
                for i in new.keys() & set(map(id, gc.get_referents(holder))):
                    self._of[i].append(holder)
        self._seen += new.values()

    def of(self, thing: Any) -> list[Any]:
        if id(thing) not in self._of:
            self.look([thing])
        return self._of[id(thing)]

    def look_up(self, things: list[Any]) -> None:
        """Look for the holders of these, for theirs, and so on, as far as names are looked for."""
        for _ in range(_STEPS):
            things = [thing for thing in things if not _is_named(thing)]
            self.is_own(things)
            self.look(things)
            things = [holder for thing in things for holder in self.of(thing)[:2]]


def _taken_out(left: list[Any]) -> tuple[list[str], list[str]]:
    """Who held what is left, by name: those it was taken out of, and those that have it still."""
    healed: dict[str, None] = {}
    kept: dict[str, None] = {}
    seen = _Holders(left)
    things = left
    for _ in range(_STEPS):
        ids = set(map(id, things))
        seen.look(things)
        holders = {id(h): h for thing in things for h in seen.of(thing) if not _is_own(h)}
        bound = [h for h in holders.values() if isinstance(h, (tuple, frozenset))]
        free = [h for h in holders.values() if not isinstance(h, (tuple, frozenset))]
        seen.is_own(holders, bound, free)
        seen.look(free)
        seen.look_up(free[:_NAMED])
        spaces = {id(h) for h in free if isinstance(h, dict) and _is_space(h, seen)}
        for holder in free:
            emptied = _cache_of(holder, seen)
            if emptied is not None:
                emptied.cache_clear()
                made = emptied.__wrapped__
                healed[f"the cache of {made.__module__}.{made.__qualname__}"] = None
                continue
            name = _name_of(holder, seen) if len(healed) + len(kept) < _NAMED else "others"
            if _remove(holder, ids, spaces):
                healed[name] = None
            else:
                kept[f"{name}{_key(holder, ids)}"] = None
        if not bound:
            break
        things = bound  # what cannot be changed goes with what it is in
    return list(healed), list(kept)


def _out_of_gradients(left: list[Any], having: list[torch.Tensor]) -> list[str]:
    """Those of the tensors `having` a gradient that had one of these as such, by name: torch holds it, and
    Python sees no holder."""
    ids = set(map(id, left))
    found = [t for t in having if id(_own_gradient(t)) in ids]
    seen = _Holders(having, found)
    seen.look_up(found)
    for tensor in found:
        tensor.grad = None
    return [f"the gradient of {_name_of(tensor, seen)}" for tensor in found[:_NAMED]]


def _is_own(holder: Any) -> bool:
    """Whether it holds the attributes of a fake tensor."""
    return isinstance(holder, dict) and "fake_mode" in holder


def _remove(holder: Any, ids: set[int], spaces: set[int]) -> bool:
    """Take some things out of a container that is there to be filled, and is none of these `spaces`: the
    entries of a dictionary that they are in, or are the keys of."""
    if isinstance(holder, dict) and id(holder) not in spaces:
        base = dict_class(holder)
        for key in [k for k, v in dict.items(holder) if not ids.isdisjoint((id(k), id(v)))]:
            base.__delitem__(holder, key)
    elif isinstance(holder, (list, deque)):
        rest = [item for item in holder if id(item) not in ids]
        holder.clear()
        holder.extend(rest)
    elif isinstance(holder, set):
        holder.difference_update([item for item in holder if id(item) in ids])
    else:
        return False
    return True


def _key(holder: Any, ids: set[int]) -> str:
    """The attribute or the global under which something holds one of some things."""
    table = holder if isinstance(holder, dict) else _attributes_of(holder)
    return next((f".{k}" for k, v in table.items() if id(v) in ids), "")


def _cache_of(holder: Any, seen: _Holders) -> Any:
    """The cache of functools of which something is an entry; None where it is none."""
    if type(holder).__name__ != "_lru_list_elem" and not hasattr(holder, "cache_clear"):
        return None
    found = holder
    for _ in range(3):
        if hasattr(found, "cache_clear"):
            return found
        above = seen.of(found)
        found = next((h for h in above if hasattr(h, "cache_clear")), None) or next(
            (h for h in above if isinstance(h, dict)), None
        )
        if found is None:
            break
    return None


def _is_named(holder: Any) -> bool:
    """Whether it has a name of its own, whoever holds it."""
    if isinstance(holder, dict):
        return _module_of(holder) is not None
    return isinstance(holder, (FunctionType, ModuleType, type))


def _is_space(table: dict[Any, Any], seen: _Holders) -> bool:
    """Whether a dictionary holds the attributes of something, or the globals of a module."""
    return _module_of(table) is not None or _owner_of(table, seen) is not None


def _module_of(table: dict[Any, Any]) -> str | None:
    name = table.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name if module is not None and _attributes_of(module) is table else None


def _owner_of(table: dict[Any, Any], seen: _Holders) -> Any:
    for owner in seen.of(table):
        if _attributes_of(owner) is table:
            return owner
    return None


def _name_of(holder: Any, seen: _Holders, steps: int = _STEPS) -> str:
    """What a person would call a holder: by the module, the class or the function that has it."""
    if isinstance(holder, (FunctionType, type)):
        return f"{holder.__module__}.{holder.__qualname__}"
    if isinstance(holder, dict):
        module = _module_of(holder)
        if module is not None:
            return module
        owner = _owner_of(holder, seen)
        if owner is not None:
            return _name_of(owner, seen, steps)
    cls = type(holder)
    plain = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    if steps == 0:
        return f"a {plain}"
    for above in seen.of(holder):
        if isinstance(above, FunctionType):
            return f"{above.__module__}.{above.__qualname__}"
        if isinstance(above, dict):
            key = _key_of(above, holder)
            name = _name_of(above, seen, steps - 1)
            return f"{name}.{key}" if _is_space(above, seen) else f"{name}[{_plain(key)}]"
        if isinstance(above, (tuple, list, deque, set, CellType)):
            return _name_of(above, seen, steps - 1)
        key = _key_of(_attributes_of(above), holder)
        if key is not None:
            return f"{_name_of(above, seen, steps - 1)}.{key}"
    return f"a {plain}"


def _attributes_of(holder: Any) -> Mapping[Any, Any]:
    """What something holds by name: found without the code of its class."""
    try:
        return object.__getattribute__(holder, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        return {}


def _key_of(table: Mapping[Any, Any], thing: Any) -> Any:
    # A loop, for what a generator closes over would be one more holder.
    for key, value in dict.items(table) if isinstance(table, dict) else table.items():
        if value is thing:
            return key
    return None


def _plain(key: Any) -> str:
    return repr(key)[:40] if isinstance(key, (str, int, float, bool)) else type(key).__name__
