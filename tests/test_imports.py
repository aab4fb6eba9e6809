"""No module imports another that imports it, also over others and inside functions. Rooms and their
directions are import-linter's (`lint-imports`)."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter is not installed")


def test_there_are_no_circles() -> None:
    graph = grimp.build_graph("opgraph", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imports).static_order())) == len(imports)  # or CycleError
