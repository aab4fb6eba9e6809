"""Forwards that do what no forward should: print, sleep, read, raise, exit, never end."""

from __future__ import annotations

import time

import pytest
import torch
from tests.tracing.hard.models import Function, X, profiled
from torch import nn

import opgraph


def test_a_forward_that_prints_and_sleeps(capsys):
    def run(self, x):
        print("hello")  # noqa: T201
        time.sleep(0.01)
        return self.linear(x)

    profiled(Function(run), X)


def test_a_forward_that_reads_a_file(tmp_path):
    path = tmp_path / "scale.txt"
    path.write_text("2")
    profiled(Function(lambda self, x: self.linear(x) * int(path.read_text())), X)


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), RecursionError("deep"), OSError()]
)
def test_a_forward_that_raises(error):
    def run(self, x):
        self.linear(x)
        raise error

    failed = opgraph.profile(Function(run), inputs=X, partial=True).graph.failed
    assert failed is not None
    assert failed.error.startswith(type(error).__name__)


@pytest.mark.slow
def test_a_forward_that_recurses_forever():
    def run(self, x):
        return self.function(self, self.linear(x))

    failed = opgraph.profile(Function(run), inputs=X, partial=True).graph.failed
    assert failed.error.startswith("RecursionError")


def test_two_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    from torch._dynamo import eval_frame

    sizes = (3, 7, 5, 2)
    models = [nn.Sequential(*[nn.Linear(8, 8) for _ in range(n)]) for n in sizes]
    with ThreadPoolExecutor(4) as pool:
        profiles = list(pool.map(lambda m: opgraph.profile(m, inputs=X), models))
    assert [p.totals.flops for p in profiles] == [n * 2 * 4 * 8 * 8 for n in sizes]
    assert eval_frame._stance.stance == "default"


@pytest.mark.parametrize(
    ("device", "enabled", "heeded"),
    [("cpu", True, True), ("cpu", False, False), ("cuda", True, True), ("cuda", False, False)],
)
@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda':UserWarning")
def test_a_forward_that_enters_autocast(device, enabled, heeded):
    def run(self, x):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            return self.linear(x)

    found = profiled(Function(run), X)
    (product,) = (k for n in found.graph.nodes for k in n.kernels if k.flops)
    assert product.dtype == ("bfloat16" if heeded else "float32")
    assert ("autocast" in {r.code for r in found.remarks}) is not heeded
