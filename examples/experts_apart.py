"""A mixture of experts of which each rank has some: tokens go to their experts and back by all-to-all.

python examples/experts_apart.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

import opgraph

RANKS, EXPERTS, WIDTH, TOKENS = 8, 64, 512, 1024


class Experts(nn.Module):
    """Each token goes to one expert; every expert takes equally many (what is over is dropped)."""

    def __init__(self) -> None:
        super().__init__()
        here = EXPERTS // dist.get_world_size()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(here, WIDTH, 4 * WIDTH))
        self.down = nn.Parameter(torch.empty(here, 4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        weight, places = scores.topk(
            x.shape[0] // EXPERTS, dim=0
        )  # an expert's tokens, not the reverse
        sent = x[places.T.reshape(-1)]
        got = exchanged(sent).view(dist.get_world_size(), self.up.shape[0], -1, WIDTH)
        mine = got.transpose(0, 1).reshape(self.up.shape[0], -1, WIDTH)
        out = torch.bmm(torch.relu(torch.bmm(mine, self.up)), self.down)
        back = out.view(self.up.shape[0], dist.get_world_size(), -1, WIDTH).transpose(0, 1)
        done = exchanged(back.reshape(-1, WIDTH)) * weight.T.reshape(-1, 1)
        return x + torch.zeros_like(x).index_add(0, places.T.reshape(-1), done)


def exchanged(x: Tensor) -> Tensor:
    """The rows of each rank's experts to that rank."""
    return all_to_all_single_autograd(x, None, None, dist.group.WORLD)


if __name__ == "__main__":
    with opgraph.ranks(RANKS):
        with torch.device("meta"):
            model = nn.Sequential(Experts(), Experts())
        profile = opgraph.profile(
            model, torch.empty(TOKENS, WIDTH, device="meta"), mode="train", loss="sum"
        )
    print(f"{profile.totals.parameters:,} parameters on this rank, {profile.totals.flops:,} FLOPs")
    for each in profile.on("h100-sxm").exchanged:
        print(f"{each.phase}: {each.times} x {each.kind} of {each.bytes:,} bytes")
