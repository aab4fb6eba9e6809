"""Prefill and decode as an engine runs them, and the time of any step from a few traces."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import opgraph
from opgraph.analysis.cost.conventions import seen
from opgraph.analysis.costed import costed, quantized
from opgraph.analysis.parallel.sharding import sharded
from opgraph.analysis.serving.engine import assumed, engine
from opgraph.analysis.serving.simulation import pages_of
from opgraph.analysis.serving.steps import Load, StepTimes, Traces, step_times
from opgraph.api.pipeline import profiled
from opgraph.hardware import device
from opgraph.options import Options
from opgraph.record.errors import InputError, RenderError
from opgraph.record.verify import verify
from opgraph.views.page.data import page_data

pytestmark = [pytest.mark.slow, pytest.mark.live]

H100 = device("h100-sxm")
SMALL = ("HuggingFaceTB/SmolLM2-135M", {"num_hidden_layers": 2})
WINDOWED = (
    "hf-type:gpt_oss",
    {"num_hidden_layers": 2, "num_local_experts": 16, "vocab_size": 1000},
)
FUSED = ("hf-type:mistral", {"num_hidden_layers": 1, "vocab_size": 1000, "sliding_window": 64})
GPT2 = ("gpt2", {"n_layer": 2})
LATENT = ("hf-type:deepseek_v3", {"num_hidden_layers": 1, "hidden_size": 512})
MIXTURE = ("hf-type:mixtral", {"num_hidden_layers": 1, "vocab_size": 1000})


@cache
def traced(model, mode: str, context: int, batch: int):
    name, arguments = model[0], dict(model[1])
    options = Options(mode=mode, context_len=context, batch_size=batch, dtype="bfloat16",
                      model_args=arguments, target=H100.target)  # fmt: skip
    return profiled(name, options=options)


def key(model):
    return model[0], tuple(model[1].items())


def steps_of(model, contexts=(32, 200), tensor: int = 1, stages: int = 1) -> StepTimes:
    decodes = tuple(traced(key(model), "decode", c, 2) for c in contexts)
    return step_times(Traces(decodes, traced(key(model), "prefill", 32, 2)), H100, tensor, stages)


def test_cached_latents_are_attended_to_as_they_are():
    """Products with the cache become those of the new tokens (2 * 512 * 128 for each of 128 heads and both
    of keys and values), and attention reads the latents (512 and 64 a token) once for all heads."""
    assert len(assumed(traced(key(SMALL), "decode", 32, 2).graph)) == 1
    for context in (32, 200):
        graph = traced(key(LATENT), "decode", context, 2).graph
        assert len(assumed(graph)) == 2
        ran = engine(graph)
        verify(ran)
        up = [k for n in ran.nodes if "kv_b_proj" in n.scope for k in n.kernels if k.flops]
        assert [k.flops for k in up] == [2 * 2 * 128 * 512 * 128]
        (one,) = (k for n in ran.nodes for k in n.kernels if k.category == "attention")
        assert one.flops == 2 * 2 * 128 * (context + 1) * (512 + 64 + 512)
        queries = 2 * 128 * 2 * (512 + 64)
        assert one.read == pytest.approx(2 * 2 * (context + 1) * (512 + 64) + queries, rel=1e-3)
    assert len(assumed(traced(key(LATENT), "prefill", 32, 2).graph)) == 1
    half = engine(sharded(graph, 2))  # heads are shared, latents are not
    halves = [k.flops for n in half.nodes if "kv_b_proj" in n.scope for k in n.kernels if k.flops]
    assert halves == [up[0].flops // 2]
    (other,) = (k for n in half.nodes for k in n.kernels if k.category == "attention")
    assert (other.flops, other.read) == (one.flops // 2, one.read - queries // 2)
    found = steps_of(LATENT)
    assert found.direct == pytest.approx((192 + 128) / (512 + 64 + 512))
    full = engine(traced(key(LATENT), "prefill", 400, 1).graph)
    assert found.reading(400) == pytest.approx(_seconds(full), rel=0.1)  # in two products, not one


@pytest.mark.parametrize(
    ("model", "heads", "size", "windows"),
    [(WINDOWED, 64, 64, (128, None)), (FUSED, 32, 128, (64,))], ids=["spelled", "fused"],
)  # fmt: skip
def test_windows_leave_what_is_in_them(model, heads, size, windows):
    """Pairs of a prompt, of layers with a window and of one without."""
    graph = engine(traced(key(model), "prefill", 300, 2).graph)
    found = [k.flops for n in graph.nodes for k in n.kernels if k.category == "attention"]
    pairs = [seen(0, 300, window) for window in windows]
    assert found == pytest.approx([2 * heads * 2 * 2 * size * n for n in pairs], rel=0.01)


def test_the_cache_stays_in_place():
    """The joint with the cache writes the new keys and values alone, and a layer has ten kernels."""
    profile = traced(key(SMALL), "decode", 100, 4)
    graph = engine(profile.graph)
    verify(graph)
    layer = [
        (node, kernel) for node in graph.nodes if node.scope.startswith("model.layers.1")
        for kernel in node.kernels if kernel.bytes
    ]  # fmt: skip
    assert len(layer) == 10
    joints = [kernel for node, kernel in layer if node.op == "cat"]
    assert [k.written for k in joints] == [2 * 4 * 3 * 64 * 2]  # keys and values of 3 heads of 64
    before = sum(k.bytes for n in profile.graph.nodes for k in n.kernels)
    assert sum(k.bytes for n in graph.nodes for k in n.kernels) < before
    assert sum(n.flops for n in graph.nodes) == sum(n.flops for n in profile.graph.nodes)


@pytest.mark.parametrize("cache", ["fp8", "int8"])
def test_an_engine_runs_weights_and_caches_in_fewer_bits(cache):
    """As many kernels as else and one for attention's result, since what a fused kernel makes is scaled by
    it; and attention reads the cache as it is kept."""
    profile = traced(key(SMALL), "decode", 100, 4)
    plain, low = (
        costed(profile, "h100-sxm", run="engine", **asked)
        for asked in ({}, {"weights": "fp8", "activations": "fp8", "kv_cache": cache})
    )
    working = [
        [k for n in found.graph.nodes for k in n.kernels if k.bytes] for found in (plain, low)
    ]
    scaling = [k for k in working[1] if k.op.startswith("quantized.scale")]
    assert len(scaling) == 2  # of two layers
    assert len(working[1]) == len(working[0]) + len(scaling)
    reads = [sum(k.read for k in each if k.category == "attention") for each in working]
    assert reads[1] < 0.6 * reads[0]


def test_attention_that_is_spelled_out_is_one_kernel():
    graph = engine(traced(key(WINDOWED), "decode", 200, 2).graph)
    found = [n for n in graph.nodes for k in n.kernels if k.category == "attention"]
    assert len(found) == 2
    masks = [n for n in graph.nodes if n.scope == "model" and any(k.bytes for k in n.kernels)]
    assert masks == []


def test_costed_as_an_engine_runs_it():
    profile = opgraph.profile(
        SMALL[0], mode="decode", context_len=100, batch_size=4, model_args=SMALL[1], target="cuda"
    )
    eager, engine = profile.on("h100-sxm"), profile.on("h100-sxm", run="engine")
    assert engine.prediction.seconds < eager.prediction.seconds
    assert engine.prediction.host_seconds == 0
    assert engine.memory.peak < eager.memory.peak  # the cache is there once
    assert [s.seconds for s in engine.steps[:2]] < [s.seconds for s in eager.steps[:2]]
    assert "engine" in {r.code for r in engine.remarks}
    assert "through an engine" in str(engine)
    assert all("through an engine" in d["said"] for d in page_data(engine)["devices"])
    data = json.loads(engine.to_json())
    assert data["costed"]["totals"] == engine.totals.to_dict()
    assert data["totals"] == eager.totals.to_dict()  # those of the trace, for who opens it again
    assert "totals" not in json.loads(eager.to_json())["costed"]
    plain = opgraph.profile(SMALL[0], model_args=SMALL[1])
    with pytest.raises(InputError, match="prefill or a decoding step"):
        plain.on("h100-sxm", run="engine")


@pytest.mark.parametrize(
    ("model", "contexts"),
    [(SMALL, (32, 200)), (GPT2, (32, 200)), (MIXTURE, (32, 200)), (WINDOWED, (32, 64, 300))],
    ids=lambda x: x[0] if isinstance(x[0], str) else "",
)
def test_steps_take_what_full_graphs_take(model, contexts):
    """At batches and lengths that were not traced; of small models on a large device, whose cache holds
    much of what is read, which is taken from a short context."""
    found = steps_of(model, contexts)
    for batch, context in ((1, 50), (3, 150), (40, 260)):
        full = engine(traced(key(model), "decode", context, batch).graph)
        assert found.decoding(batch, context) == pytest.approx(_seconds(full), rel=0.02)
    full = engine(traced(key(model), "prefill", 400, 1).graph)
    assert found.reading(400) == pytest.approx(_seconds(full), rel=0.02)


@pytest.mark.parametrize(
    ("name", "args", "source", "prompt"),
    [("t5-small", {"num_layers": 1}, 200, 9),
     ("openai/whisper-tiny", {"decoder_layers": 1, "encoder_layers": 1}, 1, 1)],
)  # fmt: skip
def test_an_encoder_runs_once_and_what_it_left_is_read(name, args, source, prompt):
    """Steps at lengths of the encoder's input, batches and contexts that were not traced."""
    from opgraph.api import serving

    given: dict[str, Any] = {"dtype": "bfloat16", "model_args": args, "target": H100.target}
    found = step_times(serving.traced(name, given, {}, H100, lambda _: None), H100)

    def whole(mode: str, batch: int, context: int) -> float:
        asked = Options(**given, mode=mode, context_len=context, batch_size=batch,
                        seq_len=None if source == 1 else source)  # fmt: skip
        return _seconds(engine(profiled(name, options=asked).graph))

    for batch, context in ((3, 150), (40, 30)):
        decoding = found.decoding(batch, context, source)
        assert decoding == pytest.approx(whole("decode", batch, context), rel=0.02)
    prefill, reading = whole("prefill", 1, prompt), found.reading(prompt, source=source)
    assert found.once(source) + reading == pytest.approx(prefill, rel=0.02)
    assert reading < 0.8 * prefill
    each, held = pages_of(found.cache, 16, found.source)
    assert held(16, 2 * source) - held(16, source) == pytest.approx(
        _crossed(found, source) / each, abs=1
    )


def test_a_mixture_in_fewer_bits_reads_the_experts_that_have_a_token():
    bits = {"weights": "fp8", "activations": "fp8"}
    low = [quantized(traced(key(MIXTURE), *more), bits, H100) for more in
           (("decode", 32, 2), ("decode", 200, 2), ("prefill", 32, 2), ("decode", 260, 40))]  # fmt: skip
    found = step_times(Traces((low[0], low[1]), low[2]), H100)
    assert found.decoding(40, 260) == pytest.approx(_seconds(engine(low[3].graph)), rel=0.03)


def _crossed(found: StepTimes, source: int) -> float:
    """Bytes that an encoder leaves of so many tokens."""
    fixed = sum(p.layers * p.fixed for p in found.cache.parts if p.kind == "cross")
    return fixed * source / found.source


def _seconds(graph) -> float:
    from opgraph.analysis.timing.prediction import predict
    from opgraph.record.kinds import Run

    return predict(graph, H100, Run.ENGINE).seconds


def test_layers_with_a_window_read_no_more_than_it():
    found = steps_of(WINDOWED, (32, 64, 300))
    assert found.limits == (None, 128)
    assert found.decoding(8, 5000) > found.decoding(8, 400)


def test_devices_that_share_operators_share_weights_and_cache():
    one, two = steps_of(GPT2), steps_of(GPT2, tensor=2)
    assert two.cache.bytes_per_token == one.cache.bytes_per_token // 2
    assert one.weights / 2 < two.weights < one.weights * 0.6
    assert two.exchanged
    assert not one.exchanged


def test_stages_share_weights_and_cache():
    """The slowest is that with the head; all but it and the table are as many layers on each."""
    one, two = steps_of(GPT2), steps_of(GPT2, stages=2)
    assert two.kept == 0.5
    assert one.weights / 2 < two.weights < one.weights
    assert sum(two.heads.values()) == sum(one.heads.values())
    halved = {line: n for line, n in one.lines.items() if n % 2 == 0}
    assert sum(halved.values()) > 0.7 * sum(one.lines.values())
    assert all(two.lines[line] == n // 2 for line, n in halved.items())
    hidden = 768 * 2
    assert two.handed == hidden
    load = Load(8, 8, (8 * 300,), (8 * 300,))
    assert two.exchanging(load) > 0 == one.exchanging(load)
    assert one.seconds(load) < two.seconds(load) < 2 * one.seconds(load)
    low, high = one.ratios
    assert low < 1 < high
    assert replace(two, pace=high).seconds(load) == pytest.approx(high * two.seconds(load))
    with pytest.raises(RenderError, match="2 blocks"):
        steps_of(GPT2, stages=4)
