"""Kernels written in Triton are operators of the graph, whose cost nobody knows, on any machine."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
import torch
import triton
import triton.language as tl
from torch import Tensor, nn

import opgraph
from opgraph.tracing.capture.launches import accesses

pytestmark = pytest.mark.live


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):  # noqa: N803
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places, places < n) + 1, places < n)


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # noqa: N803
    at = y
    at += tl.program_id(0) * BLOCK
    places = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(at + places, tl.load(x + places) * 2)


@triton.jit
def _keep(at, value):
    tl.store(at, value)


@triton.jit
def by_another(x, chosen, y, n):
    place = tl.load(chosen)
    _keep(y + place, tl.load(x + place))
    tl.atomic_add(n, 1)


@triton.jit
def by_blocks(x, y, n, BLOCK: tl.constexpr):  # noqa: N803
    given = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    made = tl.make_block_ptr(
        base=y, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    tl.store(tl.advance(made, (0,)), tl.load(given))


@pytest.mark.parametrize(
    ("kernel", "loads", "stores"),
    [
        (add_one, {"x"}, {"y"}),
        (double, {"x"}, {"y"}),
        (by_another, {"x", "chosen", "y", "n"}, {"y", "n"}),
        (by_blocks, {"x", "n"}, {"y", "n"}),
    ],
)
def test_a_kernel_says_by_its_text_what_it_loads_and_stores(
    kernel: Any, loads: set[str], stores: set[str]
) -> None:
    """What another kernel gets may be either; what was loaded is no pointer."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    loaded, stored = (found & {"x", "y", "n", "chosen"} for found in accesses(kernel))
    assert (loaded, stored) == (loads, stores)


class Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        add_one[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, n=x.numel(), BLOCK=32)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        y = torch.empty_like(gradients[0])
        double[(1,)](gradients[0], y, y.numel())
        return y


class Model(nn.Module):
    def __init__(self, *, asks: bool = False) -> None:
        super().__init__()
        self.linear, self.last, self.asks = nn.Linear(8, 8), nn.Linear(8, 8), asks
        self.kept = torch.zeros(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        double[(1,)](x, self.kept, x.numel())
        y = Adds.apply(x)
        if self.asks and torch.equal(y, y):
            y = y * 2
        return self.last(y + self.kept) + x


X = torch.randn(4, 8)


def test_a_launch_is_an_operator_between_those_that_write_and_read_its_tensors() -> None:
    model, runs = Model(), [kind.run for kind in (type(add_one), type(double), type(double.fn))]
    found = opgraph.profile(model, X)
    assert [(a.tensors, a.error) for a in found.tracing.attempts] == [("fake", None)]
    assert found.totals.flops == 2 * 2 * 4 * 8 * 8
    nodes = {node.op: node for node in found.graph.nodes}
    assert {"add_one", "double"} <= nodes.keys()
    linear, last = (n for n in found.graph.nodes if n.op == "linear")
    (x,) = linear.outputs
    adds = nodes["add_one"]
    assert x in adds.inputs
    assert x not in adds.outputs
    assert len(adds.outputs) == 1
    (kernel,) = adds.kernels
    assert (kernel.read, kernel.written) == (4 * X.numel(), 4 * X.numel())
    (add,) = (n for n in found.graph.nodes if adds.outputs[0] in n.inputs)
    assert nodes["double"].outputs[0] in add.inputs
    assert add.outputs[0] in last.inputs
    said = [remark.text for remark in found.remarks if remark.code == "unknown-operator"]
    assert ["triton.add_one" in text and "triton.double" in text for text in said] == [True]
    assert not model.kept.any()
    assert [kind.run for kind in (type(add_one), type(double), type(double.fn))] == runs


def test_a_backward_launches_too() -> None:
    found = opgraph.profile(Model(), X, mode="train")
    assert [(a.tensors, a.error) for a in found.tracing.attempts] == [("fake", None)]
    phases = [(n.op, n.phase) for n in found.graph.nodes if n.op in ("add_one", "double")]
    assert phases == [("double", "forward"), ("add_one", "forward"), ("double", "backward")]


def test_a_value_that_is_asked_for_behind_a_launch_is_said_to_be_none() -> None:
    model = Model(asks=True)
    found = opgraph.profile(model, X)
    assert found.tracing.tensors == "real"
    assert {"add_one", "double"} <= {node.op for node in found.graph.nodes}
    assert any(r.code == "branch" and "did not run" in r.text for r in found.remarks)
    assert not model.kept.any()


@pytest.mark.parametrize(
    ("tracer", "interpreted"), [("eager", "0"), ("dynamo", "0"), ("eager", "1")]
)
@pytest.mark.slow
def test_a_forward_may_be_the_first_to_import_its_kernels(
    tmp_path: Path, tracer: str, interpreted: str
) -> None:
    (tmp_path / "kernels.py").write_text(
        f"import triton\nimport triton.language as tl\n\n{inspect.getsource(add_one.fn)}",
        "utf-8",
    )
    (tmp_path / "model.py").write_text(
        "import sys\nimport torch\nimport opgraph\n\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        import kernels\n"
        "        y = torch.empty_like(x)\n"
        "        kernels.add_one[(1,)](x, y, 32, BLOCK=32)\n"
        "        return y\n\n"
        "assert 'triton.runtime.jit' not in sys.modules or sys.argv[1] == 'dynamo'\n"
        "found = opgraph.profile(Model(), torch.randn(4, 8), tracer=sys.argv[1])\n"
        "print([node.op for node in found.graph.nodes])\n",
        "utf-8",
    )
    run = subprocess.run(
        [sys.executable, "model.py", tracer],
        cwd=tmp_path,
        env=os.environ | {"TRITON_INTERPRET": interpreted},
        check=False,
        capture_output=True,
        text=True,
    )
    assert "'add_one'" in run.stdout, run.stderr
