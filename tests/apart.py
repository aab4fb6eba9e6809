"""Tests that are run otherwise than others. Files that have a process of their own each, where more than
they are run: what a profile looks through is all that the process has, and one with all libraries and all
tests has so much that their tests take five times as long (`pytest FILE` and `pytest -k NAME` run them as
those of any file). And cases that are left out unless they are asked for."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

APART = ("tests/tracing/state/", "tests/tracing/hard/test_random_models.py")


def thorough(*cases: Any) -> list[Any]:
    """Cases of a test that say at length what its others say in short."""
    given = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*each, marks=pytest.mark.thorough) for each in given]


def is_apart(path: Path, config: pytest.Config) -> bool:
    """Whether the tests of a file run in a process of their own: not where it is the file itself that is
    asked for, or a test by its name."""
    if config.option.keyword:
        return False
    asked = {Path(config.invocation_params.dir, each.partition("::")[0]) for each in config.args}
    return path.relative_to(config.rootpath).as_posix().startswith(APART) and path not in asked


class Apart(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield _Process.from_parent(self, name="apart")


class _Process(pytest.Item):
    def runtest(self) -> None:
        faulthandler.cancel_dump_traceback_later()  # its tests have each their time
        asked = self.config.option.markexpr
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        ran = subprocess.run(
            [*command, str(self.path), *(["-m", asked] if asked else [])],
            cwd=self.config.rootpath, capture_output=True, text=True, check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        )  # fmt: skip
        if ran.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
            pytest.skip("none of its tests is asked for")
        if ran.returncode:
            pytest.fail(ran.stdout[-20_000:] + ran.stderr[-2_000:], pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}, in a process of its own"
