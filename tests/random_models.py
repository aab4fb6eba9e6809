"""Random models for hypothesis: modules of every common kind, functional and in-place operators, views,
attention spelled in several ways, control flow, shared and tied modules, odd inputs and outputs.

A model is a list of steps over one running tensor [batch, length, width] (or [batch, channels, height,
width] for images); a step is a name and a few numbers, so that an example prints as what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import Tensor, nn

WIDTHS = (4, 8, 12)


@dataclass(frozen=True)
class Step:
    kind: str
    number: int


class RandomModel(nn.Module):
    """Runs its steps one after the other; each makes the modules it needs when the model is built."""

    def __init__(self, steps: tuple[Step, ...], image: bool, output: str, width: int) -> None:
        super().__init__()
        self.steps, self.image, self.output = steps, image, output
        self.parts = nn.ModuleDict()
        self.runs: list[Callable[[Tensor], Tensor]] = []
        self.widths: list[int] = []
        kinds = IMAGE_STEPS if image else SEQUENCE_STEPS
        for position, step in enumerate(steps):
            self.widths.append(width)
            made, run, width = kinds[step.kind](step.number, width, self)
            if made is not None:
                self.parts[f"{step.kind}_{position}"] = made
            self.runs.append(run)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Any:
        for run in self.runs:
            x = run(x)
        if mask is not None:
            x = x * mask.to(x.dtype).mean()
        return OUTPUTS[self.output](x)


OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: x,
    "tuple": lambda x: (x, x.mean()),
    "dict": lambda x: {"x": x, "nested": {"sum": x.sum(), "none": None}},
    "list": lambda x: [x, [x[:1]]],
    "int": lambda x: x.shape[0],
    "none": lambda x: None,
}

Made = tuple[nn.Module | None, Callable[[Tensor], Tensor], int]


def _linear(n: int, width: int, model: nn.Module) -> Made:
    out = WIDTHS[n % 3]
    layer = nn.Linear(width, out, bias=bool(n % 2))
    return layer, layer, out


def _same(function: Callable[[Tensor], Tensor]) -> Callable[[int, int, nn.Module], Made]:
    return lambda n, width, model: (None, function, width)


def _module(make: Callable[[int, int], nn.Module]) -> Callable[[int, int, nn.Module], Made]:
    def build(n: int, width: int, model: nn.Module) -> Made:
        layer = make(n, width)
        return layer, layer, width

    return build


def _recurrent(n: int, width: int, model: nn.Module) -> Made:
    cls = (nn.LSTM, nn.GRU, nn.RNN)[n % 3]
    layer = cls(width, 4, num_layers=1 + n % 2, bidirectional=n % 4 < 2, batch_first=True)
    return layer, lambda x: layer(x)[0], 8 if n % 4 < 2 else 4


def _attention(n: int, width: int, model: nn.Module) -> Made:
    if n % 5 == 0:
        layer = nn.MultiheadAttention(width, 2, batch_first=True)
        return layer, lambda x: layer(x, x, x)[0], width
    heads = 2

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def softmax(x: Tensor) -> Tensor:
        q = split(x)
        return ((q @ q.mT * 0.5).softmax(-1) @ q).transpose(1, 2).flatten(2)

    def einsum(x: Tensor) -> Tensor:
        q = split(x)
        weights = torch.einsum("bhqd,bhkd->bhqk", q, q).softmax(-1)
        return torch.einsum("bhqk,bhkd->bqhd", weights, q).flatten(2)

    def fused(x: Tensor) -> Tensor:
        q = split(x)
        return (
            F.scaled_dot_product_attention(q, q, q, is_causal=n % 2 == 0).transpose(1, 2).flatten(2)
        )

    def baddbmm(x: Tensor) -> Tensor:
        scores = torch.baddbmm(torch.zeros(1), x, x.mT, beta=0.0, alpha=0.5)
        return torch.bmm(F.softmax(scores, dim=-1), x)

    return None, (softmax, einsum, fused, baddbmm)[n % 4], width


def _reuse(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.Linear(width, width)

    def run(x: Tensor) -> Tensor:
        for _ in range(1 + n % 3):
            x = layer(x).relu()
        return x

    return layer, run, width


def _tied(n: int, width: int, model: nn.Module) -> Made:
    pair = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width, bias=False)])
    pair[1].weight = pair[0].weight
    return pair, lambda x: pair[1](pair[0](x)), width


def _embedding(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.Embedding(7, width)

    def run(x: Tensor) -> Tensor:
        return x + layer(torch.arange(x.shape[1], device=x.device) % 7)

    return layer, run, width


def _in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(2).add_(1)
    y[:, 0] = 0
    F.relu(y, inplace=True)
    return y


def _branch_on_shape(x: Tensor) -> Tensor:
    return x.tanh() if x.shape[0] % 2 else x.sigmoid()


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.complex(x, x.abs())).sum(-1)


SEQUENCE_STEPS: dict[str, Callable[[int, int, nn.Module], Made]] = {
    "linear": _linear,
    "recurrent": _recurrent,
    "attention": _attention,
    "reuse": _reuse,
    "tied": _tied,
    "embedding": _embedding,
    "layer_norm": _module(lambda n, w: nn.LayerNorm(w, elementwise_affine=bool(n % 2))),
    "activation": _module(lambda n, w: (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Softplus)[n % 5]()),
    "dropout": _module(lambda n, w: nn.Dropout(0.5)),
    "encoder": _module(lambda n, w: nn.TransformerEncoderLayer(w, 2, 8, batch_first=True)),
    "conv1d": lambda n, w, m: (
        (c := nn.Conv1d(w, w, 3, padding=1, groups=(1, 2, w)[n % 3])),
        lambda x: c(x.transpose(1, 2)).transpose(1, 2),
        w,
    ),
    "in_place": _same(_in_place),
    "slices": _same(lambda x: torch.cat([x[..., ::2], x[..., 1::2]], dim=-1)),
    "chunk": _same(lambda x: torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)),
    "split": _same(lambda x: torch.stack(x.split(2, dim=-1), dim=-2).flatten(-2)),
    "views": _same(
        lambda x: x.reshape(-1, x.shape[-1]).view(x.shape).permute(1, 0, 2).movedim(0, 1)
    ),
    "residual": _same(lambda x: x + F.gelu(x)),
    "einsum": _same(lambda x: torch.einsum("bld,bmd->blm", x, x).softmax(-1) @ x),
    "norms": _same(lambda x: F.normalize(x, dim=-1) + x.std(-1, keepdim=True)),
    "dtype": _same(lambda x: (x.double() * 2).to(x.dtype)),
    "branch": _same(_branch_on_shape),
    "loop": _same(lambda x: torch.stack([row * i for i, row in enumerate(x)])),
    "complex": _same(_complex),
    "fft": _same(lambda x: torch.fft.fft(x, dim=1).real),
    "cumsum": _same(lambda x: x.cumsum(1).roll(1, 1).flip(2)),
    "where": _same(lambda x: torch.where(x > 0, x, x.exp() - 1)),
    "gather": _same(lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.long))),
    "sort": _same(lambda x: x.sort(dim=1).values + x.topk(1, dim=1).values),
    "outer": _same(lambda x: x + torch.outer(torch.ones(x.shape[1]), torch.ones(x.shape[2]))),
    "mv": _same(lambda x: x * (x[0] @ torch.ones(x.shape[2])).sum()),
}

IMAGE_STEPS: dict[str, Callable[[int, int, nn.Module], Made]] = {
    "conv2d": lambda n, w, m: (
        (c := nn.Conv2d(w, WIDTHS[n % 3], 1 + 2 * (n % 2), padding=n % 2, bias=n % 3 > 0)),
        c,
        WIDTHS[n % 3],
    ),
    "depthwise": _module(lambda n, w: nn.Conv2d(w, w, 3, padding=1, groups=w)),
    "dilated": _module(lambda n, w: nn.Conv2d(w, w, 3, padding=2, dilation=2, groups=1 + n % 2)),
    "transposed": _module(lambda n, w: nn.ConvTranspose2d(w, w, 3, padding=1)),
    "batch_norm": _module(lambda n, w: nn.BatchNorm2d(w)),
    "group_norm": _module(lambda n, w: nn.GroupNorm(2, w)),
    "instance_norm": _module(lambda n, w: nn.InstanceNorm2d(w)),
    "activation": _module(lambda n, w: (nn.ReLU(inplace=True), nn.Hardswish(), nn.Mish())[n % 3]),
    "max_pool": _module(lambda n, w: nn.MaxPool2d(3, 1, 1)),
    "avg_pool": _module(lambda n, w: nn.AvgPool2d(3, 1, 1)),
    "adaptive": _module(lambda n, w: nn.AdaptiveAvgPool2d(6)),
    "upsample": _same(lambda x: F.interpolate(x, size=(6, 6), mode="bilinear")),
    "nearest": _same(lambda x: F.interpolate(x, scale_factor=1.0)),
    "shuffle": _same(lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)),
    "pad": _same(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")[..., 1:-1, 1:-1]),
    "squeeze": lambda n, w, m: (
        (c := nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(w, w, 1), nn.Sigmoid())),
        lambda x: x * c(x),
        w,
    ),
    "unfold": _same(lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)),
    "grid": _same(
        lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 6, 6, 2), align_corners=False)
    ),
    "bmm": _same(lambda x: (x.flatten(2) @ x.flatten(2).mT @ x.flatten(2)).view(x.shape)),
}


@st.composite
def models(draw: st.DrawFn) -> tuple[RandomModel, tuple[Tensor, ...], dict[str, Tensor]]:
    """A random model with the arguments of one call."""
    image = draw(st.booleans())
    width = draw(st.sampled_from(WIDTHS))
    kinds = sorted(IMAGE_STEPS if image else SEQUENCE_STEPS)
    step = st.builds(Step, st.sampled_from(kinds), st.integers(0, 11))
    steps = tuple(draw(st.lists(step, min_size=1, max_size=6)))
    batch = draw(st.integers(1, 3))
    shape = (batch, width, 6, 6) if image else (batch, 5, width)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = RandomModel(steps, image, draw(st.sampled_from(sorted(OUTPUTS))), width)
        x = torch.randn(shape)
    kwargs = {"mask": torch.ones(3, dtype=torch.bool)} if draw(st.booleans()) else {}
    return model.train(draw(st.booleans())), (x,), kwargs
