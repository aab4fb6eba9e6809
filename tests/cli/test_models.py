"""`opgraph models` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import opgraph as package
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
    for text in ("torchvision", "hf-type", "timm", "albert-base-v1"):
        assert text in done.stdout


def test_a_pattern_chooses_names():
    found = json.loads(opgraph("models", "resnet1*", "--source", "torchvision", "--json").stdout)
    assert [f["name"] for f in found] == ["resnet101", "resnet152", "resnet18"]


def listed(capsys, *arguments):
    assert main(["models", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_filters_choose_by_what_is_known(capsys):
    found = listed(capsys, "--task", "detection", "--max-params", "30M", "--sort", "flops")
    assert found
    assert all("detection" in f["task"] and f["parameters"] <= 30e6 for f in found)
    assert [f["flops"] for f in found] == sorted((f["flops"] for f in found), reverse=True)


def test_pages_and_tops_are_parts_of_the_same_list(capsys):
    whole = listed(capsys, "--source", "timm", "--sort", "name")
    second = listed(capsys, "--source", "timm", "--sort", "name", "--page", "2")
    assert second == whole[50:100]
    assert listed(capsys, "--source", "timm", "--sort", "name", "--top", "3") == whole[:3]


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ("--task detecton", "no task is called detecton", "one of object-detection, "),
        ("--sort time", "--sort time means nothing to names", "name"),
        ("--max-params 1", "no name fits all of this", "not known"),
        ("--max-params many", "not a number", ""),
        ("--format cvs", "no form 'cvs'", "one of csv, "),
        ("resnet118", "no name fits resnet118", "resnet18"),
    ],
)
def test_what_no_name_fits_says_why(capsys, options, error, hint):
    assert main(["models", *options.split()]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert hint in said


@pytest.mark.live
@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1"])
def test_what_is_known_is_what_is_traced(capsys, name):
    known = next(f for f in listed(capsys, name, "--source", "torchvision") if f["name"] == name)
    totals = package.profile(name).totals
    assert (known["parameters"], known["flops"]) == (totals.parameters, totals.flops)
    assert known["inputs"] == "x=1x3x224x224"


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
