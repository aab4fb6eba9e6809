"""Interrupted or killed while a model is traced, drawn, written or tried: what was there before is intact,
what was done is kept, and no process is left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT, SIGKILL, Signals

import pytest
from tests.cli.faults.processes import GPT2, OPGRAPH, in_group, linux, wait_for

pytestmark = linux

MODELS = """
import pathlib, time, torch
class Quick(torch.nn.Module):
    def forward(self, x):
        return x + 1
class Slow(torch.nn.Module):
    def forward(self, x):
        pathlib.Path("started").touch()
        time.sleep(600)
        return x
"""
STOPPED = """
import os, sys, time, {module}
from opgraph.cli import main
def stop(*_, **__):
    os.kill(os.getpid(), {number})
    time.sleep(600)
{module}.{function} = stop
sys.exit(main(sys.argv[1:]))
"""
"""The command in a process that gets a signal where it calls a function."""


def launch(folder: Path, *command: str) -> subprocess.Popen[str]:
    """A process in a group of its own."""
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with models and a picture from before, which is there afterwards, and nothing else."""
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "out.svg").write_text("before")
    yield tmp_path
    assert (tmp_path / "out.svg").read_text() == "before"
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"models.py", "out.svg", "started", "done.jsonl", "__pycache__"}


def ended(child: subprocess.Popen[str], how: Signals) -> None:
    """It ended of the signal as it should, and so did all that it had started."""
    _, errors = child.communicate(timeout=60)
    if how is SIGINT:
        assert child.returncode == 130
        assert errors.splitlines()[-1] == "error: interrupted"
        assert "Traceback" not in errors
    else:
        assert child.returncode == -SIGKILL
    wait_for(lambda: not in_group(child.pid), 20)


@pytest.mark.slow
@pytest.mark.parametrize("how", [SIGINT, SIGKILL])
def test_while_a_model_is_traced(how: Signals, folder: Path) -> None:
    asked = ("draw", "models.py:Slow", "--input", "x=2x2", "-o", "out.svg")
    child = launch(folder, *OPGRAPH, *asked)
    wait_for((folder / "started").exists)
    child.send_signal(how)
    ended(child, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", [SIGINT, SIGKILL])
@pytest.mark.parametrize(
    ("module", "function"),
    [("opgraph.views.picture.paint", "paint"), ("opgraph.views.picture.svg", "to_svg"), ("os", "fsync"),
     ("os", "link")],
)  # fmt: skip
def test_while_it_is_drawn_or_written(
    module: str, function: str, how: Signals, folder: Path
) -> None:
    code = STOPPED.format(module=module, function=function, number=int(how))
    ended(launch(folder, sys.executable, "-c", code, "draw", GPT2, "-o", "out.svg"), how)
