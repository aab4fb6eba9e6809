"""A module of one's own, whose way depends on what comes in: opgraph view examples/gated.py:Gated"""

from torch import Tensor, nn


class Gated(nn.Module):
    """Two ways behind one stem: a light one for dark images, a heavy one for all others."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.light = nn.Conv2d(32, 64, 1)
        self.heavy = nn.Sequential(
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.heavy(x) if x.mean() > 0 else self.light(x)
        return self.head(x.mean((2, 3)))


if __name__ == "__main__":
    import torch

    import opgraph

    found = opgraph.profile(Gated().eval(), torch.randn(1, 3, 64, 64))
    ways = {node.scope for node in found.graph.nodes}
    print(f"{found.totals.flops:,} FLOPs", *sorted(ways & {"heavy.0", "light"}))
