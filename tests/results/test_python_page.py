"""The code of docs/python.md runs, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.slow
def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(
        r"^```python[^\n]*\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) > 8
    space: dict[str, object] = {"__name__": "docs_python"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), space)  # noqa: S102 - it is the project's own page
    assert "Bottlenecks" in capsys.readouterr().out
