"""The command as a process: run to its end, or started and watched."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA

GPT2 = str(DATA / "gpt2.json")
OPGRAPH = (sys.executable, "-m", "opgraph")

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")


def opgraph(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OPGRAPH, *args], capture_output=True, text=True, check=False, timeout=300, **options
    )


def limit(kind: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (size, size))


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that an error is."""
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] in (["error"], ["error", "hint"]), done.stderr
    assert "not expected" not in done.stderr
    return lines[0]


def surroundings(**changes: str) -> dict[str, str]:
    """The environment without a home and its caches."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "LANG")}
    return {**kept, **changes}


def wait_for(happens: Callable[[], Any], seconds: float = 120) -> Any:
    """What `happens` gives, once it is something. Raises `TimeoutError`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := happens():
            return found
        time.sleep(0.05)
    raise TimeoutError


def in_group(group: int) -> list[int]:
    """The processes of a group that are alive; a zombie is not."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(status.parent.name))
    return found
