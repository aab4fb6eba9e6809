"""Building without memory: what is shared stays shared, and what was patched is put back."""

from __future__ import annotations

import subprocess
import sys
import threading
from mmap import PAGESIZE
from pathlib import Path

import pytest
import torch
from torch import nn

from opgraph.record.errors import SourceError
from opgraph.sources.building import assemble
from opgraph.sources.weightless import give_back, settle, weightless


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        shared = nn.Parameter(torch.ones(3))
        self.left, self.right = shared, shared
        self.register_buffer("positions", torch.arange(4))


def test_parameters_have_no_memory_and_buffers_have() -> None:
    with weightless():
        module = Tied()
    assert all(p.is_meta for p in module.parameters())
    assert module.positions.tolist() == [0, 1, 2, 3]


def test_what_is_shared_stays_shared() -> None:
    with weightless():
        module = Tied()
    assert module.second.weight is module.first.weight
    assert module.left is module.right


def test_what_is_too_big_is_never_made() -> None:
    with weightless():
        layer = nn.Linear(2**20, 2**20)
    assert layer.weight.is_meta
    assert layer.weight.numel() == 2**40


def test_other_threads_and_the_time_after_are_not_touched() -> None:
    made: list[nn.Module] = []
    with weightless():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
    made.append(nn.Linear(2, 2))
    assert not any(p.is_meta for module in made for p in module.parameters())


def test_what_fails_by_itself_is_not_made_with_weights_to_see_whether_they_help() -> None:
    tried = []

    def construct() -> nn.Module:
        tried.append(nn.Linear(2, 2).weight.device.type)
        if len(tried) < 2:
            raise TypeError("without values")
        raise AttributeError("no attribute 'layers'")

    def fails() -> nn.Module:
        tried.append(nn.Linear(2, 2).weight.device.type)
        raise AttributeError("no attribute 'layers'")

    with pytest.raises(SourceError, match="no attribute 'layers'"):
        assemble(fails, name="own", source="test")
    assert len(tried) == 2
    tried.clear()
    with pytest.raises(SourceError, match="no attribute 'layers'"):
        assemble(construct, name="own", source="test")
    assert len(tried) == 3  # what came of it was not the same


@pytest.mark.slow
def test_what_a_loss_needs_is_not_imported_to_build_a_model():
    script = """
import sys
from opgraph.sources import resolve
from opgraph.sources.libraries import lazy_imports

resolve("distilgpt2")
assert "scipy.optimize" not in sys.modules
from transformers.loss.loss_for_object_detection import linear_sum_assignment
assert linear_sum_assignment([[1.0, 0.0], [0.0, 1.0]])[1].tolist() == [1, 0]
assert "minimize" in vars(sys.modules["scipy.optimize"])

del sys.modules["scipy.optimize"]
with lazy_imports():
    from scipy.optimize import minimize
assert minimize.__module__.startswith("scipy")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_parameters_had_for_a_moment_is_given_back() -> None:
    """40 parameters of 8 MiB that are computed, with a buffer behind each that stays: the C library would
    keep their memory."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE

    class Computed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = [(torch.ones(2**21), torch.ones(2**15)) for _ in range(40)]
            self.most = resident()
            for number, (weight, buffer) in enumerate(made):
                self.register_buffer(f"buffer_{number}", buffer)
                self.register_parameter(f"weight_{number}", nn.Parameter(weight))
                made[number] = (buffer, buffer)
                del weight

    torch.ones(2**22)  # freed at once: from now on the C library itself holds such memory
    give_back()
    before = resident()
    with weightless():
        module = Computed()
    assert module.most - before > 300 * 2**20
    assert resident() - before < 200 * 2**20


@pytest.mark.parametrize("pretend", [False, True])
def test_what_is_sparse_keeps_what_it_stores(pretend: bool) -> None:
    class Thin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8).to_sparse())
            self.none = torch.zeros(100_000, 100_000, layout=torch.sparse_coo)

    with weightless(pretend=pretend) as moved:
        model = Thin()
    settle(model)
    assert moved.bytes == 0
    assert torch.equal(model.weight.detach().to_dense(), torch.eye(8))
    assert model.none.device.type == "cpu"
