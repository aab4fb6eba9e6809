"""One guard for each run of a model: what the forward can reach is remembered before, the memory of a
tensor is copied at the moment before it is first written to, and afterwards all is as before, to the bit.
What could not be brought back is remarked on."""

from __future__ import annotations

import ctypes
import gc
import io
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import Context, copy_context
from functools import partial
from itertools import chain
from logging import Logger
from math import inf
from operator import itemgetter
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)

from opgraph.costs.collectives import exchanges, group_of
from opgraph.costs.count import touched_bytes
from opgraph.costs.formulas.linalg import SPARSE, stored
from opgraph.record import units
from opgraph.record.errors import TraceError, first_line
from opgraph.record.identity import identity
from opgraph.record.remarks import Remark, apart, leave
from opgraph.record.turns import replaced, turn
from opgraph.sources.ranks import is_fake_work, is_pretended, works_of
from opgraph.sources.weightless import begun, fits, give_back
from opgraph.tracing.fake.tensors import REAL_LIMIT, is_away, needs_values, parts_of_memory
from opgraph.tracing.fake.types import computes, graded, is_told, shared
from opgraph.tracing.state.arrays import is_among, memory_of, shared_places, write_back
from opgraph.tracing.state.aside import Aside, Kept, Stands, Then, Variables, plainly
from opgraph.tracing.state.devices import Brought
from opgraph.tracing.state.effects import Effects
from opgraph.tracing.state.found import Found
from opgraph.tracing.state.histories import SAME, Apart, unhooked
from opgraph.tracing.state.imports import Imports
from opgraph.tracing.state.iterators import Copies
from opgraph.tracing.state.leaks import settle
from opgraph.tracing.state.meeting import PATIENCE, met
from opgraph.tracing.state.memory import free_bytes
from opgraph.tracing.state.others import Others, alone, processes
from opgraph.tracing.state.packages import is_closed, own_modules
from opgraph.tracing.state.process import (
    AROUND,
    Settings,
    cast_anew,
    compute_anew,
    modes_around,
    set_back,
    unnamed,
)
from opgraph.tracing.state.reach import Reach, reads_memory
from opgraph.tracing.state.signals import ASKED, Signalled, Signals
from opgraph.tracing.state.states import InCommon, Said, saves, streams_below, way_back
from opgraph.tracing.state.steps import Left, Step, all_back
from opgraph.tracing.state.tensors import (
    LOOKS_BACK,
    UNDECLARED,
    Looks,
    is_real,
    place_of,
    sparse_back,
    storage_of,
    tensors_in_call,
    wraps,
    written_in,
)

_Place = tuple[int, int, torch.UntypedStorage]
"""Where some memory begins and ends, and what has it."""


class Stopped(BaseException):
    """A run on real tensors may not go on: it needs more memory than it may take, or other ranks that do
    not come. A model is not to catch it."""


MEASURED = 1.0
"""A limit of so many GiB is one of what the process grows by, the graph and copies within operators with
it. Of a smaller one tensors alone are counted: what Python takes by the way is not small beside it."""
_NODE = 500
"""Bytes by which a node and its memory's record are larger than what they are made of."""
COPYING = frozenset(
    "__reduce__ __reduce_ex__ __getstate__ __setstate__ __deepcopy__ __del__".split()
)
"""Methods that Python calls where something is copied, and where that ends."""
HANDED_OUT = frozenset({
    Tensor.numpy, Tensor.__array__, Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage,
    Tensor.__dlpack__, Tensor.share_memory_, Tensor.resize_, Tensor.apply_, Tensor.map_, Tensor.map2_,
})  # fmt: skip
"""Functions that give the memory of a tensor to whoever may write to it without torch's knowledge."""
_APPLY = Tensor.apply_
_RUNS = "opgraph.tracing.base"
"""The module that has a model run."""
_ENDS = 3
"""What ends may leave others that end: so often that is waited for."""
_COUNTS = 1 << 12
"""Bytes that tensors have at most by which something is counted."""
_depth, _set_depth = sys.getrecursionlimit, sys.setrecursionlimit
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
_enter_context, _leave_context = (
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)((name, ctypes.pythonapi))
    for name in ("PyContext_Enter", "PyContext_Exit")
)
"""What brings things back goes by these, whatever a forward puts in their place."""


def _back(said: Said) -> None:
    said.back()


def _none(_: Tensor) -> bool:
    return False


class Guard:
    """What is known of the time before a run. It changes nothing until it `begin`s, but signals wait from
    its making until it `restore`s, unless the model is `running`. `limit` is how many bytes copies may
    take, and `ceiling` how many the whole process; `modules` are those of a model, in whose tables of
    parameters there are others during the run if some `stand_in`; it is on a `device`. Methods of
    these names are `called` without being named. Backwards may have their `ends` at results of before."""

    def __init__(
        self,
        roots: Iterable[Any],
        modules: Collection[torch.nn.Module] = (),
        limit: int | None = None,
        ceiling: int | None = None,
        device: str = "cpu",
        *,
        stand_in: bool = False,
        called: Iterable[str] = (),
        ends: bool = False,
    ) -> None:
        gc.collect(1)  # what ends now is nothing that the run did
        self._device, self.ends = device, ends
        self.remarks: list[Remark] = []
        self.lacking: dict[int, str] = {}  # what went on for want of values, by its id
        self._limit, self._ceiling = limit, ceiling
        self.taken = 0
        self.unheard = "where no mode hears it, as in a thread that was there before"
        self._copies: dict[int, tuple[Any, torch.UntypedStorage, bool]] = {}
        self._values: list[tuple[Tensor, Callable[[], Any]]] = []
        self._own: set[int] = set()
        self._unwritten: set[int] = set()
        self._places: tuple[Collection[int], list[_Place]] | None = None
        self._beside: list[Reach] = []
        self._variables = Variables()
        self._late: list[_Remembered] = []
        self._under_way: list[Any] = []
        self._gone: list[Any] = []
        self.met: set[str] = set()  # groups of ranks, by name
        self._handled = sys.exception()  # where the profile was asked for
        self.when_imported: Callable[[], None] = lambda: None
        self.while_imported: Callable[[], AbstractContextManager[None]] = nullcontext
        self._depth = sys.getrecursionlimit()
        self._context: Context | None = None
        self._with_others, self._others = not alone(), Others()
        self._thread = threading.get_ident()
        self._stands = Stands()
        self.signals = Signals()
        self._aside = Aside(self._kept, self.signals)
        try:
            self._settings = Settings()
            self._effects = Effects()
            self._imports = Imports(self._aside.begins, self._imported, self._as_before)
            self._remember(roots, modules, modules if stand_in else (), called)
        except BaseException:
            self.signals.end()
            raise

    def _remember(
        self,
        roots: Iterable[Any],
        modules: Collection[torch.nn.Module],
        stood_for: Collection[torch.nn.Module],
        called: Iterable[str],
    ) -> None:
        with plainly():
            tables = (m._parameters for m in stood_for)
            self._reach = Reach.of([*roots, *unnamed()], tables, called)
            if not self._reach.complete:
                self._reach.add_tables(modules)
                self._remark(
                    "not all that the forward can reach could be looked at before: that was not guarded"
                )
            self._replaced = {
                identity(tensor)
                for module in stood_for
                for table, least in ((module._parameters, 0), (module._buffers, REAL_LIMIT))
                for tensor in table.values()
                if tensor is not None
                and is_away(tensor)
                and tensor.numel() * tensor.element_size() > least
            }
            self._first = _Remembered(self._reach, self)
            self._beside = [self._reach.beside()]
            self._beside[0].add_kept(own_modules())
            self.away = {t.device.type for t in self._reach.tensors.values() if is_away(t)} | {
                tensor.device.type
                for module in stood_for
                for tensor in module._parameters.values()
                if tensor is not None and is_away(tensor)
            }
            if around := modes_around():
                self._keep_of(around, modules)
            if told := self._of_classes(stood_for, is_told):
                self._keep_of(told, modules, _COUNTS)
            if told := self._of_classes(stood_for, computes):
                self._keep_of(told, modules)
            if self._reach.collects:  # what ends then is nothing that the run did
                then = self._aside.begins()
                gc.collect()
                self._aside.ends(then)

    def _kept(self) -> Iterator[Kept]:
        """All that was found, and settings. In a thread that the forward has started settings and states
        are left out, for others go on meanwhile."""
        yield from (*self._reaches(), *self._beside)
        if threading.get_ident() == self._thread:
            yield from chain.from_iterable(of.small() for of in (self._first, *self._late))
            yield from (self._variables, self._settings)
            for around in AROUND:
                yield from around

    @contextmanager
    def _handling(self, number: int) -> Iterator[None]:
        """Within, the handler of a signal runs. It finds the weights, and no mode that hears."""
        then: Then = []
        if self._aside.is_too_often(number):
            self._remark(
                f"a signal ({number}) came so often that what its handler changed later was set back, too"
            )
        else:
            then = self._aside.begins()
        try:
            tables = self._reach.found_in_tables()
            with (
                replaced(self._effects, "apart", True),  # noqa: FBT003
                replaced(self.signals, "aside", True),  # noqa: FBT003
                plainly(),
                self._stands.away(tables),
            ):
                yield
        finally:
            self._aside.ends(then)

    def _imported(self, modules: dict[str, ModuleType], then: Then, by_tracing: bool) -> None:
        """The model is the first to import these: what it may change in them is guarded from now on. What
        they changed of what was found stays with them, and of settings, but for those of what torch alone
        needs."""
        of_tracing = by_tracing and all(map(is_closed, modules))
        self._aside.ends(then, () if not modules else (Found, Said) if of_tracing else (object,))
        if not modules:
            return
        self._settings.add(modules)
        with plainly():
            late = _Remembered(self._reach.after(modules), self)
            own = (n for n in modules if not is_closed(n) and sys.modules.get(n) is modules[n])
            if self._aside.is_within:  # what is kept was noted, and is compared
                self._beside.append(self._reach.beside())
            self._beside[-1].add_kept(own)
        self._late.append(late)
        late.lend(self._stands.of)
        self._effects.hear()
        self.when_imported()

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Within, whoever imports finds what hears, and what code is told, out of the way."""
        with self._effects.unheard(), self.while_imported(), replaced(self.signals, "aside", True):  # noqa: FBT003
            yield

    def begin(self) -> None:
        """From here on things are changed, and are to be restored, whatever comes. What is set in context
        variables is so in a copy of the context."""
        try:
            context = copy_context()
            _enter_context(context)
            apart()
            self._context = context
            self._first.lend()
            streams = (s for s in self._reach.stateful if isinstance(s, io.IOBase))
            self._effects.begin(streams, self._reach.awaited)
            self._imports.begin()
            self.signals.tell(self._handling)
            compute_anew()
        except BaseException:
            self.restore()
            raise

    @property
    def spaces(self) -> list[dict[str, Any]]:
        """The globals of all code within reach that is followed."""
        return list(self._reach.spaces.values())

    def brought(self, tensor: Tensor) -> Tensor | None:
        """The copy on the CPU that the run has of a tensor on an accelerator."""
        return self._first.brought.of.get(identity(tensor))

    @property
    def tells_fakes(self) -> bool:
        """Whether there is code within reach that tells fake tensors from real ones."""
        return self._reach.tells_fakes

    @property
    def sets_classes(self) -> bool:
        """Whether there is code within reach that may set the class of an object."""
        return self._reach.sets_classes

    @property
    def limit(self) -> int:
        """The bytes that the run may take."""
        if self._limit is None:
            self._limit = free_bytes() // 2
        return self._limit

    # During the run.

    def before(
        self, operator: Any, args: Any, kwargs: Any, made_here: Callable[[Tensor], bool]
    ) -> bool:
        """An operator is about to write: copy what was there, unless it was made in this run. Whether it
        writes to anything that is real."""
        fakes = {isinstance(t, FakeTensor) for t in tensors_in_call(args, kwargs)}
        if fakes == {True}:
            return False
        tensors = written_in(operator, args, kwargs)
        if True in fakes:  # torch counts that as one, and nothing is in its memory
            self._unwritten.update(t.untyped_storage()._cdata for t in tensors if is_real(t))
            return False
        for tensor in tensors:
            if not made_here(tensor):
                self.keep(tensor)
        return bool(tensors)

    def handed_out(self, func: Any, tensor: Any, made_here: Callable[[Tensor], bool]) -> None:
        """The memory of a tensor is given to whoever may write to it unheard: copy it. Raises where there
        is none, and torch would write all the same."""
        if func is _APPLY and isinstance(tensor, FakeTensor):
            error = NotImplementedError("a fake tensor has no data to apply a function to")
            self.raised(error)
            raise error
        if isinstance(tensor, Tensor) and not made_here(tensor):
            self.keep(tensor)

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        """Whether the memory of a real tensor is not torch's own, as that of an array is, and may be read
        by another name: it is that of an array from before the run, or became a tensor's within it."""
        if storage.resizable():
            return False
        return self.has_array(storage.data_ptr()) or storage._cdata not in self._known_places()[0]

    def has_array(self, address: int) -> bool:
        """Whether memory is that of an array that was there before the run."""
        arrays = (a for a in self._reach.arrays if hasattr(a, "ctypes"))
        return any(a.ctypes.data <= address < a.ctypes.data + max(a.nbytes, 1) for a in arrays)

    @contextmanager
    def listening(self, made_here: Callable[[Tensor], bool] = _none) -> Iterator[None]:
        """Within, the guard itself hears what is written: where nothing is recorded."""
        with _Gifts(self, made_here), _Writes(self, made_here), self.running():
            yield

    @contextmanager
    def preparing(self, made_here: Callable[[Tensor], bool] = _none) -> Iterator[None]:
        """The same where opgraph has the memory of tensors in hand, and the model's code may run, too.
        Raises `TraceError` where copies take more than they may."""
        try:
            with _Writes(self, made_here), self.running():
                yield
        except Stopped as error:
            raise TraceError(str(error)) from error

    def is_new(self, tensor: Tensor) -> bool:
        """Whether nothing that was found before the run is in the memory of a tensor."""
        storage = storage_of(tensor)
        return storage is not None and storage._cdata not in self._known_places()[0]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within, the model itself runs, and may be interrupted. How deep calls may go is told again at
        once: a lower limit leaves none to bring the rest back."""
        try:
            with self.signals.let():
                yield
        finally:
            _set_depth(max(self._depth, _depth()))

    def interrupted(self, error: BaseException) -> bool:
        """Whether an error of a run is not the model's: an interrupt, or a signal's handler raised it."""
        return isinstance(error, (KeyboardInterrupt, Signalled)) or error is self.signals.raised

    def raised(self, error: BaseException) -> None:
        """Something raised where nothing is recorded: a run that catches it goes on as it would not with
        values."""
        if needs_values(error):
            self.lacking[identity(error)] = f"the model caught {first_line(error)}"

    def asked(self, tensor: Tensor) -> None:
        """Somebody asks where the memory of a tensor is. Raises where code within reach goes there, or who
        asks, and nothing is: what reads by the address of a fake tensor, which ends the process, and what
        runs on an accelerator, where no tensor of a run is, which ends all work there."""
        if self._reach.launches:
            raise RuntimeError(
                "tensors of a run are in the host's memory, and what runs on an accelerator by the address "
                "of one would end all work there"
            )
        if type(tensor) is FakeTensor and (self._reach.reads_memory or _is_read()):
            error = NotImplementedError("a fake tensor has no data to be read by its address")
            self.raised(error)
            raise error

    def exchanges(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """A call is about to exchange something with other ranks. Of fake tensors, and among ranks that are
        pretended, nothing is exchanged. Raises `Stopped` where not all of these come."""
        given = list(tensors_in_call(args, kwargs))
        fakes = bool(given) and all(type(t) is FakeTensor for t in given)
        if is_pretended() or fakes or func.namespace == "opgraph":  # what goes to the host and back
            return
        schema = func._schema.arguments
        self.meets(group_of({a.name: v for a, v in zip(schema, args, strict=False)} | dict(kwargs)))

    def meets(self, group: Any) -> None:
        """Something is about to be exchanged within a group of ranks (None: it names none): before the
        first time these meet. Raises `Stopped` where they do not, in this attempt or in one before."""
        if group is not None and group.group_name not in self.met:
            with self._effects.unheard():
                lacking = met(group)
            if lacking is not None:
                raise Stopped(lacking)
            self.met.add(group.group_name)
        self._remark("forward exchanged tensors with other processes: that cannot be taken back")

    def exchanged(self, out: Any) -> None:
        """What a call exchanges with other ranks may still go on when the run is over."""
        self._under_way += (work for work in works_of(out) if not is_fake_work(work))

    def keep(self, tensor: Tensor) -> None:
        """Copy the memory of a tensor, once, so that it can be brought back."""
        with plainly():
            storage = storage_of(tensor)
            is_fake = isinstance(
                tensor, FakeTensor
            )  # and may have a real one's memory all the same
            if storage is None or (is_fake and storage.device.type == "meta"):
                if not is_fake:
                    self._keep_values(tensor)
                return
            if storage._cdata not in self._copies and storage._cdata not in self._own:
                self._keep_storage(storage)
                for other in self._at_same_place(storage):
                    if other._cdata not in self._copies:
                        self._keep_storage(other)

    def keep_others(self, tensors: Iterable[Tensor]) -> None:
        """Copy the memory of all that was found and is none of these, where nothing can listen."""
        own = set(map(identity, tensors))
        for look in self._first.tensors:
            if identity(look.tensor) not in own:
                self.keep(look.tensor)

    def keep_counts(self) -> None:
        """Copy the memory of all that was found and is small, as far as copies may take it, by which
        something may be counted where nobody hears: what runs of the model's code while it is compiled."""
        for look in self._first.tensors:
            storage = None if is_away(look.tensor) else storage_of(look.tensor)
            size = inf if storage is None else storage.nbytes()
            if size <= _COUNTS and self.taken + size <= self.limit:
                self.keep(look.tensor)

    def _of_classes(
        self, modules: Iterable[torch.nn.Module], are: Callable[[type], bool]
    ) -> list[Any]:
        """Classes of tensors that hear of functions (also of those by which opgraph and Dynamo ask what a
        tensor is) or of operators, with the attributes of their tensors."""
        weights = (t for m in modules for t in m._parameters.values() if t is not None)
        tensors = [*self._reach.tensors.values(), *weights]
        classes = {cls for cls in {*map(type, tensors), *self._reach.tensor_classes} if are(cls)}
        held = (shared(t) for t in tensors if type(t) in classes and not wraps(type(t)))
        return [*classes, *chain.from_iterable(held)]

    def _keep_of(
        self, around: list[Any], modules: Iterable[torch.nn.Module], most: float = inf
    ) -> None:
        """What a mode or a class writes while it is told of an operator, nobody hears: copy its own tensors
        of at `most` so many bytes, but for those of the model."""
        models = {
            identity(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())
        }
        for tensor in Reach.of(around).tensors.values():
            storage = storage_of(tensor)
            size = touched_bytes(tensor) if storage is None else storage.nbytes()
            if identity(tensor) in models or size > most:
                continue
            if self.taken + size > self.limit:
                self._remark(
                    f"a tensor of {units.size(size)} that a mode around has was not guarded: a copy of "
                    "it is more than what may be taken (--memory-limit)"
                )
            else:
                self.keep(tensor)

    def _keep_storage(self, storage: torch.UntypedStorage) -> None:
        key, copies = storage._cdata, self._copies
        self._take(0 if storage.device.type == "meta" else storage.nbytes())
        reference = weakref.ref(storage, partial(copies.pop, key))
        try:
            copies[key] = reference, storage.clone(), storage.is_shared()
        except RuntimeError:  # a tensor of a class of its own, which is made of others
            return

    def _at_same_place(self, storage: torch.UntypedStorage) -> Iterator[torch.UntypedStorage]:
        """What there was at the memory of a storage that was made of it since, as by DLPack."""
        known, places = self._known_places()
        if storage._cdata not in known and storage.device.type == "cpu":
            start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            for first, _, other in places[bisect_right(places, start, key=itemgetter(1)) :]:
                if first >= end:
                    break
                yield other

    def _known_places(self) -> tuple[Collection[int], list[_Place]]:
        """The storages that there were before the run, and where those in the CPU's memory are."""
        if self._places is None:
            aliases = (looks.alias for looks in self._first.tensors)
            found = (storage_of(alias) for alias in aliases if alias is not None)
            held = {s._cdata: s for s in found if s is not None}
            here = (s for s in held.values() if s.device.type == "cpu")
            places = (place_of(s) for s in here)
            self._places = held.keys(), sorted(filter(None, places), key=itemgetter(0))
        return self._places

    def _keep_values(self, tensor: Tensor) -> None:
        """The same of a tensor that has no storage: a sparse one is made of others that have."""
        if any(known is tensor for known, _ in self._values):
            return
        if tensor.layout not in SPARSE:
            kept = tensor.detach().clone()
            self._values.append((tensor, lambda: tensor.copy_(kept)))
            return
        parts = [part.detach() for part in stored(tensor)]
        if tensor.layout is not torch.sparse_coo:  # of which there is an alias
            self._values.append((tensor, partial(sparse_back, tensor, parts, tensor.shape)))
        for part in parts:
            self.keep(part)

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken > self.limit:
            raise Stopped(
                f"the forward writes to {units.size(self.taken)} of tensors, and copies of them, to bring "
                f"them back from, may take {units.size(self.limit)} (--memory-limit)"
            )

    def spends(self, size: int) -> None:
        """So many bytes are about to be taken for as long as the run lasts."""
        self.taken += size
        self.needs(0, 0)

    def lend(self, stands: Mapping[int, Tensor]) -> None:
        """Let these stand in for the tensors of these ids wherever they were found, until all is brought
        back: an optimizer that the model has, a table of weights, a list of them that modules share."""
        self._stands.add(stands)
        reach = self._reach
        with plainly():
            known = reach.tensors | {identity(t): t for t in self._first.brought.of.values()}
            found = {
                key: stand
                for key, stand in stands.items()
                if key != identity(stand)
                and (_may_stand(stand, known[key]) if key in known else not reach.complete)
            }
            found |= self._first.apart.follow(self._stands.of)
            if found:
                reach.lend(found)

    def owns(self, tensor: Tensor) -> None:
        """A tensor was made for the run, and ends with it: there is nothing to bring back."""
        self._own.update(part.untyped_storage()._cdata for part in stored(tensor))

    def needs(self, live: int, coming: int | None = None) -> None:
        """The run has made tensors of so many bytes, and is about to make more: then the process is looked
        at, too, which takes as long as a small operator does."""
        tensors = self.taken + live + (coming or 0)
        if tensors > self.limit or (coming is not None and self._is_full(coming)):
            raise Stopped(
                f"a run on real tensors needs more than the {units.size(self.limit)} that it may take "
                "(--memory-limit)"
            )

    def grows(self, nodes: int) -> None:
        """The graph has so many nodes by now, which are all that a run on fake tensors takes."""
        if self._ceiling is None and self.limit >= MEASURED * 2**30 and (began := begun()):
            self._ceiling = began + self.limit
        if self._is_full(nodes * _NODE):
            raise Stopped(
                f"its graph, of {nodes:,} operators so far, takes more than the "
                f"{units.size(self.limit)} that it may (--memory-limit)"
            )

    def _is_full(self, coming: int) -> bool:
        """Whether the process itself would go beyond what it may, were so many bytes more made."""
        if self._ceiling is None or fits(coming, self._ceiling):
            return False
        give_back()
        return not fits(coming, self._ceiling)

    def meets_before(self, result: Tensor) -> tuple[bool, bool]:
        """Whether a backward from here comes to its end at results that were there before the run, and
        whether it goes through some, and would free what a backward of whoever has them needs."""
        before = {node for reach in self._reaches() for node in reach.history}
        ends = frees = False
        known: set[Any] = {None}
        ahead = [result.grad_fn] if before else []
        while ahead:
            node = ahead.pop()
            if node not in known:
                known.add(node)
                ends = ends or (type(node) is SAME and node.ends)
                frees = frees or (node in before and saves(node) > 0)
                ahead += [further for further, _ in node.next_functions]
        return ends, frees

    def viewed(self) -> Collection[Tensor]:
        """What there were views of before the run."""
        return self._first.apart.viewed

    # Afterwards.

    def settle(self, error: BaseException | None = None) -> None:
        """Let what is left of the run come to its end (see `leaks.settle`) while what it changes by that is
        heard, and can be brought back."""
        errors = (error for reach in self._reaches() for error in reach.errors)
        with self.listening():
            self._wait()
            settle(error, (self._handled, *errors))

    def _reaches(self) -> list[Reach]:
        """What was found before the run, and as modules were imported."""
        return [self._reach, *(late.reach for late in self._late)]

    def _wait(self) -> None:
        """Let what is exchanged with other processes come to its end: it may write to what is kept."""
        while self._under_way:
            work = self._under_way.pop()
            try:
                if not work.is_completed():  # who waits again for what one rank sends waits in vain
                    work.wait(PATIENCE)
            except RuntimeError as error:
                self._remark(
                    f"what forward exchanges with other processes goes on: {first_line(error)}"
                )

    def restore(self) -> None:
        """Bring everything back. What could not be is in `remarks`. Each step is made, whatever the model
        has put in the place of what another needs; what is to be said is found out last."""
        effects = self._effects
        self._reach.staying = set(filter(is_closed, effects.for_good))
        try:
            for step in (
                lambda: _set_depth(max(self._depth, _depth())),
                self.restore_late,
                self._imports.end,
                effects.end,
                self._bring_all_back,
                self._share,
                lambda: self.remarks.extend(effects.remarks()),
            ):
                self._attempt(step)
            self._copies.clear()
            # Cycles lead through these: inputs would stay until the next search for rubbish.
            del self._reach, self._first, self._beside, self._values, self._places
            self._gone.clear()
            del self._stands, self._aside, self._imports, self.when_imported, self.while_imported
            self._late.clear()
        finally:
            context, self._context = self._context, None
            if context is not None:
                self._attempt(lambda: _leave_context(context))
                self._attempt(self._variables.back)
            leave(self.remarks)
            self.signals.tell()
            self.signals.end()

    def restore_late(self) -> None:
        """Bring back what the model imported, as long as all that opgraph itself changed for the run is
        changed: it was so already when that was looked at."""
        for late in reversed(self._late):
            if not late.is_back:
                late.is_back = True
                self._bring_back(late)
                self._undo(late.reach.undoing_last())

    def _bring_all_back(self) -> None:
        """Bring back what was found before the run. What was in its place ends when all is as before; what
        that changes is heard, and brought back in turn."""
        for _ in range(_ENDS):
            for step in (
                lambda: self._bring_back(self._first, self._copies.values(), self._values),
                lambda: self._each(self._settings.changed(), set_back),
                cast_anew,
                lambda: self._undo(self._reach.undoing_last(alone=self._others.quiet())),
                self._bring_back_beside,
            ):
                self._attempt(step)
            if not self._gone:
                break
            self._attempt(self._let_go)

    def _bring_back_beside(self) -> None:
        """Bring back what modules of a person's own keep, where no thread but the forward's can have
        changed it, and none of them did something for good that is not within reach: it notes there that
        it did."""
        followed = {space.get("__name__") for space in self.spaces}
        done = {name for name in self._effects.for_good if not is_closed(name)}
        if self._others.quiet() and done <= followed:
            for beside in self._beside:
                self._undo(beside.undoing())
                self._undo(beside.undoing_last())

    def _let_go(self) -> None:
        """Let what the run had put in the place of what is there again come to its end."""
        self._effects.begin()
        try:
            with _Writes(self, _none), _Gifts(self, _none):  # signals wait until all is back
                self._gone.clear()
        finally:
            self._effects.end()

    def _bring_back(
        self, of: _Remembered, copies: Iterable[Any] = (), values: Iterable[Any] = ()
    ) -> None:
        with plainly():
            of.apart.end()
            self._each(of.loggers, _back)  # what they no longer say others have noted
            self._undo(of.reach.undoing(alone=self.alone()))
            grad = _is_grad_enabled()
            _set_grad_enabled(False)  # noqa: FBT003
            try:
                self._each(of.tensors, Looks.memory_back)
                self._each(of.tensors, self._restore_version)  # by which views know what made them
                for step in LOOKS_BACK:
                    self._each(of.tensors, step)
                self._each(copies, write_back)
                self._each(values, lambda pair: pair[1]())
                self._each(of.tensors, self._restore_version)
                self._each(of.arrays, _back)
                self._each(of.states, _back)
            finally:
                _set_grad_enabled(grad)
        self._attempt(lambda: self.say(of.iterators.advanced()))

    def _restore_version(self, look: Looks) -> None:
        """Autograd counts how often somebody writes to a tensor, whoever does, in whatever thread."""
        tensor, before = look.tensor, look.version
        if before is None or graded(tensor, "_version") == before:
            return
        torch._C._autograd._unsafe_set_version_counter((tensor,), (before,))
        storage = storage_of(tensor)
        known = storage is None or storage._cdata in self._copies.keys() | self._unwritten
        if look.alias is not None and not (known or look.moved):
            raise Left(f"a tensor was written to {self.unheard}")

    def _share(self) -> None:
        """Say which threads may have changed what was brought back, and whether processes may have: that
        forward did is not known of it."""
        names = [] if self.alone() else sorted(self._others.in_ones_own())
        if names:
            more = " and others" * (len(names) > 1)
            self._remark(
                f"another thread ({names[0]}{more}) ran meanwhile: what it changed of what forward can "
                "reach, of settings and of random numbers was set back, too"
            )

        shared = (
            kept.device.type == "cpu" and in_common for *_, kept, in_common in self._copies.values()
        )
        if any(shared) and processes():
            self._remark(
                "forward wrote to tensors that processes share: what another one wrote to these meanwhile "
                "was set back, too"
            )

    def alone(self) -> bool:
        """Whether no thread but this one did anything since before the run. What others wait for, hold, or
        hand each other is not set again while they do, for it is theirs, too."""
        with suppress(Exception):  # the model may have replaced what says so
            return not self._with_others and alone()
        return False

    def say(self, remarks: Iterable[Remark]) -> None:
        """These remarks, each once."""
        for each in remarks:
            if each not in self.remarks:
                self.remarks.append(each)

    def _remark(self, text: str) -> None:
        self.say((Remark("state", text),))

    def _undo(self, steps: Iterable[Step]) -> None:
        self.say(all_back(*steps, gone=self._gone))

    def _each(self, items: Iterable[Any], back: Callable[[Any], Any]) -> None:
        self.say(all_back((items, back)))

    def _attempt(self, step: Callable[[], Any]) -> None:
        self._each((step,), lambda step: step())

    def found_states(self, items: Iterable[Any]) -> Iterator[Said]:
        for item in items:
            try:
                yield Said(partial(way_back, item, self.alone))
            except NotImplementedError:  # it has none: the system's own random numbers
                continue
            except Exception as error:  # noqa: BLE001  (objects may answer as they like)
                name = type(item).__qualname__
                self._remark(f"an object ({name}) was not guarded: {first_line(error)}")

    def brought_here(self, tensors: Iterable[Tensor]) -> Brought:
        away = (
            t
            for t in tensors
            if identity(t) not in self._replaced and t.device.type != self._device
        )
        return Brought(away, self._may_bring)

    def _may_bring(self, size: int, device: torch.device) -> bool:
        fits = self.taken + size <= self.limit
        if fits:
            self.taken += size
        else:
            self._remark(
                f"a tensor of {units.size(size)} on {device} that the forward can reach stays there: a "
                "copy of it is more than what may be taken (--memory-limit)"
            )
        return fits

    def copied_arrays(self, items: Iterable[Any]) -> Iterator[tuple[Said, int]]:
        kept: set[int] = set()
        places = shared_places() if processes() else []
        for found in sorted(items, key=lambda item: getattr(item, "base", None) is not None):
            try:
                size, copy = memory_of(found, within=identity(getattr(found, "base", None)) in kept)
            except Exception as error:  # noqa: BLE001  (torch has no tensors of some types)
                name = type(found).__qualname__
                self._remark(f"an array ({name}) was not guarded: {first_line(error)}")
                continue
            if self.taken + size > self.limit:
                self._remark(
                    f"an array of {units.size(size)} that the forward can reach was not "
                    f"guarded: a copy of it is more than what may be taken (--memory-limit)"
                )
                continue
            self.taken += size
            kept.add(identity(found))
            yield (InCommon if size and is_among(found, places) else Said)(copy), size


@contextmanager
def guarded(
    roots: Iterable[Any], *, heard: bool = True, device: str = "cpu", called: Iterable[str] = ()
) -> Iterator[Guard]:
    """Within, something may run on a device that is not recorded; afterwards all is as before. Where
    nothing is `heard`, so that what runs takes no longer, values of tensors are so that were written to
    while the guard was `listening`. Methods of these names are `called` without being named.

    Raises `TraceError` where copies of these take more than they may."""
    with turn():
        guard = Guard(roots, device=device, called=called)
        if not heard:
            guard.unheard = "by a step that is not listened to, and not by the first, which is"
        guard.begin()
        try:
            with unhooked(), guard.listening() if heard else guard.running():
                yield guard
        except Stopped as error:
            guard.settle(error)
            raise TraceError(str(error)) from error
        except BaseException as error:
            guard.settle(error)
            raise
        else:
            guard.settle()
        finally:
            guard.restore()


def _is_read() -> bool:
    """Whether code that asks for an address, or has it asked for, of whatever package, reads there."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") != _RUNS:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in ("torch", "opgraph") and reads_memory(frozenset(frame.f_code.co_names)):
            return True
        frame = frame.f_back
    return False


def _may_stand(stand: Tensor, tensor: Tensor) -> bool:
    """Whether a tensor may stand in for another wherever that is: no real one for what may be given its
    memory anew, which is not the other's."""
    return type(stand) is FakeTensor or not parts_of_memory(tensor)


class _Remembered:
    """What was found in one look at what is reachable, with what it was then."""

    def __init__(self, reach: Reach, guard: Guard) -> None:
        self.reach, self.is_back = reach, False
        self.tensors = [Looks(t) for t in reach.tensors.values()]
        self.apart = Apart(reach.tensors.values(), ends=guard.ends)
        loggers = [item for item in reach.stateful if issubclass(type(item), Logger)]
        others = [item for item in reach.stateful if not issubclass(type(item), Logger)]
        others.sort(key=streams_below)  # to go back in one moves those that it reads from
        self.loggers, self.states = (list(guard.found_states(f)) for f in (loggers, others))
        arrays = list(guard.copied_arrays(reach.arrays))
        self.arrays = [array for array, _ in arrays]
        self._small = [array for array, size in arrays if size <= _COUNTS]
        self.iterators = Copies(reach.iterators)
        self.brought = guard.brought_here(reach.tensors.values())

    def small(self) -> Iterator[Said]:
        """What has a state, but for large arrays, and loops of asyncio."""
        found = chain(self.loggers, self.states, self._small)
        return (each for each in found if not each.is_loops)

    def lend(self, stands: Mapping[int, Tensor] | None = None) -> None:
        """Let copies of iterators, and of tensors on accelerators, stand in for them, until all is brought
        back, and what autograd knows be apart, of views of weights where it is known what `stands` in for
        those."""
        with plainly():
            others = self.apart.begin()
            others |= {} if stands is None else self.apart.follow(stands)
        copies = {**self.iterators.of, **others, **self.brought.of}
        if copies:
            self.reach.lend(copies)


class _Writes(TorchDispatchMode):
    """Hears writes where nothing is recorded."""

    supports_higher_order_operators = True

    def __init__(self, guard: Guard, made_here: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self._guard, self._made_here = guard, made_here

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Listening is no reason for Dynamo to stay away."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._guard.signals.waiting and func not in ASKED:
            self._guard.signals.deliver()
        schema = getattr(func, "_schema", None)
        if schema is not None and (
            schema.is_mutable or schema.name.replace("::", ".") in UNDECLARED
        ):
            self._guard.before(func, args, kwargs, self._made_here)
        try:
            if not exchanges(func):
                return func(*args, **kwargs)
            self._guard.exchanges(func, args, kwargs)
            out = func(*args, **kwargs)
            self._guard.exchanged(out)
            return out
        except Exception as error:
            self._guard.raised(error)
            raise


@contextmanager
def only_heard() -> Iterator[None]:
    """Within, nobody makes something else of what torch is asked to do; a guard that listens hears it."""
    listening = [m for m in _get_current_dispatch_mode_stack() if type(m) is _Writes]
    with torch._C.DisableTorchFunction(), _disable_current_modes(), ExitStack() as stack:
        for mode in listening[-1:]:
            stack.enter_context(mode)
        yield


class _Gifts(TorchFunctionMode):
    """Hears what hands out memory where nothing is recorded."""

    def __init__(self, guard: Guard, made_here: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self._guard, self._made_here = guard, made_here

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.compiler.is_dynamo_compiling():  # it follows this, too, and it runs when that does
            return func(*args, **(kwargs or {}))
        if func in HANDED_OUT:
            self._guard.handed_out(func, args[0], self._made_here)
        try:
            with staying(self) if func in RUN_HOOKS else nullcontext():
                return func(*args, **(kwargs or {}))
        except Exception as error:
            self._guard.raised(error)
            raise


RUN_HOOKS = frozenset({torch.autograd.backward, torch.autograd.grad, Tensor.backward})
"""Functions within which code of the model runs that is no function of torch: hooks."""


@contextmanager
def staying(mode: TorchFunctionMode) -> Iterator[None]:
    """Within one of these, a mode that was called for it is on again where autograd runs hooks."""
    run = torch.autograd._engine_run_backward

    def heard(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return run(*args, **kwargs)

    with replaced(torch.autograd, "_engine_run_backward", heard):
        yield
