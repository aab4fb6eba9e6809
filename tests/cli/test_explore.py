"""`opgraph explore` as it is typed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.cli import main

BERT = str(DATA / "bert-base-uncased.json")


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_without_a_model_it_says_what_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore"]) == 0
    text = capsys.readouterr().out
    assert "torchvision" in text
    assert text.count("  opgraph explore ") == 3


@pytest.mark.parametrize("options", [["-o", "x.json"], ["--json"], ["-i"]])
def test_what_is_of_a_model_needs_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explore", *options]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.splitlines()[0]) == ("", "error: MODEL is required")


@pytest.mark.slow
def test_every_next_command_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", BERT]) == 0
    lines = capsys.readouterr().out.split("\nNext\n")[1].splitlines()
    commands = [line.split() for line in lines if line.strip().startswith("opgraph")]
    assert len(commands) >= 4
    for command in commands:
        assert main(command[1:]) == 0
        assert " nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--start", "0"], "--start: 0 is not a whole number"),
        (["--start", "-3"], "--start: -3 is not a whole number"),
        (["--start", "319"], "there is no node 319: the last one is 318"),
        (["--start", "9", "--end", "3"], "--start 9 is after --end 3"),
        (["--around", "9", "--end", "3"], "two ways"),
        (["--start", "x"], "--start: x is not a whole number"),
        (["-o", "nodes.png"], "explore does not write .png"),
        (["-i"], "-i needs a terminal"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_two(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    try:
        status = main(["explore", BERT, *arguments])
    except SystemExit as left:
        status = int(str(left.code))
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert why in captured.err


def test_files_hold_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explore", BERT, "--op", "linear", "--module", "encoder.layer.0"]
    for suffix in ("txt", "md", "csv", "json"):
        assert main([*asked, "-o", str(tmp_path / f"nodes.{suffix}")]) == 0
    capsys.readouterr()
    assert main(asked) == 0
    assert (tmp_path / "nodes.txt").read_text() == capsys.readouterr().out
    records = json.loads((tmp_path / "nodes.json").read_text())["nodes"]
    assert [r["id"] for r in records] == [15, 18, 21, 30, 34, 36]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "nodes.csv").read_text())))
    assert [int(r["flops"]) for r in rows] == [r["flops"] for r in records]
    markdown = (tmp_path / "nodes.md").read_text()
    assert markdown.count("| linear |") == 6
    assert "time" not in markdown
    for record, row in zip(records, rows, strict=True):
        assert record["fusion"] == row["fusion"] == "contraction"
        assert record["fusion_end"].startswith("the next, ")
        assert f"subgraph {record['subgraph']}, " in markdown


def test_on_a_device_files_have_predicted_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explore", BERT, "--op", "linear", "--module", "pooler", "--hardware", "h100-sxm"]
    for suffix in ("md", "csv", "json"):
        assert main([*asked, "-o", str(tmp_path / f"nodes.{suffix}")]) == 0
    (record,) = json.loads((tmp_path / "nodes.json").read_text())["nodes"]
    assert 1e-6 < record["seconds"] < 1e-3
    assert f",{record['seconds']}," in (tmp_path / "nodes.csv").read_text()
    assert " µs | modeling" in (tmp_path / "nodes.md").read_text()
    capsys.readouterr()
    assert main(["explore", BERT, "--hardware", "h100-sxm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > record["seconds"]


def test_the_overview_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("txt", "md", "csv", "json"):
        assert main(["explore", BERT, "-o", str(tmp_path / f"overview.{suffix}")]) == 0
    data = json.loads((tmp_path / "overview.json").read_text())
    assert data["totals"]["flops"] == sum(o["flops"] for o in data["operators"])
    capsys.readouterr()
    assert main(["explore", BERT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == data
