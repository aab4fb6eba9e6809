"""The table as a person sees it, and that its rows add up."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import opgraph
from opgraph import InputError, Profile, RenderError
from opgraph.analysis.cost.totals import Cost
from opgraph.analysis.tree import ItemKind, Metric
from opgraph.options import OPTIONS
from opgraph.views import render
from opgraph.views.picture.picture import picture
from opgraph.views.text.table import SORT_KEYS, Grouping, cells_of, columns_of, grouped, rows, table


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased"])
def test_the_table_looks_like_its_golden(
    saved: Callable[[str], Profile], golden: Callable[[str, str], None], name: str, width: int
) -> None:
    golden(str(render("table", saved(name).on(), width=width)), f"table-{name}-{width}.txt")


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2", "yolov8n", "resnet50"])
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("fold", [False, True])
def test_the_rows_below_a_module_add_up_to_it(
    saved: Callable[[str], Profile], name: str, depth: int, fold: bool
) -> None:
    listed = rows(saved(name).on(), depth, fold=fold)
    for position, row in enumerate(listed):
        assert row.flops_each * row.times == row.cost.flops
        below = []
        for other in listed[position + 1 :]:
            if other.depth <= row.depth:
                break
            below += [other] if other.depth == row.depth + 1 else []
        if below:
            assert sum((b.cost for b in below), Cost()).bytes == row.cost.bytes
            assert sum(b.cost.flops for b in below) == row.cost.flops
            assert sum(b.parameters for b in below) == row.parameters
            assert sum(b.share for b in below) == pytest.approx(row.share)


def test_what_stands_in_a_repeated_block_counts_as_often_as_it(
    saved: Callable[[str], Profile],
) -> None:
    found = {row.path: row for row in rows(saved("gpt2").on("h100-sxm"), 3)}
    layer, mlp = found["h.[0-11]"], found["h.[0-11].mlp"]
    assert (layer.count, layer.times, mlp.count, mlp.times) == (12, 12, 1, 12)
    assert mlp.flops_each == 2 * 603_979_776
    assert layer.seconds is not None
    assert mlp.seconds is not None
    assert 0 < mlp.seconds < layer.seconds
    assert mlp.share / layer.share == pytest.approx(mlp.seconds / layer.seconds)
    (whole, *_, by_flops) = (
        r
        for r in rows(saved("gpt2").on("h100-sxm"), 3, metric=Metric.FLOPS)
        if r.path in ("", "h.[0-11].mlp")
    )
    assert (whole.share, by_flops.share) == (1, pytest.approx(0.6486, abs=1e-4))


@pytest.mark.parametrize("name", ["resnet50", "bert-base-uncased", "gpt2", "yolov8n"])
def test_the_table_and_the_picture_fold_what_the_tree_folds(
    saved: Callable[[str], Profile], name: str
) -> None:
    costed = saved(name).on()
    tree = costed.tree
    folds = {tree.title(i): i.count for i in tree.root.shown() if i.kind is ItemKind.FOLD}
    drawn = {b.path: b.count for b in picture(costed, depth=99).drawing.boxes if b.count > 1}
    assert folds
    assert drawn == folds
    assert {r.path: r.count for r in rows(costed, 99) if r.path in folds} == folds


def test_modules_that_never_run_keep_their_parameters() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.auxiliary = (nn.Linear(8, n) for n in (8, 2, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))  # type: ignore[no-any-return]

    listed = rows(opgraph.profile(Heads(), torch.randn(2, 8)).on())
    assert [(r.label, r.cls, r.parameters) for r in listed if r.is_module] == [
        ("Heads", "", 117), ("body", "Linear", 72), ("head", "Linear", 18), ("auxiliary", "Linear", 27),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("device", [None, "h100-sxm"])
def test_the_table_keeps_to_its_width(
    saved: Callable[[str], Profile], width: int, device: str | None
) -> None:
    text = str(render("table", saved("gpt2").on(device), width=width))
    head = next(line for line in text.splitlines() if line.startswith("Module"))
    assert len(head) <= width
    assert {"Class", "Params", "FLOPs", "%"} <= set(head.split())
    assert ("Device" in head) == (device is not None)  # whose host is the limit
    left_out = text.partition("Left out: ")[2]
    needed = re.match(r"([^()]+) \(COLUMNS=(\d+) has all\)", " ".join(left_out.split()))
    assert needed is not None
    assert not set(re.split(r", ", needed[1])) & set(re.split(r" {2,}", head))
    assert "Left out" not in str(render("table", saved("gpt2").on(device), width=int(needed[2])))
    assert "Left out" in str(render("table", saved("gpt2").on(device), width=int(needed[2]) - 1))


def test_an_unknown_order_is_refused(saved: Callable[[str], Profile]) -> None:
    with pytest.raises(InputError, match="sort: 'weight' is not a choice"):
        saved("resnet18").on().render("table", sort="weight")
    with pytest.raises(RenderError, match="sort time is of the time on a device"):
        saved("resnet18").on().render("table", sort="time")
    for device, run, why in (("epyc-9654", "eager", "a CPU"), ("l4", "graphs", "at once")):
        with pytest.raises(RenderError, match=f"the host takes no time of its own: .*{why}"):
            saved("resnet18").on(device, run=run).render("table", sort="host")


@pytest.mark.parametrize("by", ["op", "class", "node"])
def test_rows_that_are_alike_add_up_to_the_whole(
    saved: Callable[[str], Profile], by: Grouping
) -> None:
    costed = saved("gpt2").on("h100-sxm")
    found = grouped(costed, by)
    assert sum(r.cost.flops for r in found) == costed.totals.flops
    assert sum(r.cost.bytes for r in found) == costed.totals.bytes
    assert sum(r.share for r in found) == pytest.approx(1)
    assert sum(r.seconds or 0 for r in found) == pytest.approx(
        sum(costed.prediction.by_node.values())
    )
    shares = [r.share for r in found]
    assert shares == sorted(shares, reverse=True)
    if by != "node":
        assert {r.path: r.count for r in found}[
            {"op": "layer_norm", "class": "LayerNorm"}[by]
        ] == 25
    else:
        assert {r.path: r.times for r in found}["h.[0-11].ln_1"] == 12


def test_of_a_class_its_modules_are_counted_and_not_their_nodes(
    saved: Callable[[str], Profile],
) -> None:
    counts = {row.path: row.count for row in grouped(saved("bert-base-uncased").on(), "class")}
    assert counts["BertSelfAttention"] == counts["BertOutput"] == 12
    assert (counts["Linear"], counts["LayerNorm"]) == (73, 25)
    assert counts["BertEmbeddings"] == counts["BertModel"] == 1


def test_columns_sort_under_their_own_names(saved: Callable[[str], Profile]) -> None:
    costed = saved("gpt2").on()
    heads = {c.title for on in (costed, saved("gpt2").on("h100-sxm")) for c in columns_of(on)}
    for title in heads - {"", "Output"} | {"Module", "Node"}:
        assert OPTIONS["sort"].check(title) in SORT_KEYS, title
    table(costed, by="node", sort="flops/byte", top=3)
    with pytest.raises(RenderError, match="no levels"):
        table(costed, by="op", depth=2)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("by", ["module", "op", "class", "node"])
def test_no_figure_and_no_count_is_cut(
    saved: Callable[[str], Profile], by: Grouping, width: int
) -> None:
    """Of a path the end is kept, which tells it from others."""
    costed = saved("bert-base-uncased").on("l4")
    lines = table(costed, by=by, width=width).split("\n\n")[0].splitlines()[3:]
    listed = rows(costed) if by == "module" else grouped(costed, by)
    assert len(lines) == len(listed) or lines[len(listed)].startswith("Left out")
    for row, line in zip(listed, lines, strict=False):
        assert len(line) <= width
        assert f" {cells_of(row)['flops'] or '—'} " in f"{line} "
        assert f" × {row.count} " in line or row.count == 1
        if by == "node":
            assert row.path.endswith(line.split()[0].rpartition("…")[2])


def test_nodes_at_80_columns_have_their_operator_and_a_bar_and_paths_cut_at_dots(
    saved: Callable[[str], Profile],
) -> None:
    costed = saved("bert-base-uncased").on("l4")
    text = table(costed, by="node", sort="flops", top=5, width=80)
    head, _, *rows = text.splitlines()[1:8]
    assert {"Operator", "Device"} <= set(head.split())
    assert all(" linear " in row and re.search("[▏▎▍▌▋▊▉█]", row) for row in rows)
    names = [row.split()[0] for row in rows]
    assert len(set(names)) == 5
    assert "….layer.[0-11].attention.self.query" in names
