"""A calibration: what is a GPU's bandwidth, and what kernels tell that were measured on an H100."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from opgraph.analysis.timing.fitting import fit_sustained, measured_of
from opgraph.hardware.devices import parse

torch = pytest.importorskip("torch")
RECORDED = Path(__file__).parents[2] / "benchmarks" / "gpu_h100.json"
KEYS = ("bandwidth", "matrix", "product", "elementwise")
MIB = 2**20


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text("utf-8"))["calibrated"]


def test_bandwidth_is_that_of_the_quickest_copy_that_the_cache_of_a_gpu_does_not_hold():
    from opgraph.hardware.calibrate import copied_at

    copies = {16 * MIB: 5.1e12, 64 * MIB: 2.91e12, 256 * MIB: 2.5e12, 512 * MIB: 2.43e12}
    assert copied_at("cuda", copies, 50 * MIB) == 64 * MIB
    assert copied_at("cuda", copies, 96 * MIB) == 256 * MIB
    assert copied_at("cuda", copies, 1024 * MIB) == 512 * MIB
    assert copied_at("cpu", copies, 32 * MIB) == 512 * MIB


def test_matrix_units_are_known_by_large_products(recorded):
    from opgraph.hardware.calibrate import large_products

    here = parse(tomllib.loads(recorded[0]["file"]), "this")
    small = [row for row in recorded[1:] if row["op"] != "product" or row["m"] <= 128]
    large = large_products("cuda", "float16", {8192: 715.54e12})
    assert large[0]["seconds"] == pytest.approx(2 * 8192**3 / here.matrix_peak("float16"), rel=1e-3)

    def share(rows):
        return fit_sustained(here, list(map(measured_of, rows)), KEYS)["matrix"]

    assert share(small) < 0.5
    assert share(small + large) > 0.95


def test_a_cpu_is_fitted_to_what_it_was():
    from opgraph.hardware.calibrate import large_products

    assert large_products("cpu", "float32", {1024: 1e11, 2048: 1e11}) == []


@pytest.mark.parametrize("of", ["products", "all"])
def test_a_calibration_leaves_random_numbers_and_precision(of, monkeypatch):
    from opgraph.hardware import calibrate

    smaller = {"_SECONDS": 0.0, "_COLD": 2**16, "_PRODUCTS": {"cpu": (64,), "cuda": (64,)},
               "_COPIES": {"cpu": (2**16,), "cuda": (2**16,)}}  # fmt: skip
    for name, value in smaller.items():
        monkeypatch.setattr(calibrate, name, value)
    products, everything = torch.backends.cuda.matmul, torch.backends
    chosen = products if of == "products" else everything
    unset = products.fp32_precision
    was, chosen.fp32_precision = chosen.fp32_precision, "tf32"
    try:
        before = torch.get_rng_state(), products.fp32_precision, everything.fp32_precision
        calibrate.calibrate(lambda _: None)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (products.fp32_precision, everything.fp32_precision) == before[1:]
    finally:
        chosen.fp32_precision = was
    assert products.fp32_precision == unset
