"""A profile as a compiler would run it, of saved kernels: no torch is needed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from opgraph import Profile, RenderError
from opgraph.cli import main
from opgraph.record.graph import Storage
from opgraph.record.kinds import Run
from opgraph.record.profile import Compiled, CompiledKernel

DEVICE = "epyc-9654"
"""The saved profile is that of a CPU."""


@pytest.fixture
def chained(saved) -> Profile:
    """ResNet-18 of which the compiler made kernels as they were, but for normalization and activation,
    which read what the convolution wrote and write what the next one reads."""
    profile = saved("resnet18")
    kernels, number = [], 0
    for node in profile.graph.nodes:
        for kernel in node.kernels:
            if not kernel.bytes:
                continue
            nodes, fused = (node.id,), kernel
            if node.op == "relu" and kernels and profile.graph.node(node.id - 1).op == "batch_norm":
                before = kernels.pop()
                fused = replace(kernel, op="inductor.pointwise")
                nodes = (*before.nodes, node.id)
            number += 1
            reads, writes = ((number, fused.read),), ((number + 1, fused.written),)
            kernels.append(CompiledKernel(fused, nodes, reads, writes, node.fragment))
    end = {len(kernels): None}
    storages = tuple(Storage(k.kernel.written, at, end.get(at + 1, at + 2), k.nodes[-1])
                     for at, k in enumerate(kernels))  # fmt: skip
    compiled = Compiled(profile.target.name, None, tuple(kernels), storages=storages)
    return replace(profile, compiled=compiled)


def test_flops_stay_bytes_and_launches_are_fewer(chained):
    eager, mine = chained.on(DEVICE), chained.on(DEVICE, run="compiled")
    assert mine.totals.flops == eager.totals.flops
    assert mine.totals.bytes < eager.totals.bytes
    assert mine.memory.peak == mine.fit.peak <= eager.memory.peak
    assert len(mine.memory.live) == sum(len(n.kernels) for n in mine.graph.nodes)
    assert mine.memory.live[-1] == eager.memory.live[-1]
    assert mine.prediction.seconds == pytest.approx(sum(mine.prediction.by_node.values()))
    assert mine.prediction.seconds < eager.prediction.seconds
    gain = mine.speed_up
    assert gain.factor == pytest.approx(eager.prediction.seconds / mine.prediction.seconds)
    assert gain.launches[1] < gain.launches[0]
    explained = sum(r.seconds for r in gain.reasons)  # on a CPU a call that is spared is, too
    assert explained == pytest.approx(gain.eager - gain.compiled, rel=0.05)
    assert any(
        r.text == "batch_norm and relu in one kernel" and r.seconds > 0 for r in gain.reasons
    )
    assert chained.on(DEVICE, run="compiled,graphs").prediction.host_seconds == 0


def test_a_part_is_as_it_was_traced_and_says_so(chained):
    mine = chained.on(DEVICE, run="compiled,graphs")
    module = next(n.module for n in mine.nodes if n.op == "conv2d")
    alone = mine.extract(module)
    assert alone.run is Run.GRAPHS
    assert alone.compiled is None
    assert any("as it was traced" in note for note in alone.remarks)


def test_a_fragment_of_a_saved_compiled_run_opens(chained, tmp_path, capsys):
    compiled = chained.compiled
    last = compiled.kernels[len(compiled.kernels) // 2].nodes[-1]
    nodes = tuple(replace(n, fragment=1 + (n.id > last)) for n in chained.graph.nodes)
    kernels = tuple(replace(k, fragment=1 + (k.nodes[0] > last)) for k in compiled.kernels)
    broken = replace(chained, run=Run.COMPILED, graph=replace(chained.graph, nodes=nodes),
                     compiled=replace(compiled, kernels=kernels))  # fmt: skip
    broken.save(tmp_path / "r.json")
    said = ["profile", str(tmp_path / "r.json"), "--fragment", "1", "--hardware", DEVICE]
    assert main(said) == 0
    assert "a part is as it was traced, and not compiled" in capsys.readouterr().out


def test_what_is_saved_is_the_trace_and_the_kernels(chained, tmp_path, capsys):
    compiled = chained.on(DEVICE, run="compiled")
    compiled.save(tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text())
    again = Profile.from_dict(data)
    assert again == replace(chained, run="compiled")
    assert again.on(DEVICE).to_json() == compiled.to_json()
    assert data["totals"] == chained.totals.to_dict()
    assert data["costed"]["compiled"]["factor"] > 1
    files = str(tmp_path / "r.json")
    assert (
        main(["compare", files, "--run", "eager", "--run", "compiled", "--hardware", DEVICE]) == 0
    )
    said = capsys.readouterr().out
    assert "Kernels" in said
    assert "Latency" in said
    assert main(["compare", files, "--run", "eager"]) == 2


def test_it_is_refused_where_nothing_was_compiled_or_for_another(chained, saved):
    with pytest.raises(RenderError, match="does not have TorchInductor's kernels"):
        saved("resnet18").on("rtx-4090", run="compiled")
    with pytest.raises(RenderError, match="compiled this profile for"):
        chained.on("rtx-4090", run="compiled")
    with pytest.raises(RenderError, match="mixed precision"):
        chained.on(DEVICE, run="compiled", autocast="float16")
