"""A module that the caller has is taken as it is: out of the wrappers around it, with the adapters and
the packed weights in it, whose bytes are those that are stored."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import opgraph

PLAIN = 2 * 4 * (256 * 512 + 512 * 128)
"""FLOPs of the two layers on four rows."""
BIASES = 4 * (512 + 128)
WEIGHTS = 256 * 512 + 512 * 128


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).eval()


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(4, 256)


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrap", "note"),
    [
        (torch.compile, "out of torch.compile"),
        (nn.DataParallel, "out of DataParallel"),
        (nn.parallel.DistributedDataParallel, "out of DistributedDataParallel"),
        (lambda m: torch.compile(nn.DataParallel(m)), "out of DataParallel"),
    ],
)
@pytest.mark.usefixtures("process_group")
def test_wrappers_are_seen_through(
    wrap: Callable[[nn.Module], nn.Module], note: str, rows: torch.Tensor
) -> None:
    profile = opgraph.profile(wrap(network()), rows)
    assert note in profile.model.notes
    assert profile.totals.flops == PLAIN
    assert profile.totals.parameters == WEIGHTS + 512 + 128


def test_what_parametrizations_compute_is_counted(rows: torch.Tensor) -> None:
    module = network()
    parametrizations.weight_norm(module[0])
    parametrizations.spectral_norm(module[2])
    totals = opgraph.profile(module, rows).totals
    assert totals.parameters == sum(p.numel() for p in module.parameters())
    # The spectral norm multiplies its weight with two vectors.
    assert totals.flops == PLAIN + 2 * (128 * 512 + 128)


def test_packed_weights_of_torchs_own_quantization_are_counted(rows: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        module = torch.ao.quantization.quantize_dynamic(network(), {nn.Linear}, dtype=torch.qint8)
    profile = opgraph.profile(module, rows)
    assert profile.totals.flops == PLAIN
    assert profile.totals.parameters == WEIGHTS + 512 + 128
    assert profile.totals.weight_bytes == WEIGHTS + BIASES
    assert profile.totals.coverage == 1


@pytest.mark.slow
def test_a_quantized_convolution_runs_on_real_tensors() -> None:
    profile = opgraph.profile("quantized_shufflenet_v2_x0_5", model_args={"quantize": True})
    plain = opgraph.profile("quantized_shufflenet_v2_x0_5")
    assert profile.graph.failed is None
    assert profile.totals.flops == plain.totals.flops
    assert profile.totals.weight_bytes < 0.3 * plain.totals.weight_bytes


@pytest.mark.parametrize(
    "kind",
    ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "IntxWeightOnlyConfig"],
)
@pytest.mark.slow
def test_torchao(kind: str, rows: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization = pytest.importorskip("torchao.quantization")
        module = network()
        quantization.quantize_(module, getattr(quantization, kind)())
    totals = opgraph.profile(module, rows).totals
    assert totals.flops == PLAIN
    assert totals.parameters == WEIGHTS + 512 + 128
    scales = 4 * (512 + 128)
    assert WEIGHTS + BIASES + scales <= totals.weight_bytes <= WEIGHTS + BIASES + 2 * scales


@pytest.mark.slow
def test_lora(rows: torch.Tensor) -> None:
    peft = pytest.importorskip("peft")
    module = peft.get_peft_model(network(), peft.LoraConfig(target_modules=["0", "2"], r=8))
    profile = opgraph.profile(module, rows)
    low_rank = 8 * (256 + 512) + 8 * (512 + 128)
    assert "with its adapters in place" in profile.model.notes
    assert profile.totals.flops == PLAIN + 2 * 4 * low_rank
    assert profile.totals.parameters == WEIGHTS + 512 + 128 + low_rank
    assert profile.totals.trainable_parameters == low_rank
