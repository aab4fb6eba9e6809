"""Published steps of training on many devices, against what is predicted of them. Nothing is fitted.

    python -m benchmarks.steps [--short] [ROW …]    # all that can be expressed, or some; the worst first

Traces are kept in benchmarks/.cache/steps. With `--short` they are of two layers and of four, and the time
of a step is extended to all layers, in which it is linear; memory is not said then.

pytorch/torchtitan (BSD-3): `benchmarks/llama3_h100_202412_torchtitan.md` and
`benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md`, tokens a second of a device, H100 with 96 GB at 2.4
TB/s and 500 W, and `benchmarks/llama3_8b_h200_2025-06_torchtitan_trainy_whitefiber.md`, H200, in bfloat16,
or with torchao's Float8 for the linear layers of blocks: with one scale a tensor, and activations gathered
in eight bits where tensors are split; with one a row; or with weights gathered in eight bits, whose scales
are there before the step. Where that is not said, weights are gathered in bfloat16. Tokens that are split
throughout go to attention by torch's `context_parallel`, keys and values gathered, as was torchtitan's
default. The model is written as theirs, with `fully_shard` on each layer and on the rest,
bfloat16 parameters and float32 sums of gradients, selective checkpointing as theirs (attention, what is
scattered, and every second product are kept), tensor and sequence parallelism by their plan with the loss
split over ranks, and AdamW in one kernel, or by operators over all weights in 2024. TorchInductor does not
compile a step of training here: of compiled rows nothing is computed twice in a layer, what stands between
products is fused by rules (in 2025 in the loss, too), and what tensor and context parallelism exchange is
waited for where it stands; products and attention stay as they are. Gradients are not clipped here.

"The Llama 3 Herd of Models" (arXiv 2407.21783), table 4: TFLOP/s of a device with pipelines. What is
predicted is what `opgraph plan` says of their layout (sequence parallelism, gradients sharded, no
checkpointing), as 1F1B. Their schedule is interleaved; into how many chunks a stage is cut is not said.
Taken is a layer a chunk, whose bubble is one by the number of chunks of it (Narayanan et al. 2021, 2.2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from opgraph.analysis.timing.prediction import device_costs, predict_parts, predict_work
from opgraph.analysis.timing.streams import sources

CACHE = Path(__file__).parent / ".cache" / "steps"
TITAN = "h100-96gb-hbm2e-500w"
SIZES = {
    "8b": (4096, 14_336, 32, 32),
    "70b": (8192, 28_672, 80, 64),
    "405b": (16_384, 53_248, 126, 128),
}  # hidden, intermediate, layers, heads


@dataclass(frozen=True)
class Row:
    """A published row: the model, how it is laid out, and what was measured: tokens a second of a device,
    or its TFLOP/s, and the GiB that the allocator reserved at most, of runs that are not compiled."""

    name: str
    size: str
    data: int
    batch: int
    measured: float
    tensor: int = 1
    pipeline: int = 1
    kept: str = "selective"
    compiled: bool = False
    chunks: int = 1
    memory: float | None = None
    float8: str = ""
    length: int = 8192
    context: int = 1
    pieces: bool = False
    device: str = TITAN
    year: int = 2025

    @property
    def optimizer(self) -> str:
        """AdamW by operators over all weights, as was their default, or in one kernel."""
        return "adamw-foreach" if self.year == 2024 else "adamw-fused"

    @property
    def way(self) -> str:
        """What is traced for it, by name."""
        same = replace(
            self, name="", measured=0, memory=None, compiled=False, device="", pieces=False
        )
        return "-".join(str(value) for value in vars(same).values() if value)


ROWS = (
    Row("8b-fsdp8", "8b", 8, 2, 5762, memory=82.4, year=2024),
    Row("8b-fsdp8-compiled", "8b", 8, 2, 6667, compiled=True, year=2024),
    Row("8b-fsdp128", "8b", 128, 2, 5605, memory=67.0, year=2024),
    Row("8b-fsdp128-compiled", "8b", 128, 2, 6514, compiled=True, year=2024),
    Row("8b-fsdp8-float8-compiled", "8b", 8, 2, 8532, compiled=True, float8="tensor", year=2024),
    Row("8b-fsdp128-float8-compiled", "8b", 128, 2, 8380, compiled=True, float8="tensor", year=2024),
    *(
        Row(f"8b-fsdp{8 // n}-cp{n}-{32 * n}k-float8-compiled", "8b", 8 // n, 1, measured,
            kept="none", compiled=True, float8="tensor", length=32_768 * n, context=n, year=2024)
        for n, measured in ((1, 3890), (2, 2540), (4, 1071), (8, 548))
    ),
    Row("8b-h200-fsdp32-float8-compiled", "8b", 32, 2, 10_938,
        compiled=True, float8="gathered", device="h200"),
    Row("8b-h200-fsdp64-float8-compiled", "8b", 64, 2, 10_753,
        compiled=True, float8="gathered", device="h200"),
    Row("8b-fsdp8-tp8-float8-compiled", "8b", 8, 12, 5078.1,
        tensor=8, compiled=True, float8="tensor"),
    Row("8b-fsdp8-tp8-float8-rows-compiled", "8b", 8, 12, 3708.5,
        tensor=8, compiled=True, float8="rows"),
    Row("70b-fsdp32-tp8-float8-2024-compiled", "70b", 32, 16, 829,
        tensor=8, kept="none", compiled=True, float8="tensor", year=2024),
    Row("70b-fsdp32-tp8-float8-compiled", "70b", 32, 16, 809.8,
        tensor=8, kept="none", compiled=True, float8="tensor"),
    Row("70b-fsdp32-tp8-float8-rows-compiled", "70b", 32, 16, 599.6,
        tensor=8, kept="none", compiled=True, float8="rows"),
    *(
        Row(f"{size}-fsdp{data}-tp8{name}-pieces-compiled", size, data, batch, measured, tensor=8,
            kept=kept, compiled=True, float8=float8, pieces=True, year=2024 if "2024" in name else 2025)
        for size, data, batch, kept, name, float8, measured in (
            ("70b", 32, 16, "none", "-float8-2024", "tensor", 876),
            ("70b", 32, 16, "none", "", "", 652.4),
            ("70b", 32, 16, "none", "-float8", "tensor", 942.4),
            ("70b", 32, 16, "none", "-float8-rows", "rows", 624.8),
            ("8b", 8, 12, "selective", "", "", 4809.4),
            ("8b", 8, 12, "selective", "-float8", "tensor", 5570.1),
            ("8b", 8, 12, "selective", "-float8-rows", "rows", 3914.9),
        )
    ),
    Row("8b-fsdp8-tp8-compiled", "8b", 8, 12, 4378, tensor=8, compiled=True),
    Row("70b-fsdp32-tp8-compiled", "70b", 32, 16, 597.3, tensor=8, kept="none", compiled=True),
    Row("405b-tp8-pp16-dp64", "405b", 64, 32, 430, tensor=8, pipeline=16, chunks=8),
    Row("405b-tp8-pp16-dp128", "405b", 128, 16, 400, tensor=8, pipeline=16, chunks=8),
    Row("405b-tp8-pp16-dp64-1f1b", "405b", 64, 32, 430, tensor=8, pipeline=16),
    Row("405b-tp8-pp16-dp128-1f1b", "405b", 128, 16, 400, tensor=8, pipeline=16),
)  # fmt: skip
LEFT_OUT = (
    ("6 rows of torchtitan with 405B, pipelines, Float8 and asynchronous tensor parallelism of 2024",
     "what `plan` puts together of a pipeline is neither in Float8 nor piece by piece"),
    ("1 row of the paper with sequences of 131,072",
     "most of its FLOPs are attention's, and how these were counted is not said"),
)  # fmt: skip
LAYERS = "_checkpoint_wrapped_module"
"""What the scopes of all operators of layers have in them."""
VOCABULARY = 128_256


def policy(second: list[int]) -> Callable[..., Any]:
    """What torchtitan keeps of a layer: attention, what is scattered, and every second product."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy

    aten = torch.ops.aten
    kept = {
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
        aten.max.default,  # from which scales of Float8 are made, whose own products run again
    }

    def choose(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator == aten.mm.default:
            second[context.is_recompute] += 1
            keep = second[context.is_recompute] % 2 == 1
        else:
            keep = operator in kept
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return choose


def llama(row: Row, layers: int | None = None) -> Any:
    """Llama as training code writes it: rotations as complex numbers in float32, and keys and values
    repeated for the heads that share them. It returns its loss."""
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    hidden, inner, depth, heads = SIZES[row.size]
    head, key_values = hidden // heads, 8

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(hidden))

        def forward(self, x: Tensor) -> Tensor:  # torch of 2024 had no kernel of its own for it
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
            return y.type_as(x) * self.weight

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wq, self.wo = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
            self.wk, self.wv = (nn.Linear(hidden, key_values * head, bias=False) for _ in range(2))

        def forward(self, x: Tensor, turns: Tensor) -> Tensor:
            def turned(y: Tensor) -> Tensor:
                pairs = torch.view_as_complex(y.float().reshape(*y.shape[:-1], -1, 2))
                return torch.view_as_real(pairs * turns[:, None]).flatten(3).type_as(y)

            q, k, v = (f(x).unflatten(-1, (-1, head)) for f in (self.wq, self.wk, self.wv))
            q, k = turned(q), turned(k)
            shared = heads // key_values
            k, v = (
                y[:, :, :, None].expand(-1, -1, -1, shared, -1).flatten(2, 3).transpose(1, 2)
                for y in (k, v)
            )
            out = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
            return self.wo(out.transpose(1, 2).flatten(2))

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.w3 = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
            self.w2 = nn.Linear(inner, hidden, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.w2(functional.silu(self.w1(x)) * self.w3(x))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.feed_forward = Attention(), FeedForward()
            self.attention_norm, self.ffn_norm = (Norm() for _ in range(2))

        def forward(self, x: Tensor, turns: Tensor) -> Tensor:
            x = x + self.attention(self.attention_norm(x), turns)
            return x + self.feed_forward(self.ffn_norm(x))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok_embeddings = nn.Embedding(VOCABULARY, hidden)
            self.layers = nn.ModuleList(Block() for _ in range(layers or depth))
            self.norm = Norm()
            self.output = nn.Linear(hidden, VOCABULARY, bias=False)
            self.register_buffer("turns", torch.empty(0), persistent=False)

        def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
            x = self.tok_embeddings(tokens)
            for layer in self.layers:
                x = layer(x, self.turns)
            logits = self.output(self.norm(x))
            return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

    with torch.device("meta"):
        model = Llama()
    model.turns = torch.zeros(row.length, head // 2, dtype=torch.complex64)
    return model


def built(row: Row, mesh: Any, layers: int | None = None) -> Any:
    """The model of a row as torchtitan shards it, on the ranks of a mesh."""
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )  # fmt: skip
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    model = llama(row, layers)
    if row.float8:
        import torchao.float8 as ao

        config = ao.Float8LinearConfig(enable_fsdp_float8_all_gather=row.float8 == "gathered")
        if row.float8 == "rows":
            config = ao.Float8LinearConfig.from_recipe_name("rowwise")
        ao.convert_to_float8_training(
            model, config=config, module_filter_fn=lambda _, name: name != "output"
        )
    whole, part = Replicate(), Shard(1)
    if row.tensor > 1:
        tensor = mesh["tp"]
        parallelize_module(model, tensor, {
            "tok_embeddings": RowwiseParallel(input_layouts=whole, output_layouts=part),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(
                input_layouts=part, output_layouts=Shard(-1), use_local_output=False),
        })  # fmt: skip
        by_columns: Any = ColwiseParallel
        by_rows: Any = RowwiseParallel
        given: Any = PrepareModuleInput
        linear: dict[str, dict[str, str]] = {"attention": {}, "feed_forward": {}}
        if row.float8 == "tensor":
            import torchao.float8.float8_tensor_parallel as eight

            by_columns, by_rows = eight.Float8ColwiseParallel, eight.Float8RowwiseParallel
            given = eight.PrepareFloat8ModuleInput
            linear = {
                "attention": {"fwd_config_submodule_fqn": "wq"},
                "feed_forward": {"fwd_config_submodule_fqn": "w1"},
            }
        columns = "attention.wq attention.wk attention.wv feed_forward.w1 feed_forward.w3".split()
        plan: dict[str, Any] = {name: by_columns() for name in columns}
        plan |= {n: by_rows(output_layouts=part) for n in ("attention.wo", "feed_forward.w2")}
        plan |= {n: SequenceParallel() for n in ("attention_norm", "ffn_norm")}
        plan["attention"] = given(
            input_layouts=(part, None), desired_input_layouts=(whole, None), **linear["attention"]
        )
        plan["feed_forward"] = given(
            input_layouts=(part,), desired_input_layouts=(whole,), **linear["feed_forward"]
        )
        for layer in model.layers:
            parallelize_module(layer, tensor, plan)
    shards = mesh["dp", "cp"]._flatten("dp_cp") if row.context > 1 else mesh["dp"]
    lower = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    selective = {
        "context_fn": lambda: create_selective_checkpoint_contexts(policy([0, 0]))
    }  # what is counted anew in each layer
    for i, layer in enumerate(model.layers):
        kept = checkpoint_wrapper(
            layer, preserve_rng_state=False, **(selective if row.kept == "selective" else {})
        )
        last = i == len(model.layers) - 1  # gathered for the backward at once
        model.layers[i] = fully_shard(
            kept, mesh=shards, mp_policy=lower, reshard_after_forward=not last
        )
    return fully_shard(model, mesh=shards, mp_policy=lower)


def traced(row: Row, layers: int | None = None) -> Any:
    """The profile of a rank; logits stay split over the ranks of a tensor, and so does their loss."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.parallel import loss_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import opgraph

    ids = torch.zeros(row.batch, row.length, dtype=torch.int64)
    then = sdpa_kernel([SDPBackend.FLASH_ATTENTION])  # torch of 2024 did not take cuDNN's first
    ranks = (row.data, row.context, row.tensor)
    with opgraph.ranks(prod(ranks)), loss_parallel(), then, ExitStack() as stack:
        mesh = init_device_mesh("cuda", ranks, mesh_dim_names=("dp", "cp", "tp"))
        model = built(row, mesh, layers)
        if row.float8 == "gathered":
            import torchao.float8 as ao

            ao.precompute_float8_dynamic_scale_for_fsdp(model)
        if row.context > 1:
            buffers = [ids, model.turns]
            stack.enter_context(context_parallel(
                mesh["cp"], buffers=buffers, buffer_seq_dims=[1, 0], no_restore_buffers=set(buffers)
            ))  # fmt: skip
        return opgraph.profile(
            model, (ids, ids), mode="train", loss="sum", optimizer=row.optimizer, target="cuda:9.0"
        )


@cache
def planned(row: Row) -> tuple[Any, float]:
    """The step of a row with a pipeline as `plan` puts it together, and the seconds that were measured."""
    import opgraph
    from opgraph.hardware import cluster
    from opgraph.sources.registry import resolve

    name = f"meta-llama/Llama-3.1-{row.size.upper()}"
    device = cluster("h100-sxm")[1]
    room = replace(device.figures["memory.capacity"], value=1e15)  # it ran: what fits is not asked
    device = replace(device, figures={**device.figures, "memory.capacity": room})
    devices = row.tensor * row.pipeline * row.data
    best = opgraph.plan(
        name, devices=(devices, device), dtype="bfloat16", seq_len=row.length,
        global_batch=row.batch * row.data, tensor_parallel=row.tensor, sequence_parallel=True,
        pipeline_parallel=row.pipeline, fsdp=row.data, zero=2, batch_size=1,
        optimizer="adamw-fused",
    ).best  # fmt: skip
    found = next(c for c in best if c.layout.schedule == "1f1b" and not c.checkpointing)
    parameters = sum(p.numel() for p in resolve(name).module.parameters())
    flops = 6 * parameters * row.length * row.batch * row.data
    return found, flops / devices / (row.measured * 1e12)


def profile_of(row: Row, layers: int | None = None) -> Any:
    """The profile of a row, from the cache if it is there."""
    import opgraph

    file = CACHE / f"{row.way}{'' if layers is None else f'-of-{layers}'}.json"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        traced(row, layers).save(file)
    return opgraph.load(file)


def by_pieces(graph: Any) -> Any:
    """A graph as TorchInductor's pass for asynchronous tensor parallelism leaves it
    (torch/_inductor/fx_passes/micro_pipeline_tp.py): what products read is gathered piece by piece beside
    them, and what one product alone gives is scattered so. What brings the pieces in order is gone where
    nothing else reads them: the operator gives them rank by rank, a view of them for all others."""
    left = {node.id: node.kernels for node in graph.nodes}

    def product(node: Any) -> Any:
        return next((k for k in left[node.id] if k.flops and k.category == "matmul"), None)

    def passes(node: Any) -> bool:  # what views and brings in order
        return not any(k.flops or k.other_flops or k.collective for k in node.kernels)

    for node in graph.nodes:
        each = next((k.collective for k in node.kernels if k.collective is not None), None)
        if each is None or each.group != "tp":
            continue
        between, found = {node.id}, []
        if each.kind == "all-gather":
            inner = graph.value[node.outputs[0]].shape[-1]
            front = [node]
            while front:
                users = {u.id: u for n in front for v in n.outputs for u in graph.users.get(v, ())}
                front = [u for u in users.values() if passes(u) and u.id not in between]
                between |= {u.id for u in front}
                found += [
                    u for u in users.values()
                    if (k := product(u)) and not k.collective and k.shapes[0][-1] == inner
                ]  # fmt: skip
        elif each.kind == "reduce-scatter":
            maker = node
            while passes(maker) or maker is node:
                makers = graph.reads(maker)
                if len(makers) != 1:
                    break
                maker = graph.node(makers[0])
                between |= {maker.id} if passes(maker) else set()
            if (k := product(maker)) and not k.collective:
                found = [maker]
        if not found:
            continue
        kernels = [product(each) for each in found]
        first, columns = kernels[0], sum(k.shapes[1][-1] for k in kernels)
        rows, inner = first.shapes[0]
        users = {
            u.id for n in between for v in graph.node(n).outputs for u in graph.users.get(v, ())
        }
        others = (
            users - between - {user.id for user in found} if each.kind == "all-gather" else set()
        )
        left |= dict.fromkeys([node.id] if others else between, ())
        for user, kernel in zip(found, kernels, strict=True):
            left[user.id] = tuple(k for k in left[user.id] if k is not kernel)
        whole = replace(
            first, collective=each, flops=sum(k.flops for k in kernels), read=sum(k.read for k in kernels),
            written=sum(k.written for k in kernels),
            shapes=((rows, inner), (inner, columns)), out_shapes=((rows, columns),),
        )  # fmt: skip
        left[found[0].id] = (*left[found[0].id], whole)
    return replace(graph, nodes=tuple(replace(n, kernels=left[n.id]) for n in graph.nodes))


def once(graph: Any) -> Any:
    """A graph in which layers compute nothing twice, as AOTAutograd leaves it (`fx_graph_cse` in
    torch/_functorch/compile_utils.py): a forward, and a backward with what runs again for it."""
    same: dict[int, int] = {}
    known: dict[Any, Any] = {}

    def alone(node: Any) -> Any:
        left = replace(node, inputs=tuple(same.get(v, v) for v in node.inputs))
        writes = any(k.op.endswith("_") or k.collective for k in node.kernels)
        if writes or node.kind != "call" or LAYERS not in node.scope:
            return left
        key = node.phase == "forward", node.target, node.arguments, left.inputs, node.kernels
        first = known.setdefault(key, node)
        if first is node or len(first.outputs) != len(node.outputs):
            return left
        same.update(zip(node.outputs, first.outputs, strict=True))
        return replace(left, kernels=())

    return replace(graph, nodes=tuple(map(alone, graph.nodes)))


def waited(graph: Any) -> dict[int, tuple[int, ...]]:
    """What each node waits for in a compiled run: what it reads, and what was exchanged in a layer before
    it. Tracing waits for a collective where it stands (`_maybe_wrap_tensor` in
    torch/distributed/_functional_collectives.py), and TorchInductor leaves the wait there
    (`reorder_for_compute_comm_overlap`)."""
    found = dict(sources(graph))
    before: tuple[int, ...] = ()
    for node in graph.nodes:
        kernels = [k for k in node.kernels if k.bytes or k.flops]
        if kernels:
            found[node.id] += before
            functional = any(k.op.startswith("_c10d_functional.") for k in kernels)
            before = (node.id,) if functional and LAYERS in node.scope else ()
    return found


def loss_of(graph: Any) -> set[int]:
    """The nodes of a loss: between the layer of the logits and its gradient."""
    output = [n for n in graph.nodes if n.scope == "output"]
    last = max(n.id for n in output if n.phase == "forward")
    first = min(n.id for n in output if n.phase == "backward")
    return {n.id for n in graph.nodes if last < n.id < first and not n.scope}


def fused(costed: Any, loss: bool) -> float:
    """The seconds that are spared where element-wise work between products is fused: within layers, since
    torchtitan compiles each by itself, and in its loss since 2025, but neither in the optimizer nor in what
    FSDP copies."""
    node = costed.graph.node
    also = loss_of(costed.graph) if loss else set()
    parts = [
        p for p in costed.parts
        if not any(node(n).flops or (LAYERS not in node(n).scope and n not in also) for n in p.nodes)
    ]  # fmt: skip
    within = {n for p in parts for n in p.nodes}
    each = device_costs(costed.work, costed.device)
    alone = sum(c.seconds for w, c in zip(costed.work, each, strict=True) if w.node in within)
    return alone - sum(t.seconds for t in predict_parts(costed.work, parts, costed.device))


@dataclass(frozen=True)
class Predicted:
    """A row's prediction: its step in seconds with the interval, what kernels wait for of it, predicted by
    measured seconds, and the bytes that the allocator reserves."""

    row: Row
    seconds: float
    interval: tuple[float, float]
    exposed: float
    ratio: float
    reserved: float | None = None


def predicted(row: Row, short: bool = False) -> Predicted:
    """What is predicted of a row."""
    if row.pipeline > 1:
        step, measured = planned(replace(row, name="", chunks=1))  # one step of each schedule
        seconds = step.seconds - step.bubble * (1 - 1 / row.chunks)
        low, high = (end / step.seconds * seconds for end in step.interval)
        return Predicted(row, seconds, (low, high), step.exposed, seconds / measured)
    measured = row.batch * row.length / row.tensor / row.context / row.measured
    if short:
        two, four = (stepped(row, layers) for layers in (2, 4))
        more = (SIZES[row.size][2] - 2) / 2
        *ends, exposed = (a + (b - a) * more for a, b in zip(two[0], four[0], strict=True))
        reserved = None
    else:
        (*ends, exposed), reserved = stepped(row, None)
    return Predicted(row, ends[0], (ends[1], ends[2]), exposed, ends[0] / measured, reserved)


def stepped(row: Row, layers: int | None) -> tuple[tuple[float, ...], float]:
    """The seconds of a step with so many layers, both ends of its interval, and what is exposed of it; and
    what is reserved."""
    profile = profile_of(row, layers)
    if row.pieces:
        profile = replace(profile, graph=by_pieces(profile.graph))
    if row.compiled:
        profile = replace(profile, graph=once(profile.graph))
    costed = profile.on(row.device)
    found, seconds = costed.prediction, costed.prediction.seconds
    if row.compiled:
        found = predict_work(costed.work, costed.device, made_by=waited(costed.graph))
        seconds = found.seconds - fused(costed, row.year > 2024)
    low, high = (end / found.seconds * seconds for end in found.interval)
    reserved = profile_of(row, layers).on(row.device).fit.reserved
    return (seconds, low, high, found.communication.exposed), reserved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="ROW")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    names = given.names
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"no row is called {min(unknown)}: {', '.join(r.name for r in ROWS)}")
    found = [predicted(row, given.short) for row in ROWS if not names or row.name in names]
    print("| row | measured | step measured | predicted | exposed | predicted / measured |")
    print("|---|---|---|---|---|---|")
    for one in sorted(found, key=lambda p: -abs(p.ratio - 1)):
        row, unit = one.row, "TFLOP/s" if one.row.pipeline > 1 else "tokens/s"
        low, high = one.interval
        said = f"{one.seconds:.3g} s ({low:.3g}–{high:.3g})"
        print(f"| {row.name} | {row.measured:,g} {unit} | {one.seconds / one.ratio:.3g} s | {said} | "
              f"{one.exposed:.2g} s | {one.ratio:.2f} |")  # fmt: skip
    off = [abs(one.ratio - 1) for one in found if not one.row.name.endswith("1f1b")]
    print(f"\nmedian error {100 * median(off):.1f} % of {len(off)} rows (without those of 1f1b)")
    for one in found:
        if one.row.memory is not None and one.reserved is not None:
            there = one.reserved / 2**30
            print(f"{one.row.name}: {there:.1f} GiB reserved, {one.row.memory} measured, "
                  f"{there / one.row.memory:.2f}")  # fmt: skip
    for what, why in LEFT_OUT:
        print(f"left out: {what}: {why}")


if __name__ == "__main__":
    main()
