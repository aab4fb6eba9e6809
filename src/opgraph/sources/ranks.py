"""One rank of many, in one process: a world of ranks that exchange nothing, in which a parallel program of
a person's own builds and runs as on its devices, and what a tensor that is spread over ranks has here.

The ranks are those of torch's fake process group: every collective returns at once, and what is in its
result says nothing. On fake tensors nothing has to be said.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from random import Random
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from opgraph.record.errors import InputError
from opgraph.record.profile import World
from opgraph.record.remarks import Remark
from opgraph.record.turns import replaced, turn, variables

_worlds: list[World] = []


def current() -> World | None:
    """The world in which this process is a rank, if it is in one."""
    return _worlds[-1] if _worlds else None


@contextmanager
def ranks(world_size: int, rank: int = 0) -> Iterator[World]:
    """Within, this process is one rank of `world_size`, as if started by torchrun, and a parallel program
    builds its meshes and applies its tools as it would there; `opgraph.profile` then gives what this rank
    runs, keeps and sends. Nothing is sent, and no device is needed: what a program has on CUDA is on the
    CPU instead. Afterwards the process is as it was.

    Raises `InputError` for a rank that is not there, or where the process is in a group already.

    >>> with opgraph.ranks(8) as world:
    ...     mesh = init_device_mesh("cuda", (world.size,))
    ...     p = opgraph.profile(fully_shard(model, mesh=mesh), mode="train")
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    world = World(world_size, rank)
    if type(world_size) is not int or type(rank) is not int or not 0 <= rank < world_size:
        raise InputError(f"there is no rank {rank!r:.40} of {world_size!r:.40}",
                         hint="ranks are numbered from 0")  # fmt: skip
    if not dist.is_available():
        raise InputError("this torch is built without torch.distributed")
    from torch.nn.parallel import distributed as replicating
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def here(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        made(self, "cpu", *args, **kwargs)

    local = rank % _NODE
    with ExitStack() as stack:
        stack.enter_context(turn(run=False))
        if dist.is_initialized():
            raise InputError("this process is in a process group already",
                             hint="dist.destroy_process_group() leaves it")  # fmt: skip
        made = DeviceMesh.__init__
        stack.enter_context(variables(
            RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local),
            LOCAL_WORLD_SIZE=str(min(world_size, _NODE)), GROUP_RANK=str(rank // _NODE),
            MASTER_ADDR="localhost", MASTER_PORT="29500",
        ))  # fmt: skip
        stack.enter_context(patch.object(DeviceMesh, "__init__", here))
        stack.enter_context(patch.object(Tensor, "pin_memory", lambda tensor, *_: tensor))
        stack.enter_context(patch.object(Tensor, "is_pinned", lambda *_: True))
        stack.enter_context(patch.object(sys, "excepthook", sys.excepthook))
        stack.callback(setattr, dist.distributed_c10d, "_backend", dist.distributed_c10d._backend)
        stack.callback(_forget)
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        stack.callback(_leave)
        # A program that joins its group itself has joined.
        stack.enter_context(patch.object(dist, "init_process_group", _joined))
        stack.enter_context(patch.object(dist.distributed_c10d, "init_process_group", _joined))
        # Copies of a model are alike from the start: there is nothing to compare or to send.
        for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
            stack.enter_context(patch.object(replicating, name, _joined))
        for name in _CHATTY:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        _worlds.append(world)
        stack.callback(_worlds.pop)
        yield world


_NODE = 8
"""Ranks of a node, by which a program is told its local rank."""

_CHATTY = ("torch.distributed.device_mesh", "torch.distributed.tensor")


def _joined(*_: Any, **__: Any) -> None:
    """What joining the group does for a process that is in it."""


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _forget() -> None:
    """Let go of what DTensors have found out: it names groups that are no more."""
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import _redistribute
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        _clear_sharding_prop_cache()
        _redistribute._gen_transform_infos.cache_clear()


# Tensors that are spread over ranks.


def local(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor: its piece, where it is one of several."""
    while type(tensor) is not FakeTensor and (name := _PIECES.get(type(tensor).__name__)):
        tensor = getattr(tensor, name)
    return tensor


_PIECES: Mapping[str, str] = {
    "DTensor": "_local_tensor", "AsyncCollectiveTensor": "elem", "NestedTensor": "_values",
}  # fmt: skip
"""Where tensors that are spread, under way, or jagged hold what this rank has."""


def arrived(result: Any) -> Any:
    """What a call gives, once what of it is still under way from other ranks is here."""
    left = tree_leaves(result)
    while left:
        tensor = left.pop()
        if hasattr(type(tensor), "trigger_wait"):
            tensor.trigger_wait()
        left += [
            getattr(tensor, name) for name in filter(None, [_PIECES.get(type(tensor).__name__)])
        ]
    return result


def parts_of(tensor: Tensor) -> dict[str, Tensor]:
    """The tensors that another is made of, by the names of its attributes. Its `__tensor_flatten__` says
    them, too, and may look at their values for it."""
    slots = (name for cls in type(tensor).__mro__ for name in vars(cls).get("__slots__", ()))
    held = {name: getattr(tensor, name, None) for name in (*vars(tensor), *slots)}
    return {name: part for name, part in held.items() if isinstance(part, Tensor)}


def is_spread(tensor: Any) -> bool:
    """Whether it is the piece of a tensor that others have the rest of."""
    return type(tensor).__name__ == "DTensor" and hasattr(tensor, "_spec")


def gathered_from(modules: Iterable[torch.nn.Module]) -> list[Any]:
    """The groups of ranks that have the rest of what is spread of some modules."""
    tables = (t for m in modules for t in (m._parameters, m._buffers))
    spread: list[Any] = [t for table in tables for t in table.values() if is_spread(t)]
    meshes = dict.fromkeys(t._spec.mesh for t in spread if not is_pretended())
    return [group for mesh in meshes for group in mesh.get_all_groups()]


def assembled(tensor: Any, mode: Any) -> Tensor:
    """All of a tensor that is spread, with a mode of fake tensors without values unless they are here: to
    gather them, every rank would have to take part."""
    piece: Tensor = tensor._local_tensor
    if mode is None:
        whole: Tensor = tensor.full_tensor()
    elif piece.shape == tensor.shape and not any(p.is_partial() for p in tensor._spec.placements):
        whole = piece
    else:
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return whole.detach().requires_grad_(tensor.requires_grad)


def spread_as(tensor: Any, piece: Tensor) -> Any:
    """A tensor that is spread like another one, of which this rank has a `piece`."""
    from torch.distributed.tensor import DTensor

    made: Any = DTensor
    return made(piece, tensor._spec, requires_grad=piece.requires_grad)


def begin(modules: Iterable[torch.nn.Module], mode: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Let modules that are sharded or replicated take up the weights they have now, as they would at their
    first call: what they do then is not part of a step. Gives each sharded weight with what is gathered
    from this rank of it."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    states = []
    for module in modules:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            _replicate(module, mode)
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            state: Any = module._get_fsdp_state()
            if state not in states:
                states.append(state)
    groups = [group for state in states for group in state._fsdp_param_groups]
    for group in groups:
        group._reset_sharded_params = False
    for state in states:
        state._lazy_init()
    for group in groups:
        group.lazy_init()
        for kept in group.fsdp_params:
            yield kept.sharded_param, kept._sharded_param_data


def fsdp_state(module: torch.nn.Module) -> Any:
    """What `fully_shard` keeps of a module, if it was applied to it."""
    return module._get_fsdp_state() if hasattr(type(module), "_get_fsdp_state") else None


def sharded(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, Any]]:
    """What `fully_shard` has of a module: whose weight it is, its name there, and what is kept of it, with
    the dtype that it converts it to, which it says from its first call on."""
    for group in getattr(fsdp_state(module), "_fsdp_param_groups", ()):
        for kept in group.fsdp_params:
            if not hasattr(kept, "param_dtype"):
                kept.init_dtype_attrs(getattr(kept, "mp_policy", None) or group.mp_policy)
            of = kept._module_info
            owners = (of.module, *of.shared_modules)
            for owner, name in zip(owners, (of.param_name, *of.shared_param_names), strict=True):
                yield owner, name, kept


def numbered_apart() -> AbstractContextManager[None]:
    """Within, torch draws the numbers of what waits for collectives of fake tensors by a generator of its
    own, not by the one that everybody has in common."""
    made: Any = sys.modules.get("torch.distributed._meta_registrations")
    return nullcontext() if made is None else replaced(made, "random", Random(0))


def kept_elsewhere(modules: Iterable[torch.nn.Module]) -> Iterator[Remark]:
    """What is to be said of weights that `FullyShardedDataParallel` has spread over the ranks of a run."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    handles = [m._handle for m in modules if fsdp and isinstance(m, fsdp.FullyShardedDataParallel)]
    flat = [handle.flat_param for handle in handles if handle and handle.uses_sharded_strategy]
    whole = sum(each._unpadded_unsharded_size.numel() for each in flat)
    here = sum(each._sharded_size.numel() for each in flat)
    if here < whole:
        yield Remark(
            "sharded",
            f"of {whole:,} weights FullyShardedDataParallel has {here:,} on this rank, with what rounds "
            "them up: parameters and memory are this rank's",
        )


class Converted:
    """What `fully_shard` converts by its policy around the forward of a module: its inputs, its weights and
    what it gives."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._state = fsdp_state(module)
        inside = set(module.modules())
        self._kept: list[list[Any]] = []
        self._tables = [
            (owner._parameters, name, kept.param_dtype)
            for owner, name, kept in sharded(module)
            if owner in inside and kept.param_dtype is not None
        ]
        policy = self._state._mp_policy
        self.any = bool(self._tables or policy.param_dtype or policy.output_dtype)

    def enter(self, _: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        weights: list[Any] = [table[name] for table, name, _ in self._tables]
        self._kept.append(weights)
        for (table, name, dtype), weight in zip(self._tables, weights, strict=True):
            table[name] = weight.to(dtype)
        return self._state._cast_forward_inputs(args, kwargs)

    def leave(self, _: torch.nn.Module, _args: Any, output: Any) -> Any:
        for (table, name, _dtype), weight in zip(self._tables, self._kept.pop(), strict=True):
            table[name] = weight
        return self._state._cast_output_dtype(output)


def forget(modules: Iterable[torch.nn.Module]) -> None:
    """Let sharded modules be as before their first call: what was gathered for one is no part of a step."""
    for module in modules:
        state = fsdp_state(module)
        for group in () if state is None else state._fsdp_param_groups:
            group._training_state = type(
                group._training_state
            ).IDLE  # a call that failed left it within
            group.reshard()
            for kept in group.fsdp_params:
                kept.all_gather_outputs.clear()
                vars(kept).pop("_unsharded_param", None)


def _replicate(module: Any, mode: Any) -> None:
    """Let a replicated module reduce the gradients of the weights that it has now."""
    names = {p: n for n, p in module.module.named_parameters()}
    with mode or nullcontext():
        parameters, sparse = module._build_params_for_reducer()
        module._module_parameters = parameters
        known = {i: names[p] for i, p in enumerate(parameters)}
        module._ddp_init_helper(parameters, sparse, known, module.static_graph)


def rebuild(modules: Iterable[torch.nn.Module]) -> None:
    """After a backward, let replicated modules make up their buckets in the order in which gradients came,
    as they do once after the first step."""
    for module in modules:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module.reducer._rebuild_buckets()


KEPT = "_opgraph_zero"
"""Where a module that is sharded says what of it is (see `opgraph.record.layout.Layout.zero`), and one that
is only copied says 0."""

STAGED = "_opgraph_staged"
"""Where a module says that it stands for a stage of a pipeline."""


def between_micro_batches(module: torch.nn.Module, last: bool) -> None:
    """Before a micro-batch, of which this is the `last` one or not: what is not sharded within a step is
    gathered, or reduced, once for all of them; and copies add their gradients up once, as they do in
    `DistributedDataParallel.no_sync`. A stage of a pipeline reduces nothing until all are done."""
    sharded: Any = module
    if not hasattr(sharded, KEPT):
        return
    zero, staged = getattr(sharded, KEPT), hasattr(sharded, STAGED)
    if staged and hasattr(sharded, "set_manual_backward_finalization"):  # torch 2.15
        sharded.set_manual_backward_finalization(True)
    if zero in (1, 2) or staged:
        sharded.set_reshard_after_backward(last and not staged)
    if zero < 2 or staged:
        sharded.set_requires_gradient_sync(last and not staged)
    sharded.set_requires_all_reduce(last or staged)


def behind_micro_batches(module: torch.nn.Module, batches: int) -> None:
    """Let what stands for a stage of a pipeline reduce its gradients, and make them those of a step, as a
    stage of torch's does."""
    if not hasattr(module, STAGED):
        return
    from torch.distributed.pipelining import PipelineStage

    stage: Any = object.__new__(PipelineStage)  # there are no other stages to tell it about
    stage.submod, stage.has_backward, stage._gradient_reduction_handle = module, True, None
    stage.perform_reduce_grad(batches)


# What is kept in the host's memory. All tensors of a pretended rank are on the CPU, where moving one does
# nothing: it is an operator of its own instead, whatever moves it.


@cache
def _library() -> torch.library.Library:
    library = torch.library.Library("opgraph", "FRAGMENT")
    for name in ("upload", "download"):
        library.define(f"{name}(Tensor tensor, str group) -> Tensor")
        library.impl(name, lambda tensor, _: tensor.clone(), "CompositeExplicitAutograd")
    return library


def moved(name: str, group: str, tensor: Tensor) -> Tensor:
    """A tensor behind the "upload" to the device of a rank, or the "download" from there; of which group
    it is says who keeps it on the host."""
    _library()
    if is_traceable_wrapper_subclass(tensor):
        made = tensor.detach()  # with what its class hands on
        for part, held in parts_of(made).items():
            setattr(made, part, moved(name, group, held))
        return made
    with torch._C.DisableTorchFunction():
        return cast(Tensor, getattr(torch.ops.opgraph, name)(tensor, group))


@contextmanager
def transfers(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Within, what goes between device and host is seen: weights and gradients of `fully_shard` with
    `CPUOffloadPolicy` among some modules, and what autograd keeps in `save_on_cpu`."""
    plain, kept = Tensor.to, torch.autograd.graph.saved_tensors_hooks.__init__

    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        name = _MOVED_BY.get(sys._getframe(1).f_globals.get("__name__", ""))
        return plain(tensor, *args, **kwargs) if name is None else moved(name, "", tensor)

    def on_cpu(self: Any, *_: Any, **__: Any) -> None:
        kept(self, partial(moved, "download", "saved"), partial(moved, "upload", "saved"))

    moves = current() is not None and is_offloaded(modules)
    with (
        replaced(Tensor, "to", to) if moves else nullcontext(),
        replaced(torch.autograd.graph.save_on_cpu, "__init__", on_cpu),
    ):
        yield


_FSDP = "torch.distributed.fsdp._fully_shard"
_MOVED_BY = {f"{_FSDP}._fsdp_param": "upload", f"{_FSDP}._fsdp_collectives": "download"}
"""The files of torch that move what is kept on the host, and nothing else."""


def is_offloaded(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether one of some sharded modules keeps its weights in the host's memory."""
    states = filter(None, map(fsdp_state, modules))
    return any(type(group.offload_policy).__name__ == "CPUOffloadPolicy"
               for state in states for group in state._fsdp_param_groups)  # fmt: skip


def are_replicated(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether one of some modules is a copy whose gradients are reduced in buckets."""
    return any(isinstance(m, torch.nn.parallel.DistributedDataParallel) for m in modules)


def finished(tensors: list[Tensor]) -> Any:
    """The work of a collective that is over, for whoever asks it for its result."""
    future: Any = torch.futures.Future()
    future.set_result(tensors)
    return torch._C._distributed_c10d._create_work_from_future(future)


def works_of(out: Any) -> list[Any]:
    """What a collective is working at, by the result of its operator."""
    import torch.distributed as dist

    found = out if isinstance(out, tuple) else (out,)
    return [dist.Work.unbox(o) for o in found if isinstance(o, torch.ScriptObject)]


def is_fake_work(work: Any) -> bool:
    """Whether a collective is only pretended."""
    return type(work).__name__ == "FakeWork"


def is_pretended() -> bool:
    """Whether other ranks are only pretended, by opgraph or by who asks for the profile."""
    import torch.distributed as dist

    return current() is not None or (dist.is_initialized() and dist.get_backend() == "fake")


def exchange_alike(operator: str, args: tuple[Any, ...], out: Any) -> Any:
    """What a collective gives where tensors have values: what it would if all other ranks had the same
    ones, which is how sizes that ranks tell each other are found."""
    import torch.distributed as dist

    world = current()
    if world is None or operator not in _ALIKE:
        return out
    into, given = args[0], args[1]
    if operator == "c10d.alltoall_":
        rank = dist.ProcessGroup.unbox(args[2]).rank()
        for received in into:
            received.copy_(given[rank])
    elif operator == "c10d.alltoall_base_":
        group = dist.ProcessGroup.unbox(args[2])
        into.copy_(
            given.chunk(group.size())[group.rank()].repeat(group.size(), *[1] * (given.dim() - 1))
        )
    elif operator == "c10d._allgather_base_":
        into.copy_(
            given.repeat(into.numel() // given.numel(), *[1] * (given.dim() - 1)).view_as(into)
        )
    return out


_ALIKE = frozenset({"c10d.alltoall_", "c10d.alltoall_base_", "c10d._allgather_base_"})
