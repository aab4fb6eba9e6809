"""Parameters and buffers of a model: the table of them, and putting fake ones in their place for a run."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from opgraph.costs.count import dtype_name, packed, sizes_of
from opgraph.costs.formulas.linalg import SPARSE, stored
from opgraph.record.graph import Parameter, maker
from opgraph.record.identity import identity
from opgraph.sources.ranks import (
    Converted,
    assembled,
    current,
    fsdp_state,
    is_spread,
    local,
    parts_of,
    sharded,
    spread_as,
)
from opgraph.tracing.fake.tensors import REAL_LIMIT, Memory, fake, parts_of_memory, shared_memory
from opgraph.tracing.fake.types import dress, graded, is_its_own, is_of_graph, scales, unasked

Modules = Collection[torch.nn.Module]
"""All modules of a model, each of them once."""


_parameter = maker(Parameter)


class Weights:
    """The parameters and buffers of a model: once each, with all the names they go by. `tree` holds the
    model's modules by their paths."""

    def __init__(self, tree: dict[str, torch.nn.Module]) -> None:
        self.tree = tree
        self.parameters: list[Parameter] = []
        self.names: dict[int, tuple[Tensor, Parameter]] = {}
        self._tensors: dict[str, Tensor] = {}
        seen: dict[int, list[str]] = {}
        found: list[tuple[Tensor | _Described, str, str, Any]] = []
        for path, module in self.tree.items():
            for kind, table in (("parameter", module._parameters), ("buffer", module._buffers)):
                for key, tensor in table.items():
                    if tensor is None:
                        continue
                    name = f"{path}.{key}" if path else key
                    if identity(tensor) in seen:
                        seen[identity(tensor)].append(name)
                    else:
                        seen[identity(tensor)] = []
                        found.append((tensor, name, path, kind))
            found += ((what, name, path, "parameter") for name, what in _in_packed(path, module))
        for item, name, path, kind in found:
            here = isinstance(item, Tensor)
            shape, numel, size, dtype, trainable = _described(item) if here else item
            tied = tuple(seen[identity(item)]) if here else ()
            parameter = _parameter(
                name=name,
                shape=shape,
                dtype=dtype,
                numel=numel,
                bytes=size,
                scope=path,
                kind=kind,
                trainable=trainable,
                tied=tied,
            )
            self.parameters.append(parameter)
            if here:
                self.stands_for(item, parameter)

    def stands_for(self, tensor: Tensor, parameter: Parameter) -> None:
        """From now on `tensor` is known as `parameter`."""
        tensor = self._tensors[parameter.name] = local(tensor)
        self.names[identity(tensor)] = (tensor, parameter)

    def also(self, tensor: Tensor, parameter: Parameter) -> None:
        """From now on `tensor`, too, is known as `parameter`."""
        tensor = local(tensor)
        self.names[identity(tensor)] = (tensor, parameter)

    def name_of(self, tensor: Tensor) -> Parameter | None:
        """Which parameter or buffer a tensor is, if it is one."""
        tensor = local(tensor)
        entry = self.names.get(identity(tensor))
        return entry[1] if entry is not None else None

    def home(self, tensor: Tensor) -> str:
        """The path of the module that owns a parameter; the root's for what is none of the model's."""
        known = self.name_of(tensor)
        return "" if known is None else known.scope

    def is_trainable(self, tensor: Tensor) -> bool:
        """Whether a tensor stands for a parameter that is not frozen, or for none of the model's."""
        known = self.name_of(tensor)
        return known is None or known.trainable

    def forget(self) -> None:
        """Let go of all tensors. A hook at several weights has what adds up their gradients, by which torch
        holds them without telling Python."""
        for tensor in self.stand_ins():
            if type(tensor) is FakeTensor and tensor._backward_hooks:
                tensor._backward_hooks = None
        self.names.clear()
        self._tensors.clear()

    def stand_ins(self) -> Iterator[Tensor]:
        """The tensors that parameters and buffers are known by."""
        return (tensor for tensor, _ in self.names.values())

    def tensor(self, name: str) -> Tensor | None:
        """The tensor that stands for a parameter or buffer during the run."""
        return self._tensors.get(name)


def _extent(tensor: Tensor) -> tuple[tuple[int, ...], int, int]:
    """The shape of a weight, its elements, and the bytes it takes, on this rank where there are several;
    nothing is known of a lazy one."""
    if current() is not None:
        tensor = local(tensor)
    elif is_spread(tensor):  # all of it is meant
        _, elements, size = _extent(local(tensor))
        return sizes_of(tensor), tensor.numel(), size * tensor.numel() // max(elements, 1)
    if type(tensor) in _PLAIN and not tensor.is_quantized and tensor.layout not in SPARSE:
        numel = tensor.numel()
        return sizes_of(tensor), numel, numel * tensor.element_size()
    if torch.nn.parameter.is_lazy(tensor):
        return (), 0, 0
    shape = true_shape(tensor)
    numel = prod(shape) if shape != sizes_of(tensor) else int(tensor.numel())
    return shape, numel, stored_bytes(tensor)


_PLAIN = (torch.nn.Parameter, Tensor)
"""Weights whose data are all that they are."""


_Described = tuple[tuple[int, ...], int, int, str, bool]
"""Of a weight: its shape, elements, bytes, dtype, and whether it is trained."""


def _described(tensor: Tensor) -> _Described:
    return *_extent(tensor), dtype_name(tensor.dtype), bool(tensor.requires_grad)


def _in_packed(path: str, module: torch.nn.Module) -> Iterator[tuple[str, _Described]]:
    """The weight and the bias that a quantized layer of torch's own keeps in an object of its own."""
    for known in filter(None, (packed(item) for _, item in _own(module))):
        both = known.each(_described)
        yield from zip((f"{path}.weight", f"{path}.bias"), both, strict=False)


@unasked()
def stored_bytes(tensor: Tensor) -> int:
    """The bytes a weight takes where it is kept, looking into wrappers of packed data."""
    if tensor.layout in SPARSE:
        return sum(map(stored_bytes, stored(tensor)))
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None and type(tensor) is not FakeTensor:
        try:
            held = [getattr(tensor, name) for name in flatten()[0]]
        except (AttributeError, TypeError, RuntimeError, NotImplementedError):
            held = list(parts_of(tensor).values())
        return sum(stored_bytes(item) for item in held if isinstance(item, Tensor))
    return int(tensor.numel() * tensor.element_size()) + sum(map(stored_bytes, _beside(tensor)))


def _beside(tensor: Tensor) -> list[Tensor]:
    """Tensors that a packed weight keeps beside its data, such as scales: of a quantizer of torch's, or as
    attributes of a class of its own (bitsandbytes)."""
    if tensor.is_quantized:
        return scales(tensor)
    if type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor):
        return []
    state = vars(tensor).get("quant_state")
    owners = [vars(tensor), getattr(state, "__dict__", {})]
    second = getattr(getattr(state, "state2", None), "__dict__", {})
    found = [t for table in (*owners, second) for t in table.values() if isinstance(t, Tensor)]
    seen = {tensor.data_ptr()}
    kept = []
    for item in found:
        where = identity(item) if item.device.type == "meta" else item.data_ptr()
        if item.device.type in ("cpu", "meta") and where not in seen:
            seen.add(where)
            kept.append(item)
    return kept


def true_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a weight, of which several numbers may be packed into one element."""
    packed = getattr(getattr(tensor, "quant_state", None), "shape", None)
    return tuple(map(int, packed)) if packed is not None else sizes_of(tensor)


_USUAL = frozenset(vars(torch.nn.Module()))
"""What every module has; the tables among it that a forward may change are saved by name."""


def _own(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """The attributes of a module that not every module has, by name."""
    table = module.__dict__
    return [(name, table[name]) for name in sorted(table.keys() - _USUAL)]


def _tables(module: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    """The tables of parameters and of buffers; those of scripted modules cannot be changed."""
    tables = (module._parameters, module._buffers)
    return tables if all(isinstance(t, dict) for t in tables) else ()


def _hooks(module: torch.nn.Module) -> tuple[dict[int, Any], ...]:
    return module._forward_pre_hooks, module._forward_hooks


def undistribute(modules: Modules) -> None:
    """Let a model that is spread over devices run as it would on one, for use under a guard: without
    the hooks that gather its weights and scatter them again (`fully_shard`, tensor parallelism), but for
    what they convert."""
    for module in modules:
        for owner, name, kept in sharded(module):
            owner._parameters[name] = kept.sharded_param  # what a call has gathered may be there
    for module in modules:
        converted = Converted(module) if fsdp_state(module) is not None else None
        for hooks in _hooks(module):
            for key, hook in list(hooks.items()):
                where = getattr(hook, "__module__", None)
                if where not in _GATHERING:
                    continue
                if where == _SHARDING and converted is not None and converted.any:
                    enters = hooks is module._forward_pre_hooks
                    hooks[key] = converted.enter if enters else converted.leave
                else:
                    del hooks[key]


_SHARDING = "torch.distributed.fsdp._fully_shard._fsdp_state"
_GATHERING = frozenset({
    _SHARDING, "torch.distributed.tensor._api",
})  # fmt: skip
"""Where the hooks are defined by which torch spreads a model over devices."""


def set_eval(modules: Modules) -> None:
    """Eval mode on every module, without calling anybody's `train` method."""
    for module in modules:
        if module.training:
            module.training = False


def uncompile(modules: Modules) -> None:
    """Let modules that were compiled in place (`module.compile()`) run as they are, for use under a guard:
    where a tracer lets Dynamo run, they would compile themselves beside what it captures."""
    for module in modules:
        vars(module).pop("_compiled_call_impl", None)


def stand_in(
    modules: Modules, weights: Weights, mode: FakeTensorMode | None
) -> Mapping[int, Tensor]:
    """Put stand-ins in the place of the weights, for use under a guard. What stands in for what, by its id,
    so that it can wherever else that is.

    On fake tensors (a mode is given) parameters become fake CPU tensors, and so do buffers above the
    limit for real tensors and those on other devices. All others stay, put together where they are spread
    over devices: what a forward writes into them is brought back by its guard.
    """
    memo: dict[int, Tensor] = {}
    parameters = [t for m in modules for t in m._parameters.values() if t is not None]
    shared = shared_memory(t for p in parameters for t in (p, *parts_of_memory(p).values()))
    for module in modules:
        for table, is_buffer in zip(_tables(module), (False, True), strict=False):
            for key, tensor in table.items():
                if tensor is None or (mode is None and not (is_spread(tensor) and not current())):
                    continue
                stand = memo.get(identity(tensor))
                if stand is None:
                    stand = memo[identity(tensor)] = _stand_in(tensor, mode, is_buffer, shared)
                    known = weights.name_of(tensor)
                    if known is not None:
                        weights.stands_for(stand, known)
                table[key] = stand
    if mode is not None:
        _on_meta(modules, mode, memo)
    return memo


def _on_meta(modules: Modules, mode: FakeTensorMode, memo: dict[int, Tensor]) -> None:
    """What stands in for tensors on meta that a module keeps as plain attributes, views of weights among
    them. Their class is not told that they are looked at."""
    with torch._C.DisableTorchFunctionSubclass(), torch.enable_grad():
        for item in (item for module in modules for _, item in _own(module)):
            new = issubclass(type(item), Tensor) and identity(item) not in memo
            if new and item.device.type == "meta":
                memo[identity(item)] = _of_meta(item, mode, memo)


def _of_meta(item: Tensor, mode: FakeTensorMode, memo: Mapping[int, Tensor]) -> Tensor:
    base = graded(item, "_base")
    weight = None if base is None or not is_of_graph(item) else memo.get(identity(base))
    if weight is None or weight.dtype != item.dtype:
        return fake(item, mode)
    return weight.as_strided(item.shape, item.stride(), item.storage_offset())


def _on_fakes(state: Any, mode: FakeTensorMode) -> Any:
    """A quantizer's state whose tensors are fake, and so that of its scales."""
    made = copy.copy(state)
    for name, item in vars(state).items():
        if isinstance(item, Tensor):
            setattr(made, name, fake(item, mode))
        elif type(item) is type(state):
            setattr(made, name, _on_fakes(item, mode))
    return made


def _stand_in(
    tensor: Tensor, mode: FakeTensorMode | None, is_buffer: bool, shared: Memory
) -> Tensor:
    if is_its_own(tensor):
        return tensor
    if mode is None:
        return assembled(tensor, mode)
    small = is_buffer and tensor.numel() * tensor.element_size() <= REAL_LIMIT
    if small and tensor.device.type == "cpu" and type(tensor) is Tensor:
        return tensor
    if is_spread(tensor) and current() is None:
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")  # all of it is meant
    state = getattr(tensor, "quant_state", None)
    if is_spread(tensor):
        stand = spread_as(tensor, fake(local(tensor), mode, shared))
    elif state is None or tensor.device.type != "meta":
        stand = fake(tensor, mode, shared)
    else:  # bitsandbytes' weight with what it keeps beside
        stand = fake(tensor.detach().as_subclass(Tensor), mode)
        stand.quant_state = _on_fakes(state, mode)
    dress(stand, tensor)
    vars(stand).update((name, fake(t, mode, shared)) for name, t in parts_of_memory(tensor).items())
    if not is_buffer:
        stand._is_param = True
        stand.requires_grad = tensor.requires_grad
    return stand
