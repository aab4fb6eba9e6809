"""`opgraph compare` as it is typed, and as continuous integration runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conftest import DATA

import opgraph
from opgraph.cli import main

A, B = str(DATA / "resnet18.json"), str(DATA / "resnet18-changed.json")


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        ([], 0),
        (["flops > +12%"], 0),
        (["flops > +2%"], 1),
        (["coverage < 100%", "flops > +2%", "nodes > +0"], 1),
    ],
)
def test_a_broken_gate_is_status_one_and_named(
    capsys: pytest.CaptureFixture[str], gates: list[str], status: int
) -> None:
    assert main(["compare", A, B, *(w for gate in gates for w in ("--fail-if", gate))]) == status
    errors = capsys.readouterr().err
    assert errors.count("gate broken") == status
    assert ("gate broken: flops > +2% (3.63 GFLOPs → 4.04 GFLOPs, +11.3 %)" in errors) == bool(
        status
    )


@pytest.mark.live
def test_gates_between_other_sizes_are_remarked_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nn, torch = pytest.importorskip("torch.nn"), pytest.importorskip("torch")
    files = [str(tmp_path / f"{batch}.json") for batch in (8, 1)]
    for file, batch in zip(files, (8, 1), strict=True):
        opgraph.profile(nn.Linear(2, 2), torch.ones(batch, 2)).save(file)
    assert main(["compare", *files, "--fail-if", "flops > +2%"]) == 0
    assert f"hold {files[1]} on input 1x2 to {files[0]} on input 8x2" in capsys.readouterr().err
    assert main(["compare", *files]) == main(["compare", A, A, "--fail-if", "flops > +2%"]) == 0
    assert "note: the gates" not in capsys.readouterr().err


def test_options_can_stand_between_models(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for arguments in (
        [A, B, "--hardware", "t4"],
        [A, "--hardware", "t4", B],
        ["--hardware", "t4", A, B],
    ):
        assert main(["compare", *arguments, "--json"]) == 0
        answers.append(capsys.readouterr().out)
    assert len(set(answers)) == 1


def test_profiles_that_are_run_in_two_ways_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operator differs, nor what it takes of the device: the latency does."""
    monkeypatch.chdir(tmp_path)
    files = [f"{run}.json" for run in ("eager", "graphs")]
    profile = opgraph.load(A)
    for file, run in zip(files, ("eager", "graphs"), strict=True):
        profile.on("h100-sxm", run=run).save(file)
    assert main(["compare", *files, "--hardware", "h100-sxm"]) == 0
    text = capsys.readouterr().out
    assert "eager.json eager" in text
    assert "graphs.json graphs" in text
    assert re.search(r"Latency +1.7 ms +344 µs", text)
    assert "No operator differs" in text
    assert "left out" not in text


def test_runs_that_differ_in_time_alone_take_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", A, B, "--run", "graphs"]) == 2
    assert "--run eager and graphs differ in time alone" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.live
def test_ways_to_run_and_keep_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once it is of all, twice or more they are what is compared: the cache, as the weights and the run."""
    file = tmp_path / "decode.json"
    opgraph.profile("gpt2", mode="decode", context_len=64, model_args={"n_layer": 1}).save(file)
    start = ["compare", str(file), "--hardware", "h100-sxm", "--json", "--weights", "int4"]
    assert main([*start, "--kv-cache", "none", "--kv-cache", "fp8"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["profiles"] == ["gpt2, cache in what it computes in", "gpt2, cache in fp8"]
    assert data["totals"]["bytes"][0] > data["totals"]["bytes"][1]
    assert main([*start, "--run", "eager", "--run", "engine", "--kv-cache", "fp8"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["bytes"][0] == data["totals"]["bytes"][1]


@pytest.mark.slow
@pytest.mark.live
def test_a_model_can_have_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["compare", "resnet18", "resnet18 --batch-size 4", "--image-size", "64", "--json"])
        == 0
    )
    data = json.loads(capsys.readouterr().out)
    assert data["profiles"] == ["resnet18", "resnet18 --batch-size 4"]
    assert data["totals"]["flops"][1] == 4 * data["totals"]["flops"][0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([A], "nothing to compare with"),
        ([A, B, "--fail-if", "speed > 3"], "'speed' is no quantity"),
        ([A, B, "-o", "x.png"], "no view is written to .png"),
        ([A, "resnet18 --nope 3"], "resnet18 --nope 3: unrecognized arguments: --nope 3"),
        (
            [A, B, "--by", "node", "-o", "x.md"],
            "--by changes nothing of the .md of a comparison",
        ),
        (
            [A, B, "--by", "op", "--markdown"],
            "--by changes nothing of the .md of a comparison",
        ),
        ([A, f"{A} --batch-size 8"], "--batch-size is for tracing"),
        ([A, "--run", "eager", "--run", "graphs", B], "--run more than once"),
        (
            [A, "--weights", "none", "--weights", "fp8", "--kv-cache", "none", "--kv-cache", "fp8"],
            "--weights more than once is for ways to run or keep one model, and nothing else",
        ),
        ([A, "missing.json"], "cannot read missing.json"),
    ],
)
def test_a_wrong_request_is_one_line_and_status_two(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert why in captured.err


def test_files_hold_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for suffix in ("txt", "md", "json"):
        assert main(["compare", A, B, "-o", str(tmp_path / f"c.{suffix}")]) == 0
    capsys.readouterr()
    for option, suffix in (([], "txt"), (["--markdown"], "md"), (["--json"], "json")):
        assert main(["compare", A, B, *option]) == 0
        assert capsys.readouterr().out == (tmp_path / f"c.{suffix}").read_text()
