"""Device files: every figure has a source, names are forgiving, and a bad file is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from opgraph.hardware import UnknownDevice, cluster, device, devices
from opgraph.hardware.devices import family
from opgraph.record.errors import OpgraphError


@pytest.mark.parametrize("known", devices(), ids=lambda d: d.id)
def test_every_device_is_complete_and_plausible(known):
    assert known.kind in {"gpu", "cpu", "accelerator"}
    assert all(f.source for f in known.figures.values())
    assert 10e9 < known.bandwidth < 20e12
    assert 4e9 < known.capacity < 10e12
    assert known.matrix_peak("bfloat16") >= known.matrix_peak("float32") >= 2e11
    assert 0.5 < known.ridge_point("float16") < 1000


NOBODY_SAID = {"Pascal", "CDNA", "CDNA 3"}


@pytest.mark.parametrize("known", [d for d in devices() if d.kind != "cpu"], ids=lambda d: d.id)
def test_what_a_device_has_of_memory_was_read_there(known):
    """A processor's memory is what was fitted to it; a driver's share grows with the multiprocessors."""
    nominal = {k for k, f in known.figures.items() if f.source.startswith("nominal")}
    assert nominal <= ({"memory.context"} if known.architecture in NOBODY_SAID else set())
    assert ("memory.context" in known.figures) == (known.vendor not in {"Apple", "Google"})
    assert "report" in (said := known.figures["memory.capacity"].source) or "leaves" in said
    if known.vendor == "NVIDIA" and known.architecture not in {"Pascal", "Volta"}:
        assert 2.9 < known.context / 2**20 / known.units < 4.8


def test_names_and_aliases_belong_to_one_device():
    spellings = [n.lower() for d in devices() for n in {d.id, d.name, *d.aliases}]
    assert len(set(spellings)) == len(spellings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H100-SXM", "h100-sxm"),
        ("h100", "h100-sxm"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("a100_80gb", "a100-sxm4-80gb"),
        ("Trillium", "tpu-v6e"),
    ],
)
def test_names_are_forgiving(name, expected):
    assert device(name).id == expected


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UnknownDevice, match="h1000") as caught:
        device("h1000")
    assert "h100-sxm" in caught.value.hint


@pytest.mark.parametrize(
    ("dtype", "peak"),
    [
        ("float16", 989.4e12),
        ("bfloat16", 989.4e12),
        ("float32", 67e12),
        ("float8_e4m3fn", 1978.9e12),
    ],
)
def test_dense_peaks_of_the_h100(dtype, peak):
    assert device("h100").matrix_peak(dtype) == peak


def test_a_dtype_that_the_device_lacks_runs_like_float32():
    assert (
        device("v100").matrix_peak("bfloat16") == device("v100").matrix_peak("float32") == 15.7e12
    )


@pytest.mark.parametrize(
    ("dtype", "listed"),
    [("float8_e5m2", "float8"), ("uint8", "int8"), ("qint8", "int8"), ("complex64", "float32")],
)
def test_dtype_families(dtype, listed):
    assert family(dtype) == listed


GOOD = """
name = "Toy"
aliases = []
vendor = "Me"
kind = "cpu"
architecture = "none"
[sources]
measured = "with a stop-watch"
[vector]
float32 = [1e12, "measured"]
[memory]
bandwidth = [1e11, "measured"]
capacity = [16e9, "measured"]
[execution]
launch_overhead = [1e-6, "measured"]
"""


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(GOOD)
    toy = device(str(path))
    assert (toy.id, toy.name, toy.bandwidth) == ("toy", "Toy", 1e11)
    assert toy.matrix_peak("float16") == 1e12
    assert toy.link_bandwidth is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[sources]", "[sources", "not a device file"),
        ('name = "Toy"', "name = 3", "'name'"),
        ("aliases = []", "colour = 1", "'colour'"),
        ('[1e12, "measured"]', "1e12", "vector.float32"),
        ('[1e12, "measured"]', '[1e12, "hearsay"]', "'hearsay'"),
        ('[1e12, "measured"]', '[-1.0, "measured"]', "positive"),
        ('[1e12, "measured"]', '[nan, "measured"]', "positive"),
        ("bandwidth", "bandwith", "'bandwith'"),
        ('capacity = [16e9, "measured"]', "", "memory.capacity"),
        ('kind = "cpu"', 'kind = "GPU"', "gpu, accelerator, cpu"),
        ("float32 =", "float31 =", "'float31'"),
        ("[memory]", '[sustained]\nvector = [84, "measured"]\n[memory]', "sustained.vector"),
        ("[memory]", '[power]\nidle = [9, "measured"]\n[memory]', "power.limit"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path, old, new, message):
    path = tmp_path / "toy.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(OpgraphError, match=r"toy\.toml") as caught:
        device(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file():
    with pytest.raises(OpgraphError, match="No such file"):
        device("nowhere.toml")


def test_a_number_of_devices_and_a_network() -> None:
    assert cluster("1024xh100-sxm") == (1024, device("h100-sxm"))
    assert cluster("h100") == (None, device("h100-sxm"))
    with pytest.raises(OpgraphError, match="at least one device"):
        cluster("0xh100-sxm")
    other = device("h100-sxm").over("200Gb/s", node=4)
    assert (other.network_bandwidth, other.node) == (25e9, 4)
    assert device("h100-sxm").over("50GB/s").network_bandwidth == 50e9


def test_a_network_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "roce.toml"
    text = '[sources]\nme = "measured"\n\n[network]\nbandwidth = [12.5e9, "me"]\nreached = [0.8, "me"]\n'
    file.write_text(text)
    found = device("h100-sxm").over(str(file))
    assert found.network_reached == 10e9
    assert found.of_network("latency") == device("h100-sxm").of_network("latency")
    file.write_text(text.replace("[network]", "[link]"))
    (flat := tmp_path / "flat.toml").write_text("network = 1\n")
    endless = "9" * 400 + "Gb/s"
    for wrong in (str(file), str(flat), "fast", "0Gb/s", endless, str(tmp_path / "none.toml")):
        with pytest.raises(OpgraphError):
            device("h100-sxm").over(wrong)
