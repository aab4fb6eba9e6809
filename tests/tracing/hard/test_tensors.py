"""Tensors that are more than a block of floating-point numbers."""

from __future__ import annotations

import pytest
import torch
from tests.tracing.hard.models import Function, X, agrees, profiled
from torch import nn

import opgraph


@pytest.mark.filterwarnings("ignore")
def test_dynamic_quantization():
    quantize = pytest.importorskip("torch.ao.quantization")
    model = quantize.quantize_dynamic(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {nn.Linear}, dtype=torch.qint8
    )
    first, again = profiled(model, X), profiled(model, X)
    assert first.totals.flops == 2 * 4 * 8 * 8
    assert again.graph == first.graph


@pytest.mark.slow
def test_nested_tensors():
    def run(self, x):
        nested = torch.nested.nested_tensor([x[:2], x[:3]], layout=torch.jagged)
        return self.linear(nested)

    profile = profiled(Function(run), X)
    assert profile.totals.flops == 2 * 5 * 8 * 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("layout", "shape"), [(torch.jagged, (5, 8)), (torch.strided, (40,))])
def test_nested_tensors_that_are_given(layout, shape):
    """Of 2 and of 3 rows: a product, and the gradient of its weights."""
    given = torch.nested.nested_tensor([X[:2], X[:3]], layout=layout)
    profile = opgraph.profile(
        Function(lambda self, x: self.linear(x)), (given,), mode="train", loss="sum"
    )
    assert profile.totals.flops == 2 * 2 * 5 * 8 * 8
    assert (profile.totals.coverage, profile.totals.input_bytes) == (1.0, 5 * 8 * 4)
    assert profile.graph.values[0].shape == shape
    assert profile.tracing.tensors == ("fake" if layout is torch.jagged else "real")


def test_sparse_tensors():
    profile = profiled(Function(lambda self, x: torch.sparse.mm(x.relu().to_sparse(), x.t())), X)
    # How many products there are is in the data.
    assert "sparse_mm" in {n.op for n in profile.nodes}
    assert profile.tracing.tensors == "fake weights"
    assert profile.totals.flops == 2 * int((X > 0).sum()) * X.shape[0]


def test_fft():
    profile = profiled(Function(lambda self, x: torch.fft.irfft(torch.fft.rfft(x)).real), X)
    assert profile.totals.coverage == 1


def test_complex_numbers():
    agrees(Function(lambda self, x: (torch.complex(x, x) @ torch.complex(x, x).mT).abs()), X)


def test_tensors_made_inside():
    agrees(Function(lambda self, x: self.linear(x) @ torch.eye(8, device=x.device)), X)
    agrees(Function(lambda self, x: self.linear(x) + torch.tensor([1.0] * 8)), X)


def in_context(self, x):
    with torch.device("cuda"):
        return self.linear(x.cuda()) + torch.ones(8)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.linear(x) + torch.ones(8, device="cuda"),
        lambda self, x: self.linear(x.to("cuda:1")) + torch.arange(8, device=torch.device("mps")),
        lambda self, x: self.linear(x.to(device="xpu", dtype=torch.float32)).cpu(),
        lambda self, x: self.linear.cuda()(x.cuda(non_blocking=True)),
        in_context,
    ],
)
def test_tensors_made_on_accelerators(forward):
    """They are on the CPU, with all that is fake, whether there is such a device here or not."""
    model = Function(forward)
    assert profiled(model, X).totals.flops == 2 * 4 * 8 * 8
    assert model.linear.weight.device.type == "cpu"
