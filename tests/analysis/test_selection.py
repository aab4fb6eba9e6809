"""Ranges at their edges, filters one by one and together, and patterns of module paths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opgraph import Profile
from opgraph.analysis.selection import Filter, Range, SelectionError, matches, module_meant, select

Saved = Callable[[str], Profile]


@pytest.mark.parametrize(
    ("where", "first", "last"),
    [
        (Range(), 1, 71),
        (Range(start=1, end=1), 1, 1),
        (Range(start=71), 71, 71),
        (Range(end=5), 1, 5),
        (Range(start=3, end=9), 3, 9),
        (Range(start=70, end=1000), 70, 71),
        (Range(around=1), 1, 11),
        (Range(around=71, context=2), 69, 71),
        (Range(around=30, context=0), 30, 30),
        (Range(count=4), 1, 4),
        (Range(count=1000), 1, 71),
    ],
)
def test_a_range_is_one_based_and_inclusive(
    saved: Saved, where: Range, first: int, last: int
) -> None:
    found = select(saved("resnet18").on(), where)
    assert (found.nodes[0].id, found.nodes[-1].id) == (first, last)
    assert len(found.nodes) == last - first + 1
    assert found.contiguous
    assert bool(found.notes) == (1000 in (where.end, where.count))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"start": 0}, "--start is 0"),
        ({"end": -1}, "--end is -1"),
        ({"around": 0}, "--around is 0"),
        ({"around": 3, "context": -1}, "--context is -1"),
        ({"count": 0}, "--max-nodes is 0"),
        ({"start": 9, "end": 3}, "--start 9 is after --end 3"),
        ({"start": 1, "around": 3}, "two ways"),
        ({"end": 1, "count": 3}, "two ways"),
        ({"context": 3}, "goes with --around"),
    ],
)
def test_a_range_that_cannot_be_meant_is_refused(given: dict[str, int], why: str) -> None:
    with pytest.raises(SelectionError, match=why):
        Range(**given)


@pytest.mark.parametrize("where", [Range(start=72), Range(start=72, end=80), Range(around=72)])
def test_a_range_outside_the_graph_is_refused(saved: Saved, where: Range) -> None:
    with pytest.raises(SelectionError, match="there is no node 72: the last one is 71"):
        select(saved("resnet18").on(), where)


@pytest.mark.parametrize(
    ("which", "count"),
    [
        (Filter(op="linear"), 73),
        (Filter(op="LINEAR"), 73),
        (Filter(op="l*"), 98),
        (Filter(module="encoder.layer.0"), 25),
        (Filter(module="encoder.layer.[0-11]"), 300),
        (Filter(module="encoder.layer.0.*", op="linear"), 6),
        (Filter(module="*.dense"), 37),
        (Filter(bottleneck="memory"), 70),
        (Filter(bottleneck="compute", op="linear"), 72),
        (Filter(min_flops=6e8), 24),
        (Filter(text="gelu"), 12),
        (Filter(text="BertPooler"), 1),
        (Filter(text="modeling_bert.py", op="add"), 26),
    ],
)
def test_filters_combine(saved: Saved, which: Filter, count: int) -> None:
    assert len(select(saved("bert-base-uncased").on(), which=which).nodes) == count


def test_a_filter_within_a_range_and_cut_short(saved: Saved) -> None:
    costed = saved("bert-base-uncased").on()
    both = select(costed, Range(start=15, end=39), Filter(op="linear"))
    assert [n.id for n in both.nodes] == [15, 18, 21, 30, 34, 36]
    first = select(costed, Range(count=2), Filter(op="linear"))
    assert [n.id for n in first.nodes] == [15, 18]
    assert first.omitted == 71
    assert select(costed, which=Filter(op="linear"), limit=10).omitted == 63


def test_a_filter_that_nothing_passes_says_what_there_is(saved: Saved) -> None:
    costed = saved("bert-base-uncased").on()
    for which, hint in (
        (Filter(op="conv2d"), "linear × 73"),
        (Filter(op="layernorm"), "did you mean layer_norm"),
        (Filter(module="xyz"), "there are embeddings, encoder, pooler"),
        (Filter(module="pooler.den"), "did you mean pooler.dense"),
    ):
        with pytest.raises(SelectionError, match="there is no") as error:
            select(costed, which=which)
        assert hint in (error.value.hint or "")
    assert select(costed, which=Filter(op="linear", min_flops=1e30)).notes == ("no node passes",)


@pytest.mark.parametrize(
    ("pattern", "path", "yes"),
    [
        ("h.0", "h.0", True),
        ("h.0", "h.0.attn", True),
        ("h.0", "h.01", False),
        ("h.0.*", "h.0", False),
        ("h.?.attn", "h.7.attn.c_attn", True),
        ("h.[0-11].attn", "h.11.attn", True),
        ("h.[0-11].attn", "h.12.attn", False),
        ("denselayer[1-3]", "denselayer2", True),
        ("*.conv*", "layer1.0.conv2", True),
        ("a+b", "aab", False),
        ("", "", True),
        ("", "h", False),
    ],
)
def test_patterns_of_module_paths(pattern: str, path: str, yes: bool) -> None:
    assert matches(pattern, path) is yes


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("encoder.layer.3", "encoder.layer.3"),
        ("layer.3", "encoder.layer.3"),
        ("layer.[0-2].attention", "encoder.layer.[0-2].attention"),
        ("3.attention.self", "encoder.layer.3.attention.self"),
        ("word_embeddings", "embeddings.word_embeddings"),
    ],
)
def test_the_end_of_a_path_means_the_highest_module_that_ends_so(
    saved: Saved, pattern: str, meant: str
) -> None:
    graph = saved("bert-base-uncased").graph
    assert module_meant(graph, pattern) == meant
    found = select(saved("bert-base-uncased").on(), which=Filter(module=pattern))
    assert found.nodes == select(saved("bert-base-uncased").on(), which=Filter(module=meant)).nodes


def test_an_end_of_several_paths_is_refused_with_them(saved: Saved) -> None:
    with pytest.raises(SelectionError, match=r"no module 'attention\.self'") as raised:
        module_meant(saved("bert-base-uncased").graph, "attention.self")
    assert (raised.value.hint or "").startswith("*.attention.self means all of encoder.layer.0.att")


def test_a_text_that_no_node_has_is_refused(saved: Saved) -> None:
    with pytest.raises(SelectionError, match="no node has 'NOPE' in its name") as raised:
        select(saved("gpt2").on(), which=Filter(text="NOPE"))
    assert "--op" in (raised.value.hint or "")
