"""A saved profile needs no torch: tests of what stands right of the graph pass where importing it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOMS = [
    room for room in ("record", "options", "hardware", "analysis", "views", "results", "cli", "tui")
    if (TESTS / room).exists()
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_right_of_the_graph(room: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.no_torch", "-p", "no:cacheprovider",
         "-m", "not slow", f"tests/{room}"],
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout or "100%" in done.stdout
