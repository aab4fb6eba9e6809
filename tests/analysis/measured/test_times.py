"""What a saved run says: a ResNet-18 that ran on one thread of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from tests.conftest import DATA

import opgraph
from opgraph.analysis.measured.times import kernels_of
from opgraph.analysis.timing.kernels import kernel_cost
from opgraph.cli import main
from opgraph.hardware import device as device_of
from opgraph.record.errors import InputError, ProfileError, RenderError
from opgraph.record.run import RunEvent, RunRecord, quantile, spread, uncertainty
from opgraph.results import Measured, Profile
from opgraph.views import render


@pytest.fixture
def ran(saved: Callable[[str], Profile]) -> Measured:
    found = saved("resnet18-run").on("epyc-7763")
    assert isinstance(found, Measured)
    return found


def test_the_nodes_add_up_to_the_step(ran: Measured) -> None:
    by_node = ran.named_measurement().by_node
    assert ran.attributed > 0.99
    assert sum(by_node.values()) == pytest.approx(ran.seconds, rel=0.01)
    rows = ran.by_module()
    assert rows[""].measured == pytest.approx(sum(by_node.values()))
    assert rows["layer1"].measured == pytest.approx(
        sum(n.measured or 0 for n in rows["layer1"].nodes)
    )
    assert sum(r.share for r in ran.by_op().values()) == pytest.approx(1.0)
    assert ran.tree.total("measured", ran.tree.root) == pytest.approx(sum(by_node.values()))  # type: ignore[arg-type]


def test_utilization_is_by_its_definition(ran: Measured) -> None:
    device = ran.device
    assert device is not None
    assert ran.mfu == pytest.approx(3_628_146_688 / ran.seconds / device.matrix_peak("float32"))
    assert ran.mbu == pytest.approx(ran.totals.weight_bytes / ran.seconds / device.bandwidth)
    first = ran.excess[0]
    nodes = [ran.graph.node(i) for i in first.nodes]
    compute = [(n.flops + n.other_flops) / device.vector_peak("float32") for n in nodes]
    least = [max(c, n.bytes / device.bandwidth) for c, n in zip(compute, nodes, strict=True)]
    assert first.attainable == pytest.approx(sum(least))
    everything = sum(ran.named_measurement().by_node.values())
    assert sum(e.measured for e in ran.excess) == pytest.approx(everything)
    assert [e.seconds for e in ran.excess] == sorted((e.seconds for e in ran.excess), reverse=True)
    assert {r.category for r in ran.residuals} >= {"convolution", "pooling", "matmul"}
    with pytest.raises(RenderError, match="what a node should take needs a device"):
        _ = opgraph.load(DATA / "resnet18-run.json").on().excess  # type: ignore[attr-defined]


def test_a_kernel_of_several_nodes_is_shared_out_by_their_bytes(
    saved: Callable[[str], Profile],
) -> None:
    profile = saved("resnet18")
    two = (2, 3)
    run = RunRecord(
        "cuda", events=(RunEvent("fused", 4.0, two, count=2),), steps=2, profiled=(2.0,)
    )
    by_node = Measured(replace(profile, measured=run)).named_measurement().by_node
    sizes = [profile.graph.node(i).bytes for i in two]
    assert by_node == {
        i: pytest.approx(2 * size / sum(sizes)) for i, size in zip(two, sizes, strict=True)
    }


def test_kernels_are_held_against_the_device_and_not_against_their_launch(
    saved: Callable[[str], Profile],
) -> None:
    """A small batch on a large card waits for the host, as its kernels do not. What is on no node has the
    name of what launched it."""
    events = (RunEvent("sm90", 4e-5, (2,)), RunEvent("vectorized", 1e-6, host="aten::eq"))
    run = RunRecord("cuda", how="trace", events=events, profiled=(2e-3,))
    costed = replace(saved("resnet18"), measured=run).on("h100-sxm")
    assert isinstance(costed, Measured)
    assert costed.prediction is not None
    assert costed.prediction.limit == "host"
    (residual,) = costed.residuals
    assert residual.predicted == costed.prediction.by_node[2] < costed.prediction.by_limit[2]
    assert "not: aten::eq, 1 µs\n" in (text := str(costed))
    assert "other versions may run other operators" in " ".join(text.split())


CORE = """name = "one core"
vendor = "this machine"
kind = "cpu"
architecture = "x86_64"
[sources]
measured = "opgraph hardware --calibrate"
[vector]
float32 = [6e10, "measured"]
[memory]
bandwidth = [1e10, "measured"]
capacity = [25e9, "measured"]
[execution]
units = [1, "measured"]
launch_overhead = [2e-6, "measured"]
"""


@pytest.mark.slow
def test_a_device_is_fitted_to_a_run(ran: Measured, tmp_path: Path) -> None:
    core, fitted = tmp_path / "core.toml", tmp_path / "fitted.toml"
    core.write_text(CORE)
    run = str(DATA / "resnet18-run.json")
    assert main(["hardware", str(core), "--from", run, "-o", str(fitted)]) == 0
    kernels = kernels_of(ran)
    assert {k.task.category for k in kernels} >= {
        "convolution",
        "pooling",
        "matmul",
        "normalization",
    }

    def off(file: Path) -> float:
        device = device_of(str(file))
        errors = [abs(log(kernel_cost(k.task, 0, device).seconds / k.seconds)) for k in kernels]
        return sum(errors) / len(errors)

    assert off(fitted) < off(core)


@pytest.mark.slow
def test_both_times_stand_in_every_view(ran: Measured) -> None:
    text = str(render("table", ran, width=140, sort="measured", top=3))
    assert "Measured" in text
    assert "% measured" in text
    assert "Measured on AMD EPYC, 1 thread" in text
    assert "MFU" in text
    assert "costs more than it has to" in text
    assert '"measured"' in str(render("json", ran))
    assert str(render("csv", ran)).partition("\n")[0].endswith("seconds,measured")
    svg = str(render("svg", ran, color_by="measured", depth=1))
    assert "measured time on AMD EPYC" in svg
    trace = str(render("trace", ran))
    assert "resnet18 on AMD EPYC, measured" in trace
    assert "resnet18 on AMD EPYC 7763, predicted" in trace
    plain = str(render("trace", opgraph.load(DATA / "resnet18-run.json").on()))
    assert "predicted" not in plain


def test_a_difference_within_noise_breaks_no_gate(saved: Callable[[str], Profile]) -> None:
    profile = saved("resnet18-run")
    run = profile.measured
    assert run is not None

    def slower(factor: float, noise: float) -> Profile:
        times = [run.seconds * factor * (1 + noise * step) for step in range(-4, 5)]
        return replace(profile, measured=replace(run, repeats=tuple(times)))

    quiet, loud = slower(1.0, 0.001), slower(1.0, 0.05)
    found = opgraph.compare(quiet, slower(1.08, 0.001), fail_if="measured > +5%")
    assert [v.gate.text for v in found.broken] == ["measured > +5%"]
    held = opgraph.compare(loud, slower(1.08, 0.05), fail_if="measured > +5%")
    assert not held.broken
    assert "of noise" in str(held)
    assert not opgraph.compare(quiet, slower(1.03, 0.001), fail_if="measured > +5%").broken
    unmeasured = opgraph.compare(saved("resnet18"), quiet, fail_if="measured > +5%")
    assert len(unmeasured.broken) == 1  # nobody looked


def test_spread_and_uncertainty() -> None:
    times = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert quantile(times, 0.5) == 3.0
    assert spread(times) == pytest.approx(1 / 3)
    assert uncertainty(times) == pytest.approx(1.57 * 2 / 5**0.5 / 3)
    assert uncertainty([]) == 0.0


def test_a_run_is_that_of_its_graph(tmp_path: Path) -> None:
    text = (DATA / "resnet18-run.json").read_text()
    broken = tmp_path / "broken.json"
    broken.write_text(
        text.replace('"aten::mkldnn_convolution",', '"aten::mkldnn_convolution",-', 1)
    )
    with pytest.raises(ProfileError, match="broken"):
        opgraph.load(broken)
    broken.write_text(text.replace(',[55],"operator"', ',[5555],"operator"', 1))
    with pytest.raises(ProfileError, match="not of its nodes"):
        opgraph.load(broken)
    with pytest.raises(InputError, match="the precision that it has"):
        opgraph.load(DATA / "resnet18-run.json").on(autocast="bfloat16")
