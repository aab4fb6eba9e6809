"""`memory_format="channels_last"`: the layout of convolutions, as torch hands it on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.timing.workload import workload


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_convolutions_are_channels_last_and_quicker(mode):
    here, x = model(), torch.randn(32, 64, 56, 56)
    plain, laid = (
        opgraph.profile(here, x, mode=mode, memory_format=each)
        for each in ("contiguous", "channels_last")
    )
    layouts = [
        {w.task.layout for w in workload(p.graph) if w.task.category == "convolution"}
        for p in (plain, laid)
    ]
    assert layouts == [{"contiguous"}, {"channels-last"}]
    assert laid.totals.flops == plain.totals.flops
    seconds = [p.on("rtx-4090", autocast="float16").prediction.seconds for p in (plain, laid)]
    assert seconds[1] < seconds[0]
    assert here[0].weight.is_contiguous()
    assert x.is_contiguous()
    with torch.no_grad():  # as torch itself hands the layout on
        out = here.to(memory_format=torch.channels_last)[:4](
            x[:2].to(memory_format=torch.channels_last)
        )
    convolution = next(n for n in laid.graph.nodes if n.name == "3")
    assert laid.graph.value[convolution.outputs[0]].strides == out.stride()


def test_it_is_refused_where_it_changes_nothing():
    with pytest.raises(opgraph.InputError, match="no weights of four dimensions"):
        opgraph.profile(nn.Linear(4, 4), torch.zeros(2, 4), memory_format="channels_last")
