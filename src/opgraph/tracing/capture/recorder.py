"""The recorder: everything a run of a model does, written down as nodes, values, scopes and kernels.

Three things follow a run together. A function mode sees each outermost call of a torch
function (a node); beneath it the dispatch mode sees the ATen operators that the call comes down to (its
kernels); global module hooks keep the stack of module paths (its scope). `build` makes the `Graph`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode
from torch.utils._python_dispatch import _push_mode as push_dispatch_mode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import _StopRecomputationError

from opgraph.costs.count import Operator, tensors_of
from opgraph.costs.formulas.linalg import SPARSE, stored
from opgraph.record import units
from opgraph.record.errors import InputError, first_line
from opgraph.record.graph import (
    LOSS,
    Graph,
    GraphBreak,
    Kernel,
    Node,
    Scope,
    Storage,
    ValueKind,
    maker,
)
from opgraph.record.identity import identity
from opgraph.record.remarks import Remark
from opgraph.record.turns import recorded, replaced
from opgraph.record.verify import verify
from opgraph.sources.locations import Location, current_location, raised_location
from opgraph.sources.ranks import is_spread, local, spread_as, transfers
from opgraph.sources.weightless import give_back
from opgraph.tracing.capture.kernels import OF_MANY, KernelCapture, has_bodies
from opgraph.tracing.capture.names import cut, names, positional, short, usual
from opgraph.tracing.capture.scopes import Call, ModuleCalls, misfit
from opgraph.tracing.capture.threads import HandedOver
from opgraph.tracing.capture.values import Record, ValueTable, tensors_in
from opgraph.tracing.fake.cache import CachedFunction
from opgraph.tracing.fake.tensors import ADDRESSES, MOVES, address, brought_here, fake
from opgraph.tracing.fake.weights import Weights, stored_bytes
from opgraph.tracing.state.guard import HANDED_OUT, RUN_HOOKS, Guard, staying
from opgraph.tracing.state.process import set_dispatch_modes, set_function_modes
from opgraph.tracing.state.randoms import drawn, drawn_by_python
from opgraph.tracing.state.signals import DROPPED
from opgraph.tracing.target import Substitutes

# From what a recorder wrote down to a verified `Graph`.


def build(
    recorder: Recorder,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
) -> Graph:
    """Make the graph of a run whose tensors were let go of. Its records go as their nodes come: of both
    there may be a million."""
    kernels, scopes = recorder.capture.kernels, _scopes(recorder)
    names = _Names()
    weights = {
        v.id: v.name for v in recorder.table.values if v.kind in _WEIGHTS and v.name is not None
    }
    nodes = tuple([
        _node(
            number,
            record.kind,
            record.op,
            names.of(record),
            record.call.path,
            record.target,
            record.arguments,
            tuple(record.inputs),
            tuple(record.outputs),
            tuple([weights[v] for v in record.inputs if v in weights]),
            tuple(kernels[record.first : record.last]),
            *record.location,
            record.fragment,
            record.phase,
            record.error,
            None if record.forward is None else record.forward.number or None,
        )
        for number, record in enumerate(recorder.taken(), start=1)
    ])  # fmt: skip
    return verify(
        Graph(
            nodes=nodes,
            values=tuple(recorder.table.values),
            scopes=scopes,
            parameters=tuple(recorder.weights.parameters),
            storages=recorder.storages,
            inputs=inputs,
            outputs=outputs,
            breaks=tuple(recorder.breaks),
        )
    )


_node = maker(Node)


_WEIGHTS = frozenset({"parameter", "buffer"})


def _scopes(recorder: Recorder) -> tuple[Scope, ...]:
    classes = {path: type(module).__name__ for path, module in recorder.weights.tree.items()}
    modules = recorder.modules
    classes |= modules.classes
    for record in recorder.records:
        classes.setdefault(record.call.path, "")
    return tuple(
        Scope(
            path=path,
            cls=cls,
            calls=modules.counts.get(path, 0),
            inputs=modules.inputs.get(path, ()),
            outputs=modules.outputs.get(path, ()),
        )
        for path, cls in classes.items()
    )


class _Names:
    """Names of nodes: the module's path where the call of a module is this one node, otherwise the path
    and the operator; a number behind it where that was there before."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def of(self, record: Record) -> str:
        call = record.call
        if record.name is not None:
            base = record.name
        elif call.path and call.nodes == 1 and call.children == 0:
            base = call.path
        else:
            base = f"{call.path}.{record.op}" if call.path else record.op
        number = self._taken.get(base)
        if number is None:
            self._taken[base] = 0
            return base
        while True:
            number += 1
            name = f"{base}_{number}"
            if name not in self._taken:
                self._taken[base] = number
                self._taken[name] = 0
                return name


class Recorder:
    """Follows a run of the model; then holds its records, values and module calls."""

    def __init__(
        self,
        weights: Weights,
        fake_mode: Any = None,
        guard: Guard | None = None,
        substitutes: Substitutes | None = None,
    ) -> None:
        self.substitutes = substitutes or Substitutes()
        self.capture = KernelCapture(fake_mode, guard)
        self.records: list[Record] = []
        self.table = ValueTable(weights, self.capture)
        self.modules = ModuleCalls(weights.tree, self.records.__len__, self.table.known)
        self.weights = weights
        self.fragment = 0
        self.loss = ""  # where that of a step of training stands
        self.phase = "forward"
        self._given: list[Any] = []
        self.held: list[Any] = []  # what stays alive after the run: the state of an optimizer
        self.storages: tuple[Storage, ...] = ()
        self.breaks: list[GraphBreak] = []
        self.notes: tuple[str, ...] = ()
        self.misfit = False
        self.away: Collection[str] = (
            guard.away if guard else ()
        )  # accelerators that the model is on
        self.of_place = False  # it failed where it asked whether a tensor is on a GPU
        self.differentiates = False  # asked autograd for something, with gradients off
        self.ungraded = False  # and was refused it
        self._raised_at: Location = (None, None)
        self.location: Location | None = None
        self._inside: Call | None = None
        self._alike: dict[Any, tuple[Record, range, list[int]]] = {}  # see `as_one`
        self._made: list[Record] = []  # what made nodes of autograd, in order, and how many
        self._numbers: list[int] = []  # there were after each (see `_differentiated`)
        self._differentiated_last: tuple[str, None] | None = None
        self._functions: _Functions | None = None  # while it runs, as all that leads back to this
        for tensor in weights.stand_ins():
            self.capture.memory.ignore(tensor)
        if any(isinstance(m, torch.jit.ScriptModule) for m in weights.tree.values()):
            self.capture.lock = threading.RLock()  # what is scripted may fork
        self._autocast = self.substitutes.autocast(weights.stand_ins())

    # Running.

    def run(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Call the model and record. Gives its result and None, or None and what it raised.

        An interrupt by the person goes through, and so does `InputError`: what was asked cannot be met.
        """
        self.modules.attach()
        handed = HandedOver(self._following, self._lacks)
        self._functions, self.capture.on_orphan = _Functions(self), self._orphan
        try:
            with ExitStack() as stack:  # signals wait while these are made and left
                before = _get_current_function_mode_stack(), _get_current_dispatch_mode_stack()
                stack.enter_context(recorded(lambda: self._beside(*before)))
                if self.capture.spread:
                    stack.enter_context(self.capture.among_ranks())
                if self.substitutes.device != "cpu":
                    stack.enter_context(transfers(self.weights.tree.values()))
                for each in (self.capture, self._functions, handed.following(), self._autocast):
                    stack.enter_context(each)
                if self.capture.guard is not None:
                    stack.callback(self.capture.guard.restore_late)
                if self.substitutes.placed:
                    self.capture.notes[PLACED] = None
                    stack.enter_context(_placed())
                stack.enter_context(self._drawing())
                if self.capture.guard is not None:
                    stack.enter_context(self.capture.guard.running())
                try:
                    return self.complete(call()), None
                except BaseException as error:
                    self._failed(error)
                    raise
        except InputError:
            raise
        except BaseException as error:  # SystemExit too: a forward may do anything
            if self.capture.guard is None or self.capture.guard.interrupted(error):
                raise
            return None, error.with_traceback(None)
        finally:
            self.modules.detach()
            with self.capture.lock or nullcontext():
                self.capture.over = True
            self._functions = self.capture.on_orphan = None
            self._tell_of_threads(handed.left)

    def _failed(self, error: BaseException) -> None:
        """The run is over, and what its frames hold ends while all is as it was within."""
        self._raised_at = raised_location(error.__traceback__)
        self.of_place = _needs_a_gpu(error.__traceback__)
        if self.capture.guard is not None:
            with self.capture.lock or nullcontext():
                self.capture.over = True
            self.capture.guard.settle(error)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """A remark where what runs within draws random numbers that torch does not know of."""
        before = _outside_draws()
        try:
            yield
        finally:
            if _outside_draws() != before:
                self.capture.notes[DRAWN_OUTSIDE] = None

    def complete(self, result: Any) -> Any:
        """What a forward returned, with all that generators and the like in it have still to compute."""
        if not any(isinstance(leaf, _LATER) for leaf in tree_leaves(result)):
            return result
        return tree_map_only(_LATER, self._computed, result)

    def _computed(self, later: Any) -> Any:
        if isinstance(later, Iterator):
            items = list(islice(later, _MOST_ITEMS))
            if len(items) == _MOST_ITEMS:
                self._uncounted(f"forward returned what gives more than {_MOST_ITEMS:,} items: those "
                                "after them are not counted")  # fmt: skip
            return self.complete(items)
        if asyncio._get_running_loop() is not None:
            self._uncounted("forward returned something to await, which is not counted: it cannot be "
                            "awaited where an event loop runs already")  # fmt: skip
            return None
        with closing(asyncio.new_event_loop()) as loop:
            return self.complete(loop.run_until_complete(_awaited(later)))

    @contextmanager
    def _beside(self, functions: list[Any], operators: list[Any]) -> Iterator[None]:
        """Within, the forward profiles something itself, under the modes that there were before it ran."""
        self._uncounted("forward profiles something itself, which is no part of its work")
        now = _get_current_function_mode_stack(), _get_current_dispatch_mode_stack()
        self.modules.detach()
        set_function_modes(functions)
        set_dispatch_modes(operators)
        try:
            yield
        finally:
            set_function_modes(now[0])
            set_dispatch_modes(now[1])
            self.modules.attach()

    def _uncounted(self, text: str) -> None:
        self.notes += (Remark("not-counted", text),)

    def _following(self) -> AbstractContextManager[None]:
        """The context in which another thread works for the call that runs now."""
        self.capture.lock = self.capture.lock or threading.RLock()
        return self._elsewhere(self.modules.current)

    @contextmanager
    def _elsewhere(self, call: Call) -> Iterator[None]:
        threads: set[int] = getattr(self.capture.fake_mode, "threads", set())
        functions = self._functions
        if functions is None:  # it began when the run was over
            yield
            return
        threads.add(threading.get_ident())
        push_dispatch_mode(self.capture)
        _push_mode(functions)
        try:
            with self.modules.beside(call):
                yield
        finally:
            _pop_mode()
            pop_dispatch_mode()
            threads.discard(threading.get_ident())

    def _lacks(self, error: BaseException) -> bool:
        return identity(error) in self.capture.lacking

    def _tell_of_threads(self, left: int) -> None:
        if left:
            self._uncounted(f"{left} of the threads that forward started still ran when it had returned: "
                            "what they did from then on is not counted")  # fmt: skip
        unheard = getattr(self.capture.fake_mode, "unheard", 0)
        if unheard:
            self._uncounted(f"{units.plural(unheard, 'operator')} ran in threads that forward did not "
                            "start, and are not counted")  # fmt: skip

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within, neither torch functions nor module calls are recorded: what runs is not the
        model's, and looks at modes and hooks (Dynamo does)."""
        modes = _get_current_function_mode_stack()
        set_function_modes([m for m in modes if m is not self._functions])
        self.modules.detach()
        try:
            yield
        finally:
            self.modules.attach()
            set_function_modes(modes)

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """Within, what runs is recorded in the module of that path, though nobody calls it."""
        before, self._inside = self._inside, Call(path)
        try:
            yield
        finally:
            self._inside = before

    def as_loss(self, name: str) -> AbstractContextManager[Call]:
        """Within, what runs is the loss of that name, which is called like a module."""
        self.loss = self.modules.free("loss", f"{LOSS} ({name})")
        return self.modules.calling(self.loss)

    def is_loss(self, first: int, loss: Tensor, result: Any) -> None:
        """Take what the model itself ran for its loss out of its own: of the records since `first` those
        outside of its modules, without weights, of which nothing else that it returns has any use. Where
        it returns nothing else to be trained, what comes after the last of its modules and weights."""
        goal, values, modules = self.table.bound(loss), self.table.values, self.modules
        applied = [r for r in self.records[first:] if r.call.path == self.loss]
        read = {v for r in applied for v in r.inputs}
        trained = {self.table.bound(t) for t in tensors_in(result) if t.requires_grad}
        others, needed, found = trained - read - {goal, None}, {goal}, []
        alone = not others
        for record in reversed(self.records[first:]):
            of_weights = any(values[v].kind == "parameter" for v in record.inputs)
            if of_weights or modules.is_model(record.call):
                if alone:
                    break
                others.update(record.inputs)
            elif not others.isdisjoint(record.outputs):
                others.update(record.inputs)
            elif alone or record.call.path or not needed.isdisjoint(record.outputs):
                needed.update(record.inputs)
                found.append(record)
        with nullcontext(applied[0].call) if applied else modules.calling(self.loss) as call:
            for record in found:
                if not record.call.path:
                    record.call = call
                    call.nodes += 1
        inner = {identity(r.call): r.call for r in found if r.call.module is not None}
        modules.move(inner.values(), self.loss)

    def as_one(
        self, path: str, op: str, given: Sequence[Tensor], run: Callable[[], object]
    ) -> None:
        """Run what is one node of the module of that path, and with the nodes of other modules part of
        what is done for all of them at once: what is made there stays until `divide`. It reads and writes
        these tensors and no others. What was done for others that look the same is written down again."""
        capture, memory = self.capture, self.capture.memory
        first, made = len(capture.kernels), len(memory.bytes)
        index = len(self.records)
        record = Record(
            "call", op, f"torch.optim.{op}", Call(path), "", [], [], first, first,
            self.location or (None, None), self.fragment, self.phase,
            name=f"{path}.{op}" if path else op,
        )  # fmt: skip
        self.records.append(record)
        for tensor in given:
            self.table.read(tensor, record.inputs)
        record.inputs = list(dict.fromkeys(record.inputs))
        places = {identity(local(tensor)): place for place, tensor in enumerate(given)}
        key = capture.look_alike(op, given)
        known = None if key is None else self._alike.get(key)
        if known is None:
            capture.in_node, capture.staying = True, capture.staying or []
            try:
                run()
            except BaseException as error:
                record.error, record.exception = first_line(error), error
                capture.raised(error)
                raise
            finally:
                capture.in_node = False
                record.last = len(capture.kernels)
                capture.exchanged.clear()
            written = sorted({places[identity(t)] for t in capture.writes if identity(t) in places})
            if key is not None:
                self._alike[key] = record, range(made, len(memory.bytes)), written
        else:
            like, storages, written = known
            capture.kernels += capture.kernels[like.first : like.last]
            record.last = len(capture.kernels)
            memory.alike(storages, first - like.first)
        memory.owner[made:] = [index] * (len(memory.bytes) - made)
        capture.writes[:] = [local(given[place]) for place in written]
        for tensor in capture.writes:
            self.table.produce(tensor, record, index)
        for storage, tensor in self.table.written().items():
            self.table.wrote(storage, tensor, record)
        record.outputs.sort(key=lambda v: not self._is_weight(v))

    def _is_weight(self, value: int | None) -> bool:
        """Whether a value lies in the memory of a parameter."""
        while value is not None:
            found = self.table.values[value]
            if found.kind == "parameter":
                return True
            value = found.alias_of
        return False

    def divide(self, records: Sequence[Record]) -> None:
        """Take kernels of many tensors of these nodes to be parts of some that go over all nodes at once:
        the first of an operator and dtype in each node of one, the second of another."""
        self._alike.clear()
        self.capture.staying = None
        self.capture.memory.end_alike()
        kernels = self.capture.kernels
        wholes: dict[tuple[str, str, int], list[int]] = {}
        for record in records:
            seen: Counter[tuple[str, str]] = Counter()
            for at in range(record.first, record.last):
                if not kernels[at].op.startswith(OF_MANY):
                    continue
                like = kernels[at].op, kernels[at].dtype
                wholes.setdefault((*like, seen[like]), []).append(at)
                seen[like] += 1
        known: dict[Kernel, Kernel] = {}
        for places in wholes.values():
            moved = sum(kernels[at].bytes for at in places)
            for number, at in enumerate(places):
                kernel = kernels[at]
                share = kernel.bytes / moved if moved else 1 / len(places)
                part = replace(kernel, share=share, launches=int(not number))
                kernels[at] = known.setdefault(part, part)

    def taken(self) -> Iterator[Record]:
        """All records, in order and numbered from 1, of which none is kept."""
        for number, record in enumerate(self.records, start=1):
            record.number = number
        self._made.clear()
        self.records.reverse()
        while self.records:
            yield self.records.pop()

    def release(self) -> Callable[[], bool]:
        """Let go of all tensors of the run, which have been in the `storages` that there are then. What is
        given says whether fake ones are alive all the same."""
        self.storages = self.capture.memory.close()
        watched = [weakref.ref(t) for t in self.weights.stand_ins() if type(t) is FakeTensor]
        watched += [r for r in self._given if type(r()) is FakeTensor]
        memory = self.capture.memory
        self.weights.forget()
        self.modules.forget()
        self.held.clear()
        self.capture.writes.clear()
        self.capture.works.clear()
        if len(self.records) >= MANY:
            self.table.forget()
            give_back()
        return lambda: any(r() is not None for r in watched) or bool(memory.fakes())

    # Nodes.

    def source(self, tensor: Tensor, name: str) -> int:
        """A node for an input of the model."""
        self._given.append(weakref.ref(tensor))
        value = self.table.add(
            tensor, "input", name, storage=self.capture.memory.see(local(tensor), 0)
        )
        self.table.own(value, len(self.records))
        self.records.append(
            Record("input", "input", name, self.modules.current, outputs=[value], name=name)
        )
        return value

    def copied(self, weight: Tensor) -> torch.nn.Parameter:
        """A copy of a real weight, of its class, with its attributes, which stands for it from now on."""
        guard = self.capture.guard
        if guard is not None:
            guard.spends(stored_bytes(weight))
        made, cls = torch.nn.Parameter(weight.detach().clone()), type(weight)
        if type(made) is torch.nn.Parameter and issubclass(cls, torch.nn.Parameter):
            made = Tensor._make_subclass(cls, made.detach(), True)  # noqa: FBT003
        known = vars(made)
        known.update((k, v) for k, v in vars(weight).items() if k not in known)
        if guard is not None:
            guard.owns(made)
        name = self.weights.name_of(weight)
        if name is not None:
            self.weights.stands_for(made, name)
        self.capture.memory.ignore(made)
        return made

    def existing(self, tensor: Tensor, name: str) -> None:
        """A tensor that is there from the beginning and is no input: what an optimizer keeps."""
        if self.capture.fake_mode is None and self.capture.guard is not None:
            self.capture.guard.owns(tensor)
        for part in (*stored(tensor)[:-1], tensor):  # of a sparse one, where its values are, too
            self.table.add(part, name=name, storage=self.capture.memory.see(local(part), 0))

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor of the same size as one of the run, which no kernel makes."""
        mode = self.capture.fake_mode
        if tensor.layout in SPARSE:  # which stores as much
            return tensor.detach().clone()
        if mode is None:
            return torch.empty_like(tensor)
        if is_spread(tensor):
            made: Tensor = spread_as(tensor, fake(local(tensor), mode))
            return made
        return fake(tensor, mode)

    def sink(self, result: Any) -> tuple[int, ...]:
        """A node for what the model returned."""
        last = len(self.capture.kernels)
        record = Record("output", "output", "output", self.modules.current, first=last, last=last)
        for tensor in tensors_in(result):
            self.table.read(tensor, record.inputs)
        record.inputs = list(dict.fromkeys(record.inputs))
        self.records.append(record)
        return tuple(record.inputs)

    def call(
        self, func: Any, args: Any, kwargs: Any, out: Any, first: int, waited: Sequence[Tensor] = ()
    ) -> Record | None:
        """A node for a call that has returned, unless it was no more than a look at a property. It reads
        what it `waited` for, too."""
        results = [out] if isinstance(out, Tensor) else tensors_of(_items(out))
        capture = self.capture
        if first == len(capture.kernels) and (not results or names(func)[0] in _LOOKS):
            return None
        record = self._record(func, args, kwargs, first)
        for tensor in waited:
            self.table.read(tensor, record.inputs)
        if type(out) is bool:  # a branch may hang on it
            record.arguments = ", ".join(filter(None, (record.arguments, f"→ {out}")))
        exchanged = capture.kernels[-1].collective if first < len(capture.kernels) else None
        if exchanged is not None:
            record.arguments = str(exchanged)
        index = self._append(record)
        number = _sequence_number()
        if not self._numbers or number > self._numbers[-1]:
            self._made.append(record)
            self._numbers.append(number)
        written = self.table.written() if capture.writes else {}
        for tensor in results:
            self.table.produce(tensor, record, index)
        for storage, tensor in written.items():
            self.table.wrote(storage, tensor, record)
        return record

    def again(self, func: Any, known: CachedFunction, tensors: list[Tensor]) -> Any:
        """What a call with these tensors gave before, and a node for it. Autograd does not follow."""
        capture, table = self.capture, self.table
        record = self._begun(func, len(capture.kernels), 5, known.arguments)
        inputs = record.inputs
        for tensor in tensors:
            table.read(tensor, inputs)
        if len(inputs) > 1 and len(set(inputs)) < len(inputs):
            record.inputs = list(dict.fromkeys(inputs))
        index = self._append(record)
        if known.alone is not None:
            out, storage = capture.repeat_alone(known, known.alone, index)
            record.last = len(capture.kernels)
            kind: ValueKind = "constant" if record.kind == "constant" else "activation"
            record.outputs.append(table.add(out, kind, None, None, storage, known.looks[0]))
            return out
        out, fresh = capture.repeat(known, tensors, index)
        record.last = len(capture.kernels)
        written = table.written() if known.writes else {}
        results = (out,) if known.call.container is None else out
        for tensor, storage, look in zip(results, fresh, known.looks, strict=True):
            table.produce(tensor, record, index, storage, look)
        for place, tensor in written.items():
            table.wrote(place, tensor, record)
        return out

    def fold(self, start: int, whole: Record) -> None:
        """Put one record in the place of all from `start` on: what these made for autograd is its own."""
        inside = {identity(r) for r in self.records[start:]}
        self.records[start:] = [whole]
        for at in range(len(self._made) - 1, -1, -1):
            if identity(self._made[at]) not in inside:
                break
            self._made[at] = whole

    def _append(self, record: Record) -> int:
        """Put a call behind the others; its index. What comes of constants alone is one, too."""
        values = self.table.values
        for value in record.inputs:
            if values[value].kind != "constant":
                break
        else:
            record.kind = "constant"
        record.call.nodes += 1
        self.records.append(record)
        index = len(self.records) - 1
        if index % MANY == MANY - 1:
            self.table.forget()
            give_back()
            if self.capture.fake_mode is not None and self.capture.guard is not None:
                self.capture.guard.grows(len(self.records))
        return index

    def call_in_parts(self, func: Any, args: Any, kwargs: Any, out: Any, first: int) -> None:
        """Nodes for a call within which ranks exchanged something: one for each collective, and one for
        what the call does before, between and after them, and behind a wait for one, if it does any work
        there."""
        capture, exchanged = self.capture, self.capture.exchanged
        capture.exchanged = []
        kernels = capture.kernels
        waited: list[Tensor] = []
        last: Record | None = None
        name = ""
        for at, operator, given, more, result in exchanged:
            if any(k.bytes for k in kernels[first:at]):
                self._part(func, args, kwargs, given, first, at, waited)
                first = at
            if operator is None:
                waited.append(result)
                continue
            name = operator.name
            last = self._part(operator.func, given, more, result, first, at + 1)
            if last is not None:
                last.arguments = str(kernels[at].collective)
            first = at + 1
        if last is None or any(k.bytes for k in kernels[first:]):
            self.call(func, args, kwargs, out, first, waited)
            return
        last.last = len(kernels)
        if name.startswith("opgraph."):
            return  # what goes to the host on the way is nothing that the call gives
        for tensor in [out] if isinstance(out, Tensor) else tensors_of(_items(out)):
            self.table.produce(tensor, last, len(self.records) - 1)

    def _part(
        self, func: Any, args: Any, kwargs: Any, out: Any, first: int, last: int,
        waited: Sequence[Tensor] = (),
    ) -> Record | None:  # fmt: skip
        """A node for the kernels up to the one at `last`, though there are more by now."""
        record = self.call(func, args, kwargs, out, first, waited)
        if record is not None:
            record.last = last
        return record

    def _begun(self, func: Any, first: int, above: int, arguments: str = "") -> Record:
        """The record of a call without its tensors, made by code in a frame so far `above`."""
        _, op, where = names(func)
        current = call = self.modules.current
        of = None
        if self._inside is not None:
            call = self._inside
        elif self.phase == "backward" and (found := self._differentiated()) is not None:
            path, of = found
            call = Call(path)
        record = Record(
            "call", op, where, call, arguments, [], [], first, len(self.capture.kernels),
            self.location or current_location(_RUN, above), self.fragment, self.phase,
        )  # fmt: skip
        if call is not current:  # else the name is that of the only node of a call
            record.forward = of
            record.name = f"{call.path}.{op}" if call.path else op
        return record

    def _record(self, func: Any, args: Any, kwargs: Any, first: int) -> Record:
        record, name = self._begun(func, first, above=5), names(func)[0]
        shown: list[str] = []
        # A deep copy is given all that was copied before it, which it does not read.
        given = positional(func)
        for position, item in enumerate(args[:1] if name == "__deepcopy__" else args):
            prefix = ""
            if position < len(given):
                prefix, default = given[position]
                if not isinstance(item, Tensor) and usual(item, default):
                    continue
            self._argument(item, prefix, record, shown)
        for key, item in kwargs.items():
            if type(item) in _PLAIN and (f"{key}=", item) in given:
                continue
            self._argument(item, f"{key}=", record, shown)
        record.arguments = sys.intern(cut(", ".join(shown)))
        record.inputs = list(dict.fromkeys(record.inputs))
        return record

    def _differentiated(self) -> tuple[str, Record | None] | None:
        """The module of the node whose gradient is being computed, and that node; of the gradient of a
        weight alone the module that owns it; of one that was gathered, which no module owns, the place of
        the node before, which made it. Autograd numbers what it has to differentiate in order."""
        evaluated = torch._C._current_autograd_node()
        if evaluated is None:
            return None
        weight = getattr(evaluated, "variable", None)
        if weight is not None:
            known = self.weights.name_of(weight)
            return self._differentiated_last if known is None else (known.scope, None)
        at = bisect_right(self._numbers, evaluated._sequence_nr())
        if at == len(self._made):
            return None
        self._differentiated_last = self._made[at].call.path, None
        return self._made[at].call.path, self._made[at]

    def _argument(self, item: Any, prefix: str, record: Record, shown: list[str]) -> None:
        if type(item) in _PLAIN:
            shown.append(f"{prefix}{item!r}")
        elif isinstance(item, Tensor):
            self.table.read(item, record.inputs)
        elif isinstance(item, (list, tuple)) and any(
            isinstance(t, (Tensor, list, tuple)) for t in item
        ):
            for part in item:
                self._argument(part, prefix, record, shown)
        elif isinstance(item, dict):
            for key, part in item.items():
                self._argument(part, f"{key}=", record, shown)
        else:
            shown.append(prefix + short(item))

    def _orphan(self, operator: Operator, args: Any, kwargs: Any, out: Any) -> None:
        """A kernel that no torch function led to: compiled code, custom functions, scripts."""
        self.call(operator.func, args, kwargs, out, len(self.capture.kernels) - 1)

    # Failure.

    def failed_call(
        self, func: Any, args: Any, kwargs: Any, first: int, error: BaseException
    ) -> None:
        """A node for a call that raised."""
        record = self._record(func, args, kwargs, first)
        record.error, record.exception = first_line(error), error
        self.refused(func)
        self.capture.raised(error)
        self.capture.writes.clear()
        self.records.append(record)
        record.call.nodes += 1

    def refused(self, func: Any) -> None:
        """A call of torch raised: where it was one for gradients, these may be off for opgraph alone."""
        if func in _GRADIENTS and not _is_grad_enabled():
            self.ungraded = True

    def places(self, kind: str) -> bool | torch.device | None:
        """What a tensor says of where it is, where that is not the truth: of a kind of accelerator whether
        it is on one, or without a kind its device."""
        if self.substitutes.placed:
            return kind == "cuda" if kind else _GPU
        if kind in self.away:
            self.capture.notes[ELSEWHERE] = None
        return None

    def asked(self, tensor: Tensor) -> None:
        """Somebody asks where the memory of a tensor is."""
        if self.capture.guard is not None:
            self.capture.guard.asked(tensor)

    @property
    def caught(self) -> str | None:
        """The first error for want of values that the model caught itself, or what else it went on by."""
        guard, before = self.capture.guard, {}
        if guard is not None:
            before = guard.lacking
            if self.capture.fake_mode is not None and guard.tells_fakes:
                return "its code tells fake tensors from real ones"
        return next(iter((before | self.capture.lacking).values()), None)

    def finish(self, error: BaseException | None) -> None:
        """Keep the failing node if the run failed, and only that one: what a model caught itself is
        not a failure, and is kept for the kernels that it ran."""
        self.capture.lacking.pop(identity(error), None)
        failed = [r for r in self.records if r.exception is not None]
        if failed or error is not None:
            self._mark(failed, error)
        self._close_gaps()

    def _mark(self, failed: list[Record], error: BaseException | None) -> None:
        """Of the records that failed keep the one that let the run fail, which says why."""
        for record in failed:
            if record.exception is not error and record.last > record.first:
                record.error = record.exception = None
        kept = [r for r in self.records if r.exception is None or r.exception is error]
        if len(kept) != len(self.records):
            self._renumber(kept)
        self.records[:] = kept
        raised = self.modules.raised
        if raised is not None and raised.error is not error:
            raised = None
        if error is not None and not any(r.exception is error for r in kept):
            call = self.modules.current if raised is None else raised.call
            last = len(self.capture.kernels)
            self.records.append(
                Record("call", "raise", type(error).__name__, call, first=last, last=last,
                       location=self._raised_at, phase=self.phase, error=first_line(error))
            )  # fmt: skip
            call.nodes += 1
        reason = None if raised is None else misfit(raised)
        self.misfit = reason is not None
        for record in self.records:
            if record.error is not None and reason is not None:
                record.error = f"{reason} ({record.error})"
            record.exception = None

    def _close_gaps(self) -> None:
        """Give kernels of which no node could be made to the next: where a forward recurses too deeply, an
        error may come between a call and its record."""
        end = 0
        for record in self.records:
            if record.kind != "input":
                if record.first > end:
                    record.first = end
                if record.last > end:
                    end = record.last
        if self.records:
            self.records[-1].last = len(self.capture.kernels)

    def _renumber(self, kept: list[Record]) -> None:
        position = {identity(r): i for i, r in enumerate(kept)}
        moved = {i: position.get(identity(r)) for i, r in enumerate(self.records)}
        owner = self.capture.memory.owner
        owner[:] = [None if o is None else moved[o] for o in owner]


class _Functions(TorchFunctionMode):
    """The function mode: it is off while a function runs, so that only outermost calls come here."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._runs = recorder.substitutes.table()

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        recorder = self._recorder
        lock = recorder.capture.lock
        if lock is not None and func not in _NO_NODES:
            with lock:
                return self._heard(recorder, func, args, kwargs or {})
        return self._heard(recorder, func, args, kwargs or {})

    @contextmanager
    def _in_hooks(self, capture: KernelCapture) -> Iterator[None]:
        """Within a node that runs hooks: of what they call, nothing is a node, and the rest is heard."""
        capture.in_hooks = True
        try:
            with staying(self):
                yield
        finally:
            capture.in_hooks = False

    def _heard(
        self, recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        capture = recorder.capture
        if func in _WATCHED:
            if capture.guard is not None and not capture.over and func in HANDED_OUT:
                capture.guard.handed_out(func, args[0], capture.made_here)
            if func in _READ and not capture.in_node and _is_read(args[0]):
                capture.lacking[identity(func)] = f"forward {_READ[func]}"
            if func in _AS_VALUES and not capture.in_node and capture.is_unknown(args[0]):
                capture.lacking[identity(func)] = "forward takes values of a tensor out of torch"
            if func in _AS_VALUES and not capture.in_node:
                capture.told(capture.drawn(args[0]))
            if func in _AS_ARRAYS and not capture.in_node:
                capture.handed_out(args[0])
            if func in _PLACES and not capture.in_node and _is_asked(sys._getframe(2)):
                placed = recorder.places(_PLACES[func])
                if placed is not None:
                    return placed
            if func in _OF_AUTOGRAD and not (capture.in_node or _is_grad_enabled()):
                recorder.differentiates = True
            if func == _GIVEN and type(args[0]) is FakeTensor and capture.fake_mode is not None:
                args = (args[0], *tree_map_only(Tensor, capture.faked, args[1:]))
            if func in _NO_NODES:
                if func in ADDRESSES:
                    return address(func, args, kwargs, recorder.asked)
                # The mode stays on: what a checkpoint runs again are nodes as in the forward.
                try:
                    with replaced(torch.autograd, "has_torch_function", lambda _: False), self:
                        return func(*args, **kwargs)
                except RuntimeError:
                    recorder.refused(func)
                    raise
        if capture.in_node or capture.over or capture.aside:
            # What a hook runs again, of a checkpoint, is what ran.
            run = self._runs.get(func, func) if capture.in_hooks else func
            return run(*args, **kwargs)
        if kwargs or func in MOVES:
            func, args, kwargs = brought_here(func, args, kwargs)
        run = self._runs.get(func, func)
        if _is_grad_enabled() and has_bodies(func):
            run = partial(capture.run_bodies, func)  # where autograd hears what they do
        key, tensors, known = capture.look(func, args, kwargs) if run is func else (None, [], None)
        if known is not None:
            return recorder.again(func, known, tensors)
        at = capture.mark()
        capture.in_node = True
        try:
            with self._in_hooks(capture) if func in RUN_HOOKS else nullcontext():
                out = run(*args, **kwargs)
        except _StopRecomputationError:  # not an error, but the end of what a checkpoint runs again
            recorder.call(func, args, kwargs, None, at[0])
            raise
        except BaseException as error:
            recorder.failed_call(func, args, kwargs, at[0], error)
            raise
        finally:
            capture.in_node = False
        if capture.exchanged:
            recorder.call_in_parts(func, args, kwargs, out, at[0])
            return out
        found = None if key is None else capture.learn(key, tensors, out, at)
        record = recorder.call(func, args, kwargs, out, at[0])
        if found is not None and record is not None:
            outputs = record.outputs[: len(found.call.results)]  # and not what else was written to
            capture.keep(key, found, record.arguments, recorder.table.looks(outputs))
        return out


DRAWN_OUTSIDE = Remark(
    "branch",
    "forward draws random numbers by Python's random or NumPy, and may choose its way by them (layers left "
    "out at random, for instance): figures are those of one draw",
)
"""The remark on a run in which these went on."""


ELSEWHERE = Remark(
    "branch",
    "forward asks whether a tensor is on an accelerator, where the model is, and is told that it is not, "
    "since a run is on the CPU: what it does there alone is not in the graph",
)
"""The remark on a run in which that was so."""
PLACED = Remark(
    "branch",
    "forward does not run unless its tensors are on a GPU: it was told that they are, and what it would "
    "run elsewhere is not in the graph",
)
"""The remark on a run in which tensors were `placed`."""


_GPU = torch.device("cuda", 0)


def _is_asked(frame: FrameType) -> bool:
    """Whether it is a person's or a library's code that asks, and not torch's."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package not in ("torch", "opgraph")


@contextmanager
def _placed() -> Iterator[None]:
    """Within, code that is not torch's is told that fake tensors are on a GPU, and may go there."""
    plain: Any = FakeTensor.device

    def device(tensor: FakeTensor) -> torch.device:
        found: torch.device = plain.fget(tensor)
        return _GPU if _is_asked(sys._getframe(1)) else found

    with (
        replaced(FakeTensor, "device", property(device, plain.fset)),
        replaced(torch.cuda.device, "__enter__", lambda _: None),
        replaced(torch.cuda.device, "__exit__", lambda *_: False),
    ):
        yield


def _needs_a_gpu(trace: TracebackType | None) -> bool:
    """Whether an error was raised by code that looks whether something is on a GPU."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and any(
        "is_cuda" in code.co_names or ("device" in code.co_names and "cuda" in str(code.co_consts))
        for code in _with_inner(trace.tb_frame.f_code)
    )


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Some code, and what is written within it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _with_inner(inner)


def _outside_draws() -> tuple[Any, ...]:
    """Where the random numbers of Python and NumPy are, of those that everybody has in common."""
    python = drawn_by_python()
    numpy = sys.modules.get("numpy") if "numpy.random" in sys.modules else None
    return (python,) if numpy is None else (python, *drawn(numpy))


DROPPED.update(vars(Recorder)[name].__wrapped__.__code__ for name in ("silent", "_beside"))

_LATER = (Iterator, Coroutine, AsyncIterator)
"""What computes only when somebody asks for it."""
_MOST_ITEMS = 1_000


async def _awaited(later: Any) -> Any:
    if isinstance(later, Coroutine):
        return await later
    items: list[Any] = []
    async for item in later:
        items.append(item)
        if len(items) == _MOST_ITEMS:
            break
    return items


MANY = 1 << 14
"""After so many nodes it is worth while to look at memory, and to give back what is of no more use: that
takes as long as a thousand nodes do."""
_RUN = Recorder.run.__code__
_PLAIN = frozenset({int, float, bool, type(None)})
_is_grad_enabled = torch.is_grad_enabled
_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr

_NO_NODES = frozenset({torch.autograd.backward, *ADDRESSES})
"""Functions that only run others, which are nodes of their own, and those that compute nothing."""


def _is_read(tensor: Any) -> bool:
    """Whether what a fake tensor says of itself may decide something: what is logged does not, nor what
    asyncio says of its tasks, or what is taken apart to be copied."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not Recorder.run.__code__:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in ("logging", "asyncio", "copy"):
            return False
        if package not in ("torch", "opgraph", "reprlib"):
            break
        frame = frame.f_back
    return type(tensor) is FakeTensor


_READ = {
    Tensor.__repr__: "has a tensor written as text", Tensor.__format__: "has a tensor written as text",
    Tensor.__reduce_ex__: "has a tensor pickled", Tensor.share_memory_: "shares a tensor with processes",
}  # fmt: skip
"""What a fake tensor gives otherwise than a real one would, in words."""
_GRADIENTS = frozenset({
    torch.autograd.grad, torch.autograd.backward, Tensor.backward, Tensor.register_hook, Tensor.retain_grad,
})  # fmt: skip
"""Functions that raise where gradients are off."""
_OF_AUTOGRAD = frozenset({Tensor.grad_fn.__get__, Tensor.grad.__get__})
"""Functions that give nothing there."""
_PLACES = {
    getattr(Tensor, f"is_{kind}").__get__: kind for kind in ("cuda", "mps", "mtia", "xpu")
    if hasattr(Tensor, f"is_{kind}")
} | {Tensor.device.__get__: ""}  # fmt: skip
"""What asks a tensor whether it is on an accelerator of a kind, or, without one, where it is."""
_AS_ARRAYS = frozenset({Tensor.numpy, Tensor.__array__, Tensor.__dlpack__})
_AS_VALUES = _AS_ARRAYS | {Tensor.tolist}
_GIVEN = Tensor.data.__set__
_WATCHED = (
    HANDED_OUT | {_GIVEN} | _NO_NODES | _READ.keys() | _AS_VALUES | _OF_AUTOGRAD | _PLACES.keys()
)

_LOOKS = frozenset({"grad", "requires_grad", "requires_grad_", "is_leaf", "grad_fn", "_base",
                    "__set__", "shape", "__setattr__"})  # fmt: skip


def _items(out: Any) -> Any:
    if isinstance(out, (list, tuple)):
        return out
    return out.values() if isinstance(out, dict) else ()
