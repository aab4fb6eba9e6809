"""Says at the end of a run from which seed its random models were made, so that it can be had again."""

from __future__ import annotations

import sys

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    made = sys.modules.get("tests.random_graphs")
    if made is not None:
        terminalreporter.write_line(f"random models from OPGRAPH_SEED={made.SEED}")
