"""What starts fast and without torch: help, and everything that reads saved profiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
COMMANDS = [
    ["--help"],
    ["profile", str(DATA / "resnet18.json")],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_torch_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from opgraph.cli import main\n"
        f"status = 0\ntry: status = main({arguments!r})\nexcept SystemExit as e: status = e.code\n"
        "assert not status, status\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
