"""Options of costing and of views as keywords in Python, by the names of the command line."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA

import opgraph
from opgraph.options import ON_PAPER, Stage, names
from opgraph.record.errors import OpgraphError


def test_costing_takes_what_the_command_line_takes() -> None:
    parameters = inspect.signature(opgraph.Profile.on).parameters
    assert {*names(Stage.COSTING), *ON_PAPER} - {"memory"} <= {*parameters}


def test_a_layout_by_its_options() -> None:
    costed = opgraph.load(DATA / "gpt2.json").on("h100-sxm", tensor_parallel=2, micro_batches=4)
    assert costed.layout is not None
    assert (costed.layout.tensor, costed.layout.micro_batches) == (2, 4)
    assert costed.plan is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"autocast": "int8"}, "autocast: 'int8' is not a choice"),
        ({"partition": "fused"}, "partition: 'fused' is not a choice"),
        ({"tensor_parallel": 0}, "tensor_parallel: 0 is not a whole number of at least 1"),
        ({"tensor_paralel": 2}, "costing does not take tensor_paralel"),
    ],
)
def test_what_costing_does_not_take(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OpgraphError, match=message):
        opgraph.load(DATA / "resnet18.json").on(**options)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("a.svg", {"depth": "2"}, "depth: '2' is not a whole number"),
        ("a.svg", {"theme": "blue"}, "theme: 'blue' is not a choice"),
        ("a.txt", {"sort": "colour"}, "sort: 'colour' is not a choice"),
        ("a.csv", {"sort": "flops"}, "csv heeds no option 'sort'"),
        ("a.overlay.json", {"color_by": "op"}, "overlay has no color_by op"),
    ],
)
def test_what_a_file_does_not_take(
    tmp_path: Path, file: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OpgraphError, match=message):
        opgraph.load(DATA / "resnet18.json").save(tmp_path / file, **options)
    assert not list(tmp_path.iterdir())
