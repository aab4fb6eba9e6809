"""What ranks exchange, by the operator that the dispatcher sees: of which kind a call is, how large the
buffer, and who is in the group. Arguments are found by the names that schemas give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor

from opgraph.record.graph import Collective
from opgraph.record.kinds import TRANSFERS, CollectiveKind

Pick = Callable[[dict[str, Any], list[Tensor]], Any]
"""From the arguments of a call by name, and its results, to the tensors that make up the buffer."""


def _given(*names: str) -> Pick:
    return lambda named, _: next((named[n] for n in names if named.get(n) is not None), ())


def _result(_: dict[str, Any], results: list[Tensor]) -> Any:
    return results


_INTO = _given("output_tensor", "output_tensors", "output_lists", "outputs", "output", "out")
_FROM = _given(
    "input_tensor", "input_tensors", "input_list", "inputs", "input", "tensors", "tensor"
)

_KINDS: dict[CollectiveKind, tuple[Pick, str]] = {
    CollectiveKind.ALL_REDUCE: (_FROM, """c10d.allreduce_ c10d.allreduce_coalesced_
        _c10d_functional.all_reduce _c10d_functional.all_reduce_
        _c10d_functional.all_reduce_coalesced _c10d_functional.all_reduce_coalesced_"""),
    CollectiveKind.ALL_GATHER: (_INTO, """c10d._allgather_base_ c10d.allgather_
        c10d.allgather_coalesced_ c10d.allgather_into_tensor_coalesced_
        _c10d_functional.all_gather_into_tensor_out"""),
    CollectiveKind.REDUCE_SCATTER: (_FROM, """c10d._reduce_scatter_base_ c10d.reduce_scatter_
        c10d.reduce_scatter_tensor_coalesced_ _c10d_functional.reduce_scatter_tensor
        _c10d_functional.reduce_scatter_tensor_coalesced
        _c10d_functional.reduce_scatter_tensor_out"""),
    CollectiveKind.ALL_TO_ALL: (_FROM, """c10d.alltoall_ c10d.alltoall_base_
        _c10d_functional.all_to_all_single"""),
    CollectiveKind.BROADCAST: (_FROM, """c10d.broadcast_ _c10d_functional.broadcast
        _c10d_functional.broadcast_"""),
    CollectiveKind.REDUCE: (_FROM, "c10d.reduce_"),
    CollectiveKind.GATHER: (_INTO, "c10d.gather_ c10d.gather_into_tensor_"),
    CollectiveKind.SCATTER: (_FROM, "c10d.scatter_"),
    CollectiveKind.SEND: (_given("tensors", "tensor"), "c10d.send _c10d_functional.isend"),
    CollectiveKind.RECEIVE: (_given("tensors", "tensor"),
        "c10d.recv_ c10d.recv_any_source_ _c10d_functional.irecv"),
    CollectiveKind.BARRIER: (lambda *_: (), "c10d.barrier c10d.monitored_barrier_"),
    CollectiveKind.UPLOAD: (_FROM, "opgraph.upload"),
    CollectiveKind.DOWNLOAD: (_FROM, "opgraph.download"),
}  # fmt: skip

Product = tuple[list[int], list[int], list[int]]
"""The sizes of a product's operands, and of what it gives."""


def product_of(operator: str, named: dict[str, Any]) -> Product | None:
    """The product that an operator of asynchronous tensor parallelism does piece by piece beside what it
    exchanges: of what it gathers, with all matrices that it is multiplied with side by side, or the one
    whose rows it adds up and scatters."""
    if operator not in IN_PIECES:
        return None
    first = named["A"]
    *lead, inner = first.shape
    rows, others = prod(lead), named.get("Bs") or [named["B"]]
    if IN_PIECES[operator] is CollectiveKind.ALL_GATHER:
        rows *= len(_group(named)[0])
    columns = sum(other.shape[-1] for other in others)
    return [rows, inner], [inner, columns], [rows, columns]


IN_PIECES = {
    "symm_mem.fused_all_gather_matmul": CollectiveKind.ALL_GATHER,
    "symm_mem.fused_all_gather_scaled_matmul": CollectiveKind.ALL_GATHER,
    "symm_mem.fused_matmul_reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "symm_mem.fused_scaled_matmul_reduce_scatter": CollectiveKind.REDUCE_SCATTER,
}
"""Operators that exchange something piece by piece, and multiply beside it
(torch/distributed/_symmetric_memory)."""
_GATHERED = (
    "_c10d_functional.all_gather_into_tensor _c10d_functional.all_gather_into_tensor_coalesced"
)

COLLECTIVES: dict[str, tuple[CollectiveKind, Pick]] = {
    name: (kind, pick) for kind, (pick, names) in _KINDS.items() for name in names.split()
} | dict.fromkeys(_GATHERED.split(), (CollectiveKind.ALL_GATHER, _result))
"""Operators that exchange something, by name: the kind, and what the buffer is."""
COLLECTIVES |= {name: (kind, _given("A")) for name, kind in IN_PIECES.items()}

_INTO_ITSELF = (CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE,
                CollectiveKind.RECEIVE)  # fmt: skip
WRITES: dict[str, Pick] = {
    name: pick if kind in _INTO_ITSELF else _INTO
    for name, (kind, pick) in COLLECTIVES.items()
    if name.startswith("c10d.") and kind not in (CollectiveKind.SEND, CollectiveKind.BARRIER)
}
"""Of those that write to what they are given, which arguments those are: their schemas do not say."""


def written_by(operator: str, named: dict[str, Any]) -> Any:
    """The tensors that a collective writes to among its arguments."""
    pick = WRITES.get(operator)
    return () if pick is None else pick(named, [])


@cache
def exchanges(func: Any) -> bool:
    """Whether an operator sends something to other ranks, or waits for them."""
    schema = getattr(func, "_schema", None)
    known = None if schema is None else COLLECTIVES.get(schema.name.replace("::", "."))
    return known is not None and known[0] not in TRANSFERS


def collective_of(operator: str, named: dict[str, Any], results: list[Tensor]) -> Collective:
    """What a call exchanges: `named` are its arguments by the names of its schema."""
    kind, pick = COLLECTIVES[operator]
    buffer = sum(t.numel() * t.element_size() for t in _tensors(pick(named, results)))
    if kind in TRANSFERS:
        return Collective(kind, buffer, 1, group=named["group"])
    members, name = _group(named)
    if operator in IN_PIECES:
        gathers = kind is CollectiveKind.ALL_GATHER
        rows, columns = product_of(operator, named)[2]  # type: ignore[index]
        element = next(t for t in results if t.dim() > 1).element_size()
        buffer = buffer * len(members) if gathers else rows * columns * element
    sizes = named.get("input_split_sizes")
    if kind is CollectiveKind.ALL_TO_ALL and sizes and len(members) - sizes.count(0) == 1:
        kind = CollectiveKind.PERMUTE  # as keys and values go round in a ring
    if kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE):
        members = _two(members, named)
    steps = {b - a for a, b in pairwise(members)}
    stride = steps.pop() if len(steps) == 1 else int(len(members) < 2)
    return Collective(kind, buffer, len(members), stride, name, () if stride else tuple(members))


def _two(members: list[int], named: dict[str, Any]) -> list[int]:
    """Of a group, those two of which one sends to the other: this rank and that of the call."""
    import torch.distributed as dist

    peer = next((named[n] for n in ("dst", "src") if isinstance(named.get(n), int)), None)
    here = dist.get_rank()
    return members if peer is None else sorted({here, members[peer]})


def _tensors(item: Any) -> list[Tensor]:
    if isinstance(item, Tensor):
        return [item]
    return [t for part in item for t in _tensors(part)] if isinstance(item, (list, tuple)) else []


def group_of(named: Mapping[str, Any]) -> Any:
    """The process group of a call, by its arguments; None if it names none."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _resolve_process_group

    group = named.get("process_group")
    if group is not None:
        return dist.ProcessGroup.unbox(group)
    name = named.get("group_name")
    return _resolve_process_group(name) if isinstance(name, str) else name


def _group(named: dict[str, Any]) -> tuple[list[int], str]:
    """The numbers of the ranks in the group of a call, and what its dimension of a mesh is called."""
    import torch.distributed as dist

    group = group_of(named)
    said = str(getattr(group, "group_desc", "") or "")
    return dist.get_process_group_ranks(group), said.removeprefix(
        "mesh_"
    ) if "mesh_" in said else ""
