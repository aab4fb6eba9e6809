"""The layouts that are put together of a few layers' traces, against traces of the whole model."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from tests.apart import thorough

import opgraph
from opgraph.analysis.parallel.composing import (
    Candidate,
    Memory,
    Planned,
    difference,
    gone_through,
    makespan,
    order,
)
from opgraph.cli import main
from opgraph.hardware import cluster
from opgraph.record.errors import InputError
from opgraph.record.layout import Layout
from opgraph.views.schemas import schema
from opgraph.views.text.plan import plan_text


def llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=2048, intermediate_size=5632, num_hidden_layers=6, num_attention_heads=16,
                num_key_value_heads=8, vocab_size=32000, use_cache=False,
            )
        ).to(torch.bfloat16)  # fmt: skip


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(
    ("layout", "checkpointing"),
    [
        (Layout(tensor=4, fsdp=4, micro_batches=2, sequence=True), True),
        (Layout(context=2, fsdp=2, micro_batches=2, zero=1), False),
        *thorough(
            (Layout(fsdp=16), False),
            (Layout(tensor=2, fsdp=8, micro_batches=3, sequence=True, zero=1), False),
            (Layout(data=4, fsdp=4), False),
            (Layout(tensor=8, data=2, micro_batches=4, sequence=True), False),
            (Layout(tensor=8, sequence=True), True),
        ),
    ],
)
def test_a_step_is_that_of_the_whole_model(layout: Layout, checkpointing: bool) -> None:
    batch = layout.copies * layout.micro_batches
    asked: dict[str, Any] = {
        "mode": "train", "seq_len": 2048, "checkpointing": checkpointing, "fsdp": layout.fsdp,
        "data_parallel": layout.data, "tensor_parallel": layout.tensor, "global_batch": batch,
        "sequence_parallel": layout.sequence, "zero": layout.zero if layout.fsdp > 1 else None,
        "micro_batches": layout.micro_batches,
        "context_parallel": layout.context if layout.context > 1 else None,
    }  # fmt: skip
    found = opgraph.plan(llama(), devices=f"{layout.devices}xh100-sxm", batch_size=1, **asked)
    (one,) = [c for c in found.best if c.layout == layout and c.checkpointing == checkpointing]
    whole = opgraph.profile(llama(), **asked).on(cluster("h100-sxm")[1])
    assert whole.prediction is not None
    # What is waited for of an exchange differs from layer to layer, and few of them are averaged.
    assert one.seconds == pytest.approx(whole.prediction.seconds, rel=0.03)
    assert one.memory.total == pytest.approx(whole.peak_memory, rel=0.01)


class Deep(torch.nn.Module):
    """Layers, and nothing behind them."""

    def __init__(self) -> None:
        super().__init__()
        layers = [
            torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()) for _ in range(6)
        ]
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.slow
@pytest.mark.live
def test_memory_where_layers_need_more_than_what_runs_behind_them() -> None:
    """Without a layer of logits the fullest moment is in the backward of a layer, its weights gathered."""

    asked: dict[str, Any] = {
        "mode": "train", "loss": "sum", "fsdp": 8, "zero": 3, "input_shape": (1, 64, 1024)
    }  # fmt: skip
    found = opgraph.plan(Deep(), devices="8xh100-sxm", global_batch=8, **asked)
    (one,) = [c for c in found.best if not c.checkpointing]
    peak = opgraph.profile(Deep(), **asked).on(cluster("h100-sxm")[1]).peak_memory
    assert one.memory.total == pytest.approx(peak, rel=0.01)


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(
    ("layout", "checkpointing"),
    [
        (Layout(pipeline=2, micro_batches=4, fsdp=2), False),
        (Layout(pipeline=3, micro_batches=6, fsdp=2), True),
        *thorough(
            (Layout(pipeline=2, micro_batches=4), False),
            (Layout(pipeline=2, micro_batches=4, schedule="interleaved"), False),
            (Layout(pipeline=2, micro_batches=4, fsdp=2, schedule="interleaved"), False),
            (Layout(pipeline=2, micro_batches=4, fsdp=2, zero=1), False),
            (Layout(pipeline=2, micro_batches=4, data=2), False),
        ),
    ],
)
def test_a_pipeline_is_that_of_a_whole_trace(layout: Layout, checkpointing: bool) -> None:
    """Weights are kept from a backward to the next forward, and gradients reduced at the end of a step."""
    pytest.importorskip("torch", "2.15", reason="memory is 2.3 % off before")
    asked: dict[str, Any] = {
        "mode": "train", "seq_len": 2048, "pipeline_parallel": layout.pipeline,
        "schedule": layout.schedule, "micro_batches": layout.micro_batches, "fsdp": layout.fsdp,
        "data_parallel": layout.data, "zero": layout.zero if layout.fsdp > 1 else None,
        "global_batch": layout.copies * layout.micro_batches, "checkpointing": checkpointing,
    }  # fmt: skip
    found = opgraph.plan(llama(), devices=f"{layout.devices}xh100-sxm", batch_size=1, **asked)
    (one,) = [c for c in found.best if c.layout == layout and c.checkpointing == checkpointing]
    device = cluster("h100-sxm")[1]
    ends = [
        opgraph.profile(llama(), **asked, rank=rank, target="cuda:9.0").on(device)
        for rank in (0, layout.devices - 1)
    ]
    for there in ends:
        assert there.prediction is not None
        assert one.seconds == pytest.approx(there.prediction.seconds, rel=0.03)
    fullest = max(there.peak_memory for there in ends)
    assert one.memory.total == pytest.approx(fullest, rel=0.02)


def test_schedules_wait_as_they_are_known_to() -> None:
    """Forwards of one second and backwards of two (Narayanan et al., 2.2)."""
    stages, batches = 4, 8
    seconds = {
        (r, (kind, r + c * stages, m)): {"F": 1.0, "B": 2.0}[kind]
        for r in range(stages) for kind in "FB" for c in range(2) for m in range(batches)
    }  # fmt: skip

    def spent(schedule: str, chunks: int = 1) -> tuple[float, float]:
        orders = [order(schedule, stages, r, batches, chunks) for r in range(stages)]
        return makespan(gone_through(orders, seconds, 0.0))

    bubble = 3.0 * (stages - 1)
    assert spent("gpipe") == spent("1f1b") == (3.0 * batches + bubble, bubble)
    assert spent("interleaved", 2) == (6.0 * batches + bubble, bubble)  # of twice the work
    orders = [order("1f1b", stages, r, batches) for r in range(stages)]
    reducing = {(r, todo[-1]): 1.0 for r, todo in enumerate(orders)}  # no other stage waits for it
    assert makespan(gone_through(orders, seconds, 0.0, reducing))[0] == 3.0 * batches + bubble + 1.0
    # What is gathered before a step holds up its own rank alone.
    assert (
        makespan(gone_through(orders, seconds, 0.0, None, [1.0] * 4))[0]
        == 3.0 * batches + bubble + 1.0
    )
    assert makespan(gone_through(orders, seconds, 0.0, None, [0.0, 1.0, 1.0, 1.0]))[0] == 33.0
    few = {(r, (k, r, 0)): s for r in range(2) for k, s in (("F", 1.0), ("B", 2.0))}
    two = gone_through([order("1f1b", 2, r, 1) for r in range(2)], few, 0.25)
    assert makespan(two)[0] == 6.5


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_schedules_are_torchs(schedule: str, chunks: int) -> None:
    from torch import device, empty, nn
    from torch.distributed.pipelining import PipelineStage

    from opgraph.sources.pipelines import Pipelined
    from opgraph.tracing.modes.stages import _schedule

    ranks, batches = 4, 8
    x = empty(1, 1)
    with opgraph.ranks(ranks):
        stages = [
            PipelineStage(nn.Linear(1, 1), at * ranks, ranks * chunks, device("cpu"), x, x)
            for at in range(chunks)
        ]
        layout = Layout(pipeline=ranks, micro_batches=batches, schedule=schedule)
        truth = Pipelined(_schedule(layout, stages)).orders
    assert [tuple(order(schedule, ranks, r, batches, chunks)) for r in range(ranks)] == list(truth)


@pytest.mark.slow
@pytest.mark.live
def test_a_pipeline_that_torch_does_not_make_is_not_planned() -> None:
    """Torch cuts GPT-2 so that its first stage gives all others the mask, and interleaved stages hand on to
    the next one alone: no such pipeline is profiled, and none is planned."""
    asked: dict[str, Any] = {"model_args": {"n_layer": 4}, "seq_len": 64, "pipeline_parallel": 2}
    found = opgraph.plan("gpt2", devices="2xh100-sxm", global_batch=4, batch_size=1, **asked)
    assert {c.layout.schedule for c in found.best} == {"1f1b"}
    (why,) = {w.partition(": ")[2] for w in found.refused}
    assert "only supports adjacent-stage communication" in why
    with pytest.raises(InputError, match="only supports adjacent-stage"):
        opgraph.profile("gpt2", mode="train", schedule="interleaved", global_batch=4, micro_batches=4,
                        **asked)  # fmt: skip


def test_what_a_layout_loses_adds_up_to_how_much_longer_it_takes() -> None:
    memory = Memory(2**20, 0, 2**20, 2**21, 3 * 2**20, 0)
    best, other = (
        Candidate(Layout(fsdp=8, micro_batches=m), 1, False, seconds, (seconds / 2, 2 * seconds), 0.4,
                  exposed, bubble, 0.0, memory, True)
        for m, seconds, exposed, bubble in ((1, 0.026, 0.001, 0.005), (2, 0.056, 0.003, 0.0))
    )  # fmt: skip
    said = (
        "+33.0 ms smaller work, or launching more of it, +2.0 ms exchanges that nothing hides, "
        "−5.0 ms waiting for other stages"
    )
    assert difference(other, best) == said
    refused = tuple(f"tensor {2**i}: why" for i in range(4))
    shown = plan_text(
        Planned("net", "H100", 8, 8, 2**36, (best, other), 2, 2, None, refused), width=160
    )
    assert f"    2  {said}" in shown
    assert "56.0 ms (28.0–112.0)" in shown
    assert re.search(r"MiB .* of 65,536\n.*\n +1 +1 +0 +1 +2 +3 +0 +7 +fits", shown)
    assert "and 1 more that were not tried" in shown
    layout = replace(other.layout, pipeline=2, fsdp=4, schedule="interleaved")
    narrow = plan_text(Planned("net", "H100", 8, 8, 2**36, (replace(other, layout=layout), best), 2, 2,
                               None, refused), width=80)  # fmt: skip
    assert "…" not in narrow.partition("Slower")[0]
    assert "(28.0–112.0)" in narrow
    assert {"interleaved", "activations", "gradients"} <= set(narrow.split())
    three = replace(layout, tensor=4, fsdp=16, sequence=True)
    parts = plan_text(Planned("net", "H100", 128, 128, 2**36, (replace(other, layout=three), best), 2, 2,
                              None, refused), width=80).splitlines()  # fmt: skip
    assert max(map(len, parts)) <= 80
    assert parts[2].split()[:4] == ["pipeline", "fsdp", "tensor", "batches"]
    assert parts[4].split()[:4] == ["1", "2", "16", "4"]
    assert "zero 3, interleaved," in parts[4]
    assert parts[5].split()[-1] == "(28.0–112.0)"


@pytest.mark.thorough
@pytest.mark.live
def test_the_best_layouts_of_a_named_model(capsys: pytest.CaptureFixture[str]) -> None:
    start = ["plan", "HuggingFaceTB/SmolLM2-135M", "--devices", "16xa100-sxm4-40gb", "--seq-len", "512",
             "--global-batch", "32", "--batch-size", "1", "--dtype", "bf16"]  # fmt: skip
    asked = ["--explain", "--tensor-parallel", "1", "--pipeline-parallel", "2", "--fsdp", "8"]
    assert main([*start, *asked, "--zero", "1", "--micro-batches", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema_rs.validate(schema("plan"), found)
    seconds = [c["seconds"] for c in found["best"]]
    assert seconds == sorted(seconds)
    assert all(c["memory"]["total"] <= found["capacity"] for c in found["best"])
    assert found["asked"]["layout"]["pipeline"] == 2
    assert found["asked"]["seconds"] > seconds[0]
    assert found["explained"]
    assert found["fitting"] == found["tried"]  # what was asked for is beside them


@pytest.mark.slow
@pytest.mark.live
def test_a_layout_to_explain_has_the_micro_batches_that_are_quickest() -> None:
    """A pipeline that says none has as many as keep its stages busy, not one of the whole batch."""
    one = opgraph.plan("gpt2", devices="2xa10", model_args={"n_layer": 2}, seq_len=1024, global_batch=8,
                       pipeline_parallel=2, explain=True).asked  # fmt: skip
    assert one is not None
    assert one.layout.micro_batches * one.batch == 8
    assert one.layout.micro_batches > 1


@pytest.mark.slow
@pytest.mark.live
def test_a_plan_is_of_the_inputs_that_are_named() -> None:
    """A shape of a single argument is that of a micro-batch, as the shape of the first one is."""
    asked: dict[str, Any] = {"global_batch": 16, "fsdp": 4, "zero": 3, "top": 40}
    shaped, named = (
        opgraph.plan(Deep(), devices="4xh100-sxm", loss="sum", **inputs, **asked)
        for inputs in ({"input_shape": (2, 64, 1024)}, {"input_overrides": {"x": (2, 64, 1024)}})
    )
    assert {c.batch for c in named.best} == {2}
    assert named.best == shaped.best


@pytest.mark.slow
@pytest.mark.live
def test_the_usual_schedule_holds_where_it_is_given() -> None:
    asked: dict[str, Any] = {
        "global_batch": 8, "loss": "sum", "input_shape": (1, 64, 1024), "top": 99,
        "pipeline_parallel": 2,
    }  # fmt: skip
    tried = {
        given: {c.layout.schedule for c in opgraph.plan(Deep(), devices="2xh100-sxm", **asked, **more).best}
        for given, more in (("none", {}), ("1f1b", {"schedule": "1f1b"}))
    }  # fmt: skip
    assert tried == {"none": {"1f1b", "interleaved"}, "1f1b": {"1f1b"}}


@pytest.mark.slow
@pytest.mark.live
def test_long_sequences_are_split_and_tokens_stay_whole_where_that_is_quicker() -> None:
    """Near the best layouts, tokens are split throughout, and are not split between split operators."""
    asked: dict[str, Any] = {"global_batch": 8, "batch_size": 1, "pipeline_parallel": 1, "top": 99}
    asked["checkpointing"] = True
    long = opgraph.plan(llama(), devices="8xh100-sxm", seq_len=8192, tensor_parallel=1, **asked)
    assert {c.layout.context for c in long.best} == {1, 2}
    short = opgraph.plan(llama(), devices="8xh100-sxm", seq_len=64, tensor_parallel=8, **asked)
    assert {c.layout.sequence for c in short.best} == {True, False}
    assert {c.layout.context for c in short.best} == {1}


@pytest.mark.slow
@pytest.mark.live
def test_engines_that_serve_a_model(tmp_path: Path) -> None:
    """The most tokens without limits; within one, engines that keep it, each at the highest rate."""
    asked: dict[str, Any] = {
        "mode": "decode", "model_args": {"n_layer": 2}, "requests": 40, "output_len": "16"
    }  # fmt: skip
    most = opgraph.plan("gpt2", devices="4xa10", **asked)
    ways = {(s.engines, s.devices, s.stages) for s in most.best}
    assert ways == {(4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 2, 2), (1, 4, 2)}
    assert "engines of 4 in 4 stages: 2 blocks" in most.refused[-1]
    served = [s.points[0].output_tokens_per_second for s in most.best]
    assert served == sorted(served, reverse=True)
    for one in most.best:
        low, high = one.interval
        assert low < one.points[0].output_tokens_per_second < high
        assert sum(one.held.values()) <= 0.9 * cluster("a10")[1].capacity
    staged = next(s for s in most.best if (s.devices, s.stages) == (2, 2))
    whole = next(s for s in most.best if (s.devices, s.stages) == (1, 1))
    assert whole.held["weights"] / 2 < staged.held["weights"] < whole.held["weights"]
    # What is said to take longer adds up to how much longer it takes, but for what is too little to say.
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    slower = 1000 / served[1] - 1000 / served[0]
    said = re.findall(r"([+−])([\d.]+) (s|ms|µs) ", most.whys[1])
    assert sum(float(n) * scale[u] * (1 if sign == "+" else -1) for sign, n, u in said) == (
        pytest.approx(slower, abs=0.02 * 1000 / served[0])
    )
    alone = opgraph.serve("gpt2", hardware="a10", request_rate="inf",
                          **{**asked, "mode": "infer", "requests": 10})  # fmt: skip
    four = next(s for s in most.best if s.engines == 4).points[0]
    assert four.seconds == pytest.approx(alone.points[0].seconds)  # each has a fourth of them
    explained = opgraph.plan("gpt2", devices="4xa10", explain=True, tensor_parallel=2,
                             data_parallel=2, **asked)  # fmt: skip
    assert explained.asked == next(s for s in most.best if (s.devices, s.stages) == (2, 1))
    assert explained.best == most.best
    assert explained.explained
    fixed = opgraph.plan("gpt2", devices="4xa10", pipeline_parallel=2, **asked)
    assert {s.stages for s in fixed.best} == {2}
    waited = min(s.points[0].first_token.p99 for s in most.best) * 1e3
    kept = opgraph.plan("gpt2", devices="4xa10", max_first_token=waited / 2, **asked)
    for s in kept.best:
        (point,) = s.points
        assert point.first_token.p99 * 1e3 <= waited / 2
        assert point.rate < math.inf
    quick = opgraph.plan("gpt2", devices="4xa10", request_rate="20", **asked)
    slow = [s.points[0].latency.mean for s in quick.best]
    assert quick.wanted == "latency"
    assert slow == sorted(slow)
    for name in ("plan.json", "plan.csv", "plan.md", "plan.html", "plan.txt"):
        quick.save(tmp_path / name)
    assert json.loads((tmp_path / "plan.json").read_text()) == quick.to_dict()
    jsonschema_rs.validate(schema("plan"), quick.to_dict())
    assert "4 x NVIDIA A10" in (tmp_path / "plan.html").read_text()
    assert all(len(line) <= 80 for line in plan_text(quick, width=80).splitlines())
    assert len((tmp_path / "plan.csv").read_text().splitlines()) == 1 + len(quick.best)


@pytest.mark.live
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "over which devices?"),
        ("--devices h100-sxm --global-batch 8", "over how many devices?"),
        ("--devices 2xjetson-orin-nx --global-batch 8", "has no link to other devices"),
        ("--devices 8xh100-sxm", "how many sequences has a step?"),
        ("--devices 8xh100-sxm --global-batch 8 --mode prefill", "not of the mode prefill"),
        ("--cluster 6xh100-sxm --global-batch 8", "8 sequences of a step do not divide by 6"),
        (
            "--devices 2xh100-sxm --global-batch 8 --request-rate 4",
            "of no use to a step of training",
        ),
        ("--devices 2xa10 --mode decode --fsdp 2", "--fsdp is of no use to engines"),
        pytest.param(
            "--devices 4xa10 --mode decode --explain --tensor-parallel 2",
            "1 engines of 1 x 2 devices are not 4",
            marks=pytest.mark.slow,
        ),
        ("--devices 2xa10 --mode decode --request-rate 4,5", "for one rate of requests"),
        pytest.param(
            "--devices 2xa10 --mode decode --model-arg n_layer=1 --requests 9 --max-per-token 0.001",
            "ms a token, not 0.001; engines of 2 in 2 stages: 1 blocks",
            marks=pytest.mark.slow,
        ),
        ("--devices 8 --global-batch 8", "how many is said, and not of which device"),
        (
            "--devices 8xh100-sxm --global-batch 8 --batch-size 2 --input input_ids=4x64:int64",
            "a batch of 2, and arguments whose shapes begin with 4",
        ),
        (
            "--devices 8xh100-sxm --global-batch 8 --input input_ids=3x64:int64",
            "8 sequences of a step do not divide by 24",
        ),
        ("--devices 8xh100-sxm --global-batch 8 --network slow", "no network is called 'slow'"),
        (
            "--devices 8xh100-sxm --global-batch 8 --explain --pipeline-parallel 4 --fsdp 2 "
            "--micro-batches 2 --schedule interleaved",
            "interleaved takes a multiple of 4 micro-batches",
        ),
    ],
)
def test_what_cannot_be_planned(
    capsys: pytest.CaptureFixture[str], options: str, said: str
) -> None:
    few = "gpt2 --model-arg n_embd=48 --model-arg vocab_size=512"
    few += "" if "n_layer" in options else " --model-arg n_layer=2"
    assert main(["plan", *few.split(), *options.split()]) == 2
    assert said in capsys.readouterr().err
