"""Hold what a step of training computes, keeps and fits to others' figures: torch's own counter, counts by
hand, published formulas and measurements.

    python -m benchmarks.training --write     all of it, into docs/training.md
    python -m benchmarks.training bert        the cases with that in their name, printed

Each case of `CASES` is a test, too (tests/tracing/modes/test_training.py).
"""

from __future__ import annotations

import argparse
import gc
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tests.oracle import counting
from torch import Tensor, nn
from torch.nn import functional

import opgraph
from opgraph.analysis.cost.training import training
from opgraph.analysis.memory import fit, reserve
from opgraph.api.fitting import fitting
from opgraph.hardware import device
from opgraph.inputs import InputRequest, make_inputs
from opgraph.options import CONVENTIONS
from opgraph.record import units
from opgraph.sources import resolve
from opgraph.sources.base import BuildOptions
from opgraph.tracing import eager
from opgraph.tracing.base import arguments
from opgraph.tracing.capture.values import tensors_in
from opgraph.tracing.eager import materialized

PAGE = Path(__file__).parent.parent / "docs" / "training.md"
BEGIN, END = "<!-- training: made by benchmarks/training.py -->\n", "<!-- training end -->\n"
GIB = 2**30


@dataclass(frozen=True)
class Row:
    """A figure of opgraph's beside the one that it is to be: equal to it, or `within` a share of it, or
    not above ("≤") or above it (">")."""

    what: str
    figure: float
    truth: float
    why: str
    within: float = 0.0
    relation: str = "="
    show: Callable[[float], str] = units.size

    @property
    def holds(self) -> bool:
        if self.relation == "=":
            return abs(self.figure - self.truth) <= self.within * self.truth
        return (self.figure <= self.truth) == (self.relation == "≤")

    def __str__(self) -> str:
        both = f"{self.show(self.figure)} | {self.relation} {self.show(self.truth)}"
        far = self.figure / self.truth
        share = f"{far:.3f}" if self.relation == "=" and self.figure != self.truth else ""
        allowed = f" (± {100 * self.within:g} %)" if self.within else ""
        return f"| {self.what} | {both}{allowed} | {share} | {self.why} |"


@dataclass(frozen=True)
class Case:
    """Some rows that are found together."""

    name: str
    rows: Callable[[], Iterator[Row]]
    quick: bool = False

    def __str__(self) -> str:
        return self.name


def flops(what: str, figure: int, truth: int, why: str) -> Row:
    return Row(what, figure, truth, why, show=lambda n: f"{n:,.0f}")


# FLOPs of a step, by torch's counter.

COUNTED = (
    ("resnet18", 64, None), ("alexnet", 64, None), ("squeezenet1_1", 64, None), ("vgg11", 32, None),
    ("googlenet", 64, None), ("HuggingFaceTB/SmolLM2-135M", None, 16), ("t5-small", None, 8),
    ("distilbert-base-uncased", None, 16), ("distilgpt2", None, 16), ("albert-base-v2", None, 8),
    ("timm:resnet10t", 64, None), ("timm:resmlp_12_224", 224, None), ("timm:mixer_s32_224", 224, None),
    ("timm:repvgg_a0", 64, None),
)  # fmt: skip


def counted(name: str, image: int | None, tokens: int | None) -> Iterator[Row]:
    """FLOPs of a batch of 2, and those that torch counts of a real forward and backward."""
    size = (image, image) if image else None
    profile = opgraph.profile(
        name, image_size=image, seq_len=tokens, batch_size=2, mode="train", loss="sum", target="cpu"
    )
    assert profile.graph.failed is None
    assert profile.totals.coverage == 1.0
    model = resolve(name)
    request = InputRequest(batch_size=2, image_size=size, seq_len=tokens)
    args, kwargs = arguments(make_inputs(model, request), None)
    module = materialized(model).train()
    if "use_cache" in inspect.signature(module.forward).parameters:
        kwargs["use_cache"] = False
    with counting() as counter:
        sum(t.sum() for t in tensors_in(module(*args, **kwargs)) if t.requires_grad).backward()
    yield flops(f"`{name}`", profile.totals.flops, counter.get_total_flops(), "`FlopCounterMode`")


def grouped(name: str) -> Iterator[Row]:
    """Torch's formula for the gradient of a weight leaves groups out: each product of the forward, which it
    counts right, is done twice more, but for the gradient of the image."""
    profile = opgraph.profile(name, image_size=64, mode="train", loss="sum")
    forward = [n for n in profile.graph.nodes if n.phase == "forward" and n.flops]
    with torch.no_grad(), counting() as counter:
        materialized(resolve(name)).eval()(torch.zeros(1, 3, 64, 64))
    yield flops(
        f"`{name}`", profile.totals.flops, 3 * counter.get_total_flops() - forward[0].flops,
        "three times the forward by `FlopCounterMode`, but for the gradient of the image",
    )  # fmt: skip


# Layers by hand.


class Behind(nn.Module):
    """A module whose input needs a gradient, too, since it is scaled by a parameter."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x * self.scale)


class Fixed(nn.Module):
    """A product of a constant matrix and the input."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix @ (torch.complex(x, x) if self.matrix.is_complex() else x)


class Values(nn.Module):
    """A product of a sparse matrix whose three values are learned."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.values, self.pattern, self.layout = (
            nn.Parameter(torch.ones(3)),
            SPARSE.to_sparse(),
            layout,
        )

    def forward(self, x: Tensor) -> Tensor:
        places = self.pattern.coalesce().indices()
        matrix = torch.sparse_coo_tensor(places, self.values, SPARSE.shape)
        return (matrix if self.layout is torch.sparse_coo else matrix.to_sparse_csr()) @ x


class Weighted(nn.Module):
    """A product with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 6, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.complex(x, x) @ self.weight).abs()


class Distances(nn.Module):
    """Distances of the input to 40 points."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, torch.ones(40, 6))


class Spoken(nn.Module):
    """Letters that are heard at each step, and their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.loss = nn.Linear(6, 5), nn.CTCLoss()

    def forward(self, x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        return self.loss(self.letters(x).log_softmax(-1), targets, steps, lengths)


SPARSE = torch.zeros(6, 5)
SPARSE[0, 1] = SPARSE[0, 3] = SPARSE[5, 1] = 1
SEQUENCES = 5 * 3
"""Five steps of three sequences, 8 wide, for recurrent layers of 16."""
LETTERS = (
    torch.zeros(12, 2, 6),
    torch.ones(2, 3).long(),
    torch.tensor([12, 9]),
    torch.tensor([3, 2]),
)

LSTM = 2 * SEQUENCES * (4 * 16) * (8 + 16)
GRU = 2 * SEQUENCES * (3 * 16) * (8 + 16)
HIDDEN = 2 * 3 * (3 * 16) * 16
"""A step of a GRU's product with the state."""

HAND: tuple[tuple[str, nn.Module, tuple[Tensor, ...], str, int, int, str], ...] = (
    ("LSTM", Behind(nn.LSTM(8, 16)), (torch.zeros(5, 3, 8),), "cpu cuda", LSTM, 2 * LSTM,
     "4 gates from the input and from the state; both gradients of each"),
    ("GRU", Behind(nn.GRU(8, 16)), (torch.zeros(5, 3, 8),), "cuda", GRU, 2 * GRU,
     "3 gates from the input and from the state; both gradients of each"),
    ("GRU, product by product", Behind(nn.GRU(8, 16)), (torch.zeros(5, 3, 8),), "cpu", GRU,
     2 * GRU - HIDDEN, "the first state has no gradient"),
    ("CTC loss of a layer", Spoken(), LETTERS, "cpu cuda", 2 * 24 * 6 * 5, 2 * 24 * 6 * 5,
     "the layer; its input has no gradient"),
    ("a sparse matrix (COO)", Behind(Fixed(SPARSE.to_sparse())), (torch.ones(5, 7),), "cpu cuda",
     2 * 3 * 7, 2 * 3 * 7, "each of 3 values meets 7 columns"),
    ("a sparse matrix (CSR)", Behind(Fixed(SPARSE.to_sparse_csr())), (torch.ones(5, 7),), "cpu cuda",
     2 * 3 * 7, 2 * 3 * 7, "each of 3 values meets 7 columns"),
    ("learned values (COO)", Behind(Values(torch.sparse_coo)), (torch.ones(5, 7),), "cpu cuda",
     2 * 3 * 7, 2 * 3 * 7 + 2 * 6 * 5 * 7, "the gradient of all 6 x 5 places, of which 3 are taken"),
    ("learned values (CSR)", Behind(Values(torch.sparse_csr)), (torch.ones(5, 7),), "cpu cuda",
     2 * 3 * 7, 2 * 3 * 7 + 2 * 6 * 5 * 7, "the gradient of all 6 x 5 places, of which 3 are taken"),
    ("a complex matrix", Behind(Fixed(torch.ones(6, 5, dtype=torch.complex64))), (torch.ones(5, 7),),
     "cpu cuda", 4 * 2 * 6 * 5 * 7, 4 * 2 * 6 * 5 * 7, "four real products; the input's gradient"),
    ("complex weights", Weighted(), (torch.ones(3, 8),), "cpu cuda", 4 * 2 * 3 * 8 * 6,
     4 * 2 * 3 * 8 * 6, "four real products; the weight's gradient"),
    ("cdist", Behind(Distances()), (torch.ones(30, 6),), "cpu cuda", 2 * 30 * 40 * (6 + 2),
     2 * (2 * 30 * 40 * 6), "one product, with the squares as two columns; torch computes both gradients"),
)  # fmt: skip

OTHER = {
    "aten._ctc_loss": 13 * 2 * 12 * 7,
    "aten._ctc_loss_backward": 22 * 2 * 12 * 7 + 5 * 12 * 2 * 5,
}
"""Other work of the CTC loss: 2 sequences of 12 steps, 2 * 3 + 1 places, 5 letters."""


def by_hand(
    what: str, module: nn.Module, given: tuple[Tensor, ...], targets: str,
    forward: int, backward: int, why: str,
) -> Iterator[Row]:  # fmt: skip
    """FLOPs of a layer's forward and backward."""
    figures: dict[str, set[int]] = {}
    for target in targets.split():
        profile = opgraph.profile(module, given, mode="train", target=target, loss="sum")
        assert profile.graph.failed is None
        assert profile.totals.coverage == 1.0
        for phase, total in training(profile.graph).phases.items():
            figures.setdefault(phase, set()).add(total.flops)
        for kernel in (k for n in profile.nodes for k in n.kernels if k.op in OTHER):
            figures.setdefault(kernel.op, set()).add(kernel.other_flops)
    truths = {"forward": (forward, why), "backward": (backward, why)}
    truths |= {op: (work, "by hand, for each place at a step") for op, work in OTHER.items()}
    for key in sorted(figures.keys() & truths.keys(), key=list(truths).index):
        truth, by = truths[key]
        (figure, *others) = figures[key]
        assert not others
        yield flops(f"{what}, {key}, {' and '.join(targets.split())}", figure, truth, by)


# Memory.


class Block(nn.Module):
    """A transformer layer as Korthikanti et al. have it ("Reducing Activation Recomputation in Large
    Transformer Models", 2022, section 4)."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.heads, self.drop = heads, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, s, h = x.shape
        parts = self.qkv(self.n1(x)).chunk(3, -1)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in parts)
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, s, h)))
        return x + self.drop(self.down(functional.gelu(self.up(self.n2(x)))))


def korthikanti(dropout: float, each: int) -> Iterator[Row]:
    """34 s b h bytes where attention keeps no scores; without dropout its masks of one byte are none."""
    s, b, h = 1024, 2, 512

    def kept(layers: int) -> int:
        model = nn.Sequential(*(Block(h, 8, dropout) for _ in range(layers))).bfloat16()
        x = torch.zeros(b, s, h, dtype=torch.bfloat16)
        profile = opgraph.profile(model, x, mode="train", loss="sum", target="cuda")
        return training(profile.graph).saved_activations

    layer, what = kept(2) - kept(1), f"a layer, dropout {dropout:g}"
    yield Row(what, layer, 34 * s * b * h, "34 s b h (Korthikanti et al., 2022)", 0.08)
    yield Row(what, layer, each * s * b * h, f"{each} s b h: its masks are of one byte", 0.01)


def gpt2() -> Iterator[Row]:
    """Activations of GPT-2 at 8 x 1,024 tokens in float32, in units of U = b s h 4 bytes = 24 MiB."""
    unit = 8 * 1024 * 768 * 4
    base, head = (
        opgraph.profile("gpt2", mode="train", batch_size=8, seq_len=1024, target="cuda", loss=loss)
        for loss in ("sum", "auto")
    )
    # A layer: both inputs of normalizations and both results (4); q, k, v (3); what attention returns (1),
    # and its mask of dropout with that of the feed-forward part (1/4 each); in the feed-forward part, 4 U
    # each, its first result, x / 2, tanh, 1 + tanh and their product (20). Attention keeps its sums'
    # logarithms, and the seed and offset of its dropout; a normalization its means and deviations.
    tokens = 8 * 1024
    layer = (4 + 3 + 1 + 0.5 + 20) * unit + tokens * 12 * 4 + 2 * 8 + 2 * (2 * tokens * 4)
    # Beside them the embeddings' mask, the last normalization, two inputs, the positions, and the sum.
    rest = 0.25 * unit + 2 * unit + 2 * tokens * 4 + 2 * tokens * 8 + 1024 * 8 + 4
    kept = training(base.graph).saved_activations
    yield Row("GPT-2, alive after the forward", kept, 12 * layer + rest, "by hand, item by item")
    # The peak, in the backward of the last activation. Gone by then: what the last product read (4), its
    # mask (1/4), what the last normalization read (1), with its means and deviations, and what it gave (1).
    gone = (4 + 0.25 + 1 + 1) * unit + 2 * tokens * 4
    # There instead: 1 for the loss; gradients of the last normalization's input (1), weight and bias; of
    # the last product's input (4), weight and bias; and of x / 2 and 1 + tanh (4 each).
    made = 4 + (1 + 4 + 4 + 4) * unit + 3 * 768 * 4 + 4 * 768 * 768 * 4
    peak = base.on().memory.peak - training(base.graph).optimizer_state
    yield Row("GPT-2, alive at the peak", peak, 12 * layer + rest - gone + made,
              "by hand, item by item")  # fmt: skip
    # The 8.51 GiB of a CPU whose attention keeps no scores: its other 25 masks are numbers of 4 bytes, not
    # of one, and attention without dropout has neither seed nor offset.
    plain = resolve("gpt2", BuildOptions(arguments={"attn_pdrop": 0.0}))
    cpu = opgraph.profile(plain, mode="train", batch_size=8, seq_len=1024, target="cpu", loss="sum")
    elsewhere = training(cpu.graph).saved_activations
    yield Row("GPT-2 on a CPU, its attention without dropout", elsewhere,
              12 * layer + rest + 25 * 0.75 * unit - 12 * 2 * 8, "by hand; 8.51 GiB measured")  # fmt: skip
    # The loss keeps logits [8 * 1024, 50257] in float32 twice: as they are, and their logarithms.
    logits = 8 * 1024 * 50257 * 4
    more = training(head.graph).saved_activations - kept
    yield Row("GPT-2, what its own loss adds", more, 2 * logits,
              "its logits and their logarithms", 0.01)  # fmt: skip


class Softmax110(torch.autograd.Function):
    """Softmax as torch had it before 1.11, of which the backward took the input, too, for its dtype alone
    (derivatives.yaml; transformers' `softmax_backward_data` tells both versions apart)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        result = torch.softmax(scores, -1)
        ctx.save_for_backward(scores, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        scores, result = ctx.saved_tensors
        return torch._softmax_backward_data(grad, result, -1, scores.dtype)


def attention_of_2022(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    dropout: float = 0.0, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    scores = torch.matmul(query, key.transpose(-1, -2)) / query.shape[-1] ** 0.5
    scores = scores if mask is None else scores + mask
    kept = functional.dropout(Softmax110.apply(scores), dropout, module.training)
    return torch.matmul(kept, value).transpose(1, 2).contiguous(), None


def bert_large(batch: int, checkpointing: bool, measured: int) -> Iterator[Row]:
    """MiB in use on a V100, 1,343 of them context (Hugging Face, "Training on a Single GPU", 2022).

    Attention was products and softmax, whose input torch kept then (16 MiB a layer and sample, a third of
    attention's), the optimizer a loop over the weights, and the gradients of the step before were there:
    batches of 1 were accumulated to 4, and `zero_grad` set to zero.
    """
    import transformers

    transformers.AttentionInterface.register("of 2022", attention_of_2022)
    model = resolve("bert-large-uncased", BuildOptions(head="sequence-classification"))
    model.module.config._attn_implementation = "of 2022"
    graph = opgraph.profile(
        model, mode="train", batch_size=batch, seq_len=512, optimizer="adamw-loop",
        checkpointing=checkpointing, accumulation=True, target="cuda:7.0",
    ).graph  # fmt: skip
    kept = [p.bytes for p in graph.parameters]
    taken = reserve(kept, graph.storages, sum(len(n.kernels) for n in graph.nodes))
    blocks = ", checkpointed" * checkpointing
    yield Row(f"bert-large, batch of {batch}{blocks}", taken.reserved + 1343 * 2**20, measured * 2**20,
              "measured on a V100, 1,343 MiB of it context (Hugging Face, 2022)", 0.05)  # fmt: skip


def dbrx() -> Iterator[Row]:
    """Parameters of DBRX, and what a process of its own takes at its peak."""
    code = (
        "import opgraph; t = opgraph.profile('databricks/dbrx-base').totals;"
        "most = [line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line];"
        "print(t.parameters, t.active_parameters, *most)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    all_, active, kib = map(int, ran.stdout.split())
    why = "published (Databricks, 2024)"
    show = units.count
    yield Row("DBRX, parameters", all_, 132e9, why, 0.005, show=show)
    yield Row("DBRX, active for a token", active, 36e9, why, 0.02, show=show)
    yield Row("DBRX, the process that profiles it", kib * 1024, 4e9, "the goal", relation="≤")


# What is asked beside.


def convention(name: str, on: str) -> Iterator[Row]:
    """The time that is predicted where FLOPs are counted otherwise."""
    own = opgraph.profile(name, target=device(on).target)
    for what, values in CONVENTIONS.items():
        other = opgraph.profile(name, target=device(on).target, count={what: values[1]})
        assert other.totals.flops != own.totals.flops
        seconds = (p.on(on).prediction.seconds for p in (other, own))
        yield Row(f"`{name}` on `{on}`, `--count {what}={values[1]}`", *seconds,
                  f"the same of {what}={values[0]}", show=units.seconds)  # fmt: skip


def with_values(name: str, size: int) -> Iterator[Row]:
    """A step on fake tensors, whose boxes are matched with the truth without values, beside one on real
    tensors."""

    def run() -> opgraph.Profile:
        return opgraph.profile(name, mode="train", image_size=size, target="cpu", memory_limit=8)

    def as_values_say(*args: Any, **how: Any) -> Any:
        how.pop("spread", None)
        return plain(*args, **how)

    plain, without = eager.trace_fake, run()
    with patch.object(eager, "trace_fake", as_values_say):
        real = run()
    assert (without.tracing.tensors, real.tracing.tensors) == ("fake", "real")
    why = "the same on real tensors"
    yield flops(f"`{name}` at {size}, FLOPs", without.totals.flops, real.totals.flops, why)
    yield Row(
        f"`{name}` at {size}, bytes moved", without.totals.bytes, real.totals.bytes, why, 0.001
    )
    yield Row(f"`{name}` at {size}, peak", without.on().memory.peak, real.on().memory.peak, why)


def fitted(name: str, on: str, options: dict[str, Any]) -> Iterator[Row]:
    """What `opgraph fit` answers, by a profile of that size, and of the next one."""
    there = device(on)
    found = fitting(name, hardware=on, **options)
    asked = " ".join(map(str, options.values()))
    for each in found.largest:
        for more in range(2):
            sized = {**options, each.size: each.value + more, "target": there.target}
            what = f"`{name}` {asked} on `{on}`, {each.size} {each.value + more:,}"
            if more and each.reason is not None:
                continue
            needed = fit(opgraph.profile(name, **sized).graph, there).needed
            yield Row(what, needed, there.capacity, "the largest" if not more else "the next",
                      relation="≤>"[more])  # fmt: skip
    if (least := found.smallest) is not None:
        what = f"`{name}` {asked}, "
        yield Row(what + f"`{least.device}`", least.needed, least.capacity, "the smallest device",
                  relation="≤")  # fmt: skip
        if least.smaller is not None and least.smaller_needs is not None:
            yield Row(what + f"`{least.smaller}`", least.smaller_needs, device(least.smaller).capacity,
                      "the next smaller device", relation=">")  # fmt: skip


CASES: dict[str, tuple[Case, ...]] = {
    "FLOPs of a step": (
        *(Case(case[0], partial(counted, *case)) for case in COUNTED),
        *(Case(name, partial(grouped, name)) for name in ("mobilenet_v2", "shufflenet_v2_x0_5")),
    ),
    "FLOPs of layers": tuple(
        Case(case[0], partial(by_hand, *case), "learned" not in case[0]) for case in HAND
    ),
    "Memory": (
        Case("a layer with dropout", partial(korthikanti, 0.1, 34)),
        Case("a layer without dropout", partial(korthikanti, 0.0, 32)),
        Case("gpt2", gpt2),
        *(Case(f"bert-large {case}", partial(bert_large, *case))
          for case in ((4, False, 14_949), (1, False, 8_681), (1, True, 6_775))),
    ),
    "Conventions of counting": (Case("counts of gpt2", partial(convention, "gpt2", "a100-sxm4-80gb")),),
}  # fmt: skip
MORE = {
    "Without values": tuple(
        Case(name, partial(with_values, name, size))
        for name, size in (
            ("SenseTime/deformable-detr", 64), ("hustvl/yolos-tiny", 64), ("rtdetr_r18vd", 160),
            ("facebook/mask2former-swin-tiny-coco-instance", 64), ("grounding-dino-tiny", 224),
            ("yolov8n-obb", 64), ("yolo26n-pose", 64),
        )
    ),
    "Experts": (Case("dbrx", dbrx),),
    "What fits": tuple(
        Case(f"fit {name}", partial(fitted, name, on, options))
        for name, on, options in (
            ("resnet50", "rtx-4090", {"mode": "infer"}),
            ("gpt2", "rtx-4090", {"mode": "train"}),
            ("meta-llama/Llama-3.1-8B", "h100-sxm", {"mode": "decode", "dtype": "bfloat16"}),
            ("Qwen/Qwen2.5-0.5B", "rtx-3090", {"mode": "train", "train": "qlora"}),
        )
    )
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="a part of the name of a case; all if none is given"
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines, all_, wrong = [], 0, 0
    for title, cases in (CASES | MORE).items():
        chosen = [c for c in cases if not asked.names or any(n in c.name for n in asked.names)]
        if not chosen:
            continue
        lines += [
            f"### {title}\n",
            "| | opgraph | is to be | ratio | by |",
            "|---|---:|---:|---:|---|",
        ]
        print(f"\n{title}")
        for case in chosen:
            for row in case.rows():
                lines.append(str(row))
                print(f"{'' if row.holds else 'FAILS '}{row}", flush=True)
                all_ += 1
                wrong += not row.holds
            gc.collect()
        lines.append("")
    with_ = ", ".join(f"{n} {version(n)}" for n in ("torch", "torchvision", "transformers", "timm"))
    said = f"{all_} figures, {wrong} of them not as they are to be"
    print(said)
    if asked.write:
        head = f"`python -m benchmarks.training` with {with_}: {said}.\n\n"
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(before + BEGIN + head + "\n".join(lines) + END + after, "utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
