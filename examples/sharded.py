"""One rank of 64 that train a model with `fully_shard`: no other rank, no device, no weights.

    python examples/sharded.py
    opgraph profile examples/sharded.py:build --world-size 64 --mode train --input-shape 8x256x1024 \\
        --loss sum --hardware h100-sxm
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import opgraph

RANKS = 64


def build() -> nn.Module:
    """A program as it would run under torchrun: a mesh of all ranks, and each layer a group of weights."""
    mesh = init_device_mesh("cuda", (RANKS,), mesh_dim_names=("dp",))
    with torch.device("meta"):
        layers = [nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(6)]
        model = nn.Sequential(*layers)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    with opgraph.ranks(RANKS, rank=0):
        x = torch.empty(8, 256, 1024, device="meta")
        profile = opgraph.profile(build(), x, mode="train", loss="sum")
    whole = 6 * 12 * 1024**2
    print(f"{profile.totals.parameters:,} of about {whole:,} parameters are on this rank")
    for each in profile.on("h100-sxm").exchanged:
        print(
            f"{each.phase}: {each.times} x {each.kind} between {each.ranks} ranks, {each.bytes:,} bytes"
        )
    print(profile.on("h100-sxm"))
