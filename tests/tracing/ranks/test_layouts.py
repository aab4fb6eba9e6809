"""A model laid out over ranks by options: that the ranks together do its work, and what they exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tracing.ranks.programs import Model, inputs

import opgraph
from opgraph.analysis.parallel.paper import parallel
from opgraph.record import units
from opgraph.record.errors import InputError
from opgraph.record.kinds import Bound, CollectiveKind
from opgraph.record.layout import Layout
from opgraph.views.files.trace import to_trace
from opgraph.views.terminal import draw
from opgraph.views.text.device import queues_over_time

pytestmark = [pytest.mark.live, pytest.mark.slow]

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}


def llama(heads: int = 4, layers: int = 2) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    more = {"num_hidden_layers": layers, "num_key_value_heads": heads, "use_cache": False}
    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(num_attention_heads=8, **{**SMALL, **more}))


SPREAD = "transformers splits no experts on the meta device before, which is an error with a hint"


def mixture() -> torch.nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(num_attention_heads=8, num_key_value_heads=4, use_cache=False, **SMALL)
    with torch.device("meta"):
        return MixtralForCausalLM(config)


def bert() -> torch.nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    with torch.device("meta"):
        return BertForMaskedLM(BertConfig(num_attention_heads=8, **SMALL))


STEP: dict[str, Any] = {"mode": "train", "batch_size": 1, "seq_len": 32, "target": "cpu"}


def moved(profile: opgraph.Profile) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Times and bytes by phase, kind and group."""
    return {(e.phase, str(e.kind), e.group): (e.times, e.bytes) for e in profile.on().exchanged}


@pytest.mark.parametrize("make", [llama, bert, mixture])
def test_what_is_split_is_as_on_paper(make: Any) -> None:
    """Shares of FLOPs, of weights and of what is exchanged, by torch's own tools and from the graph."""
    if make is mixture:
        pytest.importorskip("transformers", "5.22", reason=SPREAD)
    forward = {**STEP, "mode": "infer"}
    alone = opgraph.profile(make(), **forward)
    one = opgraph.profile(make(), tensor_parallel=2, **forward)
    paper = parallel(alone.graph, Layout(tensor=2))
    (share,) = paper.shares
    assert one.totals.flops == pytest.approx(share.flops, rel=0.02)
    assert one.totals.weight_bytes == pytest.approx(share.weights, rel=0.03)
    sent = {str(t.kind): (t.times, t.bytes) for t in paper.traffic}
    found = {str(e.kind): (e.times, e.sent) for e in one.on().exchanged}
    if make is not mixture:  # on paper each token's experts are added up behind the exchange
        assert found == sent


def test_all_options_together() -> None:
    alone = opgraph.profile(llama(), **STEP)
    layout = {"tensor_parallel": 4, "sequence_parallel": True, "fsdp": 2, "data_parallel": 2}
    one = opgraph.profile(llama(), **layout, zero=1, micro_batches=3, **STEP)
    assert one.world is not None
    assert one.world.layout == Layout(4, 1, 2, 3, fsdp=2, sequence=True, zero=1)
    assert one.totals.flops * 4 == alone.totals.flops * 3
    hidden = 32 * 64 * 4
    found = moved(one)
    # Two of each a layer and micro-batch, and what is put together behind the last layer.
    assert found["forward", "reduce-scatter", "tensor"] == (12, 12 * hidden)
    assert found["forward", "all-gather", "tensor"][0] == 12 + 3 + 3
    assert found["backward", "reduce-scatter", "fsdp"][0] == 3  # with the last micro-batch alone
    assert found["backward", "all-reduce", "data"][0] == 3
    assert found["forward", "all-gather", "fsdp"][0] == 3  # and gathered with the first


@pytest.mark.thorough
def test_tokens_are_split_beside_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are sharded over the ranks that split tokens, too, and heads over others. How torch goes over
    attention elsewhere stays what it was."""
    from torch.distributed.tensor.experimental._context_parallel import _attention

    other = _attention._DispatchMode.MODULE_WRAPPER
    monkeypatch.setattr(_attention, "_dispatch_mode", other)
    alone = opgraph.profile(llama(), **{**STEP, "seq_len": 256})
    asked = {"context_parallel": 2, "fsdp": 2, "tensor_parallel": 2, "data_parallel": 2}
    one = opgraph.profile(llama(), **asked, **{**STEP, "seq_len": 256, "target": "cuda"})
    assert one.world is not None
    assert one.world.size == 16
    assert any("add up to fewer" in n for n in one.model.notes)
    attention = sum(n.flops for n in alone.graph.nodes if "scaled_dot" in n.op)
    linear = alone.totals.flops - attention  # of which this rank has a fourth
    assert linear < 4 * one.totals.flops < alone.totals.flops
    assert _attention._dispatch_mode is other
    assert one.totals.weight_bytes == pytest.approx(alone.totals.weight_bytes / 8, rel=0.01)
    found = moved(one)
    keys = 128 * 2 * 8 * 4  # of half the tokens, and half the heads
    assert found["forward", "all-gather", "context"] == (2, 2 * 2 * 2 * keys)
    assert found["backward", "permute", "context"] == (4, 4 * 2 * keys)
    # Alone, its ranks are those that weights are sharded over, and each exchange is called what it is.
    lone = opgraph.profile(
        llama(), context_parallel=2, **{**STEP, "seq_len": 256, "target": "cuda"}
    )
    assert {(kind, group) for _, kind, group in moved(lone)} == {
        ("all-gather", "fsdp"), ("reduce-scatter", "fsdp"), ("all-gather", "context"),
        ("permute", "context"),
    }  # fmt: skip
    assert found["backward", "reduce-scatter", "fsdp"][0] == 3
    with pytest.raises(InputError, match="4 tokens of a rank, and attention in float32") as refused:
        opgraph.profile(llama(), context_parallel=2, **{**STEP, "seq_len": 8, "target": "cuda"})
    assert refused.value.hint == "--seq-len 64, or --dtype bfloat16"
    apart: Any = llama()
    apart.config._attn_implementation = "eager"  # products that no ring goes over
    with pytest.raises(InputError, match=r"tokens see each other in matmul of model\.layers\.0"):
        opgraph.profile(apart, context_parallel=2, **STEP)


@pytest.mark.slow
def test_copies_add_their_gradients_up_with_the_last_micro_batch() -> None:
    """Beside shards, which are reduced with each, and alone."""
    asked: dict[str, Any] = {"data_parallel": 2, "micro_batches": 3, "mode": "train", "loss": "sum"}
    for more in ({}, {"fsdp": 2}):
        found = moved(opgraph.profile(Model(), inputs(), **asked, **more))
        assert found["backward", "all-reduce", "data"][0] == 4  # three blocks and the rest
    assert found["backward", "reduce-scatter", "fsdp"][0] == 3 * 4


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zero-bubble"])
def test_all_stages_together_do_the_work_of_the_model(schedule: str) -> None:
    layers = 2 if schedule == "1f1b" else 4  # the others have two runs of them on each rank
    alone = opgraph.profile(llama(layers=layers), **STEP)
    asked = {"pipeline_parallel": 2, "schedule": schedule, "micro_batches": 2, **STEP}
    stages = [opgraph.profile(llama(layers=layers), rank=rank, **asked) for rank in range(2)]
    assert sum(s.totals.flops for s in stages) == 2 * alone.totals.flops
    assert sum(s.totals.weight_bytes for s in stages) == alone.totals.weight_bytes
    first = stages[0].graph
    assert [first.value[v].name for v in first.inputs][:1] == ["input_ids"]
    hidden = 32 * 64 * 4
    if schedule != "1f1b":
        return
    sent = [{k: v for k, v in moved(s).items() if "send" in k} for s in stages]
    assert sent == [
        {("forward", "send", "pipeline"): (2, 2 * hidden)},
        {("backward", "send", "pipeline"): (2, 2 * hidden)},
    ]


def test_stages_wait_for_each_other(tmp_path: Path) -> None:
    """Every rank takes as long as the whole pipeline, and a file says the same."""
    asked = {"pipeline_parallel": 4, "micro_batches": 4, **STEP}
    ranks = [opgraph.profile(llama(layers=8), rank=rank, **asked) for rank in (0, 3)]
    first, last = (r.on("h100-sxm").prediction for r in ranks)
    assert first is not None
    assert last is not None
    assert (first.batch, last.batch) == (4, 4)  # though the last has no inputs of its own
    assert {r.on("epyc-9654").prediction.batch for r in ranks} == {4}
    assert [str(r.pipeline) for r in ranks] == [
        f"stage {n} of 4, a batch of 4 in 4 micro-batches" for n in (1, 4)
    ]
    assert not [n for r in ranks for n in r.remarks if "fake tensor" in n]
    assert first.seconds == pytest.approx(last.seconds, rel=0.03)
    assert [len(row) for row in first.stages] == [8] * 4
    assert first.communication is not None
    assert last.communication is not None
    # The host sets the pace of so small a model, and a rank that launches waits for nobody: a bubble is
    # what the picture of its row leaves blank.
    busy = sum(d.end - d.begin for d in first.stages[0])
    updating = first.seconds - max(row[-1].end for row in first.stages)
    assert first.communication.bubble == pytest.approx(first.seconds - busy - updating, rel=0.03)
    assert sum(s.end - s.begin for s in first.slots if s.bubble) == pytest.approx(
        first.communication.bubble
    )
    waits = {b.bound: b.seconds for b in ranks[0].on("h100-sxm").bounds}
    assert waits[Bound.BUBBLE] == pytest.approx(first.communication.bubble, rel=0.01)
    assert waits[Bound.EXPOSED] == pytest.approx(first.communication.exposed, rel=0.01)
    # A wait is for another stage or for what is on the way, in the summary as in the table of queues.
    (_, table) = draw([queues_over_time(ranks[1].on("h100-sxm"), 100)], 100, False).split("beside")
    assert f" {units.seconds(last.communication.exposed)} " in table
    assert not [n for n in ranks[0].model.notes if "threads" in n]
    ranks[0].save(tmp_path / "p.json")
    read = opgraph.load(tmp_path / "p.json").on("h100-sxm")
    assert read.prediction == first
    drawn = to_trace(read)
    assert drawn.count('"cat": "stage"') + drawn.count('"cat":"stage"') == 4 * 8


@pytest.mark.thorough
def test_a_stage_is_split_and_sharded() -> None:
    alone = opgraph.profile(llama(), **STEP)
    asked = {"pipeline_parallel": 2, "micro_batches": 2, "fsdp": 2, "tensor_parallel": 2, **STEP}
    stages = [opgraph.profile(llama(), rank=rank, **asked) for rank in (0, 7)]
    assert 2 * sum(s.totals.flops for s in stages) == 2 * alone.totals.flops
    assert (
        moved(stages[1])["backward", "reduce-scatter", "fsdp"][0] == 2
    )  # a layer and the rest, once
    hidden = 32 * 64 * 4
    for again in (False, True):  # tokens that are split are sent as they are
        asked |= {"sequence_parallel": True, "checkpointing": again}
        split = [opgraph.profile(llama(), rank=rank, **asked) for rank in (0, 7)]
        last = moved(split[1])
        assert moved(split[0])["forward", "send", "pipeline"] == (2, hidden)
        assert last["backward", "send", "pipeline"] == (2, hidden)
        assert last["backward", "reduce-scatter", "fsdp"][0] == 2
        assert last["forward", "reduce-scatter", "tensor"] == (2 * 2, 2 * 2 * hidden)
        if not again:
            assert sum(s.totals.flops for s in split) == sum(s.totals.flops for s in stages)


def test_a_model_without_a_plan_is_cut_by_torch() -> None:
    asked = {"mode": "train", "loss": "sum", "pipeline_parallel": 2, "micro_batches": 2}
    alone = opgraph.profile(Model(4), inputs(), mode="train", loss="sum")
    stages = [opgraph.profile(Model(4), inputs(), rank=r, fsdp=2, **asked) for r in (0, 2)]
    assert sum(s.totals.flops for s in stages) == alone.totals.flops
    assert [[s.graph.value[v].name for v in s.graph.inputs] for s in stages] == [["x"], []]
    assert "stage2.blocks.2" not in {s.path for s in stages[1].graph.scopes}
    assert "stage1.blocks.2" in {s.path for s in stages[1].graph.scopes}


def test_what_is_exported_without_a_device_runs() -> None:
    """GPT-2 makes positions and masks itself, on the device that it is exported on."""
    asked = {"pipeline_parallel": 2, "micro_batches": 2, **STEP}
    alone = opgraph.profile(gpt2(), **STEP)
    stages = [opgraph.profile(gpt2(), rank=rank, **asked) for rank in range(2)]
    assert sum(s.totals.flops for s in stages) == 2 * alone.totals.flops


def own(blocks: int = 4) -> torch.nn.Module:
    """Blocks that add to what they are called with, with nothing around them."""
    return torch.nn.Sequential(*(Own() for _ in range(blocks)))


class Own(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


OWN: dict[str, Any] = {"mode": "train", "loss": "sum", "input_shape": (2, 8, 256), "target": "cuda"}


@pytest.mark.thorough
def test_a_list_that_is_the_model_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut, and planned, like one inside of a model. What a copy of it has in common with it, as a
    class that is its configuration, stays as it is."""
    said = type("Said", (), {"num_hidden_layers": len(own()), "use_cache": True})
    monkeypatch.setattr(torch.nn.Sequential, "config", said, raising=False)
    alone = opgraph.profile(own(), **OWN)
    asked = {"pipeline_parallel": 2, "micro_batches": 2, **OWN}
    stages = [opgraph.profile(own(), rank=rank, **asked) for rank in range(2)]
    assert sum(s.totals.flops for s in stages) == 2 * alone.totals.flops
    assert sum(s.totals.weight_bytes for s in stages) == alone.totals.weight_bytes
    planned = opgraph.plan(own(), devices="2xa100", global_batch=4, explain=True, **asked).asked
    assert planned is not None
    assert (said.num_hidden_layers, said.use_cache) == (len(own()), True)
    assert planned.memory.weights == stages[0].totals.weight_bytes
    peak = opgraph.profile(own(), rank=0, **asked).on("a100").peak_memory
    assert planned.memory.total == pytest.approx(peak, rel=0.02)  # while the optimizer works


def test_a_block_adds_its_own_tokens() -> None:
    """What its layers read is gathered for them alone; and what is not tokens is not split."""
    one = opgraph.profile(own(), tensor_parallel=2, sequence_parallel=True, **OWN)
    hidden = 2 * 8 * 256 * 4
    found = moved(one)
    assert found["forward", "reduce-scatter", "tensor"] == (4, 4 * hidden)
    assert found["forward", "all-gather", "tensor"] == (5, 5 * hidden)  # the last is the result
    norms = [n for n in one.graph.nodes if n.op == "layer_norm" and n.phase == "forward"]
    assert {one.graph.value[n.outputs[0]].shape for n in norms} == {(2, 4, 256)}
    flat = {**OWN, "input_shape": (8, 256)}
    with pytest.raises(InputError, match="batch x tokens x features, not 8x256"):
        opgraph.profile(own(), tensor_parallel=2, sequence_parallel=True, **flat)


def test_heads_that_do_not_divide_are_on_several_ranks() -> None:
    one = opgraph.profile(llama(heads=2), tensor_parallel=4, batch_size=1, seq_len=32)
    weight = {p.name: p.shape for p in one.graph.parameters}
    assert weight["model.layers.0.self_attn.k_proj.weight"] == (8, 64)
    assert "each of the 2 heads of keys and values is on 2 ranks" in one.model.notes
    with pytest.raises(opgraph.InputError, match=r"8 heads of .* do not divide over 3 ranks"):
        opgraph.profile(llama(), tensor_parallel=3)


def test_experts_are_spread_and_their_tokens_sent() -> None:
    pytest.importorskip("transformers", "5.22", reason=SPREAD)
    alone = opgraph.profile(mixture(), **STEP)
    one = opgraph.profile(mixture(), fsdp=4, expert_parallel=4, **STEP)
    assert one.totals.flops == alone.totals.flops
    sent = [e for e in one.on().exchanged if e.kind is CollectiveKind.ALL_TO_ALL]
    tokens = 2 * 32 * 64 * 4  # each to two experts
    assert {(e.phase, e.times, e.bytes) for e in sent} >= {("backward", 4, 4 * tokens)}
    counts = 8 * 8  # how many each expert gets
    assert [(e.times, e.bytes) for e in sent if e.phase == "forward"] == [
        (6, 4 * tokens + 2 * counts)
    ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"context_parallel": 3, "seq_len": 32}, "32 tokens are not 6 runs"),
        ({"expert_parallel": 4, "fsdp": 4}, "no plan for its experts"),
        ({"fsdp": 4, "zero": 4, "mode": "train"}, "zero is 1, 2 or 3"),
        ({"fsdp": 4, "global_batch": 6}, "a global batch of 6 is not 4 copies"),
        ({"fsdp": 4, "world_size": 4}, "lays out itself"),
        ({"zero": 2}, "has no effect"),
        ({"pipeline_parallel": 2}, "a step of training"),
        (
            {"pipeline_parallel": 2, "micro_batches": 2, "tensor_parallel": 2, "mode": "train"}
            | {"sequence_parallel": True, "batch_size": 1, "seq_len": 33},
            "33 tokens do not divide over 2",
        ),
    ],
)
def test_what_cannot_be_laid_out(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(opgraph.InputError, match=reason):
        opgraph.profile(llama(), **asked)


def test_a_global_batch_is_divided() -> None:
    asked = {"mode": "train", "loss": "sum", "global_batch": 16, "fsdp": 4, "micro_batches": 2}
    one = opgraph.profile(llama(), seq_len=8, **asked)
    assert one.graph.value[one.graph.inputs[0]].shape == (2, 8)
    predicted = one.on("h100-sxm").prediction
    assert predicted is not None
    assert predicted.batch == 4  # of this rank, in both micro-batches
    # A shape is that of a micro-batch, as it is on one device, and says how many there are.
    shaped = opgraph.profile(
        llama(), input_shape=(2, 8), mode="train", loss="sum", global_batch=8, pipeline_parallel=2
    )
    assert shaped.world is not None
    assert shaped.world.layout.micro_batches == 4
    assert shaped.graph.value[shaped.graph.inputs[0]].shape == (8, 8)
    named = opgraph.profile(
        llama(), input_overrides={"input_ids": "2x8:int64"}, mode="train", loss="sum", global_batch=8,
        pipeline_parallel=2,
    )  # fmt: skip
    assert named.graph.nodes == shaped.graph.nodes
    with pytest.raises(opgraph.InputError, match="does not run as fsdp 2"):
        opgraph.profile(Model(), inputs()[..., :7], fsdp=2)


def test_the_gradient_of_a_gathered_weight_stands_where_it_was_made() -> None:
    """Else what stands between cuts the backward of each layer into many runs."""
    nodes = opgraph.profile(bert(), fsdp=2, **STEP).graph.nodes
    made = {n.scope for n in nodes if n.phase == "backward" and n.op == "detach"}
    assert "bert.encoder.layer.0.output.dense" in made
    assert "" not in made


def gpt2() -> torch.nn.Module:
    """Keeps weights as inputs x outputs, and queries, keys and values are one layer, taken apart by a size
    that its code says."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        return GPT2LMHeadModel(
            GPT2Config(n_layer=2, n_embd=64, n_head=8, n_positions=32, vocab_size=256)
        )


def t5() -> torch.nn.Module:
    """Attention adds a bias for each head, which the first layer looks up; a decoder reads two things."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes: dict[str, Any] = {"d_model": 64, "d_kv": 8, "d_ff": 128, "num_layers": 2, "num_heads": 8}
    with torch.device("meta"):
        return T5ForConditionalGeneration(T5Config(vocab_size=256, **sizes))


class Fused(torch.nn.Module):
    """As a ViT of timm's has it: the three of them are a dimension, and the width is that of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 8, c // 8).permute(2, 0, 3, 1, 4).unbind(0)
        x = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        out: torch.Tensor = self.proj(x.transpose(1, 2).reshape(b, n, c))
        return out


def vit() -> torch.nn.Module:
    return torch.nn.Sequential(*(Fused() for _ in range(2)))


@pytest.mark.parametrize(
    ("make", "asked", "reduced"),
    [  # of each layer two in the forward and two in the backward, one of a table and of the logits
        (gpt2, STEP, (2 * 2 + 1, 2 * 2 + 1)),
        # of the decoder's layers three, of which one reads what the encoder gave, too; and the logits
        (t5, STEP, (2 * 2 + 2 * 3 + 2, 2 * 2 + 2 * 4 + 1)),
        (vit, OWN, (2, 1)),  # what the first one reads has no gradient
    ],
)
def test_a_model_that_says_its_own_sizes(
    make: Any, asked: dict[str, Any], reduced: tuple[int, int]
) -> None:
    """They are those of a rank, where its graph says that what they are of is split."""
    asked = {**asked, "target": "cpu"}
    alone = opgraph.profile(make(), **asked)
    one = opgraph.profile(make(), tensor_parallel=4, **asked)
    assert one.totals.flops * 4 == alone.totals.flops
    assert one.totals.weight_bytes < 0.3 * alone.totals.weight_bytes
    found = moved(one)
    phases = ("forward", "backward")
    assert tuple(found[p, "all-reduce", "tensor"][0] for p in phases) == reduced
    with pytest.raises(InputError, match=r"8 heads or features .* do not divide over 3 ranks"):
        opgraph.profile(make(), tensor_parallel=3, **asked)


def bloom() -> torch.nn.Module:
    """Divides the batch out of batch x heads before it says how many heads there are."""
    from transformers import BloomConfig, BloomForCausalLM

    with torch.device("meta"):
        return BloomForCausalLM(BloomConfig(hidden_size=64, n_layer=2, n_head=8, vocab_size=256))


def deberta() -> torch.nn.Module:
    """Repeats what it makes of positions as often as batch x heads has heads."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        num_attention_heads=8, relative_attention=True, pos_att_type=["c2p", "p2c"],
        position_buckets=16, max_position_embeddings=64, share_att_key=True, **SMALL,
    )  # fmt: skip
    with torch.device("meta"):
        return DebertaV2ForMaskedLM(config)


def falcon() -> torch.nn.Module:
    """Adds in place to what a split layer gives."""
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=8, vocab_size=256
    )
    with torch.device("meta"):
        return FalconForCausalLM(config)


def bart() -> torch.nn.Module:
    """Adds a bias to gathered logits."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {
        f"{part}_{name}": n for part in ("encoder", "decoder")
        for name, n in (("layers", 2), ("attention_heads", 8), ("ffn_dim", 128))
    }  # fmt: skip
    config = BartConfig(d_model=64, vocab_size=256, max_position_embeddings=64, **sizes)
    with torch.device("meta"):
        return BartForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("make", "most", "told"),
    [
        (bloom, 1.0, "num_heads"),
        (deberta, 1.1, "num_attention_heads"),
        (falcon, 1.3, ""),
        (bart, 1.0, ""),
    ],
)
def test_a_model_whose_code_computes_with_what_is_split(make: Any, most: float, told: str) -> None:
    """Its modules have the heads of a rank where their code computes with how many there are. What is
    beside heads (positions of DeBERTa, the one head of keys and values of Falcon) is done by each rank."""
    alone, one = opgraph.profile(make(), **STEP), opgraph.profile(make(), tensor_parallel=2, **STEP)
    assert 1 <= 2 * one.totals.flops / alone.totals.flops <= most
    assert one.totals.weight_bytes < 0.65 * alone.totals.weight_bytes
    assert one.convention["loss"] == alone.convention["loss"]
    said = [n for n in one.model.notes if n.endswith("those of a rank")]
    assert said == [f"{told} of its modules are those of a rank"] * bool(told)
