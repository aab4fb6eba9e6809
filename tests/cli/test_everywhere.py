"""What holds of every command: help with examples, quiet, verbose, defaults from pyproject, completion."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.cli import COMMANDS, main

RESNET = str(DATA / "resnet18.json")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help-all"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert f"  opgraph {command}" in text.split("example")[-1]
    assert "--quiet" in text


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("compare", "with gates for CI.", True),
        ("profile", "or a saved profile (.json)", True),
        ("sweep", "or a saved profile (.json)", False),
        ("check", "or a saved profile (.json)", False),
    ],
)
def test_help_offers_what_there_is(
    capsys: pytest.CaptureFixture[str], command: str, words: str, said: bool
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert (words in " ".join(capsys.readouterr().out.split())) is said


def test_help_takes_no_time() -> None:
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run([sys.executable, "-m", "opgraph", "--help"], check=True, capture_output=True)
    assert spent() - before < 0.2


@pytest.mark.parametrize(("file", "says"), [("saved.json", True), ("picture.svg", False)])
def test_a_saved_profile_is_said_to_be_of_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, says: bool
) -> None:
    assert main(["profile", RESNET, "--hardware", "t4", "-o", str(tmp_path / file)]) == 0
    note = "note: a saved profile is of no device: name it again with --hardware t4"
    assert (note in capsys.readouterr().err) is says


def test_a_step_without_a_recorded_time_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "tid": 1, "ts": 1, "dur": 0}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event]}))
    assert main(["join", RESNET, str(tmp_path / "trace.json")]) == 0
    said = capsys.readouterr().out
    assert "Step         unknown" in said
    assert "nothing of the time that was recorded is on a node" in " ".join(said.split())


def test_quiet_leaves_remarks_out_but_not_gates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "nodes.md")
    assert main(["explore", RESNET, "-o", file]) == 0
    assert "wrote" in capsys.readouterr().err
    assert main(["explore", RESNET, "-o", file, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compare", RESNET, RESNET, "-q", "--fail-if", "nodes > 1"]) == 1
    assert "gate broken" in capsys.readouterr().err


def test_verbose_says_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", RESNET, "-v"]) == 0
    assert "of processor time" in capsys.readouterr().err


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pyproject.toml above the folder that one works in."""
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path / "pyproject.toml"


def test_defaults_come_from_the_nearest_pyproject(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text('[tool.opgraph]\nhardware = "h100-sxm"\ndepth = 0\n')
    assert main(["explore", RESNET]) == 0
    assert "on NVIDIA H100" in capsys.readouterr().out
    assert main(["profile", RESNET]) == 0
    assert "\n  layer1 " not in capsys.readouterr().out
    assert main(["profile", RESNET, "--depth", "1"]) == 0
    assert "\n  layer1 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("trust = true", "has no trust"),
        ("tool.opgraph = 3", "not a table"),
        ('depth = "3"', "not a whole number"),
        ("depth = true", "not a whole number"),
        ("depth = ", "cannot be read"),
        ('hardware = "no-such-device"', "no-such-device"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str], table: str, why: str
) -> None:
    project.write_text(table if "tool" in table else f"[tool.opgraph]\n{table}\n")
    assert main(["explore", RESNET]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert why in captured.err


def completed(line: str, tmp_path: Path) -> list[str]:
    """What a shell is told that can follow, by the protocol of argcomplete's scripts."""
    code = "from opgraph.cli import main; main(); raise SystemExit(9)"
    answers = tmp_path / "answers"
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answers),
             "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"},
        check=True,
    )  # fmt: skip
    return [word.rstrip() for word in answers.read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("opgraph ex", {"explore", "export"}),
        ("opgraph profile --hardware h100-s", {"h100-sxm"}),
        ("opgraph profile --mode ", {"infer", "train", "prefill", "decode"}),
        ("opgraph profile gpt2 --tracer h", {"hybrid"}),
        ("opgraph profile gpt2 --sort f", {"flops"}),
        ("opgraph profile gpt2 --count attention=c", {"attention=causal"}),
        ("opgraph profile resnet10", {"resnet101", "resnet101c", "resnet101d", "resnet101s", "resnet10t"}),
        ("opgraph explore --min", {"--min-flops"}),
        ("opgraph profile timm:vit_t", {"timm:vit_tiny_patch16_224"}),
        ("opgraph profile hf-type:be", {"hf-type:bert", "hf-type:beit"}),
        ("opgraph export gpt2 --format ", {"dot", "onnx", "csv"}),
        ("opgraph profile gpt2 --format c", {"csv"}),
        ("opgraph models --source tor", {"torchvision"}),
        ("opgraph models --task obj", {"object-detection"}),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_shell_is_told_commands_options_and_values(
    line: str, words: set[str], tmp_path: Path
) -> None:
    pytest.importorskip("argcomplete")
    found = set(completed(line, tmp_path))
    assert words <= found
    assert all(word.startswith(line.rpartition(" ")[2]) for word in found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    assert {"bash": "complete ", "zsh": "compdef", "fish": "complete --command opgraph"}[shell] in (
        capsys.readouterr().out
    )


def test_plain_help_is_short_and_help_all_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def flags(*arguments: str) -> set[str]:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        assert left.value.code == 0
        return set(
            re.findall(r"^  (?:-\w[^,]*, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
        )

    short = flags("profile", "--help") - {"--help", "--help-all"}
    assert len(short) == 12
    assert {"--hardware", "--seq-len", "--output", "--mode"} <= short
    whole = flags("profile", "--help-all")
    assert short < whole
    assert {"--checkpointing", "--quiet", "--tensor-parallel", "--no-cache"} <= whole


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ("profile m --input-shape 1 3 384 384", "a shape is one word", "--input-shape 1x3x384x384"),
        ("profile m 1 3 384 384", "a shape is one word", "--input-shape 1x3x384x384"),
        ("profile m 384", "takes one MODEL, and 384 is one more", "opgraph profile --help"),
        ("profile gpt2 --dtype int8", "are made by quantizing", "model.py:build"),
        ("profil gpt2", "no command profil", "profile"),
        ("completion bsh", "no shell bsh", "bash"),
        ("models --source torchvison", "no source torchvison", "one of torchvision, "),
        ("profile gpt2 --count atention=causal", "no 'atention'", "one of attention, "),
        (f"compare {RESNET} {RESNET} --fail-if flps>1", "'flps' is no quantity", "flops"),
        (f"draw {RESNET} -o a.pnq", "no picture is written to .pnq", "one of .png, "),
    ],
)
def test_what_was_nearly_right_is_named(
    capsys: pytest.CaptureFixture[str], arguments: str, error: str, hint: str
) -> None:
    def status() -> object:
        try:
            return main(arguments.split())
        except SystemExit as left:
            return left.code

    assert status() == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert error in said[0]
    assert hint in said[1]


@pytest.mark.parametrize(
    "options", [["--seq-len", "64"], ["--mode", "decode"], ["--tracer", "fx"], ["--head", "base"]]
)
def test_a_saved_profile_does_not_pass_over_what_needs_tracing(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main(["explore", RESNET, *options]) == 2
    assert f"error: {options[0]} is for tracing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["profile MODEL -o DIR/x.json", "explore MODEL -o DIR/x.md", "compare MODEL MODEL -o DIR/x.md",
     "sweep MODEL --symbolic -o DIR/x.json", "view MODEL -o DIR/x.html", "draw MODEL -o DIR/x.svg",
     "export MODEL -o DIR/x.csv", "export MODEL -o DIR/x.onnx"],
)  # fmt: skip
def test_a_place_that_takes_no_file_is_found_out_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    # The model does not exist either, which only the work would find out.
    asked = words.replace("MODEL", "no-such-model").replace("DIR", str(tmp_path / "nodir"))
    assert main(asked.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot write {tmp_path}")


@pytest.mark.parametrize(
    ("again", "status", "said"),
    [
        ("float16", 0, ""),
        ("bfloat16", 2, "error: this profile was saved with --autocast float16\n"),
    ],
)
def test_a_saved_profile_is_autocast_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: str, status: int, said: str
) -> None:
    once, twice = tmp_path / "once.json", tmp_path / "twice.json"
    assert main(["profile", RESNET, "--autocast", "float16", "-o", str(once), "-q"]) == 0
    assert main(["profile", str(once), "--autocast", again, "-o", str(twice), "-q"]) == status
    assert capsys.readouterr().err.startswith(said)
    assert not twice.exists() if status else twice.read_text() == once.read_text()


@pytest.mark.live
def test_of_several_models_the_options_are_for_those_that_are_traced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare", RESNET, "alexnet", "-q", "--batch-size", "1"]) == 0
    assert main(["compare", RESNET, RESNET, "-q", "--batch-size", "1"]) == 2
    assert "error: --batch-size is for tracing" in capsys.readouterr().err


@pytest.mark.live
@pytest.mark.parametrize(
    ("command", "said", "suffixes"),
    [
        (["view", RESNET], "no page is written to .json", ".html, .htm"),
        (["hardware", "--calibrate"], "hardware --calibrate does not write .json", ".toml"),
    ],
)
def test_a_file_of_another_kind_is_not_written_over(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    said: str,
    suffixes: str,
) -> None:
    path = tmp_path / "mine.json"
    path.write_text("before")
    assert main([*command, "-o", str(path)]) == 2
    assert capsys.readouterr().err == (f"error: {said}\nhint: one of {suffixes}\n")
    assert path.read_text() == "before"
