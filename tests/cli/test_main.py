"""The command line as a person meets it: a process, its output, its exit status."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.cli import main


def run(command: list[str], **options):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, **options
    )


def opgraph(*args: str, **options):
    return run([sys.executable, "-m", "opgraph", *args], **options)


def status(args):
    """That of a command, run here."""
    try:
        return main(list(args))
    except SystemExit as left:
        return left.code


@pytest.mark.slow
def test_profile_prints_the_three_sections():
    done = opgraph("profile", "resnet18", "--depth", "1")
    assert done.returncode == 0
    for text in ("layer1", "11,689,512", "3.63 GFLOPs", "Bottlenecks at a ridge of 10 FLOPs/byte"):
        assert text in done.stdout


MODULES = (
    "opgraph", "opgraph.record.graph", "opgraph.analysis", "opgraph.views", "opgraph.cli",
    "opgraph.record.profile", "opgraph.api.pipeline", "opgraph.sources", "opgraph.hardware",
)  # fmt: skip


@pytest.mark.slow
def test_importing_does_not_import_torch():
    code = (
        "import importlib, sys\n"
        f"for module in {MODULES}:\n"
        "    importlib.import_module(module)\n"
        "    assert 'torch' not in sys.modules, module"
    )
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["profile", "resnet81"], "resnet81", "resnet18"),
        (["profile", "bert-base-uncasd"], "bert-base-uncasd", "bert-base-uncased"),
        (["profile", "resnet18", "--input-shape", "1x3xbanana"], "not a shape", ""),
        (["profile", "resnet18", "--input-shape", "0x3x4x4"], "not a shape", ""),
        (
            ["profile", "resnet18", "--input-shape", "1x4x64x64"],
            "do not fit resnet18",
            "1x3x224x224",
        ),
        (
            ["profile", "bert-base-uncased", "--seq-len", "9999"],
            "learned 512 positions",
            "at most 512",
        ),
        (["profile", "resnet18", "--batch-size", "0"], "at least 1", ""),
        (["profile", "resnet18", "--tracer", "magic"], "magic", "eager"),
        (
            ["profile", "resnet18", "--fullgraph"],
            "--fullgraph has no effect where the tracer is auto",
            "--tracer dynamo",
        ),
        (["profile", "resnet18", "-o", "/nowhere/x.json"], "/nowhere/x.json", ""),
        (["profile", "resnet18", "-o", "x.xyz"], ".xyz", ".json"),
        (["profile", "nowhere.json"], "nowhere.json", "it was looked for in /"),
        (["fit", "nowhere.json", "--hardware", "l4"], "no file nowhere.json", "looked for in /"),
        (["profile", "/nowhere/a.pt"], "there is no file /nowhere/a.pt", "no folder /nowhere"),
        (["profile", f"{__file__}x.py"], "there is no file", "did you mean test_main.py"),
        (["profile", "nowhere.py:build"], "there is no file nowhere.py", "looked for in /"),
        (["profile", str(Path(__file__).parent)], "has no config.json", "save_pretrained"),
        (["profile", "no.such:Model"], "there is no module no.such", "folder/file.py:build"),
        (["profile", __file__], "no file that holds a model", f"{__file__}:run (it has run, "),
        (["profile", "resnet18.onnx"], "no source knows a model resnet18.onnx", "resnet18"),
        (["profile", "x" * 5000 + ".json"], "cannot read", ""),
        (["profile", "resnet18", "--sort", "colour"], "colour", "flops"),
        (["profile"], "MODEL", "--help"),
        (["prophile"], "prophile", ""),
        (["profile", "gpt2", "--seqlen", "8"], "--seqlen 8", "--seq-len? (opgraph profile --help)"),
        (
            ["plan", "gpt2", "--run", "graphs"],
            "opgraph plan takes no --run",
            "it is for profile",
        ),
        (
            ["plan", "gpt2", "--hardware", "8xh100-sxm"],
            "opgraph plan takes no --hardware",
            "did you mean --devices?",
        ),
        (["explore", "gpt2", "--hardware", "l4,t4"], "no device is called 'l4,t4'", "survey"),
        (
            ["explore", "gpt2", "spare"],
            "takes one MODEL, and spare is one",
            "opgraph explore --help",
        ),
        (["explore", "gpt2", "3-7"], "takes one MODEL, and 3-7 is one more", "--start 3 --end 7"),
        (["cache", "gpt2"], "takes no argument, and gpt2 is one", "opgraph cache --help"),
        (
            ["compare", "a", "b", "--format", "xml"],
            "there is no format 'xml'",
            "one of markdown, json, csv",
        ),
        (["models", "--max-params", "3"], "known to have at most 3 parameters", "the least has "),
        (["profile", "resnet18", "--input", "y=1x2"], "y", "x"),
        (["profile", "resnet18", "--mode", "decode"], "does not generate", "gpt2"),
        (["profile", "gpt2", "--mode", "dream"], "--mode: 'dream' is not a choice", "decode"),
        (
            ["profile", "gpt2", "--count", "pixels=all"],
            "--count: there is no 'pixels'",
            "attention",
        ),
        (["profile", "gpt2", "--mode", "decode", "--tracer", "fx"], "one forward", "leave out"),
        (["export", "gpt2", "--mode", "decode", "-o", "x.pt2"], "not of the mode decode", "csv"),
    ],
)
def test_bad_input_is_one_clear_line(args, message, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert status(args) == 2
    said = capsys.readouterr().err
    lines = said.splitlines()
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert len(lines) <= 2
    assert hint in said
    assert not list(tmp_path.iterdir())


BROKEN = """
from torch import nn

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(5, 4)

    def forward(self, x):
        return self.second(self.first(x))
"""


@pytest.mark.live
def test_a_forward_that_fails_is_status_1(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN)
    assert main(["profile", "broken.py:Broken", "--input-shape", "2x4", "-o", "x.json"]) == 1
    said = capsys.readouterr().err
    assert "error: the forward failed at broken.py:10: second: Linear takes" in said
    nodes = json.loads((tmp_path / "x.json").read_text())["graph"]["nodes"]
    assert [n["name"] for n in nodes] == ["x", "first", "second"]
    assert "error" in nodes[-1]


@pytest.mark.slow
def test_a_missing_package_names_the_extra():
    code = (
        "import sys; sys.modules['torchvision'] = None\n"
        "from opgraph.cli import main; sys.exit(main(['profile', 'torchvision:resnet18']))"
    )
    done = run([sys.executable, "-c", code])
    assert done.returncode == 2
    assert "torchvision is not installed" in done.stderr
    assert "pip install 'opgraph[torchvision]'" in done.stderr


@pytest.mark.slow
def test_no_colour_in_a_pipe_nor_with_no_color(monkeypatch):
    saved = ["profile", str(DATA / "resnet18.json"), "--depth", "0"]
    assert "\x1b" not in opgraph(*saved).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(Terminal()) as shown:
        assert main(saved) == 0
    assert "\x1b" not in shown.getvalue()
    monkeypatch.delenv("NO_COLOR")
    with redirect_stdout(Terminal()) as shown:
        assert main(saved) == 0
    assert "\x1b" in shown.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True
