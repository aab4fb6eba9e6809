"""Runs programs for real, in processes that exchange tensors by gloo, and writes down what each did:
`python really.py FOLDER NAME …`. Nothing of opgraph is used here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from programs import (
    PIPELINES,
    PROGRAMS,
    WORLD,
    batch_of_a_step,
    context,
    inputs,
    long_inputs,
)
from torch.utils._python_dispatch import TorchDispatchMode

_KINDS = {
    "c10d._allgather_base_": ("all-gather", 0),
    "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
    "c10d.allreduce_": ("all-reduce", 0),
    "c10d.send": ("send", 0),
    "c10d.recv_": ("receive", 0),
    "_c10d_functional.all_reduce": ("all-reduce", 0),
    "_c10d_functional.all_gather_into_tensor": ("all-gather", None),
    "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
    "_c10d_functional.all_to_all_single": ("all-to-all", 0),
    "_c10d_functional_autograd.all_to_all_single": ("all-to-all", 0),
}
"""Operators that move something: the kind, and which argument is the whole buffer; None for the result."""


class Listening(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.moved: list[tuple[str, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t.__name__ in ("DTensor", "AsyncCollectiveTensor") for t in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        name = str(func).rpartition(".")[0]
        if name in _KINDS:
            kind, place = _KINDS[name]
            whole = out if place is None else args[place]
            tensors = whole if isinstance(whole, (list, tuple)) else [whole]
            if kind in ("send", "receive"):
                ranks = 2
            elif name.startswith("c10d."):
                group = next(dist.ProcessGroup.unbox(a) for a in args[1:3] if _is_group(a))
                ranks = dist.get_world_size(group)
            else:
                ranks = dist.get_world_size(dist.distributed_c10d._resolve_process_group(args[-1]))
            if kind == "all-to-all" and [*map(bool, args[1])].count(True) == 1:
                kind = "permute"  # all of it goes to one rank
            self.moved.append((kind, sum(t.numel() * t.element_size() for t in tensors), ranks))
        elif "c10d" in name and "wait" not in name and "wrap" not in name:
            raise AssertionError(f"{name} is not listened to")
        return out


def _is_group(item: Any) -> bool:
    return isinstance(item, torch.ScriptObject) and "ProcessGroup" in str(item._type())


def step(name: str) -> dict[str, Any]:
    programs = {**PROGRAMS, "context": context}
    made: Any = programs[name]() if name in programs else PIPELINES[name]()
    named = dict(made.named_parameters()) if name in programs else {}
    stages = [] if name in programs else getattr(made, "_stages", None) or [made._stage]
    for each in stages:
        named |= {f"stage{each.stage_index}.{n}": p for n, p in each.submod.named_parameters()}
    optimizer = torch.optim.AdamW(named.values(), lr=1e-3)

    def once() -> None:
        if name in programs:
            tokens = long_inputs()[:, ::WORLD] if name == "context" else inputs()
            made(tokens).sum().backward()
        else:
            args = (batch_of_a_step(),) if any(s.is_first for s in stages) else ()
            last = any(s.is_last for s in stages)
            made.step(*args, **({"target": batch_of_a_step(), "losses": []} if last else {}))
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):  # what is made at the first step is there at the third
        once()
    listening = Listening()
    with listening:
        once()
    local = {n: _local(p) for n, p in named.items()}
    state = sum(
        _local(t)[1] for s in optimizer.state.values() for t in s.values() if t.dim()
    )  # fmt: skip
    return {"moved": listening.moved, "weights": local, "state": state}


def _local(tensor: Any) -> tuple[list[int], int]:
    piece = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return list(piece.shape), piece.numel() * piece.element_size()


def take_part(rank: int, folder: Path, names: list[str]) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    found = {name: step(name) for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, others = 0, []
    for other in range(1, WORLD):  # torch is imported once for all
        if process := os.fork():
            others.append(process)
        else:
            rank, others = other, []
            break
    take_part(rank, Path(sys.argv[1]), sys.argv[2:])
    sys.exit(any(os.waitpid(process, 0)[1] for process in others))
