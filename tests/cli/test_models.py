"""`opgraph models` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from opgraph.cli import main


def opgraph(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opgraph", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_families_are_listed_by_source():
    done = opgraph("models")
    assert done.returncode == 0
    for text in ("torchvision", "hf-type", "timm", "albert-base-v2"):
        assert text in done.stdout


def test_a_pattern_chooses_names():
    found = json.loads(opgraph("models", "resnet1*", "--source", "torchvision", "--json").stdout)
    assert [f["name"] for f in found] == ["resnet101", "resnet152", "resnet18"]


@pytest.mark.slow
def test_trying_gives_a_row_for_each_and_says_why_not(tmp_path):
    rows = tmp_path / "rows.jsonl"
    done = opgraph("models", "--try", "alexnet", "resnet81", "--json", "--resume", str(rows))
    assert done.returncode == 1
    good, bad = json.loads(done.stdout)
    assert (good["ok"], good["nodes"], good["parameters"]) == (True, 24, 61_100_840)
    assert (bad["ok"], bad["stage"], bad["reason"]) == (
        False,
        "build",
        "no source knows a model resnet81",
    )
    again = opgraph("models", "--try", "alexnet", "--resume", str(rows))
    assert "1 of 1 are in" in again.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--memory-limit", "nan"), ("--memory-limit", "inf"), ("--memory-limit", "-1"),
     ("--timeout", "nan"), ("--timeout", "-5"), ("--timeout", "1e9"), ("--jobs", "-3"), ("--jobs", "two")],
)  # fmt: skip
def test_limits_that_cannot_be_kept(capsys, option, value):
    assert main(["models", "--try", "alexnet", f"{option}={value}"]) == 2
    assert f"error: {option}: {value} is not a" in capsys.readouterr().err


def test_a_name_that_nothing_fits():
    done = opgraph("models", "nosuchmodel*")
    assert done.returncode == 2
    assert "error: no name fits nosuchmodel*" in done.stderr
