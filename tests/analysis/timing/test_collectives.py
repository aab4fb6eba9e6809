"""Where the ranks of a group are, what each sends, and over what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opgraph.analysis.timing.collectives import (
    collective_seconds,
    crosses,
    placed,
    quickest,
    ring,
    ways,
)
from opgraph.hardware import device
from opgraph.record.graph import Collective
from opgraph.record.kinds import CollectiveKind

H100 = device("h100-sxm")
MIB = 2**20
ALL_REDUCE, GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER


def test_what_a_rank_sends() -> None:
    """Of 4 ranks each sends 3/4 of a buffer in 3 steps, or twice that where all get the sum."""

    def of(kind: CollectiveKind) -> tuple[int, int]:
        each = Collective(kind, 80, 4)
        return ring(each), next(ways(each, H100)).near

    assert of(ALL_REDUCE) == (120, 6)
    assert of(GATHER) == of(CollectiveKind.REDUCE_SCATTER) == (60, 3)
    assert of(CollectiveKind.SEND) == (80, 1)
    assert of(CollectiveKind.BARRIER) == (0, 3)


@pytest.mark.parametrize(
    ("ranks", "stride", "members", "found"),
    [
        (8, 1, (), (8, 1)),
        (16, 1, (), (8, 2)),
        (4, 2, (), (4, 1)),
        (16, 4, (), (2, 8)),
        (128, 8, (), (1, 128)),
        (4, 0, (0, 1, 8, 9), (2, 2)),
        (3, 0, (0, 1, 3), (3, 1)),
    ],
)
def test_ranks_are_placed_node_by_node(
    ranks: int, stride: int, members: tuple[int, ...], found: tuple[int, int]
) -> None:
    each = Collective(GATHER, 1, ranks, stride, "", members)
    assert placed(each, 8) == found
    assert crosses(each, H100) == (found[1] > 1)


def test_a_rank_alone_on_its_node_has_one_card() -> None:
    """Of 2 GiB among 16 ranks 15/16 go through each card of 47 GB/s, and 8 on a node share 8 of those, as
    long as their link is no slower."""
    apart, near = Collective(GATHER, 2048 * MIB, 16, 8), Collective(GATHER, 2048 * MIB, 16)
    assert next(ways(apart, H100)).moving == pytest.approx(ring(apart) / 47e9)
    assert next(ways(near, H100)).moving == pytest.approx(ring(near) / (0.681 * 450e9))
    slow = H100.over("100Gb/s")
    assert next(ways(near, slow)).moving == pytest.approx(ring(near) / (8 * 0.94 * 12.5e9))
    assert (next(ways(apart, H100)).near, next(ways(apart, H100)).far) == (0, 15)
    assert (next(ways(near, H100)).near, next(ways(near, H100)).far) == (14, 1)


def test_without_a_network_the_link_is_taken() -> None:
    unknown = device("rtx-4090")
    each = Collective(GATHER, MIB, 64)
    assert not crosses(each, unknown)
    assert next(ways(each, unknown)).far == 0


def test_a_library_takes_the_quickest_way() -> None:
    few = Collective(ALL_REDUCE, 1024, 1024)
    assert quickest(few, H100)[1] == "tree"
    assert quickest(Collective(ALL_REDUCE, 512 * MIB, 8), H100)[1] == "multicast"
    assert quickest(Collective(ALL_REDUCE, 512 * MIB, 8), device("a100-sxm4-80gb"))[1] == "ring"
    assert quickest(Collective(ALL_REDUCE, 512 * MIB, 2), H100)[1] == "ring"
    assert collective_seconds(Collective(ALL_REDUCE, 512 * MIB, 1), H100) == 0.0


def test_all_to_all_waits_for_the_slower_of_link_and_network() -> None:
    each = Collective(CollectiveKind.ALL_TO_ALL, 160 * MIB, 16)
    assert next(ways(each, H100)).moving == pytest.approx(80 * MIB / 47e9)
    assert next(ways(replace(each, ranks=8), H100)).moving == pytest.approx(
        140 * MIB / (0.681 * 450e9)
    )


# (kind, ranks, bytes, microseconds), measured by AIConfigurator (Apache-2.0) with NCCL 2.27.3.
MEASURED = [
    ("h100-sxm", ALL_REDUCE, 8, 8192, 16.0),
    ("h100-sxm", ALL_REDUCE, 8, 512 * MIB, 2095.0),
    ("h100-sxm", GATHER, 8, 64 * MIB, 209.0),
    ("h100-sxm", CollectiveKind.REDUCE_SCATTER, 4, 256 * MIB, 679.0),
    ("a100-sxm4-80gb", ALL_REDUCE, 8, 64 * MIB, 595.3),
    ("a100-sxm4-80gb", GATHER, 4, 8192, 11.8),
    ("a100-sxm4-80gb", CollectiveKind.ALL_TO_ALL, 8, 512 * MIB, 2313.5),
]


@pytest.mark.parametrize(("name", "kind", "ranks", "size", "measured"), MEASURED)
def test_near_to_what_was_measured(
    name: str, kind: CollectiveKind, ranks: int, size: int, measured: float
) -> None:
    found = collective_seconds(Collective(kind, size, ranks), device(name))
    assert found * 1e6 == pytest.approx(measured, rel=0.15 if size >= MIB else 0.3)
