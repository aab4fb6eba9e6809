"""`opgraph sweep` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opgraph
from opgraph.cli import main

SMALL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8))
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of images that is soon traced, since formulas take more than a hundred traces."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(SMALL)
    return "small.py:build"


@pytest.mark.slow
@pytest.mark.live
def test_points_and_formulas_as_json(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.json"
    asked = ["sweep", small, "--batch-size", "1,4", "--image-size", "64", "--symbolic"]
    assert main([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [p["batch_size"] for p in data["points"]] == [1, 4]
    assert data["formulas"]["variables"][0]["name"] == "B"
    assert main([*asked, "-o", str(file)]) == 0
    formulas = opgraph.load(file).formulas
    assert formulas is not None
    assert formulas.at(B=4)["flops"] == data["points"][1]["flops"]
    assert json.loads(file.read_text())["sweep"]["points"] == data["points"]


@pytest.mark.slow
@pytest.mark.live
def test_a_sweep_of_a_model_in_fewer_bits_through_an_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The points are those of profiles with the same options; the title says what was asked."""
    step = ["gpt2", "--mode", "decode", "--model-arg", "n_layer=1", "--hardware", "l4",
            "--weights", "int8", "--kv-cache", "fp8", "--run", "engine"]  # fmt: skip
    assert main(["sweep", *step, "--batch-size", "1,4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["costing"] == {"weights": "int8", "kv_cache": "fp8", "run": "engine"}
    assert main(["profile", *step, "--batch-size", "4", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["costed"]
    assert data["points"][1]["peak_memory"] == alone["fit"]["weights"] + alone["fit"]["peak"]
    assert data["points"][1]["latency"] == alone["prediction"]["seconds"]


@pytest.mark.slow
@pytest.mark.live
def test_formulas_of_a_model_at_no_size_in_particular(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", small, "--symbolic", "--json"]) == 0
    formulas = json.loads(capsys.readouterr().out)["formulas"]
    assert [v["name"] for v in formulas["variables"]] == ["B", "N"]


@pytest.mark.slow
@pytest.mark.live
def test_a_failing_point_is_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "bert-base-uncased", "--seq-len", "16,600"]) == 1
    assert "At seq len 600" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["resnet18"], "a sweep over what?"),
        (["resnet18", "--batch-size", "1,0"], "0 is not a whole number of at least 1"),
        (["resnet18", "--batch-size", "1,,2"], "'' is not a whole number of at least 1"),
        (["resnet18", "--batch-size", "1,abc"], "abc is not a whole number of at least 1"),
        (["resnet18", "--batch-size", "1", "-o", "x.pdf"], "no view is written to .pdf"),
        (["saved.json", "--batch-size", "1"], "a saved profile has none"),
        (["resnet999", "--batch-size", "1"], "no source knows"),
        (
            ["gpt2", "--symbolic", "--weights", "int4"],
            "formulas are found of a model as it was traced",
        ),
        (["gpt2", "--batch-size", "1", "--group-size", "64"], "--group-size has no effect"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_two(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    try:
        status = main(["sweep", *arguments])
    except SystemExit as left:
        status = int(str(left.code))
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert why in captured.err
