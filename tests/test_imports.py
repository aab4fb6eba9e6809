"""No module imports another that imports it, also over others and inside functions. Rooms and their
directions are import-linter's (`lint-imports`)."""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter is not installed")


def test_there_are_no_circles() -> None:
    graph = grimp.build_graph("opgraph", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imports).static_order())) == len(imports)  # or CycleError


def test_no_benchmark_hides_a_package() -> None:
    """`python benchmarks/gpu.py` puts its folder before all others: one called `cuda.py` hid NVIDIA's."""
    folder = Path(__file__).parents[1] / "benchmarks"
    elsewhere = [p for p in sys.path if p and not Path(p).resolve().is_relative_to(folder.parent)]
    names = [f.stem for f in folder.glob("*.py")]
    assert len(names) > 20
    hidden = [n for n in names if PathFinder.find_spec(n, elsewhere) is not None]
    assert hidden == []
