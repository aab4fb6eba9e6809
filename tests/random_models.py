"""Random models for hypothesis: modules of every common kind, functional and in-place operators, views,
attention spelled in several ways, control flow on shapes and on values, shared and tied modules, buffers
that change, sparse and complex tensors, odd inputs and outputs; and models that change in place whatever
they can reach, and keep what they compute wherever it can be kept.

A model is a list of steps over one running tensor, [batch, length, width] for sequences (of numbers, or of
tokens that are embedded first), [batch, channels, height, width] for images, [batch, channels, depth,
height, width] for volumes; a step is a name and a number, so that an example prints as what it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from threading import Thread
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import Tensor, nn

"""What all random models are made from; a run of the tests prints it at its end. The suite tries the same
ones each time, so that it fails for what was changed; benchmarks/random_models.py looks for new ones."""
WIDTHS = (4, 8, 12)


@dataclass(frozen=True)
class Step:
    kind: str
    number: int


class RandomModel(nn.Module):
    """Runs its steps one after the other; each makes the modules it needs when the model is built."""

    def __init__(self, steps: tuple[Step, ...], data: str, output: str, width: int) -> None:
        super().__init__()
        self.steps, self.data, self.output = steps, data, output
        self.parts = nn.ModuleDict()
        self.runs: list[Callable[[Tensor], Tensor]] = []
        self.widths: list[int] = []
        self.embedded = nn.Embedding(7, width) if data == "tokens" else nn.Identity()
        for position, step in enumerate(steps):
            self.widths.append(width)
            made, run, width = STEPS[data][step.kind](step.number, width, self)
            if made is not None:
                self.parts[f"{step.kind}_{position}"] = made
            self.runs.append(run)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        scales: list[list[Tensor]] | None = None,
        shifts: dict[str, Any] | None = None,
        times: int = 1,
    ) -> Any:
        x = self.embedded(x)
        for _ in range(times):
            x = x * 2
        for run in self.runs:
            x = run(x)
        if shifts is not None and shifts["no"] is None:
            x = x + shifts["yes"][0]
        if mask is not None:
            x = x * mask.to(x.dtype).mean()
        for scale in scales or ():
            x = x * scale[0] + scale[-1]
        return OUTPUTS[self.output](x)


class Pair(NamedTuple):
    """An output with named parts."""

    first: Tensor
    second: int


OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: x,
    "tuple": lambda x: (x, x.mean()),
    "dict": lambda x: {"x": x, "nested": {"sum": x.sum(), "none": None}},
    "list": lambda x: [x, [x[:1], [x[:1] + 1, []]]],
    "named": lambda x: Pair(x, x.dim()),
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


def _tied_head(n: int, width: int, model: nn.Module) -> Made:
    """Tokens are read and predicted with one table."""
    pair = nn.ModuleList([nn.Embedding(7, width), nn.Linear(width, 7, bias=False)])
    pair[1].weight = pair[0].weight

    def run(x: Tensor) -> Tensor:
        places = pair[1](x).softmax(-1).argmax(-1)
        return x + pair[0](places)

    return pair, run, width


def _deep(n: int, width: int, model: nn.Module) -> Made:
    """Modules in a list that is run through, and one chosen by its name."""
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(1 + n % 3)])
    named = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})

    def run(x: Tensor) -> Tensor:
        for place, layer in enumerate(layers):
            x = named["relu" if place % 2 else "tanh"](layer(x)) + x
        return x

    return nn.ModuleList([layers, named]), run, width


def _raw(n: int, width: int, model: nn.Module) -> Made:
    """Parameters without a module around each."""
    table = nn.ParameterList([torch.randn(width, width), torch.randn(width)])
    if n % 2:
        return (
            table,
            lambda x: torch.addmm(table[1], x.flatten(0, 1), table[0]).view(x.shape),
            width,
        )
    return table, lambda x: F.linear(x, table[0] * 2, bias=table[1]), width


def _decoder(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.TransformerDecoderLayer(width, 2, 8, batch_first=True, norm_first=n % 2 == 0)
    return layer, lambda x: layer(x, x[:, :2]), width


def _encoder(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.TransformerEncoderLayer(width, 2, 8, batch_first=True, norm_first=n % 2 == 0)
    if n % 3:
        return layer, layer, width
    whole = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return whole, whole, width


def _autocast(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.Linear(width, width)

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        return y.to(x.dtype)

    return layer, run, width


def _embedding(n: int, width: int, model: nn.Module) -> Made:
    if n % 3 == 2:
        bag = nn.EmbeddingBag(7, width, mode=("sum", "mean", "max")[n % 4 % 3])
        return bag, lambda x: x + bag(torch.arange(10).view(2, 5) % 7)[:1, None], width
    layer = nn.Embedding(7, width, padding_idx=0 if n % 2 else None)

    def run(x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device) % 7
        return x + (F.embedding(places, layer.weight) if n % 3 else layer(places))

    return layer, run, width


def _cell(n: int, width: int, model: nn.Module) -> Made:
    cls = (nn.LSTMCell, nn.GRUCell, nn.RNNCell)[n % 3]
    layer = cls(width, 4)

    def run(x: Tensor) -> Tensor:
        state, states = None, []
        for step in x.unbind(1):
            state = layer(step, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(states, 1)

    return layer, run, 4


class Counted(nn.Module):
    """Buffers: one that is saved, one that is not, and one that every call changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("shift", torch.ones(1), persistent=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.shift = self.shift + 1
        return x * self.scale + self.shift


def _sparse(n: int, width: int, model: nn.Module) -> Made:
    layout = torch.eye(5).to_sparse() if n % 2 else torch.eye(5).to_sparse_csr()

    def run(x: Tensor) -> Tensor:
        return torch.stack([layout @ row for row in x.unbind(0)])

    return None, run, width


def _bilinear(n: int, width: int, model: nn.Module) -> Made:
    layer = nn.Bilinear(width, width, 4, bias=bool(n % 2))
    return layer, lambda x: layer(x, x), 4


def _in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(2).add_(1)
    y[:, 0] = 0
    F.relu(y, inplace=True)
    return y


def _branch_on_shape(x: Tensor) -> Tensor:
    return x.tanh() if x.shape[0] % 2 else x.sigmoid()


def _branch_on_value(x: Tensor) -> Tensor:
    return x.tanh() if x.sum() > 0 else x.sigmoid() @ x.mT @ x


def _written(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[..., 1:] = x[..., :-1]
    y.index_put_((torch.tensor([0]),), x[:1], accumulate=True)
    y.masked_fill_(torch.zeros_like(x, dtype=torch.bool), 3.0)
    return y.index_copy(1, torch.tensor([0]), x[:, :1]).clamp_(-5, 5)


def _strided(x: Tensor) -> Tensor:
    y = x.as_strided(x.shape, x.stride()) if x.is_contiguous() else x
    first = y.select(1, 0).unsqueeze(1).expand_as(y)
    windows = y.unfold(1, 2, 1).mean(-1)
    return first + y.narrow(1, 0, 1) + windows.mean(1, keepdim=True) + y.diagonal(0, 1, 2).mean()


def _unpacked(x: Tensor) -> Tensor:
    first, *rest = x.tensor_split(2, dim=1)
    values, places = torch.cat([*rest, first], 1).max(1, keepdim=True)
    return x + values * places.to(x.dtype)


def _dtypes(n: int, width: int, model: nn.Module) -> Made:
    dtype = (torch.float64, torch.float16, torch.bfloat16, torch.int32)[n % 4]
    return None, lambda x: (x.to(dtype) * 2).to(x.dtype), width


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.complex(x, x.abs())).sum(-1)


def _complex_product(x: Tensor) -> Tensor:
    y = torch.polar(x.abs(), x)
    return ((y @ y.mH).angle().softmax(-1) @ x) + (y * y.conj()).real


def _while(x: Tensor) -> Tensor:
    rest = x.shape[1]
    while rest > 1:
        x, rest = x + x.roll(rest, 1), rest // 2
    return x


def _out(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    y[:, ::2] += y[:, :1]
    return y


def _chosen(x: Tensor) -> Tensor:
    """Sizes that the values decide."""
    rows = x.flatten(0, 1)
    return rows[rows.sum(-1) < float("inf")].view(x.shape)


# What only a run with values, addresses, types or threads as they really are does right.


def _mixed(x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(-1) @ x


def _swallowed(x: Tensor) -> Tensor:
    try:
        finite = bool(x.sum() < float("inf"))
    except Exception:  # noqa: BLE001  (as models do)
        return x
    return _mixed(x) if finite else x.sigmoid()


def _suppressed(x: Tensor) -> Tensor:
    finite = False
    with suppress(Exception):
        finite = bool(np.asarray(x.detach()).sum() < float("inf"))
    return _mixed(x) if finite else x.sigmoid()


def _pointers(x: Tensor) -> Tensor:
    seen = {x.data_ptr(): x, x.clone().data_ptr(): x, x[:].data_ptr(): x}
    return _mixed(x) if len(seen) == 2 else x


def _storages(x: Tensor) -> Tensor:
    """Whether memory is shared, as checks for tied weights ask."""
    places = {t.untyped_storage().data_ptr() for t in (x, x.detach(), x.view(-1)[1:], x + 1)}
    return _mixed(x) if len(places) == 2 else x


def _typed(x: Tensor) -> Tensor:
    kinds = {Tensor: _mixed, nn.Parameter: torch.sigmoid}
    return kinds.get(type(x), torch.tanh)(x)


def _written_as_text(x: Tensor) -> Tensor:
    return x if "Fake" in f"{x!r}{x}" else _mixed(x)


def _threads(x: Tensor) -> Tensor:
    results: dict[int, Tensor] = {}
    others = [Thread(target=lambda i=i: results.setdefault(i, _mixed(x))) for i in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    with ThreadPoolExecutor(1) as pool:
        return results[0] + results[1] + pool.submit(_mixed, x).result()


def _awaited(x: Tensor) -> Tensor:
    async def both() -> list[Tensor]:
        return await asyncio.gather(*(asyncio.to_thread(_mixed, x) for _ in range(2)))

    first, second = asyncio.run(both())
    return first + second


def _threads_of_threads(x: Tensor) -> Tensor:
    results: list[Tensor] = []
    inner = Thread(target=lambda: results.append(_mixed(x)))

    class Outer(Thread):
        def run(self) -> None:
            inner.start()
            inner.join()
            results.append(_mixed(results[0]))

    outer = Outer()
    outer.start()
    outer.join()
    return results[1]


ODD_STEPS = {
    "swallowed": _swallowed, "suppressed": _suppressed, "pointers": _pointers, "storages": _storages,
    "typed": _typed, "written_as_text": _written_as_text, "threads": _threads, "awaited": _awaited,
    "threads_of_threads": _threads_of_threads,
}  # fmt: skip
IN_THREADS = {"threads": 3, "awaited": 2, "threads_of_threads": 2}
"""How often steps run `_mixed` in threads of their own."""
SIDE_BY_SIDE = frozenset({"threads", "awaited"})
"""Those of them whose threads run at the same time, so that their operators come in any order."""


def _planes(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same of images, whose rows are mixed."""
    return lambda x: function(x.flatten(0, 1).contiguous()).view(x.shape)


SEQUENCE_STEPS: dict[str, Callable[[int, int, nn.Module], Made]] = {
    "linear": _linear,
    "recurrent": _recurrent,
    "attention": _attention,
    "reuse": _reuse,
    "tied": _tied,
    "tied_head": _tied_head,
    "deep": _deep,
    "raw": _raw,
    "decoder": _decoder,
    "autocast": _autocast,
    "embedding": _embedding,
    "bilinear": _bilinear,
    "cell": _cell,
    "sparse": _sparse,
    "buffers": _module(lambda n, w: Counted(w)),
    "written": _same(_written),
    "overwritten": _same(lambda x: x.mul_(2).add_(1)),
    "strided": _same(_strided),
    "unpacked": _same(_unpacked),
    "branch_on_value": _same(_branch_on_value),
    "rms_norm": _module(lambda n, w: nn.RMSNorm(w)),
    "layer_norm": _module(lambda n, w: nn.LayerNorm(w, elementwise_affine=bool(n % 2))),
    "functional_norm": _same(lambda x: F.layer_norm(F.rms_norm(x, x.shape[-1:]), x.shape[-1:])),
    "activation": _module(lambda n, w: (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Softplus)[n % 5]()),
    "dropout": _module(lambda n, w: nn.Dropout(0.5)),
    "encoder": _encoder,
    "conv1d": lambda n, w, m: (
        (c := nn.Conv1d(w, w, 3, padding=1, groups=(1, 2, w)[n % 3])),
        lambda x: c(x.transpose(1, 2)).transpose(1, 2),
        w,
    ),
    "transposed1d": lambda n, w, m: (
        (c := nn.ConvTranspose1d(w, w, 3, stride=1 + n % 2, padding=1, output_padding=n % 2)),
        lambda x: c(x.mT)[..., : x.shape[1]].mT,
        w,
    ),
    "batch_norm1d": lambda n, w, m: ((c := nn.BatchNorm1d(w)), lambda x: c(x.mT).mT, w),
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
    "dtype": _dtypes,
    "branch": _same(_branch_on_shape),
    "while": _same(_while),
    "out": _same(_out),
    "chosen": _same(_chosen),
    "functional_conv1d": _same(
        lambda x: F.conv1d(x, torch.ones(3, x.shape[1], 3), padding=1).mean(1, keepdim=True) + x
    ),
    "loop": _same(lambda x: torch.stack([row * i for i, row in enumerate(x)])),
    "complex": _same(_complex),
    "complex_product": _same(_complex_product),
    "fft": _same(lambda x: torch.fft.fft(x, dim=1).real),
    "cumsum": _same(lambda x: x.cumsum(1).roll(1, 1).flip(2)),
    "where": _same(lambda x: torch.where(x > 0, x, x.exp() - 1)),
    "gather": _same(lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.long))),
    "sort": _same(lambda x: x.sort(dim=1).values + x.topk(1, dim=1).values),
    "outer": _same(lambda x: x + torch.outer(torch.ones(x.shape[1]), torch.ones(x.shape[2]))),
    **{name: _same(step) for name, step in ODD_STEPS.items()},
    "mv": _same(lambda x: x * (x[0] @ torch.ones(x.shape[2])).sum()),
}

PADDINGS = ("zeros", "reflect", "replicate", "circular")

IMAGE_STEPS: dict[str, Callable[[int, int, nn.Module], Made]] = {
    "conv2d": lambda n, w, m: (
        (c := nn.Conv2d(w, WIDTHS[n % 3], 1 + 2 * (n % 2), padding=n % 2, bias=n % 3 > 0)),
        c,
        WIDTHS[n % 3],
    ),
    "depthwise": _module(lambda n, w: nn.Conv2d(w, w, 3, padding=1, groups=w)),
    "strided": lambda n, w, m: (
        (c := nn.Conv2d(w, w, 3, stride=2, padding=1, padding_mode=PADDINGS[n % 4])),
        lambda x: F.interpolate(c(x), scale_factor=2.0),
        w,
    ),
    "same": _module(lambda n, w: nn.Conv2d(w, w, (1 + n % 3, 2), padding="same")),
    "functional": lambda n, w, m: (
        None,
        lambda x: F.conv2d(x, torch.ones(w, w // 2, 1, 1), groups=2),
        w,
    ),
    "response_norm": _module(lambda n, w: nn.LocalResponseNorm(2)),
    "dilated": _module(lambda n, w: nn.Conv2d(w, w, 3, padding=2, dilation=2, groups=1 + n % 2)),
    "transposed": _module(lambda n, w: nn.ConvTranspose2d(w, w, 3, padding=1)),
    "transposed_strided": lambda n, w, m: (
        (c := nn.ConvTranspose2d(w, w, 3, 2, 1, output_padding=1, groups=1 + n % 2, dilation=1)),
        lambda x: F.max_pool2d(c(x), 2),
        w,
    ),
    "separable": _module(
        lambda n, w: nn.Sequential(nn.Conv2d(w, w, 3, padding=1, groups=w), nn.Conv2d(w, w, 1))
    ),
    "functional_transposed": _same(
        lambda x: F.conv_transpose2d(x, torch.ones(x.shape[1], 2, 1, 1)).mean(1, keepdim=True) + x
    ),
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
    **{name: _same(_planes(step)) for name, step in ODD_STEPS.items()},
    "lazy_mask": _same(lambda x: x * (x > 0).any(1, keepdim=True)),
    "bmm": _same(lambda x: (x.flatten(2) @ x.flatten(2).mT @ x.flatten(2)).view(x.shape)),
}


VOLUME_STEPS: dict[str, Callable[[int, int, nn.Module], Made]] = {
    "conv3d": lambda n, w, m: (
        (c := nn.Conv3d(w, WIDTHS[n % 3], (1, 3, 3), padding=(0, 1, 1), bias=n % 2 > 0)),
        c,
        WIDTHS[n % 3],
    ),
    "depthwise": _module(lambda n, w: nn.Conv3d(w, w, 3, padding=1, groups=w)),
    "transposed": _module(lambda n, w: nn.ConvTranspose3d(w, w, 3, padding=1, groups=1 + n % 2)),
    "functional": _same(lambda x: F.conv3d(x, torch.ones(x.shape[1], x.shape[1], 1, 1, 1))),
    "batch_norm": _module(lambda n, w: nn.BatchNorm3d(w)),
    "instance_norm": _module(lambda n, w: nn.InstanceNorm3d(w, affine=True)),
    "pool": _module(lambda n, w: (nn.MaxPool3d, nn.AvgPool3d)[n % 2]((1, 3, 3), 1, (0, 1, 1))),
    "adaptive": _module(lambda n, w: nn.AdaptiveMaxPool3d((2, 4, 4))),
    "upsample": _same(lambda x: F.interpolate(x, size=(2, 4, 4), mode="trilinear")),
    "dropout": _module(lambda n, w: nn.Dropout3d(0.5)),
    "activation": _module(lambda n, w: (nn.PReLU(), nn.ELU(inplace=True), nn.Softmax(1))[n % 3]),
    "rotate": _same(lambda x: x.rot90(2, (3, 4)).flip(2)),
    "frames": _same(lambda x: torch.stack([f.relu() for f in x.unbind(2)], dim=2)),
}

STEPS = {
    "sequence": SEQUENCE_STEPS,
    "tokens": SEQUENCE_STEPS,
    "image": IMAGE_STEPS,
    "volume": VOLUME_STEPS,
}
SIZES = {"sequence": (5,), "tokens": (5,), "image": (6, 6), "volume": (2, 4, 4)}


@st.composite
def models(draw: st.DrawFn) -> tuple[RandomModel, tuple[Tensor, ...], dict[str, Any]]:
    """A random model with the arguments of one call."""
    data = draw(st.sampled_from(sorted(STEPS)))
    width = draw(st.sampled_from(WIDTHS))
    step = st.builds(Step, st.sampled_from(sorted(STEPS[data])), st.integers(0, 11))
    steps = tuple(draw(st.lists(step, min_size=1, max_size=6)))
    batch, sizes = draw(st.integers(1, 3)), SIZES[data]
    shape = (batch, *sizes, width) if data == "sequence" else (batch, width, *sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = RandomModel(steps, data, draw(st.sampled_from(sorted(OUTPUTS))), width)
        x = torch.randint(7, (batch, *sizes)) if data == "tokens" else torch.randn(shape)
    kwargs: dict[str, Any] = {}
    if draw(st.booleans()):
        kwargs["mask"] = torch.ones(3, dtype=torch.bool)
    if draw(st.booleans()):
        kwargs["scales"] = [[torch.ones(1)], [torch.ones(()), torch.zeros(1)]]
    if draw(st.booleans()):
        kwargs["shifts"] = {"yes": (torch.ones(1),), "no": None}
    if draw(st.booleans()):
        kwargs["times"] = 2
    return model.train(draw(st.booleans())), (x,), kwargs


# Models that change what is not theirs to keep: any tensor in place, and any cache.


class Plain:
    """An object that is no module."""

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("held",)


KEPT: dict[str, Any] = {}
"""What a forward keeps globally."""
IN_CONTEXT: ContextVar[Any] = ContextVar("IN_CONTEXT")


@dataclass(frozen=True)
class Place:
    """Where a tensor is kept: it is read, put there, and put beside what is there. `roots` is all of it."""

    read: Callable[[], Tensor]
    put: Callable[[Any], Any]
    grow: Callable[[Any], Any]
    roots: Any


def _of_list(held: list[Any], roots: Any) -> Place:
    return Place(lambda: held[0], lambda v: held.__setitem__(0, v), held.append, roots)


def _of_dict(held: Any, roots: Any) -> Place:
    return Place(
        lambda: held["a"], lambda v: held.update(a=v), lambda v: held.update(b=(v, [v])), roots
    )


def _of_object(held: Any, name: str, roots: Any) -> Place:
    late = "later" if hasattr(held, "__dict__") else name
    return Place(lambda: getattr(held, name), lambda v: setattr(held, name, v),
                 lambda v: setattr(held, late, v), roots)  # fmt: skip


def _closed(tensor: Tensor) -> Place:
    kept = [0, tensor]
    held, count = tensor, 0

    def put(value: Any) -> None:
        nonlocal held, count
        held, count = value, count + 1

    return Place(lambda: held, put, kept.append, lambda: (held, count, kept))


def _in_class(tensor: Tensor) -> Place:
    owner = type("Owner", (Plain,), {"__module__": __name__, "held": tensor, "count": [0]})
    item = owner()
    return Place(lambda: item.held, lambda v: setattr(type(item), "held", v),
                 owner.count.append,
                 lambda: (item, owner.held, owner.count))  # fmt: skip


def _in_function(tensor: Tensor) -> Place:
    def own(seen: list[Any] = [tensor]) -> Any:  # noqa: B006  (that is what is tested)
        return seen

    own.held = tensor  # type: ignore[attr-defined]
    return Place(lambda: own()[0], lambda v: setattr(own, "held", v), lambda v: own().append(v),
                 lambda: (own.__defaults__, vars(own)))  # fmt: skip


def _globally(tensor: Tensor) -> Place:
    KEPT["a"] = tensor
    return Place(lambda: KEPT["a"], lambda v: KEPT.update(a=v), lambda v: KEPT.update(b=[v]), KEPT)


def _in_context(tensor: Tensor) -> Place:
    IN_CONTEXT.set([tensor])
    return Place(lambda: IN_CONTEXT.get()[0], lambda v: IN_CONTEXT.set([v]),
                 lambda v: IN_CONTEXT.get().append(v), IN_CONTEXT.get)  # fmt: skip


def _remembered(tensor: Tensor) -> Place:
    table = lru_cache(lambda key: Plain(held=key))
    return Place(lambda: tensor, table, table, lambda: (tensor, table.cache_info().currsize))


def _in_enumeration(tensor: Tensor) -> Place:
    member = Enum("Kind", {"ONE": [tensor]}, module=__name__).ONE
    return _of_list(member.value, lambda: (list(member.value), sorted(vars(member))))


def _in_module_of_python(tensor: Tensor) -> Place:
    held = ModuleType("held")
    vars(held)["own"] = tensor
    return _of_object(held, "own", lambda: [(k, v) for k, v in vars(held).items() if k[0] != "_"])


def _shown(tensor: Tensor) -> Place:
    held = MappingProxyType({"a": [tensor]})
    return _of_list(held["a"], lambda: dict(held))


def _in_thread(tensor: Tensor) -> Place:
    held = threading.local()
    held.own = tensor
    return _of_object(held, "own", lambda: dict(vars(held)))


def _partial(tensor: Tensor) -> Place:
    held = partial(_of_list, [tensor])
    return _of_list(held.args[0], lambda: held.args)


def _slotted(tensor: Tensor) -> Place:
    held = Slotted()
    held.held = tensor
    return _of_object(held, "held", held)


PLACES: dict[str, Callable[[nn.Module, Tensor], Place]] = {
    "parameter": lambda m, t: _of_object(m, "own", m),
    "weight": lambda m, t: _of_object(m.head, "weight", m),
    "buffer": lambda m, t: _of_object(m, "saved", m),
    "attribute": lambda m, t: (setattr(m, "kept", t), _of_object(m, "kept", m))[1],
    "list": lambda m, t: (held := [t], _of_list(held, held))[1],
    "deque": lambda m, t: (held := deque([t]), _of_list(held, held))[1],
    "dict": lambda m, t: (held := {"a": t}, _of_dict(held, held))[1],
    "ordered": lambda m, t: (held := OrderedDict(a=t, c=1), _of_dict(held, held))[1],
    "nested": lambda m, t: (held := {"x": [Plain(own={"a": t})]}, _of_dict(held["x"][0].own, held))[1],
    "tuple": lambda m, t: (held := ([t], {}), _of_list(held[0], held))[1],
    "object": lambda m, t: (held := Plain(own=t), _of_object(held, "own", held))[1],
    "slots": lambda m, t: _slotted(t),
    "module": lambda m, t: (held := nn.Linear(2, 2), _of_object(held, "bias", held))[1],
    "closure": lambda m, t: _closed(t),
    "class": lambda m, t: _in_class(t),
    "function": lambda m, t: _in_function(t),
    "global": lambda m, t: _globally(t),
    "context": lambda m, t: _in_context(t),
    "lru_cache": lambda m, t: _remembered(t),
    "enumeration": lambda m, t: _in_enumeration(t),
    "module of Python": lambda m, t: _in_module_of_python(t),
    "read-only view": lambda m, t: _shown(t),
    "thread": lambda m, t: _in_thread(t),
    "partial": lambda m, t: _partial(t),
}  # fmt: skip

WAYS: dict[str, Callable[[Place, Tensor], Any]] = {
    "add": lambda p, y: p.read().add_(1),
    "slice": lambda p, y: p.read().view(-1)[:1].mul_(3),
    "data": lambda p, y: p.read().data.add_(2),
    "swap": lambda p, y: setattr(p.read(), "data", p.read() * 2),
    "numpy": lambda p, y: p.read().detach().numpy().fill(4),
    "out": lambda p, y: torch.add(p.read(), 1, out=p.read()),
    "copy": lambda p, y: p.read().copy_(y.mean()),
    "foreach": lambda p, y: torch._foreach_add_([p.read()], 1.5),
    "random": lambda p, y: nn.init.normal_(p.read()),
    "grad": lambda p, y: setattr(p.read(), "grad", torch.ones_like(p.read())),
    "frozen": lambda p, y: p.read().requires_grad_(not p.read().requires_grad),
    "marked": lambda p, y: setattr(p.read(), "mark", y),
    "put": lambda p, y: p.put(y if not isinstance(p.read(), nn.Parameter) else nn.Parameter(y)),
    "computed": lambda p, y: p.put(type(p.read())(p.read() + 1)),
    "grown": lambda p, y: p.grow(y),
}
ENDINGS = ("through", "asks a value", "raises", "asks and raises")


class ChangingModel(nn.Module):
    """A model that changes tensors and caches in some ways, before and after it runs another."""

    def __init__(
        self, inner: RandomModel, changes: tuple[tuple[str, str], ...], ending: str
    ) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.randn(3))
        self.head = nn.Linear(3, 3)
        self.register_buffer("saved", torch.zeros(3))
        self.inner, self.changes, self.ending = inner, changes, ending
        self.places = [PLACES[place](self, torch.zeros(3)) for place, _ in changes]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = self.own + args[0].mean() if args[0].is_floating_point() else self.own
        y = self.head(own.detach()[None])[0]
        with torch.no_grad():
            for place, (_, way) in zip(self.places, self.changes, strict=True):
                WAYS[way](place, y)
        result = self.inner(*args, **kwargs)
        if "ask" in self.ending and self.head(self.own.detach()[None]).sum().item() > 1e9:
            return None
        if "raises" in self.ending:
            raise RuntimeError("as it is meant to")
        return result

    def roots(self) -> Any:
        """All that it can change."""
        return [self, *(p.roots() if callable(p.roots) and not isinstance(p.roots, nn.Module) else p.roots
                        for p in self.places)]  # fmt: skip


@st.composite
def changing_models(
    draw: st.DrawFn,
) -> tuple[ChangingModel, tuple[Tensor, ...], dict[str, Any]]:
    """A random model that changes what it can reach, with the arguments of one call."""
    inner, args, kwargs = draw(models())
    each = st.tuples(st.sampled_from(sorted(PLACES)), st.sampled_from(sorted(WAYS)))
    changes = tuple(draw(st.lists(each, min_size=1, max_size=5)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ChangingModel(inner, changes, draw(st.sampled_from(ENDINGS)))
    return model.train(inner.training), args, kwargs


def picture(thing: Any, seen: set[int] | None = None) -> Any:
    """All that can be seen of something, tensors to the bit, as plain data."""
    seen = set() if seen is None else seen
    if isinstance(thing, (int, float, str, bytes, bool, type(None), type)):
        return thing
    if id(thing) in seen:
        return id(thing)
    seen.add(id(thing))
    head = type(thing).__name__, id(thing)
    if isinstance(thing, Tensor):
        own = picture(thing.grad, seen) if thing.is_leaf else None
        bits = thing.detach().contiguous().flatten().view(torch.uint8).tolist()
        return (*head, bits, thing.shape, thing.stride(), thing.dtype, thing.data_ptr(), thing._version,
                thing.requires_grad, own, picture(vars(thing), seen))  # fmt: skip
    if isinstance(thing, dict):
        return (*head[:1], [(k, picture(v, seen)) for k, v in thing.items()])
    if isinstance(thing, (list, tuple, deque)):
        return (*head[:1], [picture(v, seen) for v in thing])
    if isinstance(thing, Slotted):
        return (*head, picture(thing.held, seen))
    own = (
        getattr(thing, "__dict__", {})
        if not callable(thing) or isinstance(thing, nn.Module)
        else {}
    )
    return (*head, [(k, picture(v, seen)) for k, v in own.items()])
