"""A model laid out over ranks by torch's own tools, where no program of a person's does it. The model that
is laid out is a copy without values: what these tools change cannot be changed back."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from opgraph.record.errors import InputError, first_line
from opgraph.sources.base import Model
from opgraph.sources.ranks import current
from opgraph.tracing.modes.training import repeated


def fully_sharded(model: Model) -> Model:
    """The model with each repeated block, and what is beside them, sharded over all ranks of the world.

    Raises `InputError` where torch refuses it.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world = current()
    if world is None:
        raise InputError("a model is sharded over the ranks of a world", hint="opgraph.ranks(8)")
    mesh = init_device_mesh("cpu", (world.size,), mesh_dim_names=("fsdp",))
    module = _without_values(model.module)
    blocks = list(repeated(module))
    try:
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
    except (RuntimeError, ValueError, NotImplementedError, AssertionError, TypeError) as error:
        raise InputError(f"{model.info.name} cannot be sharded: {first_line(error)}") from error
    how = f"{len(blocks)} repeated blocks and the rest, gathered one after the other"
    info = model.info.noting(f"sharded over {world.size:,} ranks as {how}")
    return replace(model, module=module, info=info, materialize=None)


def _without_values(module: nn.Module) -> nn.Module:
    """A copy of a module whose parameters are on the meta device, those that are shared still shared."""
    memo: dict[int, torch.Tensor] = {}
    for parameter in module.parameters():
        bare = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(bare, requires_grad=parameter.requires_grad)
    return copy.deepcopy(module, memo)
