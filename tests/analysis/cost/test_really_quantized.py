"""Weights in fewer bits on paper take the bytes of the real modules of torchao and bitsandbytes."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn

import opgraph

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
WIDE, HIDDEN = 256, 512


class Layers(nn.Module):
    """Two layers, and a head that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, WIDE, bias=False)
        self.head = nn.Linear(WIDE, 8)

    def forward(self, x):
        return self.head(torch.relu(self.down(torch.relu(self.up(x)))))


@cache
def layers(dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor, opgraph.Profile]:
    module, x = Layers().to(dtype), torch.randn(4, WIDE, dtype=dtype)
    return module, x, opgraph.profile(module, x)


def stored(profile) -> int:
    return profile.totals.weight_bytes + profile.totals.buffer_bytes


def torchao(module: nn.Module, config: str, *stays: str, **how: object) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    prototypes = "torchao.prototype.quantization.int4", "torchao.prototype.mx_formats"
    rooms = [quantization, *map(pytest.importorskip, prototypes)]
    made = next(getattr(room, config) for room in rooms if hasattr(room, config))(**how)

    def chosen(each: nn.Module, name: str) -> bool:
        return isinstance(each, nn.Linear) and name not in stays

    found = deepcopy(module)
    quantization.quantize_(found, made, chosen)
    return found


FP4 = {"activation_dtype": torch.float4_e2m1fn_x2, "weight_dtype": torch.float4_e2m1fn_x2}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("config", "how", "asked"),
    [
        ("Int8WeightOnlyConfig", {}, {"weights": "int8"}),
        ("Float8WeightOnlyConfig", {}, {"weights": "fp8"}),
        (
            "PrototypeInt4WeightOnlyConfig",
            {"group_size": 64},
            {"weights": "int4", "group_size": 64},
        ),
        ("PrototypeInt4WeightOnlyConfig", {"group_size": 128}, {"weights": "int4"}),
    ],
)
def test_bytes_of_torchao(config, how, asked, dtype):
    module, x, profile = layers(dtype)
    real, ours = opgraph.profile(torchao(module, config, "head", **how), x), profile.on(**asked)
    assert stored(real) == stored(ours)
    assert real.totals.flops == ours.totals.flops
    if (
        asked["weights"] == "int4"
    ):  # the others make numbers of the weight first, if nothing compiles them
        (theirs,) = [
            k for n in real.graph.nodes for k in n.kernels if k.flops and n.scope == "down"
        ]
        (mine,) = [k for n in ours.graph.nodes for k in n.kernels if k.flops and n.scope == "down"]
        assert (theirs.read, theirs.written) == (mine.read, mine.written)


@pytest.mark.parametrize(
    ("config", "how", "weights"),
    [("NVFP4WeightOnlyConfig", {}, "nvfp4"), ("MXDynamicActivationMXWeightConfig", FP4, "mxfp4")],
)
def test_bytes_of_four_bit_floats(config, how, weights):
    """These run on a GPU alone: their tensors are looked at as they are stored."""
    module, _, profile = layers(torch.bfloat16)
    real = torchao(module, config, "head", **how)

    def size(tensor: torch.Tensor) -> int:
        inner = getattr(tensor, "__tensor_flatten__", None)
        if inner is None:
            return tensor.numel() * tensor.element_size()
        return sum(size(getattr(tensor, name)) for name in inner()[0])

    found = {p.name: p.bytes for p in profile.on(weights=weights).graph.parameters}
    assert {name: size(p) for name, p in real.named_parameters()} == found


@pytest.mark.parametrize("bits", [8, 4])
def test_bytes_of_bitsandbytes(bits):
    nn_of = pytest.importorskip("bitsandbytes").nn
    module, x, profile = layers(torch.float32)
    real = deepcopy(module)
    for name in ("up", "down"):
        old = getattr(module, name)
        sizes = (old.in_features, old.out_features, old.bias is not None)
        layer = (
            nn_of.Linear8bitLt(*sizes, has_fp16_weights=False)
            if bits == 8
            else nn_of.Linear4bit(*sizes, quant_type="nf4")
        )
        setattr(real, name, layer.to("cpu"))
    asked = {"weights": "int8", "activations": "int8"} if bits == 8 else {"weights": "nf4"}
    assert stored(opgraph.profile(real, x)) == stored(profile.on(**asked))


def test_a_larger_model():
    from transformers import BertConfig, BertModel

    module = BertModel(BertConfig(vocab_size=1000)).bfloat16().eval()
    inputs = {"input_ids": torch.ones(1, 16, dtype=torch.long)}
    ours = opgraph.profile(module, kwargs=inputs).on(weights="int4")
    made = torchao(module, "PrototypeInt4WeightOnlyConfig", "pooler.dense")
    real = opgraph.profile(made, kwargs=inputs)
    assert stored(real) == stored(ours)
    assert real.totals.parameters == ours.totals.parameters
