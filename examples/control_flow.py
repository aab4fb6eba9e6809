"""A path that the data decides: symbolic tracing fails, Dynamo breaks the graph, a plain run records it.

A branch on the value of a tensor cannot be followed with symbols, so `fx` gives up and says why. Dynamo
captures what comes before and after it. A plain run takes the branch and records what it ran.
"""

from __future__ import annotations

import torch
from torch import nn

import opgraph


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 1)
        self.deep = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate(x).sigmoid().mean() >= 0:
            x = x + self.deep(x)
        return x.softmax(-1)


def main() -> None:
    model, x = Gated(), torch.randn(4, 8)
    for tracer in ("fx", "dynamo", "auto"):
        try:
            profile = opgraph.profile(model, x, tracer=tracer)
        except opgraph.TraceError as error:
            print(f"{tracer}: {error}")
            continue
        print(f"{tracer}: {len(profile.nodes)} nodes, {profile.totals.flops:,} FLOPs")
        for seam in profile.graph.breaks:
            print(f"  break at line {seam.line}: {seam.reason}")


if __name__ == "__main__":
    main()
