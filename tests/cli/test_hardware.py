"""`opgraph hardware`, and `opgraph profile` with a device."""

from __future__ import annotations

import pytest
from tests.conftest import DATA

from opgraph.cli import main
from opgraph.hardware import device, devices

RESNET = str(DATA / "resnet18.json")


def test_all_devices_are_listed(capsys):
    assert main(["hardware"]) == 0
    text = capsys.readouterr().out
    assert all(d.id in text for d in devices())


@pytest.mark.parametrize("width", [60, 72, 80, 110, 120, 136, 140])
def test_the_list_is_whole_at_every_width(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["hardware"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("Ridge")
    assert not [line for line in lines if "…" in line or len(line) > width]


def test_one_device_is_shown_with_its_sources(capsys):
    assert main(["hardware", "RTX 4090"]) == 0
    text = capsys.readouterr().out
    assert "165.20 TFLOP/s" in text
    assert "Ada GPU Architecture whitepaper" in " ".join(text.split())


def test_an_unknown_device(capsys):
    assert main(["hardware", "h1000"]) == 2
    assert "hint: did you mean h100-sxm" in capsys.readouterr().err
    assert main(["profile", RESNET, "--hardware", "h1000"]) == 2


@pytest.mark.slow
@pytest.mark.live
def test_calibration_writes_a_device_file(tmp_path, capsys, monkeypatch):
    from opgraph.hardware import calibrate

    monkeypatch.setattr(calibrate, "_SECONDS", 0.04)  # a rough figure is one, too
    monkeypatch.setattr(calibrate, "_COLD", 2**20)
    monkeypatch.setattr(calibrate, "_PRODUCTS", {"cpu": (256,), "cuda": (1024,)})
    monkeypatch.setattr(calibrate, "_COPIES", {"cpu": (2**22,), "cuda": (2**24,)})
    path = tmp_path / "this.toml"
    assert main(["hardware", "--calibrate", "-o", str(path)]) == 0
    measured = device(path)
    assert measured.kind in ("cpu", "gpu")
    assert measured.bandwidth > 1e8
    assert measured.matrix_peak("float32") > 1e8
    assert measured.figure("spread.product")
    assert main(["profile", RESNET, "--hardware", str(path)]) == 0
    assert "Latency" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--hardware", "t4"], ["On NVIDIA T4", "Latency", "Throughput", "fits:"]),
        (["--memory"], ["Memory over time", "peak ", "alive at the peak"]),
        (["--partition", "fuse"], ["Fused subgraphs: 71 nodes in 25 subgraphs"]),
        (["--partition", "none"], ["Fused subgraphs: 71 nodes in 71 subgraphs"]),
    ],
)
def test_sections_of_a_profile(capsys, options, expected):
    assert main(["profile", RESNET, *options]) == 0
    text = capsys.readouterr().out
    assert all(e in text for e in expected)
