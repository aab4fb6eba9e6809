"""A pytest plugin for a machine without torch (`pytest -p tests.no_torch`): importing it fails, and what
traces a model is left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import pytest

_IMPORTS = re.compile(r"^(import|from) (torch|transformers)\b", re.MULTILINE)


class NoTorch(MetaPathFinder):
    """Finds nothing, and refuses to look for torch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is not to be imported here", name=fullname)


sys.meta_path.insert(0, NoTorch())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests that make models of their own."""
    if collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return bool(_IMPORTS.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    live = [item for item in items if item.get_closest_marker("live")]
    config.hook.pytest_deselected(items=live)
    items[:] = [item for item in items if item not in live]
