"""One guard for each run of a model: what the forward can reach is remembered before, the memory of a
tensor is copied at the moment before it is first written to, and afterwards all is as before, to the bit.
What could not be brought back is remarked on."""

from __future__ import annotations

import ctypes
import gc
import io
import sys
import threading
import warnings
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from functools import partial
from logging import Logger
from math import inf
from mmap import mmap
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from opgraph.costs.collectives import WRITES, written_by
from opgraph.costs.count import touched_bytes
from opgraph.costs.formulas.linalg import SPARSE, stored
from opgraph.record import units
from opgraph.record.errors import TraceError, first_line
from opgraph.record.identity import identity
from opgraph.record.remarks import Remark, apart, leave
from opgraph.record.turns import replaced, turn
from opgraph.sources.weightless import begun, fits, give_back
from opgraph.tracing.fake.tensors import REAL_LIMIT, is_away, needs_values
from opgraph.tracing.fake.types import graded, gradient, is_told
from opgraph.tracing.state.classes import says_all, says_nothing, scripted
from opgraph.tracing.state.devices import Brought
from opgraph.tracing.state.effects import Effects, alone, name_of, of_ones_own, standard
from opgraph.tracing.state.holding import shown_in_c
from opgraph.tracing.state.imports import Imports
from opgraph.tracing.state.iterators import Copies
from opgraph.tracing.state.leaks import settle
from opgraph.tracing.state.memory import free_bytes
from opgraph.tracing.state.process import (
    Settings,
    cast_anew,
    compute_anew,
    modes_around,
    set_back,
    unnamed,
)
from opgraph.tracing.state.reach import LOCKS, OF_WORKERS, ON_GPU, SHARED_LOCK, Reach
from opgraph.tracing.state.signals import Signalled, Signals
from opgraph.tracing.state.speaking import (
    behind,
    context_back,
    logger_back,
    logger_says,
    own_back,
    own_of,
    text_back,
    text_says,
    unchanged,
)
from opgraph.tracing.state.steps import Left, all_back

_Place = tuple[int, int, torch.UntypedStorage]
"""Where some memory begins and ends, and what has it."""


class OutOfMemory(BaseException):
    """A run on real tensors needs more memory than it may take. A model is not to catch it."""


MEASURED = 1.0
"""A limit of so many GiB is one of what the process grows by, the graph and copies within operators with
it. Of a smaller one tensors alone are counted: what Python takes by the way is not small beside it."""
_NODE = 500
"""Bytes by which a node and its memory's record are larger than what they are made of."""

STATISTICS = frozenset({
    "aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten.batch_norm",
    "aten.instance_norm", "aten._batch_norm_impl_index", "aten.batch_norm_update_stats",
    "aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts",
})  # fmt: skip
"""Operators that write to running statistics, which their schemas do not say."""
UNDECLARED = STATISTICS | WRITES.keys()
"""All that write to what their schemas do not say, collectives among them."""

HANDED_OUT = frozenset({
    Tensor.numpy, Tensor.__array__, Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage,
    Tensor.__dlpack__, Tensor.share_memory_, Tensor.resize_, Tensor.apply_, Tensor.map_, Tensor.map2_,
})  # fmt: skip
"""Functions that give the memory of a tensor to whoever may write to it without torch's knowledge."""

_APPLY = Tensor.apply_
_COUNTS = 1 << 12
"""Bytes that tensors have at most by which something is counted."""
_PATIENCE = timedelta(minutes=1)
"""For how long other processes are waited for."""
_NONE = object()
_depth, _set_depth = sys.getrecursionlimit, sys.setrecursionlimit
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
_NoDispatch, _NoFunction = torch._C._DisableTorchDispatch, torch._C.DisableTorchFunction
_enter_context, _leave_context = (
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)((name, ctypes.pythonapi))
    for name in ("PyContext_Enter", "PyContext_Exit")
)
"""What brings things back goes by these, whatever a forward puts in their place."""


class Guard:
    """What is known of the time before a run. It changes nothing until it `begin`s, but signals wait from
    its making until it `restore`s, unless the model is `running`. `limit` is how many bytes copies may
    take, and `ceiling` how many the whole process; `modules` are those of a model, in whose tables of
    parameters there are others during the run if some `stand_in`; it is on a `device`."""

    def __init__(
        self,
        roots: Iterable[Any],
        modules: Collection[torch.nn.Module] = (),
        limit: int | None = None,
        ceiling: int | None = None,
        device: str = "cpu",
        *,
        stand_in: bool = False,
    ) -> None:
        gc.collect(1)  # what ends now is nothing that the run did
        self._device = device
        self.remarks: list[Remark] = []
        self.lacking: dict[int, str] = {}  # what went on for want of values, by its id
        self._limit, self._ceiling = limit, ceiling
        self.taken = 0
        self._copies: dict[int, tuple[Any, torch.UntypedStorage, bool]] = {}
        self._values: list[tuple[Tensor, Callable[[], Any]]] = []
        self._own: set[int] = set()
        self._unwritten: set[int] = set()
        self._places: tuple[Collection[int], list[_Place]] | None = None
        self._late: list[_Remembered] = []
        self._under_way: list[Any] = []
        self._handled = sys.exception()  # where the profile was asked for
        self.when_imported: Callable[[], None] = lambda: None
        self._depth = sys.getrecursionlimit()
        self._context: Context | None = None
        self._others = not alone()
        self._elsewhere = of_ones_own() if self._others else set()
        self.signals = Signals()
        try:
            self._settings = Settings()
            self._effects = Effects()
            self._imports = Imports(
                lambda: [(reach, reach.now()) for reach in self._reaches()],
                self._imported,
                self._effects.unheard,
            )
            self._remember(roots, modules, modules if stand_in else ())
        except BaseException:
            self.signals.end()
            raise

    def _remember(
        self,
        roots: Iterable[Any],
        modules: Collection[torch.nn.Module],
        stood_for: Collection[torch.nn.Module],
    ) -> None:
        with _plainly():
            self._reach = Reach.of([*roots, *unnamed()], (m._parameters for m in stood_for))
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
            self.away = {t.device.type for t in self._reach.tensors.values() if is_away(t)} | {
                tensor.device.type
                for module in stood_for
                for tensor in module._parameters.values()
                if tensor is not None and is_away(tensor)
            }
            if around := modes_around():
                self._keep_of(around, modules)
            if told := self._told(stood_for):
                self._keep_of(told, modules, _COUNTS)

    def _imported(self, modules: set[str], then: Iterable[tuple[Reach, Any]]) -> None:
        """The model is the first to import these: what it may change in them is guarded from now on. What
        they changed of what was found, as it was `then`, stays with them."""
        with _plainly():
            for reach, there in then:
                reach.imported(there)
            late = _Remembered(self._reach.after(modules), self)
        self._late.append(late)
        late.lend()
        self._effects.hear()
        self.when_imported()

    def begin(self) -> None:
        """From here on things are changed, and are to be restored, whatever comes. What is set in context
        variables is so in a copy of the context."""
        try:
            context = copy_context()
            _enter_context(context)
            apart()
            self._context = context
            self._first.lend()
            self._effects.begin(s for s in self._reach.stateful if isinstance(s, io.IOBase))
            self._imports.begin()
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
        tensors = _written(operator, args, kwargs)
        if True in fakes:  # torch counts that as one, and nothing is in its memory
            self._unwritten.update(t.untyped_storage()._cdata for t in tensors if _is_real(t))
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
    def listening(self, made_here: Callable[[Tensor], bool] = lambda _: False) -> Iterator[None]:
        """Within, the guard itself hears what is written: where nothing is recorded."""
        with _Writes(self, made_here), _Gifts(self, made_here), self.running():
            yield

    def is_new(self, tensor: Tensor) -> bool:
        """Whether nothing that was found before the run is in the memory of a tensor."""
        storage = _storage_of(tensor)
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
        """Somebody asks where the memory of a tensor is. Raises where code within reach goes there, and
        nothing is: code that reads by the address of a fake tensor, which ends the process, and what
        runs on an accelerator, where no tensor of a run is, which ends all work there."""
        if self._reach.launches:
            raise RuntimeError(
                "tensors of a run are in the host's memory, and what runs on an accelerator by the address "
                "of one would end all work there"
            )
        if type(tensor) is FakeTensor and self._reach.reads_memory:
            error = NotImplementedError("a fake tensor has no data to be read by its address")
            self.raised(error)
            raise error

    def exchanged(self, work: Any) -> None:
        """Something is exchanged with other processes, which may still go on when the run is over."""
        self._under_way.append(work)
        self._remark("forward exchanged tensors with other processes: that cannot be taken back")

    def keep(self, tensor: Tensor) -> None:
        """Copy the memory of a tensor, once, so that it can be brought back."""
        with _plainly():
            storage = _storage_of(tensor)
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

    def keep_others(self, module: torch.nn.Module) -> None:
        """Copy the memory of all that was found and is not a module's own, where nothing can listen."""
        own = {identity(t) for t in (*module.parameters(), *module.buffers())}
        for look in self._first.tensors:
            if identity(look.tensor) not in own:
                self.keep(look.tensor)

    def _told(self, modules: Iterable[torch.nn.Module]) -> list[Any]:
        """The classes of tensors that are told of functions of torch, also of those by which opgraph and
        Dynamo ask what a tensor is, with the attributes of their tensors."""
        weights = (t for m in modules for t in m._parameters.values() if t is not None)
        tensors = [*self._reach.tensors.values(), *weights]
        classes = {cls for cls in set(map(type, tensors)) if is_told(cls)}
        return [*classes, *(vars(t) for t in tensors if type(t) in classes and not _wraps(type(t)))]

    def _keep_of(
        self, around: list[Any], modules: Iterable[torch.nn.Module], most: float = inf
    ) -> None:
        """What a mode or a class writes while it is told of an operator, nobody hears: copy its own tensors
        of at `most` so many bytes, but for those of the model."""
        models = {
            identity(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())
        }
        for tensor in Reach.of(around).tensors.values():
            storage = _storage_of(tensor)
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
        copies[key] = reference, storage.clone(), storage.is_shared()

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
            found = (_storage_of(alias) for alias in aliases if alias is not None)
            held = {s._cdata: s for s in found if s is not None}
            here = (s for s in held.values() if s.device.type == "cpu")
            places = ((s.data_ptr(), s.data_ptr() + s.nbytes(), s) for s in here)
            self._places = held.keys(), sorted(places, key=itemgetter(0))
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
            self._values.append((tensor, partial(_put_together, tensor, parts, tensor.shape)))
        for part in parts:
            self.keep(part)

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken > self.limit:
            raise OutOfMemory(
                f"the forward writes to {units.size(self.taken)} of tensors, and copies of them, to bring "
                f"them back from, may take {units.size(self.limit)} (--memory-limit)"
            )

    def spends(self, size: int) -> None:
        """So many bytes are about to be taken for as long as the run lasts."""
        self.taken += size
        self.needs(0, 0)

    def owns(self, tensor: Tensor) -> None:
        """A tensor was made for the run, and ends with it: there is nothing to bring back."""
        self._own.update(part.untyped_storage()._cdata for part in stored(tensor))

    def needs(self, live: int, coming: int | None = None) -> None:
        """The run has made tensors of so many bytes, and is about to make more: then the process is looked
        at, too, which takes as long as a small operator does."""
        tensors = self.taken + live + (coming or 0)
        if tensors > self.limit or (coming is not None and self._is_full(coming)):
            raise OutOfMemory(
                f"a run on real tensors needs more than the {units.size(self.limit)} that it may take "
                "(--memory-limit)"
            )

    def grows(self, nodes: int) -> None:
        """The graph has so many nodes by now, which are all that a run on fake tensors takes."""
        if self._ceiling is None and self.limit >= MEASURED * 2**30 and (began := begun()):
            self._ceiling = began + self.limit
        if self._is_full(nodes * _NODE):
            raise OutOfMemory(
                f"its graph, of {nodes:,} operators so far, takes more than the "
                f"{units.size(self.limit)} that it may (--memory-limit)"
            )

    def _is_full(self, coming: int) -> bool:
        """Whether the process itself would go beyond what it may, were so many bytes more made."""
        if self._ceiling is None or fits(coming, self._ceiling):
            return False
        give_back()
        return not fits(coming, self._ceiling)

    def frees(self, result: Tensor) -> bool:
        """Whether a backward from here goes through results that were there before the run, and would free
        what a backward of whoever has them needs."""
        before = {node for reach in self._reaches() for node in reach.history if _saves(node)}
        known: set[Any] = set()
        ahead = [result.grad_fn] if before else []
        while ahead:
            node = ahead.pop()
            if node in before:
                return True
            if node is not None and node not in known:
                known.add(node)
                ahead += [further for further, _ in node.next_functions]
        return False

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
            try:
                self._under_way.pop().wait(_PATIENCE)
            except RuntimeError as error:
                self._remark(
                    f"what forward exchanges with other processes goes on: {first_line(error)}"
                )

    def restore(self) -> None:
        """Bring everything back. What could not be is in `remarks`. Each step is made, whatever the model
        has put in the place of what another needs; what is to be said is found out last."""
        first, effects = self._first, self._effects
        try:
            for step in (
                lambda: _set_depth(max(self._depth, _depth())),
                self.restore_late,
                self._imports.end,
                effects.end,
                lambda: self._bring_back(first, self._copies.values(), self._values),
                lambda: self._each(self._settings.changed(), set_back),
                cast_anew,
                lambda: self.say(all_back(*self._reach.undoing_last(alone=self.alone()))),
                self._share,
                lambda: self.remarks.extend(effects.remarks()),
            ):
                self._attempt(step)
            self._copies.clear()
            # Cycles lead through these: inputs would stay until the next search for rubbish.
            del self._reach, self._first, self._values, self._places
            del self._imports, self.when_imported
            self._late.clear()
        finally:
            context, self._context = self._context, None
            if context is not None:
                self._attempt(lambda: _leave_context(context))
            leave(self.remarks)
            self.signals.end()

    def restore_late(self) -> None:
        """Bring back what the model imported, as long as all that opgraph itself changed for the run is
        changed: it was so already when that was looked at."""
        for late in reversed(self._late):
            if not late.is_back:
                late.is_back = True
                self._bring_back(late)
                self.say(all_back(*late.reach.undoing_last()))

    def _bring_back(
        self, of: _Remembered, copies: Iterable[Any] = (), values: Iterable[Any] = ()
    ) -> None:
        with _plainly():
            self.say(all_back(*of.reach.undoing(alone=self.alone())))
            grad = _is_grad_enabled()
            _set_grad_enabled(False)  # noqa: FBT003
            try:
                self._each(of.tensors, _Looks.memory_back)
                self._each(of.tensors, self._restore_version)  # by which views know what made them
                for step in _LOOKS_BACK:
                    self._each(of.tensors, step)
                self._each(copies, _write_back)
                self._each(values, lambda pair: pair[1]())
                self._each(of.tensors, self._restore_version)
                self._each(of.arrays, lambda back: back())
                self._each(of.states, lambda back: back())
            finally:
                _set_grad_enabled(grad)
        self._attempt(lambda: self.remarks.extend(of.iterators.advanced()))

    def _restore_version(self, look: _Looks) -> None:
        """Autograd counts how often somebody writes to a tensor, whoever does, in whatever thread."""
        tensor, before = look.tensor, look.version
        if before is None or graded(tensor, "_version") == before:
            return
        torch._C._autograd._unsafe_set_version_counter((tensor,), (before,))
        storage = _storage_of(tensor)
        known = storage is None or storage._cdata in self._copies.keys() | self._unwritten
        if look.alias is not None and not (known or look.moved):
            raise Left(
                "a tensor was written to where no mode hears it, as in a thread that was there before"
            )

    def _share(self) -> None:
        """Say which threads may have changed what was brought back: that forward did is not known of it."""
        names = () if self.alone() else sorted(self._elsewhere | of_ones_own())
        if names:
            more = " and others" * (len(names) > 1)
            self._remark(
                f"another thread ({names[0]}{more}) ran meanwhile: what it changed of what forward can "
                "reach, of settings and of random numbers was set back, too"
            )

    def alone(self) -> bool:
        """Whether no thread but this one did anything since before the run. What others wait for, hold, or
        hand each other is not set again while they do, for it is theirs, too."""
        with suppress(Exception):  # the model may have replaced what says so
            return not self._others and alone()
        return False

    def say(self, remarks: Iterable[Remark]) -> None:
        """These remarks, each once."""
        for each in remarks:
            if each not in self.remarks:
                self.remarks.append(each)

    def _remark(self, text: str) -> None:
        self.say((Remark("state", text),))

    def _each(self, items: Iterable[Any], back: Callable[[Any], Any]) -> None:
        self.say(all_back((items, back)))

    def _attempt(self, step: Callable[[], Any]) -> None:
        self._each((step,), lambda step: step())

    def found_states(self, items: Iterable[Any]) -> Iterator[Callable[[], Any]]:
        for item in items:
            try:
                yield _state(item, self.alone)
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

    def copied_arrays(self, items: Iterable[Any]) -> Iterator[Callable[[], Any]]:
        kept: set[int] = set()
        for found in sorted(items, key=lambda item: getattr(item, "base", None) is not None):
            try:
                size, copy = _memory(found, within=identity(getattr(found, "base", None)) in kept)
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
            yield copy()


@contextmanager
def guarded(roots: Iterable[Any], *, heard: bool = True, device: str = "cpu") -> Iterator[Guard]:
    """Within, something may run on a device that is not recorded; afterwards all is as before. Where
    nothing is `heard`, so that what runs takes no longer, values of tensors are so that were written to
    while the guard was `listening`.

    Raises `TraceError` where copies of these take more than they may."""
    with turn():
        guard = Guard(roots, device=device)
        guard.begin()
        try:
            with guard.listening() if heard else guard.running():
                yield guard
        except OutOfMemory as error:
            guard.settle(error)
            raise TraceError(str(error)) from error
        except BaseException as error:
            guard.settle(error)
            raise
        else:
            guard.settle()
        finally:
            guard.restore()


class _Remembered:
    """What was found in one look at what is reachable, with what it was then."""

    def __init__(self, reach: Reach, guard: Guard) -> None:
        self.reach, self.is_back = reach, False
        self.tensors = [_Looks(t) for t in reach.tensors.values()]
        self.states = list(guard.found_states(reach.stateful))
        self.arrays = list(guard.copied_arrays(reach.arrays))
        self.iterators = Copies(reach.iterators)
        self.brought = guard.brought_here(reach.tensors.values())

    def lend(self) -> None:
        """Let copies of iterators, and of tensors on accelerators, stand in for them, until all is brought
        back."""
        copies = {**self.iterators.of, **self.brought.of}
        if copies:
            self.reach.lend(copies)


class _Writes(TorchDispatchMode):
    """Hears writes where nothing is recorded."""

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
        schema = getattr(func, "_schema", None)
        if schema is not None and (
            schema.is_mutable or schema.name.replace("::", ".") in UNDECLARED
        ):
            self._guard.before(func, args, kwargs, self._made_here)
        try:
            return func(*args, **kwargs)
        except Exception as error:
            self._guard.raised(error)
            raise


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


class _Looks:
    """What a tensor was but for the values in its memory: which memory that is, its sizes, its gradient."""

    __slots__ = (
        "alias",
        "cls",
        "grad",
        "grad_fn",
        "moved",
        "needs_grad",
        "others",
        "signs",
        "tensor",
        "version",
    )

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.cls = type(tensor)
        self.signs = tensor.is_conj(), tensor.is_neg()
        self.needs_grad = graded(tensor, "requires_grad")
        self.grad_fn = graded(tensor, "grad_fn")
        self.grad = gradient(tensor)
        names = _OF_LEAVES if graded(tensor, "is_leaf") else _OF_RESULTS
        self.others = {name: graded(tensor, name) for name in names}
        self.version = graded(tensor, "_version")
        plain = tensor.layout in (torch.strided, torch.sparse_coo) and not tensor.is_nested
        self.alias = tensor.detach() if plain and not _wraps(type(tensor)) else None
        self.moved = False

    def memory_back(self) -> None:
        tensor, alias = self.tensor, self.alias
        if type(tensor) is not self.cls:
            tensor.__class__ = self.cls
        if (tensor.is_conj(), tensor.is_neg()) != self.signs:
            torch._C._set_conj(tensor, self.signs[0])
            torch._C._set_neg(tensor, self.signs[1])
        if alias is not None and not _same_memory(tensor, alias):
            tensor.data = alias
            self.moved = True

    def history_back(self) -> None:
        if graded(self.tensor, "grad_fn") is not self.grad_fn:
            if self.grad_fn is not None:
                raise Left("forward wrote in place to a tensor that autograd knew")
            _detach(self.tensor)

    def needs_back(self) -> None:
        if graded(self.tensor, "requires_grad") is not self.needs_grad:
            self.tensor.requires_grad_(self.needs_grad)

    def others_back(self) -> None:
        tensor = self.tensor
        for name, value in self.others.items():
            if graded(tensor, name) is value:
                continue
            if name == "retains_grad":
                raise Left("forward had autograd retain the gradient of a tensor")
            if name == "grad_dtype":
                tensor.grad = None  # which is of another
            setattr(tensor, name, value)

    def grad_back(self) -> None:
        own = graded(self.tensor, "is_leaf") or graded(self.tensor, "retains_grad")
        if own and graded(self.tensor, "grad") is not self.grad:
            self.tensor.grad = self.grad


_LOOKS_BACK = _Looks.history_back, _Looks.needs_back, _Looks.others_back, _Looks.grad_back
"""The steps that tensors are brought back in behind their memory, each of all: a gradient is refused as
long as it, or the tensor, is otherwise than before."""
_OF_LEAVES = ("_backward_hooks", "_post_accumulate_grad_hooks", "grad_dtype")
_OF_RESULTS = ("_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad")
"""What else somebody may have told autograd of a tensor."""


def _wraps(cls: type) -> bool:
    """Whether tensors of a class are made of other tensors."""
    return issubclass(cls, FakeTensor) or hasattr(cls, "__tensor_flatten__")


def _detach(tensor: Tensor) -> None:
    """Let autograd know nothing of a tensor any more. A view becomes one of its base anew: it cannot be
    detached itself."""
    base = graded(tensor, "_base")
    if base is None:
        tensor.detach_()
        return
    if graded(base, "grad_fn") is not None:
        base.detach_()
    with torch.enable_grad():  # else nobody may write to it in place
        view = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    torch._C._swap_tensor_impl(tensor, view)


def _is_real(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not _wraps(type(tensor))


def _storage_of(tensor: Tensor) -> torch.UntypedStorage | None:
    """The memory of a tensor; None where it is made of others, or its device does not show it."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _same_memory(tensor: Tensor, alias: Tensor) -> bool:
    if tensor.layout is alias.layout is torch.sparse_coo:
        same = tensor.shape == alias.shape and tensor.is_coalesced() == alias.is_coalesced()
        return same and all(map(_same_memory, stored(tensor), stored(alias)))
    # Not by its address: it may have been let be one of the run's, without.
    storage = _storage_of(tensor)
    return bool(
        storage is not None
        and storage._cdata == alias.untyped_storage()._cdata
        and tensor.storage_offset() == alias.storage_offset()
        and graded(tensor, "shape") == graded(alias, "shape")  # one without sizes yet says none
        and tensor.stride() == alias.stride()
        and tensor.dtype == alias.dtype
    )


def _put_together(tensor: Tensor, parts: list[Tensor], shape: torch.Size) -> None:
    """Let a sparse tensor, whose parts torch exchanges for no others, say what it did."""
    if tensor.shape != shape or not all(map(_same_memory, stored(tensor), parts)):
        made = torch.sparse_compressed_tensor(
            *parts, shape, layout=tensor.layout, check_invariants=False
        )
        tensor.resize_as_sparse_(made).copy_(made)


def _write_back(copy: tuple[Any, torch.UntypedStorage, bool]) -> None:
    reference, kept, shared = copy
    storage = reference()
    if storage is None:
        return
    _storage_back(storage, kept)
    if storage.is_shared() and not shared:
        raise Left("forward moved a tensor to shared memory")


def _memory(item: Any, *, within: bool) -> tuple[int, Callable[[], Callable[[], Any]]]:
    """The bytes of an array of NumPy, or of what C knows of, and what makes a copy, which writes itself
    back. Of an array `within` another that is copied there are none."""
    if isinstance(item, torch.UntypedStorage):
        if item.device.type == "meta":
            return 0, lambda: lambda: None
        return item.nbytes(), lambda: partial(_storage_back, item, item.clone())
    if isinstance(item, mmap):
        return len(item), lambda: partial(_mapped_back, item, item[:], item.tell())
    if hasattr(type(item), ON_GPU):
        if not hasattr(item, ON_GPU):  # it says so of one that is elsewhere, and changes none
            return 0, lambda: lambda: None
        there = torch.as_tensor(item, device="cuda")
        return there.nbytes, lambda: partial(_there_back, there, there.cpu())
    if not hasattr(item, "nbytes"):
        size, place = ctypes.sizeof(item), ctypes.addressof(item)
        return size, lambda: partial(_written_back, item, ctypes.string_at(place, size))
    writeable = item.flags.writeable
    if not writeable and not _could_be_written_to(item):
        return 0, lambda: lambda: None
    looks = {name: getattr(item, name) for name in ("dtype", "shape", "strides")}
    look = partial(_array_back, item, looks, item.dtype.names, writeable)
    return 0 if within else item.nbytes, lambda: partial(
        look, None if within else _bare(item).copy()
    )


def _storage_back(storage: torch.UntypedStorage, kept: torch.UntypedStorage) -> None:
    if storage.nbytes() != kept.nbytes():
        storage.resize_(kept.nbytes())
    storage.copy_(kept)


def _there_back(there: Tensor, kept: Tensor) -> None:
    now, then = (t.reshape(-1).view(torch.uint8) for t in (there.cpu(), kept))
    if not torch.equal(now, then):
        there.copy_(kept)


def _mapped_back(item: mmap, kept: bytes, place: int) -> None:
    if item[:] != kept:
        item[:] = kept
    item.seek(place)


def _written_back(item: Any, kept: bytes) -> None:
    ctypes.memmove(ctypes.addressof(item), kept, len(kept))


def _could_be_written_to(array: Any) -> bool:
    """Whether an array that may not be written to can be made one that may: only it itself says so."""
    try:
        array.flags.writeable = True
    except ValueError:  # it is of something that may not be written to
        return False
    array.flags.writeable = False
    return True


def _bare(array: Any) -> Any:
    """The same memory as an array of NumPy's own class, whatever a subclass makes of its methods."""
    own = sys.modules["numpy"].ndarray
    return own.view(array, own)


def _array_back(array: Any, looks: dict[str, Any], names: Any, writeable: bool, kept: Any) -> None:
    if names is not None and looks["dtype"].names != names:
        looks["dtype"].names = names
    if kept is not None and array.nbytes != kept.nbytes:
        array.resize(kept.nbytes // array.itemsize, refcheck=False)
    for name, value in looks.items():
        if getattr(array, name) != value:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nobody should
                setattr(array, name, value)
    if kept is not None and _bare(array).tobytes() != kept.tobytes():
        if not array.flags.writeable:
            array.flags.writeable = True
        _bare(array)[...] = kept
    if array.flags.writeable is not writeable:
        array.flags.writeable = writeable


def _state(item: Any, alone: Callable[[], bool]) -> Callable[[], Any]:
    """A function that brings back a generator of random numbers (of torch, Python or numpy) or a buffer."""
    if isinstance(item, (bytearray, array)):
        kept: Any = item[:]
        return lambda: item.__setitem__(slice(None), kept)
    if (type(item).__name__, type(item).__module__) == SHARED_LOCK:
        return partial(_semaphore_back, item, item._get_value(), alone)
    if isinstance(item, OF_WORKERS):
        return partial(_batches_back, item, item._rcvd_idx)
    if isinstance(item, torch.jit.ScriptModule):
        return partial(_scripted_back, item, scripted(item))
    if isinstance(item, memoryview):
        return partial(_memory_there, item)
    if isinstance(item, Context):
        return partial(_variables_back, item, dict(item.items()))
    if isinstance(item, threading.Thread):
        return partial(own_back, item, own_of(item))
    if hasattr(item, "next_functions"):
        return partial(_backward_back, item, _saves(item))
    says = behind(type(item))
    if says is not None:
        return partial(unchanged, item, says, says(item))
    if hasattr(item, "digest"):
        return partial(_fed, item.digest, item.digest())
    if hasattr(item, "n_children_spawned"):
        return partial(_spawned, item, item.n_children_spawned)
    if hasattr(item, "create_decimal"):
        return partial(context_back, item, item.__reduce__()[1])
    if isinstance(item, LOCKS):
        return partial(_lock_back, item, _held(item), alone)
    if hasattr(item, "set_result"):
        return partial(_result_back, item, item.done())
    if isinstance(item, Logger):
        return partial(logger_back, item, logger_says(item))
    if isinstance(item, SimpleQueue):
        before = _drained(item) if alone() else item.qsize()
        return partial(_queue_back, item, before, alone)
    if isinstance(item, io.IOBase) and not isinstance(item, (io.StringIO, io.BytesIO)):
        place = None if any(item is each for each in standard()) else _place(item)
        return partial(_file_back, item, place, text_says(item))
    if isinstance(item, (io.StringIO, io.BytesIO)) or says_all(item.__class__):
        return partial(_said_back, item, item.__getstate__())
    if isinstance(item, torch.Generator):
        state = item.get_state()
        return lambda: item.set_state(state)
    if hasattr(item, "getstate"):
        held = item.getstate()
        return lambda: item.setstate(held)
    if hasattr(item, "set_state"):
        legacy = item.get_state(legacy=False)
        return lambda: item.set_state(legacy)
    kind: Any = type(item)
    if says_nothing(kind):
        return partial(_insides_back, item, shown_in_c(item, kind))
    bits = getattr(item, "bit_generator", item)
    numbers = bits.state
    return lambda: setattr(bits, "state", numbers)


def _batches_back(batches: Any, before: int) -> None:
    if batches._rcvd_idx != before:
        raise Left("forward took batches of a DataLoader's workers")


def _insides_back(item: Any, before: bytes) -> None:
    if shown_in_c(item, type(item)) != before:
        raise Left(
            f"forward used an object that does not show where it is ({type(item).__qualname__})"
        )


def _held(lock: Any) -> int:
    """How often a lock is held; by this thread, if it says by which."""
    if not hasattr(lock, "_release_save"):
        return int(lock.locked())
    if not lock._is_owned():
        return 0
    state = lock._release_save()
    lock._acquire_restore(state)
    return int(state[0])


def _lock_back(lock: Any, before: int, alone: Callable[[], bool]) -> None:
    if _held(lock) != before and not alone():
        raise Left("forward took a lock or gave it back, or another thread did")
    while _held(lock) > before:
        lock.release()
    while _held(lock) < before and lock.acquire(blocking=False):
        pass


def _semaphore_back(lock: Any, before: int, alone: Callable[[], bool]) -> None:
    """The same of one that processes share."""
    if lock._get_value() != before and not alone():
        raise Left("forward took a lock or gave it back, or another thread did")
    for _ in range(before - lock._get_value()):
        lock.release()
    while lock._get_value() > before and lock.acquire(False):  # noqa: FBT003
        pass


def _variables_back(context: Context, before: dict[ContextVar[Any], Any]) -> None:
    """What context variables are within a context."""
    for variable, value in before.items():
        if context[variable] is not value:
            context.run(variable.set, value)
    for variable in context.keys() - before.keys():
        raise Left(f"forward set {variable.name}, which had no value in its context")


def _scripted_back(module: Any, before: dict[str, Any]) -> None:
    now = scripted(module)
    for name, value in before.items():
        if not _is_as_it_was(now[name], value):
            module._c.setattr(name, value)


def _is_as_it_was(now: Any, before: Any) -> bool:
    """Whether what torch's interpreter hands out is the same: a container is another one each time."""
    if isinstance(before, dict):
        return list(now) == list(before) and all(map(_is_as_it_was, now.values(), before.values()))
    if isinstance(before, (list, tuple)):
        return len(now) == len(before) and all(map(_is_as_it_was, now, before))
    return now is before or (
        isinstance(before, (int, float, complex, str)) and repr(now) == repr(before)
    )


def _memory_there(view: memoryview) -> None:
    try:
        _ = view.nbytes
    except ValueError:
        raise Left("forward released a view of memory") from None


def _fed(says: Callable[[], bytes], before: bytes) -> None:
    if says() != before:
        raise Left("forward fed a hash")


def _spawned(seeds: Any, before: int) -> None:
    if seeds.n_children_spawned != before:
        raise Left("forward spawned generators of random numbers")


def _drained(queue: SimpleQueue[Any]) -> list[Any]:
    """All that is in a queue, which it has again afterwards."""
    found = []
    with suppress(Empty):
        while True:
            found.append(queue.get_nowait())
    for item in found:
        queue.put(item)
    return found


def _queue_back(
    queue: SimpleQueue[Any], before: list[Any] | int, alone: Callable[[], bool]
) -> None:
    if isinstance(before, int) or not alone():
        if queue.qsize() != (before if isinstance(before, int) else len(before)):
            raise Left("forward used what threads share (SimpleQueue), or another thread did")
        return
    with suppress(Empty):
        while True:
            queue.get_nowait()
    for item in before:
        queue.put(item)


def _said_back(item: Any, before: Any) -> None:
    if item.__getstate__() != before:
        item.__setstate__(before)


def _result_back(future: Any, before: bool) -> None:
    if future.done() != before:
        raise Left("forward gave a future its result")


def _saves(node: Any) -> int:
    """How much a node of autograd still has of what its backward needs. It is not unpacked: that would run
    hooks, as those of a checkpoint, which computes it again."""
    saved: list[Any] = []
    try:
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                found = getattr(node, name)
                saved += found if isinstance(found, (tuple, list)) else (found,)
        return sum(each.data is not None for each in saved)
    except RuntimeError:  # it was freed
        return 0


def _backward_back(node: Any, before: int) -> None:
    if _saves(node) < before:
        raise Left("forward ran a backward through results that were there before, and freed it")


def _place(file: Any) -> int | None:
    """Where somebody is in a file; None where that is not told."""
    with suppress(OSError, ValueError):
        return int(file.tell())
    return None


def _file_back(file: Any, before: int | None, how: Any) -> None:
    if file.closed:
        raise Left(f"forward closed {name_of(file)}")
    text_back(file, how)
    if before is not None and _place(file) != before:
        if file.writable():
            raise Left(f"forward wrote to {name_of(file)}, or moved in it")
        file.seek(before)


@contextmanager
def _plainly() -> Iterator[None]:
    """Within, torch does what it is asked to, whatever modes are on."""
    with _NoDispatch(), _NoFunction():
        yield


def tensors_in_call(args: Any, kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operator is given, in lists, too."""
    for item in (*args, *kwargs.values()):
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from tensors_in_call(item, {})


def _written(operator: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call of an operator writes to, or gives the memory of to another."""
    if operator._schema.name == "aten::set_":
        return list(tensors_in_call(args, kwargs))
    arguments = operator._schema.arguments
    given = {a.name: v for a, v in zip(arguments, args, strict=False)} | dict(kwargs)
    names = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    asked = [given[n] for n in ("training", "train", "use_input_stats") if n in given]
    if not names and (any(asked) or not asked):
        names = ["running_mean", "running_var"]
    exchanged = written_by(operator._schema.name.replace("::", "."), given)
    return list(tensors_in_call([*(given.get(n) for n in names), exchanged], {}))
