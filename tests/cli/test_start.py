"""What starts fast and without torch: help, and everything that reads saved profiles."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import DATA

import opgraph

RESNETS = [str(DATA / f"resnet{n}.json") for n in (18, 50)]
READING = [
    ["profile", RESNETS[0]],
    ["explore", RESNETS[0]],
    ["explore", RESNETS[0], "--around", "9"],
    ["compare", *RESNETS],
]
HELPING = [["--help"], ["--version"], ["profile", "--help"], ["explore"]]


@pytest.mark.slow
def test_no_torch_is_imported() -> None:
    """Nor does anything that only reads look up names of models."""
    code = (
        "import sys; from opgraph.cli import main\n"
        "def run(arguments):\n"
        "    status = 0\n"
        "    try: status = main(arguments)\n"
        "    except SystemExit as left: status = left.code\n"
        "    assert not status, (arguments, status)\n"
        "    assert 'torch' not in sys.modules, arguments\n"
        f"for arguments in {READING}: run(arguments)\n"
        "assert 'opgraph.sources.registry' not in sys.modules\n"
        f"for arguments in {HELPING}: run(arguments)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3.63 GFLOPs" in done.stdout


@pytest.mark.slow
@pytest.mark.live
def test_the_largest_model_is_explored_sooner_than_torch_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "llama.json"
    opgraph.profile("meta-llama/Llama-3.1-405B", seq_len=4096).save(file)
    output, spent = _run("-m", "opgraph", "explore", str(file))
    assert ".mlp.down_proj  Linear" in output
    assert "3.45P" in output
    assert spent < _run("-c", "import torch")[1]


def _run(*arguments: str) -> tuple[str, float]:
    """What a Python process prints, and its processor time, since the machine may have other things to
    do as well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_a_process_ends_at_once_with_its_status_and_what_was_to_be_done_at_the_exit() -> None:
    first, second = (str(DATA / f"{name}.json") for name in ("resnet18", "resnet50"))
    code = (
        "import atexit, sys; from opgraph.cli import process\n"
        "atexit.register(print, 'at the exit')\n"
        f"sys.argv[1:] = ['compare', {first!r}, {second!r}, '--fail-if', 'flops > +2%']\n"
        "process()\n"
        "print('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "resnet50" in done.stdout
    assert done.stdout.endswith("at the exit\n")


WARNS = """
import logging

from torch import nn


class Warning(nn.Linear):
    def forward(self, x):
        logging.getLogger("torch.utils._pytree").warning("said to developers")
        return super().forward(x)


def build():
    return Warning(4, 4)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "said"), [({}, False), ({"TORCH_LOGS": "torch"}, True)])
def test_what_torch_logs_stays_out_of_the_terminal(
    tmp_path: Path, setting: dict[str, str], said: bool
) -> None:
    (tmp_path / "model.py").write_text(WARNS)
    done = subprocess.run(
        [sys.executable, "-m", "opgraph", "profile", "model.py:build", "--input-shape", "2x4"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={n: v for n, v in os.environ.items() if n != "TORCH_LOGS"} | setting,
    )  # fmt: skip
    assert ("said to developers" in done.stderr) is said
