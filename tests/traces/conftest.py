"""Graphs and traces for the tests of reading and joining."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from opgraph.record.graph import Graph
from opgraph.record.loading import load

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Graph]:
    """The graphs of the traced models, made with the transformers that the traces were made with (4.49)."""

    @cache
    def of(name: str) -> Graph:
        path = tmp_path_factory.mktemp("graphs") / f"{name}.json"
        path.write_bytes(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
        return load(path).graph

    return of
