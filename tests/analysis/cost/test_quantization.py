"""Weights, activations and caches in fewer bits, on paper: what is stored, what runs, what stays."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.cost.totals import cost_of
from opgraph.analysis.memory import live_bytes
from opgraph.record.errors import InputError
from opgraph.record.quantization import FORMATS, Scheme, published_scheme

pytestmark = pytest.mark.live
WIDE, HIDDEN, TOKENS = 256, 512, 4


class Small(nn.Module):
    """A table, two layers, a norm, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, WIDE)
        self.up, self.down = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, WIDE, bias=False)
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, 1000)

    def forward(self, ids):
        return self.head(self.norm(self.down(torch.relu(self.up(self.table(ids))))))


@cache
def small() -> opgraph.Profile:
    return opgraph.profile(Small().bfloat16(), torch.zeros(1, TOKENS, dtype=torch.long))


def sizes(costed) -> dict[str, tuple[str, int]]:
    return {p.name: (p.dtype, p.bytes) for p in costed.graph.parameters}


def kernels(costed, name: str) -> list:
    return [k for n in costed.graph.nodes if n.scope == name for k in n.kernels if k.bytes]


def test_what_is_kept_in_fewer_bits_and_what_stays():
    plain, costed = sizes(small().on()), small().on(weights="int4", group_size=64)
    each = 2 + 2  # a scale and a zero point
    known = {
        "up.weight": ("int4", HIDDEN * WIDE // 2 + HIDDEN * (WIDE // 64) * each),
        "down.weight": ("int4", HIDDEN * WIDE // 2 + WIDE * (HIDDEN // 64) * each),
    }
    assert sizes(costed) == {**plain, **known}
    assert costed.totals.parameters == small().totals.parameters
    assert costed.totals.flops == small().totals.flops
    (remark,) = [r for r in costed.remarks if r.code == "quantized"]
    for stays in ("embeddings", "the head", "norms and biases"):
        assert stays in remark.text


def test_a_product_reads_the_weight_as_it_is_stored():
    (before,) = kernels(small().on(), "down")
    (after,) = kernels(small().on(weights="int8"), "down")
    stored = HIDDEN * WIDE + WIDE * (4 + 1)
    assert before.read - after.read == 2 * HIDDEN * WIDE - stored
    assert (after.dtype, after.flops, after.written) == ("bfloat16", before.flops, before.written)


def test_with_activations_rows_are_scaled_before():
    scaling, product = kernels(small().on("h100-sxm", weights="fp8", activations="fp8"), "up")
    rows = TOKENS * WIDE + TOKENS * 4
    assert (scaling.read, scaling.written) == (2 * TOKENS * WIDE, rows)
    assert product.dtype == "float8_e4m3fn"
    assert product.read == rows + HIDDEN * WIDE + HIDDEN * 4 + HIDDEN * 2
    plain, low = (
        small().on("h100-sxm", **how) for how in ({}, {"weights": "fp8", "activations": "fp8"})
    )
    assert sum(w.calls for w in low.work) == sum(w.calls for w in plain.work) + 2


@pytest.mark.parametrize(
    ("device", "weights", "activations", "dtype"),
    [
        ("h100-sxm", "fp8", "fp8", "float8_e4m3fn"),
        ("a100-sxm4-80gb", "fp8", "fp8", "bfloat16"),
        ("a100-sxm4-80gb", "int8", "int8", "int8"),
        ("h100-sxm", "nvfp4", "fp4", "bfloat16"),
        ("h100-sxm", "mxfp4", "fp8", "float8_e4m3fn"),
        ("b200", "nvfp4", "fp4", "float4"),
        ("h100-sxm", "int4", None, "bfloat16"),
    ],
)
def test_products_run_on_units_that_the_device_has(device, weights, activations, dtype):
    costed = small().on(device, weights=weights, activations=activations)
    assert kernels(costed, "up")[-1].dtype == dtype
    said = [r.text for r in costed.remarks if r.code == "dequantized"]
    assert bool(said) is (activations is not None and dtype == "bfloat16")
    assert all(costed.device.name in text for text in said)
    assert costed.prediction.seconds > 0


def test_live_memory_has_the_scaled_rows():
    plain, costed = small().on(), small().on(weights="fp8", activations="fp8")
    assert costed.memory.peak >= plain.memory.peak
    assert len(costed.memory.live) == len(plain.memory.live) + 2


def test_rows_that_groups_do_not_divide_stay():
    module = nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 64), nn.Linear(64, 8))
    costed = opgraph.profile(module, torch.zeros(2, 96)).on(weights="int4", group_size=64)
    assert [p.dtype for p in costed.graph.parameters if len(p.shape) > 1] == [
        "float32",
        "int4",
        "float32",
    ]
    assert any("do not divide" in r.text for r in costed.remarks)


def test_convolutions_are_only_multiplied_in_int8():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(),
                           nn.Linear(8 * 16, 4))  # fmt: skip
    profile = opgraph.profile(module, torch.zeros(1, 3, 8, 8))
    for scheme in ({"weights": "int8"}, {"weights": "fp8", "activations": "fp8"}):
        assert {p.dtype for p in profile.on(**scheme).graph.parameters} == {"float32"}
    low = profile.on(weights="int8", activations="int8")
    assert low.graph.parameters[0].bytes == 8 * 3 * 9 + 8 * 4
    assert low.graph.parameters[2].bytes == 8 * 9 + 8 * 4
    scaling, product = kernels(low, "0")
    assert product.dtype == "int8"
    assert scaling.written == 3 * 8 * 8 + 4  # one scale, since windows overlap


class Experts(nn.Module):
    """A router with a product of its own, and experts that are stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.Parameter(torch.empty(4, 64, 32))
        self.after, self.head = nn.Linear(64, 64), nn.Linear(64, 2)

    def forward(self, x):
        score, chosen = self.router(x).softmax(-1).topk(2)
        mixed = torch.einsum("bi,eoi->beo", x, self.experts)
        return self.head(
            torch.tanh(self.after((mixed[:, :2] * score.unsqueeze(-1)).sum(1)))
        ), chosen


def test_routers_stay_and_experts_do_not():
    profile = opgraph.profile(Experts(), torch.zeros(3, 32))
    costed = profile.on(weights="mxfp4")
    dtypes = {p.name: p.dtype for p in costed.graph.parameters}
    assert dtypes["router.weight"] == dtypes["head.weight"] == "float32"
    assert dtypes["after.weight"] == dtypes["experts"] == "float4"
    assert any("routers" in r.text for r in costed.remarks)


def test_a_layer_by_itself_is_no_head():
    costed = opgraph.profile(nn.Linear(64, 8), torch.zeros(1, 64)).on(weights="int8")
    assert sizes(costed)["weight"] == ("int8", 8 * 64 + 8 * 5)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"activations": "fp8"}, "without quantized weights"),
        ({"group_size": 32}, "without quantized weights"),
        ({"weights": "fp8", "activations": "int8"}, "no kernel multiplies"),
        ({"weights": "nf4", "activations": "fp8"}, "no kernel multiplies"),
        ({"weights": "mxfp4", "group_size": 64}, "no other group size"),
        ({"weights": "int4", "autocast": "float16"}, "mixed precision"),
        ({"kv_cache": "fp8"}, "no cache"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked, why):
    with pytest.raises(InputError, match=why):
        small().on(**asked)


def test_training_is_refused():
    profile = opgraph.profile(nn.Linear(8, 8), torch.zeros(1, 8), mode="train")
    with pytest.raises(InputError, match="not trained"):
        profile.on(weights="int8")


def test_saved_as_it_is_kept(tmp_path):
    small().on(weights="int8").save(tmp_path / "p.json")
    found = opgraph.load(tmp_path / "p.json")
    assert found.totals == small().on(weights="int8").totals
    assert found.on(weights="int8").totals == found.totals
    for other in ("int4", "none"):
        with pytest.raises(InputError, match="was saved with its weights in int8"):
            found.on(weights=other)


def test_saved_for_units_that_another_device_has_not(tmp_path):
    small().on("h100-sxm", weights="fp8", activations="fp8").save(tmp_path / "p.json")
    found = opgraph.load(tmp_path / "p.json")
    assert found.on("h200").main_dtype == "float8_e4m3fn"
    with pytest.raises(InputError, match="for which NVIDIA A100"):
        found.on("a100-sxm4-80gb")


def test_words_of_a_file_are_only_shown():
    strange = replace(small(), convention={"weights": "<b>\x1b[1m", "activations": "none such"})
    found = strange.on("h100-sxm")
    assert "\x1b" not in str(found)
    assert found.prediction.seconds > 0


def tiny(mode: str) -> opgraph.Profile:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    return opgraph.profile("hf-type:llama", mode=mode, context_len=32, batch_size=3, head="causal-lm",
                           dtype="bfloat16", model_args=sizes)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_cache_in_fewer_bits(mode):
    profile = tiny(mode)
    plain, low, scaled = profile.on(), profile.on(kv_cache="fp8"), profile.on(kv_cache="int8")
    assert low.profile.cache.bytes * 2 == plain.profile.cache.bytes
    assert scaled.profile.cache.bytes == plain.profile.cache.bytes // 2 * (16 + 4) // 16
    assert low.profile.cache.bytes == low.profile.cache.at(profile.cache.tokens, 3)
    attention = [n for n in low.graph.nodes if n.op == "scaled_dot_product_attention"]
    before = [n for n in plain.graph.nodes if n.op == "scaled_dot_product_attention"]
    tokens = profile.cache.tokens
    saved = 2 * 3 * 2 * tokens * 16  # a byte of each number of keys and values
    assert cost_of(before).read - cost_of(attention).read == pytest.approx(2 * saved, rel=0.01)
    assert low.memory.peak < plain.memory.peak
    if mode == "decode":  # the cache comes in, but for the token that the step adds
        inputs = plain.totals.input_bytes - low.totals.input_bytes
        assert inputs == plain.profile.cache.at(tokens - 1, 3) // 2
    assert low.totals.flops == plain.totals.flops


def test_bytes_of_formats_by_hand():
    rows, columns = 6, 256
    whole = rows * columns
    known = {
        "fp8": whole + rows * 4, "int8": whole + rows * 5, "int4": whole // 2 + rows * 2 * 4,
        "nvfp4": whole // 2 + whole // 16 + 4, "mxfp4": whole // 2 + whole // 32,
        "nf4": whole // 2 + whole // 64 + 4 + 4 + 4 * (16 + 256),
    }  # fmt: skip
    assert {name: Scheme(name).bytes(rows, columns) for name in FORMATS} == known
    blocks = Scheme("fp8", 128, 128, "fp8")
    assert blocks.bytes(130, 200) == 130 * 200 + 2 * 2 * 4


def test_configurations_of_publishers():
    deepseek = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    assert published_scheme(deepseek) == Scheme("fp8", 128, 128, "fp8", published=True)
    assert published_scheme({"quant_method": "gptq", "bits": 4}) is None
    kept = published_scheme(
        {"quant_method": "mxfp4", "modules_to_not_convert": ["a.*.attn", "head"]}
    )
    assert [kept.keeps(each) for each in ("a.3.attn.q", "head", "a.3.mlp")] == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bytes_"), [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)]
)
def test_published_checkpoints_to_the_byte(name, bytes_):
    """`total_size` of the checkpoint's own `model.safetensors.index.json` on the hub."""
    profile = opgraph.profile(name, seq_len=4)
    assert profile.totals.weight_bytes == bytes_
    assert profile.on(weights="none").totals.weight_bytes == 2 * profile.totals.parameters
    assert any(r.code == "published-weights" for r in profile.costed.remarks)


def test_weights_that_no_scheme_takes_are_not_said_to_be_in_it(saved):
    """A ResNet's convolutions stay as they are in fp8: the profile says so, and is as it was; so do rows
    of 768 in groups of 7."""
    plain, asked = (saved("resnet18").on(weights=w) for w in ("none", "fp8"))
    assert "no-effect" in {r.code for r in asked.remarks}
    said = str(saved("gpt2").on(weights="int4", group_size=7).remarks)
    assert "changes nothing: as they were stay rows that the groups do not divide (324" in said
    assert "weights" not in asked.profile.convention
    assert "fp8" not in str(asked).replace("weights fp8 changes nothing", "")
    assert asked.graph == plain.graph


def test_modules_that_compute_as_much_are_compared_by_bytes(saved):
    found = str(opgraph.compare(*(saved("gpt2").on(weights=w) for w in ("none", "int4"))))
    table = found.partition("by module")[2]
    assert "bytes A" in table
    assert "FLOPs A" not in table
    assert "MiB" in next(line for line in table.splitlines() if "c_attn" in line)


class Scaled(nn.Module):
    """A layer that scales its rows to float8 itself, as torchao's has them scaled."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.zeros(out, width, dtype=torch.float8_e4m3fn))
        self.scale = nn.Buffer(torch.ones(1, out))
        self.bias = nn.Buffer(torch.zeros(out, dtype=torch.bfloat16))

    def forward(self, x):
        scale = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
        low = (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        how = {"bias": self.bias, "out_dtype": torch.bfloat16}
        return torch._scaled_mm(low, self.weight.t(), scale, self.scale, **how)


class Both(nn.Module):
    """Two layers with the same input, and one behind them, of which the first two are as wide as high."""

    def __init__(self, layer: type[nn.Module], made: bool) -> None:
        super().__init__()
        self.first, self.second = layer(WIDE, WIDE), layer(WIDE, WIDE)
        self.last, self.head = layer(WIDE, HIDDEN), nn.Linear(HIDDEN, 8, dtype=torch.bfloat16)
        self.made = made

    def forward(self, x):
        x = x.exp() if self.made else x
        mixed = torch.relu(self.first(x)) * self.second(x)
        return self.head(self.last(mixed).sigmoid()), mixed if self.made else None


@cache
def compiled(layer: type[nn.Module] = nn.Linear, made: bool = True) -> opgraph.Profile:
    given = torch.zeros(WIDE, WIDE, dtype=torch.bfloat16)
    module = Both(layer, made)
    module = module.bfloat16() if layer is nn.Linear else module
    return opgraph.profile(module, given, inductor=True, target="cuda:9.0")


@pytest.mark.slow
@pytest.mark.parametrize("activations", [None, "fp8"])
def test_a_compilers_products_read_the_weight_as_it_is_stored(activations):
    plain = compiled().on("h100-sxm", run="compiled")
    costed = compiled().on("h100-sxm", run="compiled", weights="fp8", activations=activations)
    before, after = (c.profile.compiled.kernels for c in (plain, costed))
    products = [k for k in after if "mm_fp8" in k.kernel.op]
    assert len(products) == 3
    stored = [HIDDEN * WIDE + HIDDEN * 4, *[WIDE * (WIDE + 4)] * 2]
    known = {size for k in products for _, size in k.reads}
    assert known >= set(stored)
    for kernel in after:
        assert kernel.kernel.read == sum(size for _, size in kernel.reads)
    assert costed.totals.flops == plain.totals.flops
    assert costed.totals.weight_bytes < plain.totals.weight_bytes
    made = {buffer for k in before for buffer, _ in k.writes}
    weights = {b for k in before if k.kernel.flops for b, _ in k.reads if b not in made}
    for kernel in products:  # rows are what a kernel made, and weights what none did
        (weight,) = [b for b, size in kernel.reads if b in weights and size in stored]
        assert weight not in made
    assert len(costed.memory.live) == len(after)
    assert costed.prediction.seconds > 0


@pytest.mark.slow
@pytest.mark.parametrize("made", [True, False])
def test_rows_are_scaled_where_torch_scales_them(made):
    """Where a generated kernel makes them, be they a result or not, and in one of their own."""
    mine = compiled(made=made).on("h100-sxm", run="compiled", weights="fp8", activations="fp8")
    (mine, torchs) = (p.profile.compiled for p in (mine, compiled(Scaled, made).on("h100-sxm")))
    of_mine, of_torchs = (
        [(k.kernel.read, k.kernel.written) for k in c.kernels] for c in (mine, torchs)
    )
    assert of_mine == of_torchs
    assert live_bytes(mine.storages, len(of_mine)) == live_bytes(torchs.storages, len(of_mine))


@pytest.mark.slow
def test_a_cache_in_fewer_bits_is_not_compiled():
    with pytest.raises(InputError, match="a cache in fewer bits are not worked out"):
        compiled().on("h100-sxm", run="compiled", kv_cache="fp8")
