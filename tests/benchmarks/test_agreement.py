"""How far two partitions put together the same, as benchmarks/fusion.py measures it."""

from __future__ import annotations

import pytest
from benchmarks.agreement import adjusted_rand, partition_agreement

from opgraph.analysis.fusion.partition import fused_subgraphs, singletons


def test_a_partition_agrees_with_itself(saved):
    graph = saved("gpt2").graph
    parts = fused_subgraphs(graph)
    found = partition_agreement(graph, parts, parts)
    assert (found.rand, found.agreeing) == (1.0, 1.0)
    apart = partition_agreement(graph, parts, singletons(graph))
    assert (apart.both, apart.second_only, apart.first_only) == (0, 0, found.both)
    assert apart.rand == pytest.approx(0, abs=0.01)


def test_the_adjusted_rand_index_by_hand():
    """Hubert and Arabie's formula for {1 2 3}{4 5 6} against {1 2}{3 4 5}{6}: 2 pairs together in both, 6
    and 4 in each, of 15: (2 - 24 / 15) / (5 - 24 / 15)."""
    labels = [(0, 0), (0, 0), (0, 1), (1, 1), (1, 1), (1, 2)]
    assert adjusted_rand(labels) == pytest.approx((2 - 24 / 15) / (5 - 24 / 15))
    assert adjusted_rand([(i, i) for i in range(4)]) == 1.0
