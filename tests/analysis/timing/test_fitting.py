"""What a device sustains, from a CSV of measured kernels."""

from __future__ import annotations

import csv
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from tests.analysis.timing.toys import product

from opgraph.analysis.timing.fitting import (
    fit_sustained,
    left_over,
    measured_of,
    read_measured,
    sustaining,
)
from opgraph.analysis.timing.kernels import kernel_cost
from opgraph.analysis.timing.prediction import predict
from opgraph.cli import main
from opgraph.hardware import device
from opgraph.hardware.devices import FOLDER
from opgraph.record.kinds import Run

COLUMNS = ("op", "dtype", "batch", "m", "n", "k", "window", "seconds")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Products and copies of an L4 whose units run at half of their peak, and its memory at 70 %."""
    machine = sustaining(device("l4"), {"matrix": 0.5, "bandwidth": 0.7})
    rows = [
        {"op": "product", "dtype": "float16", "m": m, "n": n, "k": 8192}
        for m in (1, 16, 128, 4096) for n in (2048, 4096, 16384)
    ]  # fmt: skip
    rows += [{"op": "copy", "dtype": "float16", "m": n} for n in (2**26, 2**28)]
    path = tmp_path / "l4.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            task = measured_of({**row, "seconds": 1}).task
            writer.writerow({**row, "seconds": kernel_cost(task, 0, machine).seconds})
    return path


def test_what_was_sustained_is_found_again(measured: Path) -> None:
    found = fit_sustained(device("l4"), read_measured(measured), ("matrix", "bandwidth"))
    assert found["matrix"] == pytest.approx(0.5, rel=0.05)
    assert found["bandwidth"] == pytest.approx(0.7, rel=0.05)


@pytest.mark.slow
def test_what_a_fit_leaves_widens_intervals(measured: Path, tmp_path: Path) -> None:
    """Kernels that no figures explain (here every other one takes twice the time) make wide intervals of
    what consists of them."""
    kernels, keys = read_measured(measured), ("matrix", "bandwidth")
    odd = [replace(m, seconds=m.seconds * (1 + i % 2)) for i, m in enumerate(kernels)]
    left = left_over(device("l4"), kernels, keys)["product"]
    odd_left = left_over(device("l4"), odd, keys)["product"]
    assert left < 0.05
    assert log(2) / 2 < odd_left < log(2)
    text = FOLDER.joinpath("l4.toml").read_text() + "[spread]\nproduct = [{}, 'datasheet']\n"
    widths = []
    for value in (left, odd_left):
        path = tmp_path / "l4.toml"
        path.write_text(text.format(value))
        low, high = predict(product(4096, 4096, 4096), device(path), Run.GRAPHS).ratios
        widths.append(high / low)
    assert widths[1] > 1.5 * widths[0]


def test_a_device_file_is_made_of_others_measurements(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert main(["hardware", "l4", "--measured", str(measured), "-o", str(path)]) == 0
    made = device(path)
    assert made.sustained_matrix == pytest.approx(0.5, rel=0.05)
    assert made.figures["sustained.matrix"].source == "l4.csv"
    assert made.matrix_peak("float16") == device("l4").matrix_peak("float16")


def test_what_else_a_device_file_says_is_kept(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert main(["hardware", "l40s", "--measured", str(measured), "-o", str(path)]) == 0
    made, known = device(path), device("l40s")
    assert made.figures["sustained.matrix"].source == "l4.csv"
    assert set(made.figures) >= set(known.figures) - {"sustained.vector"}
    assert made.power_limit == known.power_limit


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("product,float16,1,0x,1,1,1,1", "line 2 is not a measured kernel"),
        ("product,float16,1,8,8,8,1,-1", "line 2 is not a measured kernel"),
        ("sort,float16,1,8,8,8,1,1", "line 2 is not a measured kernel"),
        ("", "has no measured kernels"),
    ],
)
def test_what_is_not_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join(COLUMNS) + "\n" + line)
    assert main(["hardware", "l4", "--measured", str(path)]) == 2
    assert said in capsys.readouterr().err
