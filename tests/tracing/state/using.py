"""A model that uses something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Using(nn.Module):
    """Uses something, and then runs a layer; with `values`, on real tensors."""

    def __init__(self, use: Callable[[], Any], values: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.use, self.values = use, values

    def forward(self, x: Tensor) -> Tensor:
        self.use()
        y = self.layer(x)
        return y * y.sum().item() if self.values else y
