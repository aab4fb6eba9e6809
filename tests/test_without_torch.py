"""A saved profile needs no torch: tests of what stands right of the graph pass where importing it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOMS = ["record options hardware results tui", "analysis", "views", "cli"]
"""The small ones share a process, whose start takes as long as they do."""


@pytest.mark.slow
@pytest.mark.parametrize("rooms", ROOMS)
def test_rooms_right_of_the_graph(rooms: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.no_torch", "-p", "no:cacheprovider",
         "-m", "not slow", *(f"tests/{each}" for each in rooms.split())],
        cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout or "100%" in done.stdout
