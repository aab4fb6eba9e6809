"""Contractions as layers of loops, against hand-computed sizes, and in files that others read."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, cast

import pytest

from opgraph.analysis.layers import Loops, layers
from opgraph.cli import main
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.results import Profile

Saved = Callable[[str], Profile]


def test_loops_of_a_strided_convolution() -> None:
    first = Loops(1, 1, 64, 3, (112, 112), (7, 7), (2, 2), (1, 1), (3, 3), (224, 224))
    assert first.macs == 64 * 3 * 49 * 112 * 112 == 118_013_952
    assert first.read == (229, 229)  # the last of the 230 padded rows is read by no window
    assert first.padding_after == (2, 2)
    assert first.unfolded() == Loops(1, 1, 64, 147, (12544, 1))
    assert first.unfolded().macs == first.macs


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "yolov8n", "bert-base-uncased"])
def test_every_multiplication_is_in_a_layer(saved: Saved, name: str) -> None:
    profile = saved(name)
    found = layers(profile.graph)
    assert found.macs + sum(n for _, n in found.lost) == profile.totals.cost.macs
    assert not found.lost
    assert sum(x.loops.macs for x in found.runs) == found.macs


@pytest.mark.parametrize(
    ("op", "macs", "shapes", "out", "loops"),
    [
        ("mv", 8 * 5, ((8, 5), (5,)), (8,), [Loops(1, 1, 1, 5, (8, 1))]),
        ("dot", 8, ((8,), (8,)), (), [Loops(1, 1, 1, 8, (1, 1))]),
        (  # the gradient of three experts, who share eight tokens
            "_grouped_mm", 4 * 8 * 6, ((4, 8), (8, 6), (3,)), (3, 4, 6),
            [Loops(1, 1, 6, 2, (4, 1)), Loops(1, 2, 6, 3, (4, 1))],
        ),
        ("_grouped_mm", 4 * 2 * 6, ((4, 2), (2, 6), (3,)), (3, 4, 6), [Loops(1, 2, 6, 1, (4, 1))]),
    ],
)  # fmt: skip
def test_products_that_are_no_matrix_by_a_matrix(
    op: str, macs: int, shapes: Any, out: Any, loops: list[Loops]
) -> None:
    kernel = Kernel(f"aten.{op}", "matmul", flops=2 * macs, shapes=shapes, out_shapes=(out,))
    found = layers(Graph((Node(1, "call", op, "", kernels=(kernel,)),), (), ()))
    assert [x.loops for x in found.layers] == loops
    assert not found.lost


def test_a_transformer_repeats(saved: Saved) -> None:
    found = {(x.name, x.loops.filters): x for x in layers(saved("gpt2").graph).layers}
    (up,) = (x for (name, _), x in found.items() if name.endswith("mlp.c_fc"))
    assert up.count == 12
    assert (up.loops.channels, up.loops.filters) == (768, 3072)
    scores, mixed = (x.loops for (n, _), x in found.items() if "attention" in n)
    assert scores.groups == mixed.groups == 12
    assert (scores.channels, mixed.filters) == (64, 64)
    assert scores.filters == mixed.channels == scores.positions[0]


def _scalesim(text: str) -> int:
    """The multiply-accumulates of a topology, as SCALE-Sim counts them (rounding up)."""
    total = 0
    for name, *cells in csv.reader(text.splitlines()[1:]):
        h, w, r, s, c, n, stride = map(int, cells[:7])
        assert ("DP" in name) == name.startswith("DP")  # by which it knows depthwise convolutions
        total += -(-(h - r + stride) // stride) * -(-(w - s + stride) // stride) * r * s * c * n
    return total


def _zigzag(text: str) -> int:
    rows = [json.loads(line.removeprefix("- ")) for line in text.splitlines()]
    assert [row["id"] for row in rows] == list(range(len(rows)))
    return sum(prod(row["loop_sizes"]) for row in rows)


def _timeloop(content: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        total = 0
        for row in csv.DictReader(io.StringIO(archive.read("layers.csv").decode())):
            problem = json.loads(archive.read(row["file"]).decode().removeprefix("problem: "))
            sizes = prod(problem["instance"][n] for n in problem["shape"]["dimensions"])
            assert sizes == int(row["macs_of_one_run"])
            total += int(row["runs"]) * sizes
        return total


READERS: dict[str, Callable[[Any], int]] = {
    "scalesim": _scalesim, "zigzag": _zigzag, "timeloop": _timeloop,
}  # fmt: skip


@pytest.mark.parametrize("name", ["resnet18", "gpt2"])
@pytest.mark.parametrize("view", READERS)
def test_a_file_holds_all_of_them(saved: Saved, name: str, view: str) -> None:
    profile = saved(name)
    content = profile.on(None).render(view)
    assert READERS[view](content) == profile.totals.cost.macs
    assert profile.on(None).render(view) == content


def test_a_chakra_trace_holds_all_work(saved: Saved) -> None:
    proto = pytest.importorskip("google.protobuf.proto")
    from opgraph.views.files.chakra import _messages

    profile = saved("gpt2")
    content = io.BytesIO(cast("bytes", profile.on(None).render("chakra")))
    message = _messages()
    about = proto.parse_length_prefixed(message["GlobalMetadata"], content)
    assert [a.string_val for a in about.attr] == [profile.model.name]
    ops, deps = 0, {}
    while (node := proto.parse_length_prefixed(message["Node"], content)) is not None:
        ops += {a.name: a.int64_val for a in node.attr}["contraction_ops"]
        deps[node.id] = set(node.data_deps)
    assert ops == profile.totals.cost.flops
    assert all(d < number and d in deps for number, needed in deps.items() for d in needed)
    attention = next(n for n in profile.graph.nodes if n.op == "scaled_dot_product_attention")
    # Through split, view and transpose.
    read = [profile.graph.node(n).op for n in deps[attention.id]]
    assert read.count("addmm") == 1


def test_what_is_no_contraction_is_said(
    saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "resnet18.json", tmp_path / "resnet18.scalesim.csv"
    saved("resnet18").save(path)
    assert main(["export", str(path), "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert "no contractions, and so not in the file: native_batch_norm × 20" in said
    assert len(out.read_text("utf-8").splitlines()) == 1 + 21
