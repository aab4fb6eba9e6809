"""The command line as a person meets it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def run(command: list[str], **options):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, **options
    )


def opgraph(*args: str, **options):
    return run([sys.executable, "-m", "opgraph", *args], **options)


@pytest.mark.slow
def test_profile_prints_the_three_sections():
    done = opgraph("profile", "resnet18", "--depth", "1")
    assert done.returncode == 0
    for text in ("layer1", "11,689,512", "3.63 GFLOPs", "Bottlenecks at a ridge of 10 FLOPs/byte"):
        assert text in done.stdout


def test_a_saved_profile_opens_without_torch(tmp_path, resnet18):
    path = tmp_path / "resnet18.json"
    resnet18.save(path)
    code = (
        "import sys; from opgraph.cli import main; status = main(['profile', sys.argv[1]]); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = run([sys.executable, "-c", code, str(path)])
    assert done.returncode == 0, done.stderr
    assert "3.63 GFLOPs" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["opgraph", "opgraph.record.graph", "opgraph.analysis", "opgraph.views", "opgraph.cli",
     "opgraph.record.profile", "opgraph.api.pipeline", "opgraph.sources", "opgraph.hardware"],
)  # fmt: skip
def test_importing_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("args", [["--help"], ["profile", "--help"], ["--version"]])
def test_help_does_not_import_torch(args):
    code = (
        "import sys; from opgraph.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = run([sys.executable, "-c", code, *args])
    assert done.returncode == 0


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
        (["profile", "nowhere.json"], "nowhere.json", ""),
        (["profile", __file__], "no file that holds a model", f"{__file__}:build"),
        (["profile", "resnet18.onnx"], "no source knows a model resnet18.onnx", "resnet18"),
        (["profile", "x" * 5000 + ".json"], "cannot read", ""),
        (["profile", "resnet18", "--sort", "colour"], "colour", "flops"),
        (["profile"], "MODEL", "--help"),
        (["prophile"], "prophile", ""),
        (["profile", "gpt2", "--seqlen", "8"], "--seqlen 8", "--seq-len? (opgraph profile --help)"),
        (
            ["plan", "gpt2", "--weights", "int4"],
            "opgraph plan takes no --weights",
            "it is for profile",
        ),
        (["explore", "gpt2", "spare"], "unrecognized arguments: spare", "opgraph explore --help"),
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
def test_bad_input_is_one_clear_line(args, message, hint, tmp_path):
    done = opgraph(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert len(lines) <= 2
    assert hint in done.stderr
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


@pytest.mark.slow
def test_a_forward_that_fails_is_status_1(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    asked = ("profile", "broken.py:Broken", "--input-shape", "2x4", "-o", "x.json")
    done = opgraph(*asked, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "error: the forward failed at broken.py:10: second: Linear takes" in done.stderr
    nodes = json.loads((tmp_path / "x.json").read_text())["graph"]["nodes"]
    assert [n["name"] for n in nodes] == ["x", "first", "second"]
    assert "error" in nodes[-1]


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
def test_an_interrupt_leaves_nothing_half_written(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-m", "opgraph", "profile", "Llama-3.1-405B", "-o", "x.json"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(2.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert errors.splitlines()[-1] == "error: interrupted"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_colour_in_a_pipe_nor_with_no_color():
    done = opgraph("profile", "resnet18", "--depth", "0", env={**os.environ, "NO_COLOR": "1"})
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m opgraph profile resnet18 | head -n 1"
    done = run(["bash", "-c", command])
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr
