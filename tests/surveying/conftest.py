"""A cluster of Ray on this machine, and small models that surveys go over on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MODELS = """
import torch
from torch import nn

class Small(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, input):
        return self.layer(input).relu()

class Broken(Small):
    def forward(self, input):
        raise ValueError("it never ran")

class Hanging(Small):
    def forward(self, input):
        import time
        while True:
            time.sleep(0.01)

class Deadly(Small):
    def forward(self, input):
        import os
        os._exit(1)

class Hungry(Small):
    def forward(self, input):
        return self.layer(input) + len(bytearray(2**36))
"""


def started(start: Callable[[], Any]) -> Any:
    """What of Ray was started: its raylet gives its agents fifteen seconds, which are too few on a machine
    that has much to do."""
    for _ in range(7):
        with suppress(Exception):
            return start()
    return start()


class Cluster:
    """Nodes of Ray that go on from test to test; a driver is a process of its own."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.own = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_log_monitor": False}
        head = {**self.own, "include_dashboard": False, "no_monitor": True}
        self.nodes = started(lambda: Nodes(True, head_node_args=head))

    def add_node(self) -> Any:
        return started(lambda: self.nodes.add_node(**self.own))

    def driver(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        asked = [
            sys.executable,
            "-m",
            "opgraph",
            "survey",
            *arguments,
            "--address",
            self.nodes.address,
        ]
        return subprocess.Popen(
            [*asked, "-q"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def survey(self, folder: Path, *arguments: str) -> tuple[int, Any, str]:
        """The exit status, the rows and what was said."""
        driver = self.driver(folder, *arguments, "--json")
        out, errors = driver.communicate(timeout=300)
        assert out, errors
        return driver.returncode, json.loads(out), errors


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    found = Cluster()
    try:
        yield found
    finally:
        found.nodes.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    return tmp_path


def small(*classes: str, shapes: str = "2x8") -> Sequence[str]:
    """The options of a survey over small models."""
    models = [word for name in classes for word in ("--models", f"models.py:{name}")]
    return [*models, "--input-shape", shapes]
