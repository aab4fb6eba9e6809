"""Fine-tuning with low-rank adapters: what is trained, kept and computed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.cost.training import training
from opgraph.record.errors import InputError
from opgraph.sources import resolve
from opgraph.sources.base import BuildOptions
from opgraph.tracing.fake.weights import Weights
from opgraph.tracing.modes.adapters import adapted

pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.mark.slow
def test_adapters_alone_are_trained():
    """Rank 2, 3 rows. Forward: each layer and r(i + o) more. Backward: of each adapter both weights, the
    gradient of what is between them, and below the second layer that of its input, by both ways."""
    model, x, r, n = network(), torch.zeros(3, 8), 2, 3
    before = {k: id(v) for k, v in model.named_parameters()}
    profile = opgraph.profile(model, x, mode="train", train=f"lora:{r}", loss="sum")
    adapters = r * (8 + 16) + r * (16 + 4)
    assert profile.totals.trainable_parameters == adapters
    assert profile.totals.parameters == adapters + 8 * 16 + 16 + 16 * 4 + 4
    found = training(profile.graph)
    assert found.gradients == 4 * adapters
    assert found.optimizer_state == 2 * 4 * adapters + 4 * 4  # and a count of steps each
    base = 8 * 16 + 16 * 4
    assert found.phases["forward"].flops == 2 * n * (base + adapters)
    backward = r * (8 + 16 + 16) + r * (16 + 16 + 4 + 4) + 16 * 4
    assert found.phases["backward"].flops == 2 * n * backward
    assert {k: id(v) for k, v in model.named_parameters()} == before
    assert all(p.requires_grad for p in model.parameters())
    assert profile.convention["train"] == "lora:2"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_buffers_that_reading_a_weight_changes_are_as_before():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16))
    model = nn.Sequential(layer, nn.Linear(16, 4))
    before = {name: kept.clone() for name, kept in model.state_dict().items()}
    opgraph.profile(model, torch.zeros(3, 8), mode="train", train="qlora:2", loss="sum")
    assert all(torch.equal(kept, before[name]) for name, kept in model.state_dict().items())


@pytest.mark.slow
def test_a_named_model_is_left_without_adapters():
    model = resolve(
        "hf-type:gpt2", BuildOptions(arguments={"n_layer": 1, "n_embd": 32, "n_head": 2})
    )
    before = [name for name, _ in model.module.named_parameters()]
    assert "lora_A" in str([n for n, _ in adapted(model, "lora").module.named_parameters()])
    assert [name for name, _ in model.module.named_parameters()] == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_base_in_four_bits_takes_its_true_bytes():
    """Half a byte a weight, a byte for 64 of them, 4 for 256 of those bytes, their offset, two tables."""
    pytest.importorskip("bitsandbytes")
    model = nn.Sequential(nn.Linear(128, 256)).bfloat16()
    x = torch.zeros(3, 128, dtype=torch.bfloat16)
    profile = opgraph.profile(model, x, mode="train", train="qlora:4", loss="sum")
    packed = 128 * 256 // 2 + 512 + 2 * 4 + 4 + (16 + 256) * 4
    adapters = 4 * (128 + 256)
    assert profile.totals.weight_bytes == packed + 2 * 256 + 4 * adapters
    assert profile.totals.parameters == 128 * 256 + 256 + adapters
    assert profile.totals.coverage == 1.0
    assert training(profile.graph).phases["forward"].flops == 2 * 3 * (128 * 256 + adapters)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_llama_in_four_bits():
    """224 layers: in each of 32 blocks queries and outputs 4096 x 4096, keys and values 4096 x 1024, and
    three of 4096 x 14336. Embeddings, head and norms stay in bfloat16, adapters are float32."""
    sizes = [(4096, 4096)] * 2 + [(4096, 1024)] * 2 + [(4096, 14336)] * 3
    weights = [i * o for i, o in sizes]
    name, how = "meta-llama/Llama-3.1-8B", "qlora:16"
    found = adapted(resolve(name, BuildOptions(dtype="bfloat16")), how).module
    whole = Weights(dict(found.named_modules())).parameters
    each = 16 * sum(i + o for i, o in sizes)
    assert sum(p.numel for p in whole if p.trainable) == 32 * each == 41_943_040
    packed = sum(w // 2 + w // 64 + w // 16384 * 4 + 4 + 272 * 4 for w in weights)
    rest = 2 * (2 * 128256 * 4096 + 65 * 4096)
    assert sum(p.bytes for p in whole if p.kind == "parameter") == 32 * (packed + 4 * each) + rest
    found = training(
        opgraph.profile(
            name, mode="train", train=how, seq_len=16, dtype="bfloat16",
            model_args={"num_hidden_layers": 2},
        ).graph
    )  # fmt: skip
    assert found.gradients == 2 * 4 * each
    assert found.optimizer_state == 2 * (2 * 4 * each + 14 * 4)


class Conv1D(torch.nn.Module):
    """Somebody's own, of the name of transformers' layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return x @ self.weight


def test_what_cannot_be_adapted_is_refused():
    with pytest.raises(InputError, match=r"peft cannot adapt the model: .*Conv1D"):
        opgraph.profile(
            torch.nn.Sequential(Conv1D()), torch.zeros(2, 4), mode="train", train="lora"
        )
    with pytest.raises(InputError, match="no linear layers"):
        opgraph.profile(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8), mode="train", train="lora")
    with pytest.raises(InputError, match="is not a whole number of at least 1"):
        opgraph.profile(network(), torch.zeros(1, 8), mode="train", train="lora:0")
    with pytest.raises(InputError, match="'full' has no rank"):
        opgraph.profile(network(), torch.zeros(1, 8), mode="train", train="full:4")
    with pytest.raises(InputError, match="has no effect"):
        opgraph.profile(network(), torch.zeros(1, 8), train="lora")
