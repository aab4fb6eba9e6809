"""Generation: a prompt read into a cache, and one more token after it, as `generate` runs them."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version
from tests.oracle import counting
from transformers import Cache, DynamicCache, MistralConfig, StaticCache

import opgraph
from opgraph.analysis.cost.totals import totals
from opgraph.analysis.memory import memory
from opgraph.analysis.serving.batches import at_batch, shared_reads, steps
from opgraph.hardware import device
from opgraph.record.errors import InputError
from opgraph.record.profile import CachePart
from opgraph.sources import BuildOptions, resolve
from opgraph.tracing.capture.kv_cache import measured
from opgraph.tracing.eager import materialized

NEWER = pytest.mark.skipif(
    Version(version("transformers")) < Version("5.23"),
    reason="transformers had no Inkling before",
)


def real_steps(name: str, tokens: int) -> tuple[int, int, int]:
    """FLOPs of a prefill of so many tokens, of the next step, and bytes of the cache, all run for real."""
    module = materialized(resolve(name, BuildOptions(head="causal-lm")))
    ids = torch.randint(0, 100, (1, tokens))
    with torch.no_grad():
        with counting() as first:
            out = module(ids, use_cache=True, logits_to_keep=1)
        with counting() as second:
            # The argument has the name of the result, which changed in transformers 5.24.
            name, cache = next((k, v) for k, v in out.items() if isinstance(v, Cache))
            module(ids[:, :1], **{name: cache}, logits_to_keep=1)
    held = sum(t.numel() * t.element_size() for x in cache.layers for t in (x.keys, x.values))
    return first.get_total_flops(), second.get_total_flops(), held


@pytest.mark.slow
def test_flops_and_cache_are_those_of_a_real_run():
    name = "HuggingFaceTB/SmolLM2-135M"
    prefill = opgraph.profile(name, mode="prefill", context_len=24)
    decode = opgraph.profile(name, mode="decode", context_len=24)
    assert (prefill.totals.flops, decode.totals.flops, decode.cache.bytes) == real_steps(name, 24)
    assert (prefill.cache.tokens, decode.cache.tokens) == (24, 25)
    assert prefill.totals.coverage == decode.totals.coverage == 1.0


@pytest.mark.slow
def test_cache_of_llama_by_the_formula():
    """2 x layers x heads of keys and values x their width x 2 bytes of bfloat16."""
    decode = opgraph.profile("meta-llama/Llama-3.1-8B", mode="decode", context_len=4096)
    assert decode.cache.bytes_per_token == 2 * 32 * 8 * 128 * 2 == 131_072
    assert decode.cache.bytes == 4097 * 131_072
    assert decode.cache.at(131_072, sequences=2) == 2 * 131_072**2
    assert "131,072 bytes" in str(decode)
    # The step reads all weights but the table of embeddings, of which it takes one row.
    weights = decode.totals.weight_bytes - 128_256 * 4096 * 2
    assert shared_reads(decode) == pytest.approx(weights, rel=1e-3)
    on = steps(decode, device("h100-sxm"))
    assert [s.batch for s in on] == [2**i for i in range(len(on))]
    assert [s.fits for s in on] == [True] * (len(on) - 1) + [False]
    assert on[1].cache == 2 * decode.cache.bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "tokens", "parts"),
    [
        # Self-attention of 6 layers, and what they attend to of 128 encoded tokens.
        ("t5-small", {}, 5, {CachePart("growing", 6, 2 * 512 * 4),
                             CachePart("cross", 6, fixed=128 * 2 * 512 * 4)}),
        # DeepSeek's latent attention: 512 numbers, and 64 of the rotated key.
        ("hf-type:deepseek_v3", {"num_hidden_layers": 2, "first_k_dense_replace": 2}, 5,
         {CachePart("growing", 2, (512 + 64) * 4)}),
        # Every other layer of gpt-oss looks back 128 tokens only, its own included.
        (
            "hf-type:gpt_oss", {"num_hidden_layers": 4}, 300,
            {CachePart("window", 2, 8 * 64 * 2 * 4, limit=127), CachePart("growing", 2, 8 * 64 * 2 * 4)}),
        # Selective state spaces: 1536 channels, of a convolution over 4 and of 16 states.
        ("hf-type:mamba", {"num_hidden_layers": 2}, 2,
         {CachePart("state", 2, fixed=1536 * (4 + 16) * 4)}),
        # Layers with a window beside states, whose length their library gives as -1.
        pytest.param(
            "hf-type:inkling2_text", {"num_hidden_layers": 2}, 128,
            {CachePart("window", 2, 8 * 128 * 2 * 4, limit=1023), CachePart("state", 2, fixed=180224)},
            marks=NEWER),
    ],
)  # fmt: skip
def test_caches_of_other_kinds(name, changes, tokens, parts):
    model = resolve(name, BuildOptions(arguments=changes, head="causal-lm" if changes else None))
    found = opgraph.profile(model, mode="decode", context_len=tokens)
    assert found.graph.failed is None
    assert set(found.cache.parts) == parts
    assert found.cache.at(found.cache.tokens) == found.cache.bytes
    assert opgraph.Profile.from_dict(json.loads(found.to_json())) == found


@pytest.mark.parametrize(("made", "limit"), [(DynamicCache, 7), (StaticCache, 8)])
def test_windows_of_caches_that_grow_and_of_those_that_do_not(made, limit):
    config = MistralConfig(
        sliding_window=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    cache = made(config=config, **({"max_cache_len": 32} if made is StaticCache else {}))
    states = torch.zeros(3, 2, 12, 4)
    cache.update(states, states, 0, {"cache_position": torch.arange(12)})
    found = measured(cache)
    assert found.parts == (CachePart("window", 1, 2 * 2 * 4 * 4, limit=limit),)
    assert (found.sequences, found.tokens) == (3, 12)
    assert found.at(12, sequences=3) == found.bytes


@pytest.mark.slow
def test_a_prefill_into_states_counts_its_tokens():
    model = resolve(
        "hf-type:mamba", BuildOptions(arguments={"num_hidden_layers": 2}, head="causal-lm")
    )
    found = opgraph.profile(model, mode="prefill", context_len=4, batch_size=2)
    assert found.cache.tokens == 0
    first = steps(found, device("h100-sxm"))[0]
    assert first.tokens_per_second == pytest.approx(2 * 4 / first.seconds)


@pytest.mark.slow
def test_a_prefill_of_an_encoder_counts_what_that_reads():
    found = opgraph.profile("t5-small", mode="prefill", seq_len=48)
    assert found.cache.tokens == 1  # of the decoder, which begins with one
    first = steps(found, device("h100-sxm"))[0]
    assert first.tokens_per_second == pytest.approx(48 / first.seconds)


@pytest.mark.slow
def test_a_part_runs_through_an_engine_as_the_whole_does():
    found = opgraph.profile("gpt2", mode="decode", context_len=16, dtype="bfloat16")
    whole = found.on("h100-sxm", run="engine")
    layer = whole.subgraph("transformer.h.5")
    alone = whole.extract(layer).on("h100-sxm")
    assert alone.run is whole.run
    assert alone.seconds == pytest.approx(layer.seconds, rel=0.15)  # its border is a kernel more


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HuggingFaceTB/SmolLM2-135M", "t5-small"])
def test_another_batch_on_paper_is_that_of_a_trace(name):
    one, four = (
        opgraph.profile(name, mode="decode", context_len=300, batch_size=n, target="cpu").graph
        for n in (1, 4)
    )
    paper = at_batch(one, 4)
    assert totals(paper).flops == totals(four).flops
    assert totals(paper).other_flops == pytest.approx(totals(four).other_flops, rel=1e-5)
    assert totals(paper).bytes == pytest.approx(totals(four).bytes, rel=1e-5)
    assert memory(paper).peak == pytest.approx(memory(four).peak, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [("resnet18", "prefill"), ("bert-base-uncased", "prefill"), ("bert-base-uncased", "decode")],
)
def test_models_that_do_not_generate_say_so(name, mode):
    with pytest.raises(InputError, match=f"{name} does not generate") as error:
        opgraph.profile(name, mode=mode)
    assert "gpt2" in error.value.hint


@pytest.mark.slow
def test_caches_are_never_guessed(resnet18, bert, yolov8n, gpt2):
    """GPT-2 returns a cache object in a plain forward; the others return none."""
    assert [p.cache for p in (resnet18, bert, yolov8n)] == [None] * 3
    assert gpt2.cache.bytes_per_token == 2 * 12 * 768 * 4
    assert "grows to 72 MiB at 1Ki tokens" in str(gpt2)  # it has 1,024 positions


def test_lengths_that_contradict():
    with pytest.raises(InputError, match="the context has 8 tokens, and seq_len says 9"):
        opgraph.profile("gpt2", mode="decode", context_len=8, seq_len=9)
    with pytest.raises(InputError, match="has no effect where the mode is infer"):
        opgraph.profile("gpt2", context_len=8)
    with pytest.raises(InputError, match="mode: 'dream' is not a choice"):
        opgraph.profile("gpt2", mode="dream")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("gpt2", 1024), ("facebook/opt-125m", 2048), ("openai/whisper-tiny", 448)]
)
def test_the_next_token_has_a_learned_position_too(name, most):
    """A prompt may fill the table of positions; what is decoded after it needs one more."""
    opgraph.profile(name, mode="prefill", context_len=most)
    assert opgraph.profile(name, mode="decode", context_len=most - 1).cache.tokens == most
    with pytest.raises(InputError, match=f"has learned {most:,} positions") as error:
        opgraph.profile(name, mode="decode", context_len=most)
    assert error.value.hint == f"at most {most - 1:,}"


@pytest.mark.slow
def test_a_sweep_over_contexts():
    found = opgraph.sweep("HuggingFaceTB/SmolLM2-135M", mode="decode", context_len=[64, 128])
    few, many = (p.values["flops"] for p in found.points)
    # 64 more tokens: 4 FLOPs for each of 576 channels in 30 layers.
    assert many - few == 64 * 4 * 576 * 30
