"""A step of training that ran here, in a trace without marks, on the graph of the same step."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import opgraph
from opgraph.traces import join, read

pytestmark = [pytest.mark.live, pytest.mark.slow]


def squares(output):
    return output.square().mean()


def test_forward_backward_and_optimizer_of_a_trace_without_marks(tmp_path):
    """The graph has the attention and the `foreach` of a GPU; the CPU ran attention in parts, and the
    optimizer as a loop over the weights: the sequence numbers of the forward and the optimizer's own mark
    lead to the nodes."""
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2, enable_nested_tensor=False
    )
    inputs = torch.randn(2, 8, 32)
    traced = opgraph.profile(model, inputs, mode="train", optimizer="sgd", loss=squares)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        optimizer.zero_grad()
        squares(model(inputs)).backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as ran:
        for _ in range(3):
            step()
    ran.export_chrome_trace(str(tmp_path / "trace.json"))

    run = join(traced.graph, read(tmp_path / "trace.json"))
    assert run.steps == 3
    works = ("mm", "addmm", "bmm", "native_layer_norm", "_softmax", "native_layer_norm_backward",
             "_softmax_backward_data", "threshold_backward", "sum", "add_", "relu")  # fmt: skip
    named = [e for e in run.events if run.works(e) and e.name.removeprefix("aten::") in works]
    assert {e.name.removeprefix("aten::") for e in named} == set(works)
    assert [e for e in named if not e.nodes] == []
    seconds: Counter[tuple[str, str]] = Counter()
    for event in (e for e in run.events if run.works(e) and e.nodes):
        seconds[traced.graph.node(event.nodes[0]).phase, event.link] += event.seconds
    assert {phase for phase, _ in seconds} == {"forward", "backward", "optimizer"}
    assert {("backward", "sequence"), ("backward", "alignment"), ("optimizer", "names")} <= set(
        seconds
    )
