"""Three graph breaks: a builtin that Dynamo cannot follow, a branch on data, and a print.

Dynamo captures four fragments and says at which line each of them ended; the fragments together are the
graph that a plain run records.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import opgraph


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 32)
        self.third = nn.Linear(32, 32)
        self.last = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        sys.getrefcount(x)
        x = self.second(x).relu()
        if x.sum() > 0:
            x = self.third(x)
        print("nearly there", file=sys.stderr)
        return self.last(x).softmax(-1)


def main() -> None:
    profile = opgraph.profile(Broken(), torch.randn(8, 16), tracer="dynamo")
    for node in profile.nodes:
        print(f"fragment {node.fragment}  {node.name}")
    for seam in profile.graph.breaks:
        print(f"break after fragment {seam.fragment}, {seam.file}:{seam.line}: {seam.reason}")


if __name__ == "__main__":
    main()
