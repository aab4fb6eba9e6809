"""Memory over time: by hand on a few storages, and against what real runs allocate."""

from __future__ import annotations

import json
import weakref

import pytest
import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opgraph.analysis.memory import live_bytes, memory
from opgraph.api.pipeline import profile_model
from opgraph.inputs import InputRequest, make_inputs
from opgraph.record.graph import Graph, Kernel, Node, Scope, Storage
from opgraph.sources import resolve
from opgraph.tracing.base import arguments
from opgraph.tracing.eager import materialized


def test_live_bytes_by_hand():
    storages = [
        Storage(100, born=0, died=None),  # an input: it outlives the run
        Storage(10, born=0, died=2),  # made by kernel 0, freed before kernel 2
        Storage(20, born=1, died=2),
        Storage(5, born=2, died=None),
    ]
    assert live_bytes(storages, kernels=3) == [110, 130, 105]


def test_the_peak_is_told_by_module_and_operator():
    kernel = Kernel("aten.relu")
    nodes = (
        Node(1, "input", "input", "x"),
        Node(2, "call", "relu", "a.relu", scope="a", kernels=(kernel,)),
        Node(3, "call", "add", "b.add", scope="b", kernels=(kernel, kernel)),
    )
    storages = (
        Storage(8, 0, None, node=1),
        Storage(16, 0, 2, node=2),
        Storage(4, 1, None, node=3),
        Storage(2, 1, 2),
    )
    scopes = (Scope("", "Root"), Scope("a", "A"), Scope("b", "B"))
    found = memory(Graph(nodes, (), scopes, storages=storages))
    assert found.live == (24, 30, 12)
    assert (found.peak, found.peak_kernel, found.peak_node) == (30, 1, 3)
    assert [(a.scope, a.op, a.bytes) for a in found.alive] == [
        ("a", "relu", 16), ("", "input", 8), ("b", "add", 4), ("", "temporary", 2),
    ]  # fmt: skip


def test_a_graph_without_kernels_has_its_inputs_alive():
    node = Node(1, "input", "input", "x")
    graph = Graph((node,), (), (Scope("", "Root"),), storages=(Storage(8, 0, None, node=1),))
    assert (memory(graph).peak, memory(graph).peak_node) == (8, None)


class RealMemory(TorchDispatchMode):
    """Bytes of real storages that are alive, weights aside, and the most there were."""

    def __init__(self, module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in [*module.parameters(), *module.buffers()]}
        self.live = self.peak = 0
        self.references = []
        self.see(inputs)

    def see(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self.known:
                self.known.add(key)
                self.live += size
                self.references.append(
                    weakref.ref(storage, lambda _, k=key, s=size: self.free(k, s))
                )
        self.peak = max(self.peak, self.live)

    def free(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.see([t for t in tree_leaves(out) if isinstance(t, torch.Tensor)])
        return out


MODELS = (
    "resnet18", "mobilenet_v2", "shufflenet_v2_x0_5", "squeezenet1_1", "densenet121", "googlenet",
    "efficientnet_b0", "convnext_tiny", "swin_t", "distilbert-base-uncased", "yolov8n.pt",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_a_real_run(name):
    model = resolve(name)
    example = make_inputs(model, InputRequest())
    predicted = memory(profile_model(model, example).graph).peak
    args, kwargs = arguments(example, None)
    module = materialized(model).eval()
    inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    with torch.no_grad(), RealMemory(module, inputs) as real:
        module(*args, **kwargs)
    assert predicted == pytest.approx(real.peak, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnext_tiny", "distilbert-base-uncased"])
def test_the_peak_is_that_of_the_allocator(name):
    """The allocator's own events. (Convolutions take scratch memory of their own on some machines,
    which is not counted: these two have none, or hardly any.)"""
    model = resolve(name)
    example = make_inputs(model, InputRequest())
    predicted = memory(profile_model(model, example).graph).peak
    args, kwargs = arguments(example, None)
    module = materialized(model).eval()
    live = sum(t.nbytes for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
    with (
        torch.no_grad(),
        torch_profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run,
    ):
        module(*args, **kwargs)
    peak = live
    events = (e for e in run.profiler.kineto_results.events() if e.name() == "[memory]")
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    assert predicted == pytest.approx(peak, rel=0.02)


def test_a_saved_profile_has_every_point(resnet18, tmp_path):
    resnet18.save(tmp_path / "resnet18.json")
    data = json.loads((tmp_path / "resnet18.json").read_text())["memory"]
    found = memory(resnet18.graph)
    assert data["live"] == list(found.live)
    assert (data["peak_bytes"], len(data["live"])) == (found.peak, resnet18.totals.kernels)
