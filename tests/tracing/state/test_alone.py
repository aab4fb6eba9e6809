"""Tests in a process of their own. A forward that finds by a name, or below a class, may find all there is:
where all tests are, that is them, and it takes fifty times as long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("what", ["found_by_name"])
def test_in_a_process_of_its_own(what: str, pytestconfig: pytest.Config) -> None:
    path = Path(__file__).with_name(f"alone_{what}.py")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(path)]
    ran = subprocess.run(
        command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
