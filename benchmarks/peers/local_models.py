"""Small models of kinds that no library has under a name: recurrent, halting by the data, quantized."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tagger(nn.Module):
    """Two bidirectional LSTM layers over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 128)
        self.lstm = nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 17)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


class Halting(nn.Module):
    """Goes on until what it has is large enough: how many rounds that takes, only the values know."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(64, 64)
        nn.init.eye_(self.step.weight)
        nn.init.constant_(self.step.bias, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        while x.mean() < 5:
            x = self.step(x)
        return x


def tagger() -> nn.Module:
    return Tagger()


def halting() -> nn.Module:
    return Halting()


def quantized() -> nn.Module:
    """Two layers whose weights are int8, products on quantized activations."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


INPUTS = {
    "tagger": lambda: torch.zeros(1, 64, dtype=torch.long),
    "halting": lambda: torch.zeros(4, 64),
    "quantized": lambda: torch.randn(16, 256),
}
