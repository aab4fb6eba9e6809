"""One rank of many, against plain torch on the same pretended ranks.

python -m benchmarks.ranks memory          peak memory beside torch's FSDPMemTracker, five models, and so
                                           with what is sharded in the host's memory
python -m benchmarks.ranks speed [LAYERS [PAIRS]]
                                           Llama-3.1-405B with FSDP2 x TP 8 on 16,384 ranks: processor
                                           time and memory of processes of their own, in pairs with the
                                           same step in plain torch
python -m benchmarks.ranks pipeline        the first of 16 stages of it, as 1F1B with 16 micro-batches
python -m benchmarks.ranks plan            steps that `opgraph.plan` puts together of three layers, beside
                                           traces of all twelve, in five layouts
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WORLD = 64


def models() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Constructors of a few transformers models of several kinds, with their repeated blocks."""
    import transformers as t

    llama = {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "vocab_size": 8192,
    }
    bert = {"hidden_size": 768, "num_hidden_layers": 6}

    def of(cls: Any, config: Any, blocks: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any]]:
        def build() -> tuple[Any, Any]:
            import torch

            with torch.device("meta"):
                model = cls(config)
            return model, blocks(model)

        return build

    return {
        "llama": of(t.LlamaForCausalLM, t.LlamaConfig(num_hidden_layers=6, **llama),
                    lambda m: m.model.layers),
        "qwen2": of(t.Qwen2ForCausalLM, t.Qwen2Config(num_hidden_layers=4, num_key_value_heads=8, **llama),
                    lambda m: m.model.layers),
        "gpt2": of(t.GPT2LMHeadModel, t.GPT2Config(n_layer=6), lambda m: m.transformer.h),
        "bert": of(t.BertForMaskedLM, t.BertConfig(**bert), lambda m: m.bert.encoder.layer),
        "opt": of(t.OPTForCausalLM, t.OPTConfig(num_hidden_layers=4), lambda m: m.model.decoder.layers),
    }  # fmt: skip


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.use_cache = False
    yield


def sharded(
    build: Callable[[], tuple[Any, Any]], checkpointing: bool, offload: bool = False
) -> Any:  # fmt: skip
    """A model whose blocks and rest are each sharded over all ranks, on the device or on the host."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    model, blocks = build()
    with _without_dropout(model):
        mesh = init_device_mesh("cpu", (WORLD,))
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        kept = CPUOffloadPolicy() if offload else OffloadPolicy()
        for block in blocks:
            fully_shard(block, mesh=mesh, offload_policy=kept)
        return fully_shard(model, mesh=mesh, offload_policy=kept)


TOKENS = (2, 256)


def tracked(model: Any) -> tuple[int, int]:
    """The peak of a second step by torch's own tracker, and what of it is not sharded weights, gradients
    and optimizer state."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        ids = torch.zeros(TOKENS, dtype=torch.int64)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids,))
        with tracker:
            for _ in range(2):
                tracker.reset_mod_stats()
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    named = {getattr(kind, "name", kind): size for kind, size in peak.items()}
    kept = named["SHARDED_PARAM"] + named["SHARDED_GRAD"] + named["OPT"]
    return named["Total"], named["Total"] - kept


def memory(names: list[str]) -> None:
    import torch

    import opgraph

    print(
        "model        checkpointing   FSDPMemTracker      opgraph   ratio   the device's, where the host"
    )
    print(
        "                                                                  keeps what is sharded: ratio"
    )
    for name, build in models().items():
        if names and name not in names:
            continue
        for checkpointing in (False, True):
            with opgraph.ranks(WORLD):
                truth, beside = tracked(sharded(build, checkpointing))
            peaks = []
            for target, offload in (("cpu", False), ("cuda", True)):
                with opgraph.ranks(WORLD):
                    ids = torch.zeros(TOKENS, dtype=torch.int64)
                    profile = opgraph.profile(
                        sharded(build, checkpointing, offload), mode="train", target=target,
                        kwargs={"input_ids": ids, "labels": ids}, optimizer="adamw-loop",
                    )  # fmt: skip
                peaks.append(profile.on().peak_memory)
            print(f"{name:<12} {checkpointing!s:<13} {truth / 2**20:>13.2f} MiB "
                  f"{peaks[0] / 2**20:>8.2f} MiB   {peaks[0] / truth:.4f}   "
                  f"{peaks[1] / 2**20:.2f} MiB, {peaks[1] / beside:.4f}", flush=True)  # fmt: skip


SIZE, MESH = 16_384, (2_048, 8)


def llama(layers: int) -> Any:
    """Llama-3.1-405B, its projections split over 8 ranks and its layers sharded over 2,048."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=16_384, intermediate_size=53_248, num_hidden_layers=layers, num_attention_heads=128,
        num_key_value_heads=8, vocab_size=128_256, max_position_embeddings=131_072, use_cache=False,
    )  # fmt: skip
    mesh = init_device_mesh("cpu", MESH, mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    columns = "self_attn.q_proj self_attn.k_proj self_attn.v_proj mlp.gate_proj mlp.up_proj".split()
    plan: Any = dict.fromkeys(columns, ColwiseParallel())
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def profiled(layers: int) -> int:
    """The step by opgraph; the operators that it recorded."""
    import torch

    import opgraph

    with opgraph.ranks(SIZE):
        ids = torch.zeros(1, 8_192, dtype=torch.int64)
        profile = opgraph.profile(llama(layers), kwargs={"input_ids": ids, "labels": ids},
                                  mode="train", target="cuda")  # fmt: skip
    return sum(len(n.kernels) for n in profile.graph.nodes)


STAGES = 16


def pipelined(layers: int) -> tuple[Any, Any]:
    """The stage of this rank of as many layers as wide as Llama-3.1-405B's, without what is before or
    behind them, in its schedule, and the batch of a step."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=16_384, intermediate_size=53_248, num_attention_heads=128, num_key_value_heads=8,
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(LlamaDecoderLayer(config, i) for i in range(layers))
            self.rotary = LlamaRotaryEmbedding(config)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.arange(x.shape[1])[None]
            turned = self.rotary(x, places)
            for layer in self.layers:
                x = layer(x, position_ids=places, position_embeddings=turned)
            return x

    group = init_device_mesh("cpu", (STAGES,), mesh_dim_names=("pp",)).get_group()
    with torch.device("meta"):
        stage = Layers().to(torch.bfloat16)
        handed = torch.empty(1, 8_192, 16_384, dtype=torch.bfloat16, requires_grad=True)
        batch = torch.empty(STAGES, 8_192, 16_384, dtype=torch.bfloat16)
    made = PipelineStage(stage, 0, STAGES, torch.device("cpu"), group=group,
                         input_args=handed.detach(), output_args=handed)  # fmt: skip
    return Schedule1F1B(made, STAGES, loss_fn=lambda out, _: out.sum()), batch


def pipelined_by_opgraph(layers: int) -> int:
    """A step of the stage by opgraph; the operators that it recorded."""
    import opgraph

    with opgraph.ranks(STAGES):
        schedule, batch = pipelined(layers)
        profile = opgraph.profile(schedule, batch, {"target": batch}, mode="train", target="cuda")
    return sum(len(n.kernels) for n in profile.graph.nodes)


def pipelined_plainly(layers: int) -> int:
    """The same step in plain torch."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import opgraph

    with opgraph.ranks(STAGES):
        schedule, batch = pipelined(layers)
        module = schedule._stage.submod
        with FakeTensorMode(allow_non_fake_inputs=True), _counting() as seen:
            module.to_empty(device="cpu").train()
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=True)
            schedule.step(torch.empty_like(batch, device="cpu"))
            optimizer.step()
    return seen()


def plainly(layers: int) -> int:
    """The same step in plain torch on the same pretended ranks, with nothing that listens but a count of
    operators."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import opgraph

    with opgraph.ranks(SIZE):
        model = llama(layers)
        with FakeTensorMode(allow_non_fake_inputs=True):
            model.to_empty(device="cpu")
            model.train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
            ids = torch.zeros(1, 8_192, dtype=torch.int64)
            with _counting() as seen:
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
    return seen()


@contextmanager
def _counting() -> Iterator[Callable[[], int]]:
    """Within, operators are counted, and nothing else listens."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(t.__name__ in ("DTensor", "AsyncCollectiveTensor") for t in types):
                return NotImplemented
            Counting.seen += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        yield lambda: Counting.seen


def one(how: str, layers: int) -> None:
    """A process of its own: what it took, as JSON."""
    seen = {
        "opgraph": profiled, "torch": plainly,
        "opgraph-pipeline": pipelined_by_opgraph, "torch-pipeline": pipelined_plainly,
    }[how](layers)  # fmt: skip
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {"cpu": used.ru_utime + used.ru_stime, "gib": used.ru_maxrss / 2**20, "operators": seen}
        )
    )


def speed(layers: int, pairs: int, of: str = "") -> None:
    """Pairs of processes, one after the other."""
    ratios = []
    for _ in range(pairs):
        cpu = {}
        for how in ("torch", "opgraph"):
            command = [sys.executable, "-m", "benchmarks.ranks", "one", how + of, str(layers)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found = json.loads(said.splitlines()[-1])
            cpu[how] = found["cpu"]
            print(f"{layers} layers, {how:<8} {found['cpu']:6.1f} s of CPU, {found['gib']:.2f} GiB, "
                  f"{found['operators']:,} operators", flush=True)  # fmt: skip
        ratios.append(cpu["opgraph"] / cpu["torch"])
    print("opgraph / torch:", ", ".join(f"{r:.2f}" for r in ratios))


LAYOUTS = (
    {"fsdp": 64},
    {"tensor": 4, "fsdp": 16, "sequence": True},
    {"tensor": 4, "fsdp": 16, "micro_batches": 2, "sequence": True},
    {"tensor": 2, "fsdp": 32, "micro_batches": 3, "sequence": True, "zero": 1},
    {"tensor": 8, "fsdp": 8, "micro_batches": 2, "sequence": True, "zero": 2},
)


PIPELINES: tuple[dict[str, Any], ...] = (
    {"pipeline": 4, "micro_batches": 8},
    {"pipeline": 4, "micro_batches": 8, "schedule": "interleaved"},
)


def planned(pipelines: bool = False) -> None:
    """A Llama as wide as the one with 8 billion parameters and 12 layers deep, on 64 H100s."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import opgraph
    from opgraph.record.layout import Layout

    config = LlamaConfig(
        hidden_size=4096, intermediate_size=14_336, num_hidden_layers=12, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128_256, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    print(f"{'layout':<42} {'step':>9} {'whole':>9} {'ratio':>7} {'memory':>10} {'ratio':>7}")
    for options in PIPELINES if pipelines else LAYOUTS:
        layout = Layout(**options)
        asked = {
            "mode": "train", "seq_len": 4096, "fsdp": layout.fsdp, "tensor_parallel": layout.tensor,
            "sequence_parallel": layout.sequence, "zero": layout.zero,
            "micro_batches": layout.micro_batches,
            "global_batch": layout.fsdp * layout.micro_batches,
            "pipeline_parallel": layout.pipeline,
        }  # fmt: skip
        if layout.pipeline > 1:
            asked["schedule"] = layout.schedule
        if layout.fsdp == 1:
            del asked["zero"]
        found = opgraph.plan(
            model, devices=f"{layout.devices}xh100-sxm", batch_size=1, **asked
        ).best
        one = next(c for c in found if c.layout == layout and not c.checkpointing)
        whole = opgraph.profile(model, **asked).on("h100-sxm")
        seconds, memory = whole.prediction.seconds, one.memory.total
        way = layout.schedule if layout.pipeline > 1 else f"zero {layout.zero}"
        print(f"{f'{layout}, {way}, {layout.micro_batches} batches':<42} "
              f"{one.seconds:>7.4f} s {seconds:>7.4f} s {one.seconds / seconds:>7.4f} "
              f"{memory / 2**30:>6.2f} GiB {memory / whole.peak_memory:>7.4f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("memory", "speed", "pipeline", "one", "plan"))
    parser.add_argument("more", nargs="*")
    args = parser.parse_args()
    if args.what == "memory":
        memory(args.more)
    elif args.what == "plan":
        planned(pipelines=args.more == ["pipelines"])
    elif args.what == "pipeline":
        speed(int(args.more[0]) if args.more else 8, 1, "-pipeline")
    elif args.what == "one":
        one(args.more[0], int(args.more[1]))
    else:
        speed(int(args.more[0]) if args.more else 126, int(args.more[1]) if args.more[1:] else 1)


if __name__ == "__main__":
    main()
