"""Parallelism on paper, against the formulas of the papers and figures worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conftest import DATA

import opgraph
from opgraph import Profile
from opgraph.analysis.cost.totals import totals
from opgraph.analysis.memory import fit, memory
from opgraph.analysis.parallel.paper import blocks, parallel, smallest, stages
from opgraph.analysis.parallel.sharding import sharded, sharding
from opgraph.cli import main
from opgraph.hardware import device
from opgraph.record.errors import RenderError
from opgraph.record.layout import Layout

SEQ, LAYERS = 128, 4


@pytest.fixture(scope="module")
def llama() -> Profile:
    return opgraph.profile("meta-llama/Llama-3.1-8B", dtype="bfloat16", seq_len=SEQ,
                           model_args={"num_hidden_layers": LAYERS})  # fmt: skip


@pytest.mark.live
def test_llama_is_split_as_megatron_splits_it(llama):
    """In each layer q, k, v, gate and up by columns, o and down by rows, with an all-reduce after
    each of these two; the table by its rows; the logits gathered."""
    found = sharding(llama.graph)
    assert Counter(found.styles.values()) == {
        "column": LAYERS * 5, "row": LAYERS * 2, "vocabulary": 1, "gathered": 1,
    }  # fmt: skip
    hidden = SEQ * 4096 * 2
    assert Counter((e.kind, e.bytes) for e in found.exchanges) == {
        ("all-reduce", hidden): 2 * LAYERS + 1, ("all-gather", SEQ * 128256 * 2): 1,
    }  # fmt: skip


@pytest.mark.live
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_device_of_llama(llama, devices):
    """All but 9 norms of 4,096 and the 64 rotary frequencies is split: of 4 layers, 1,923,125,248."""
    share = sharded(llama.graph, devices)
    norms = (2 * LAYERS + 1) * 4096
    split = (1_923_125_248 - norms) // devices
    assert totals(share).parameters == split + norms
    assert totals(share).weight_bytes == 2 * (split + norms)
    # Positions are the same on all devices; older versions of transformers take a product for their angles.
    angles = sum(n.flops for n in llama.graph.nodes if n.scope.endswith("rotary_emb"))
    assert totals(share).flops == (llama.totals.flops - angles) // devices + angles
    assert memory(share).peak < memory(llama.graph).peak


@pytest.mark.live
def test_what_llama_sends(llama):
    """A ring sends 2 (n - 1) / n of an all-reduce and (n - 1) / n of a gather, in 2 (n - 1) steps."""
    plan = parallel(llama.graph, Layout(tensor=4), device("h100-sxm"))
    sent = {t.kind: t for t in plan.traffic}
    assert sent["all-reduce"].bytes == (2 * LAYERS + 1) * (2 * SEQ * 4096 * 2 * 3 // 4)
    assert sent["all-gather"].bytes == SEQ * 128256 * 2 * 3 // 4
    on, words, latency = device("h100-sxm"), 6.08e-6, 0.678e-6
    each = (
        sent["all-reduce"].bytes / (2 * LAYERS + 1) / on.link_reached
    )  # in words: half of the link
    assert sent["all-reduce"].seconds == pytest.approx(
        (2 * LAYERS + 1) * (words + 6 * latency + 2 * each)
    )
    far = sent["all-gather"].bytes / on.link_reached  # in blocks, which start 17.7 µs later
    assert sent["all-gather"].seconds == pytest.approx(words + 17.7e-6 + 3 * latency + far)
    (share,) = plan.shares
    assert plan.seconds == share.seconds
    assert plan.memory == share.weights + share.activations


@pytest.mark.live
def test_heads_must_divide(llama):
    with pytest.raises(RenderError, match="8 heads or features do not divide into 16") as raised:
        parallel(llama.graph, Layout(tensor=16))
    assert raised.value.hint == "tensor-parallel sizes that fit: 1, 2, 4, 8"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The positions are a table, too, but no input is looked up in it.
        ("gpt2", {"column": 24, "row": 24, "vocabulary": 1}),
        # The pooler's result is the model's.
        ("bert-base-uncased", {"column": 48, "row": 24, "vocabulary": 1, "gathered": 1}),
        ("resnet18", {"gathered": 1}),
    ],
)
def test_linear_layers_are_found_in_the_graph(saved, name, expected):
    assert Counter(sharding(saved(name).graph).styles.values()) == expected


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("batch", [1, 4096])
def test_a_tied_table_is_looked_up_in_parts_however_many_tokens_there_are(batch):
    """The layer that makes the logits splits it by rows, whatever comes out of the look-up."""
    graph = opgraph.profile("distilgpt2", head="causal-lm", batch_size=batch, seq_len=16).graph
    found = sharding(graph)
    first, *_, last = found.exchanges
    assert (first.kind, first.bytes) == ("all-reduce", batch * 16 * 768 * 4)
    assert found.styles[first.node] == "vocabulary"
    assert (last.kind, len(found.exchanges)) == ("all-gather", 2 * 6 + 2)


def test_a_convolutional_network_has_nothing_to_split(saved):
    with pytest.raises(RenderError, match="nothing to split"):
        parallel(saved("resnet18").graph, Layout(tensor=2))


def test_stages_of_gpt2(saved):
    """12 layers of 7,087,872 parameters; what goes from stage to stage is the hidden state."""
    graph = saved("gpt2").graph
    layer = 4 * 7_087_872
    cut = stages(graph, 4)
    assert [s.blocks for s in cut] == [3, 3, 3, 3]
    assert [s.received for s in cut] == [0, *[SEQ * 768 * 4] * 3]
    assert [s.weights for s in cut[1:3]] == [3 * layer] * 2
    assert cut[0].weights == 3 * layer + 4 * (50257 + 1024) * 768
    assert sum(s.weights for s in cut) == totals(graph).weight_bytes
    assert sum(s.flops for s in cut) == totals(graph).flops
    assert [s.blocks for s in stages(graph, 5)] == [3, 3, 2, 2, 2]
    with pytest.raises(RenderError, match="12 blocks"):
        stages(graph, 13)


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"])
def test_one_stage_is_the_whole(saved, name):
    graph = saved(name).graph
    (stage,) = stages(graph, 1)
    assert (stage.first, stage.last, stage.received) == (1, len(graph.nodes), 0)
    assert stage.weights == sum(p.bytes for p in graph.parameters)
    assert stage.peak == memory(graph).peak
    assert stage.blocks == len(blocks(graph)) >= 8


def test_the_bubble():
    """Four stages and eight micro-batches: three of eleven slots are waiting."""
    assert Layout(pipeline=4, micro_batches=8).bubble == 3 / 11
    assert Layout().bubble == 0


def test_a_pipeline_takes_its_slowest_stage_for_each_slot(saved):
    plan = parallel(saved("gpt2").graph, Layout(pipeline=4, micro_batches=8), device("h100-sxm"))
    slowest = max(s.seconds for s in plan.shares)
    assert plan.seconds == pytest.approx(11 * slowest)
    assert plan.throughput == pytest.approx(8 / plan.seconds)


@pytest.mark.live
def test_a_step_of_training_is_traced_and_not_laid_out_on_paper():
    import torch

    graph = opgraph.profile(torch.nn.Linear(4, 4), torch.ones(2, 4), mode="train").graph
    with pytest.raises(RenderError, match="is not laid out on paper") as raised:
        parallel(graph, Layout(tensor=2))
    assert "--mode train --tensor-parallel" in raised.value.hint


@pytest.mark.slow
@pytest.mark.live
def test_the_cache_is_split_by_heads():
    """129 tokens of keys and values in 12 layers of 12 heads of 64, four bytes each."""
    profile = opgraph.profile("gpt2", mode="decode", context_len=128)
    whole = 129 * 2 * 12 * 768 * 4
    assert profile.cache.bytes == whole
    plan = parallel(profile.graph, Layout(tensor=4, pipeline=2), cache=whole)
    assert [s.cache for s in plan.shares] == [whole // 8] * 2
    one = parallel(profile.graph, Layout(pipeline=2), cache=whole)
    assert [s.cache for s in one.shares] == [whole // 2] * 2
    assert all(a.memory < b.memory / 2 for a, b in zip(plan.shares, one.shares, strict=True))


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(
    ("mode", "options"), [("decode", {"context_len": 512}), ("prefill", {"seq_len": 8})]
)
def test_a_stage_holds_the_cache_of_its_layers(mode, options):
    """Whatever the first stage is given and the last one returns, each has that of three layers."""
    profile = opgraph.profile("gpt2", mode=mode, **options)
    graph, cache = profile.graph, profile.cache.bytes
    (whole,) = stages(graph, 1)
    assert whole.peak == memory(graph).peak
    shares = parallel(graph, Layout(pipeline=4), cache=cache).shares
    assert {s.cache for s in shares} == {cache // 4}
    assert max(s.activations for s in shares) <= whole.peak - cache
    assert sum(s.stage.peak for s in shares) < whole.peak + 3 * (whole.peak - cache)
    more = parallel(graph, Layout(pipeline=4, micro_batches=8), cache=cache).shares
    assert [s.cache for s in more] == [8 * s.cache for s in shares]
    assert [s.activations for s in more] == [s.activations for s in shares]


def test_the_fewest_devices(saved):
    """498 MB of weights on devices of 0.2 GB, which need 54 MB each beside: four by memory; with the table
    whole on the first stage, as many as layers and heads allow."""
    graph = saved("gpt2").graph
    from dataclasses import replace

    from opgraph.hardware.devices import Figure

    whole = device("h100-sxm")
    toy = {"memory.capacity": Figure(0.2e9, "a toy"), "memory.context": Figure(0, "a toy")}
    small = replace(whole, figures={**whole.figures, **toy})
    assert fit(graph, small).devices == 4
    found = smallest(graph, small)
    assert found is not None
    assert found.memory <= 0.2e9
    assert 3 <= found.layout.devices <= 4
    assert smallest(graph, whole).layout == Layout()


def test_on_the_command_line(capsys):
    gpt2 = str(DATA / "gpt2.json")
    asked = ["--tensor-parallel", "4", "--pipeline-parallel", "2", "--micro-batches", "8"]
    assert main(["profile", gpt2, "--hardware", "h100-sxm", *asked]) == 0
    text = capsys.readouterr().out
    assert "Tensor 4 × pipeline 2 × data 1 on 8 devices, each NVIDIA H100 SXM5 80GB" in text
    assert "pipeline: to the next stage  " in text
    assert "Rows of wte.weight are padded to a multiple of 4." in text
    assert main(["profile", gpt2, "--tensor-parallel", "5"]) == 2
    assert "tensor-parallel sizes that fit: 1, 2, 3, 4, 6, 12" in capsys.readouterr().err
    assert main(["profile", gpt2, "--data-parallel", "2", "--hardware", "m2"]) == 2
    assert "has no link to other devices" in capsys.readouterr().err
