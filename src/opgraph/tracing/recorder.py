"""The recorder: everything a run of a model does, written down as nodes, values, scopes and kernels.

Three listeners work together while a forward runs. A function mode sees each outermost call of a torch
function (a node); beneath it the dispatch mode sees the ATen operators that the call comes down to (its
kernels); global module hooks keep the stack of module paths (its scope). `builder` makes the `Graph`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from opgraph.costs.count import Operator, dtype_name, sizes_of, tensors_of
from opgraph.graph import GraphBreak, Value
from opgraph.graph.ir import NodeKind, ValueKind
from opgraph.tracing.kernels import KernelCapture
from opgraph.tracing.naming import canonical, spelled, target
from opgraph.tracing.places import Place, here, raised_at
from opgraph.tracing.scopes import Call, ModuleCalls
from opgraph.tracing.spelling import cut, short
from opgraph.tracing.weights import Weights


@dataclass(slots=True)
class Record:
    """A node in the making."""

    kind: NodeKind
    op: str
    target: str
    call: Call
    arguments: str = ""
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    first: int = 0
    last: int = 0
    place: Place = (None, None)
    fragment: int = 0
    error: str | None = None
    exception: BaseException | None = None
    name: str | None = None


class Recorder:
    """Listens while `run` calls the model; then holds records, values and module calls."""

    def __init__(self, root: torch.nn.Module, weights: Weights, fake_mode: Any = None) -> None:
        self.capture = KernelCapture(fake_mode, self._orphan)
        self.records: list[Record] = []
        self.values: list[Value] = []
        self.modules = ModuleCalls(root, lambda: len(self.records), self.known)
        self.weights = weights
        self.fragment = 0
        self.breaks: list[GraphBreak] = []
        self.place: Place | None = None
        self._functions = _Functions(self)
        self._bindings: dict[int, tuple[Any, int, int | None, int]] = {}
        self._versions: dict[int, int] = {}
        self._writers: dict[int, int] = {}
        for tensor in weights.names.values():
            self.capture.memory.ignore(tensor[0])

    # Running.

    def run(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Call the model and listen. Gives its result and None, or None and what it raised.

        An interrupt by the person goes through.
        """
        self.modules.listen()
        try:
            with self.capture, self._functions:
                return call(), None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit too: a forward may do anything)
            return None, error
        finally:
            self.modules.deaf()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within, neither torch functions nor module calls are listened to: what runs is not the
        model's, and looks at what is listening (Dynamo does)."""
        modes = _get_current_function_mode_stack()
        _set_function_modes([m for m in modes if m is not self._functions])
        self.modules.deaf()
        try:
            yield
        finally:
            self.modules.listen()
            _set_function_modes(modes)

    # Values.

    def value(
        self, tensor: Tensor, kind: ValueKind = "activation", name: str | None = None,
        alias_of: int | None = None, storage: int | None = None,
    ) -> int:  # fmt: skip
        """A new value for a tensor, from now on what the tensor is known as."""
        id_ = len(self.values)
        shape = sizes_of(tensor)
        size = 1
        for n in shape:
            size *= n
        try:
            size *= tensor.dtype.itemsize
        except RuntimeError:
            size = 0
        self.values.append(
            Value(
                id_,
                shape,
                dtype_name(tensor.dtype),
                size,
                kind,
                name,
                alias_of,
                storage,
                _strides(tensor),
            )
        )
        version = self._versions.get(storage, 0) if storage is not None else 0
        self._bindings[id(tensor)] = (weakref.ref(tensor), id_, storage, version)
        return id_

    def bound(self, tensor: Tensor) -> int | None:
        """The value a tensor is known as, if it is."""
        entry = self._bindings.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def read(self, tensor: Tensor, into: list[int]) -> None:
        """Note that a tensor is read: its value, and the last write into its memory since then."""
        entry = self._bindings.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            into.append(self._found(tensor))
            return
        into.append(entry[1])
        storage = entry[2]
        if storage is not None and self._versions.get(storage, 0) > entry[3]:
            into.append(self._writers[storage])

    def _found(self, tensor: Tensor) -> int:
        """A tensor that no node made: a weight, a view of something known, or a constant."""
        weight = self.weights.name_of(tensor)
        if weight is not None:
            return self.value(tensor, weight.kind, weight.name)
        storage = self.capture.memory.find(tensor)
        if storage is not None:
            return self.value(tensor, storage=storage)
        return self.value(
            tensor, "constant", storage=self.capture.memory.see(tensor, len(self.capture.kernels))
        )

    def alive(self) -> set[int]:
        """The values whose tensors still exist."""
        return {entry[1] for entry in self._bindings.values() if entry[0]() is not None}

    def known(self, things: Any) -> tuple[int, ...]:
        """The values that the tensors in a structure are known as."""
        found = (self.bound(t) for t in tensors_in(things))
        return tuple(dict.fromkeys(v for v in found if v is not None))

    # Nodes.

    def source(self, tensor: Tensor, name: str) -> int:
        """A node for an input of the model."""
        value = self.value(tensor, "input", name, storage=self.capture.memory.see(tensor, 0))
        self._own(value, len(self.records))
        self.records.append(
            Record("input", "input", name, self.modules.current, outputs=[value], name=name)
        )
        return value

    def sink(self, result: Any) -> tuple[int, ...]:
        """A node for what the model returned."""
        last = len(self.capture.kernels)
        record = Record("output", "output", "output", self.modules.current, first=last, last=last)
        for tensor in tensors_in(result):
            self.read(tensor, record.inputs)
        record.inputs = list(dict.fromkeys(record.inputs))
        self.records.append(record)
        return tuple(record.inputs)

    def call(self, func: Any, args: Any, kwargs: Any, out: Any, first: int) -> None:
        """A node for a call that has returned, unless it was no more than a look at a property."""
        results = [out] if isinstance(out, Tensor) else tensors_of(_items(out))
        capture = self.capture
        if not results and first == len(capture.kernels):
            return
        name = spelled(func)
        if name in _LOOKS and first == len(capture.kernels):
            return
        record = self._record(func, args, kwargs, first)
        index = len(self.records)
        self.records.append(record)
        record.call.nodes += 1
        if all(self.values[v].kind == "constant" for v in record.inputs):
            record.kind = "constant"
        written = self._written()
        for tensor in results:
            self._produce(tensor, record, index)
        for storage, tensor in written.items():
            self._wrote(storage, tensor, record)

    def _record(self, func: Any, args: Any, kwargs: Any, first: int) -> Record:
        name = spelled(func)
        record = Record(
            "call", canonical(name), target(func), self.modules.current,
            first=first, last=len(self.capture.kernels), fragment=self.fragment,
            place=self.place or here(Recorder.run.__code__),
        )  # fmt: skip
        shown: list[str] = []
        for item in args:
            self._argument(item, "", record, shown)
        for key, item in kwargs.items():
            self._argument(item, f"{key}=", record, shown)
        record.arguments = cut(", ".join(shown))
        record.inputs = list(dict.fromkeys(record.inputs))
        return record

    def _argument(self, item: Any, prefix: str, record: Record, shown: list[str]) -> None:
        if isinstance(item, Tensor):
            self.read(item, record.inputs)
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

    def _produce(self, tensor: Tensor, record: Record, index: int) -> None:
        """A result: new memory, a view of what was known, or the very tensor that went in."""
        capture = self.capture
        before = self.bound(tensor)
        storage = capture.memory.find(tensor)
        if storage is None:
            storage = capture.memory.see(tensor, max(record.first, record.last - 1))
        alias = before
        if alias is None and storage is not None:
            alias = next(
                (v for v in reversed(record.inputs) if self.values[v].storage == storage), None
            )
        elif alias is None:
            alias = self._weight_alias(tensor, record)
        kind: ValueKind = "constant" if record.kind == "constant" else "activation"
        record.outputs.append(self.value(tensor, kind, alias_of=alias, storage=storage))
        self._own(record.outputs[-1], index)

    def _weight_alias(self, tensor: Tensor, record: Record) -> int | None:
        """The weight whose memory a result shares (`weight.t()`)."""
        for v in reversed(record.inputs):
            name = self.values[v].name
            if name is not None and self.values[v].kind in ("parameter", "buffer"):
                weight = self.weights.tensor(name)
                if weight is not None and _same_storage(weight, tensor):
                    return v
        return None

    def _own(self, value: int, index: int) -> None:
        storage = self.values[value].storage
        if storage is not None and self.capture.memory.owner[storage] is None:
            self.capture.memory.owner[storage] = index

    def _written(self) -> dict[int, Tensor]:
        """The storages that the kernels since the last node wrote in place; a new version of each."""
        found: dict[int, Tensor] = {}
        for tensor in self.capture.writes:
            storage = self.capture.memory.find(tensor)
            if storage is not None and storage not in found:
                found[storage] = tensor
                self._versions[storage] = self._versions.get(storage, 0) + 1
        self.capture.writes.clear()
        return found

    def _wrote(self, storage: int, tensor: Tensor, record: Record) -> None:
        """Whoever reads this memory from now on depends on this node."""
        writer = next((v for v in record.outputs if self.values[v].storage == storage), None)
        if writer is None:
            before = next((v for v in record.inputs if self.values[v].storage == storage), None)
            writer = self.value(tensor, alias_of=before, storage=storage)
            record.outputs.append(writer)
        self._writers[storage] = writer

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
        self.capture.writes.clear()
        self.records.append(record)
        record.call.nodes += 1

    def finish(self, error: BaseException | None) -> None:
        """Keep the failing node if the run failed, and only that one: what a model caught itself is
        not a failure."""
        kept = [r for r in self.records if r.exception is None or r.exception is error]
        if len(kept) != len(self.records):
            self._renumber(kept)
        self.records = kept
        if error is not None and not any(r.exception is error for r in kept):
            raised = self.modules.raised
            call = raised[1] if raised and raised[0] is error else self.modules.current
            last = len(self.capture.kernels)
            self.records.append(
                Record("call", "raise", type(error).__name__, call, first=last, last=last,
                       place=raised_at(error.__traceback__), error=first_line(error))
            )  # fmt: skip
            call.nodes += 1
        for record in self.records:
            record.exception = None

    def _renumber(self, kept: list[Record]) -> None:
        position = {id(r): i for i, r in enumerate(kept)}
        moved = {i: position.get(id(r)) for i, r in enumerate(self.records)}
        owner = self.capture.memory.owner
        owner[:] = [None if o is None else moved[o] for o in owner]


class _Functions(TorchFunctionMode):
    """The function mode: it is off while a function runs, so that only outermost calls come here."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self._recorder
        capture = recorder.capture
        if capture.in_node:
            return func(*args, **kwargs)
        first = len(capture.kernels)
        capture.in_node = True
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            recorder.failed_call(func, args, kwargs, first, error)
            raise
        finally:
            capture.in_node = False
        recorder.call(func, args, kwargs, out, first)
        return out


_LOOKS = frozenset({"grad", "requires_grad", "requires_grad_", "is_leaf", "grad_fn", "_base",
                    "__set__", "shape", "__setattr__"})  # fmt: skip


def tensors_in(thing: Any, depth: int = 6) -> list[Tensor]:
    """All tensors of a result, once each, through containers, dataclasses and cache objects."""
    found: dict[int, Tensor] = {}
    _walk(thing, depth, found)
    return list(found.values())


def _walk(item: Any, depth: int, found: dict[int, Tensor]) -> None:
    # Not a function inside of `tensors_in`: one that calls itself is a cycle, which would keep the
    # tensors alive, and with them their storages, until the garbage is collected.
    if isinstance(item, Tensor):
        found.setdefault(id(item), item)
    elif depth == 0 or item is None or isinstance(item, (str, bytes, int, float, type)):
        return
    elif isinstance(item, dict):
        for part in item.values():
            _walk(part, depth - 1, found)
    elif isinstance(item, (list, tuple, set, frozenset)):
        for part in item:
            _walk(part, depth - 1, found)
    elif not isinstance(item, torch.nn.Module) and hasattr(item, "__dict__"):
        for part in list(vars(item).values()):
            _walk(part, depth - 1, found)


def first_line(error: BaseException) -> str:
    """An error in one line: its class and the first line of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


def _set_function_modes(modes: list[TorchFunctionMode]) -> None:
    for _ in _get_current_function_mode_stack():
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor that is not contiguous, where it has any."""
    try:
        return None if tensor.is_contiguous() else tuple(map(int, tensor.stride()))
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _items(out: Any) -> Any:
    if isinstance(out, (list, tuple)):
        return out
    return out.values() if isinstance(out, dict) else ()


def _same_storage(a: Tensor, b: Tensor) -> bool:
    try:
        return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return False
