"""A loop over one layer: it is unrolled, the layer's parameters count once, and its FLOPs at every use."""

from __future__ import annotations

import torch
from torch import nn

import opgraph


class Recurrent(nn.Module):
    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.cell = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            x = torch.tanh(self.cell(x))
        return x


def main() -> None:
    profile = opgraph.profile(Recurrent(), torch.randn(2, 16))
    print(f"{profile.graph.scope['cell'].calls} calls of one layer")
    print(f"{profile.totals.parameters} parameters, {profile.totals.flops} FLOPs")
    for node in profile.nodes:
        print(f"  {node.id:2} {node.name}")


if __name__ == "__main__":
    main()
