"""A convolutional network without surprises: all tracers find the same graph.

Symbolic tracing, Dynamo, export and a plain run each see it in their own way, and the operators, their
modules and their costs are the same to the digit.
"""

from __future__ import annotations

import torch
from torch import nn

import opgraph


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


def main() -> None:
    for tracer in ("eager", "fx", "dynamo", "export"):
        profile = opgraph.profile(Net(), torch.randn(1, 3, 32, 32), tracer=tracer)
        operators = " ".join(n.op for n in profile.nodes if n.kind == "call")
        print(f"{tracer:7} {profile.totals.flops:,} FLOPs  {operators}")


if __name__ == "__main__":
    main()
