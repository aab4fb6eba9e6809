"""`opgraph models` as a person meets it."""

from __future__ import annotations

import json
import sys

import pytest

import opgraph as package
from opgraph.cli import main


@pytest.mark.slow
def test_families_are_listed_by_source(capsys):
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    for text in ("torchvision", "hf-type", "timm", "albert-base-v1"):
        assert text in shown


def test_a_pattern_chooses_names(capsys):
    found = listed(capsys, "resnet1*", "--source", "torchvision")
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
        ("--sort time", "--sort time is of the time on a device", "--hardware"),
        ("--sort bound", "'bound' is not a choice", "one of name, parameters, flops, time"),
        ("--max-params 1", "none of them is known to have at most 1 parameters", "the least has "),
        ("resnet18 --page 99", "there is no page 99", "the last one is 1"),
        ("resnet18 --examples", "the examples are of no one name", "leave the name out"),
        ("--top 3 --top 5", "--top was given twice", "one value"),
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


def test_the_quickest_on_a_device_are_those_of_the_atlas(capsys):
    found = listed(
        capsys, "--source", "torchvision", "--hardware", "l4", "--sort", "time", "--top", "9"
    )
    seconds = [row["latency"] for row in found]
    assert seconds == sorted(seconds)
    assert main(["models", "resnet18", "--hardware", "tpu-v4"]) == 2
    assert "the atlas has no times on tpu-v4" in capsys.readouterr().err


def test_times_need_no_duckdb(capsys, monkeypatch):
    for module in ("duckdb", "_duckdb"):
        monkeypatch.setitem(sys.modules, module, None)
    found, *_ = listed(capsys, "resnet18", "--source", "torchvision", "--hardware", "h100-sxm")
    assert found["latency"] > 0
    assert main(["atlas", "select 1"]) == 2
    assert "opgraph[atlas]" in capsys.readouterr().err


def test_a_name_that_nothing_fits(capsys):
    assert main(["models", "nosuchmodel*"]) == 2
    assert "error: no name fits nosuchmodel*" in capsys.readouterr().err
