"""The time of what ranks exchange: the bytes that a rank sends, in how many steps, and the link."""

from __future__ import annotations

from math import ceil, log2

from opgraph.hardware import Device
from opgraph.record.graph import Collective
from opgraph.record.kinds import CollectiveKind

NODE = 8
"""Devices that share a fast link. Between more of them trees are an alternative to rings, and on paper
tensor parallelism is not searched for beyond."""

WORDS, BLOCKS = 6.6e-6, 8.4e-6
"""Seconds in which a collective of each protocol starts."""

BLOCK_STEP = 5.7
"""A step with a block, in the time of one with a word."""


def ring(collective: Collective) -> int:
    """The bytes that a rank sends for a collective over a ring.

    Of n ranks each sends (n - 1) / n of what is gathered or scattered, and twice that of what is reduced
    for all, which is scattered and then gathered. Source: Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009.
    """
    n = max(1, collective.ranks)
    if n == 1 or collective.kind in (CollectiveKind.RECEIVE, CollectiveKind.BARRIER):
        return 0
    if collective.kind in (CollectiveKind.SEND, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        return collective.bytes
    times = 2 if collective.kind is CollectiveKind.ALL_REDUCE else 1
    return ceil(times * collective.bytes * (n - 1) / n)


def steps(collective: Collective) -> int:
    """The steps of a ring, one after the other: 2 (n - 1) for an all-reduce, 1 to one other rank, else
    n - 1."""
    if collective.kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE):
        return 1
    return (collective.ranks - 1) * (2 if collective.kind is CollectiveKind.ALL_REDUCE else 1)


def collective_seconds(collective: Collective, device: Device) -> float:
    """The seconds of a collective among devices that are all linked.

    Of two protocols the quicker one is taken, as a library would: words with a flag each, which take half
    of the link and have short steps, or blocks, which take all of it. The figures are those by which NCCL
    chooses (src/graph/tuning.cc, Apache-2.0). Between more devices than a node has, an all-reduce goes over
    a tree where that is quicker: up and down it, all bytes each way (Sanders, Speck and Traeff, "Two-tree
    algorithms for full bandwidth broadcast, reduction and scan", 2009).
    """
    if collective.ranks < 2:
        return 0.0
    ways = [(steps(collective), ring(collective))]
    if collective.kind is CollectiveKind.ALL_REDUCE and collective.ranks > NODE:
        ways.append((2 * ceil(log2(collective.ranks)), 2 * collective.bytes))
    found = []
    for count, sent in ways:
        moving, latency = sent / device.link_reached, count * device.link_latency
        found += [WORDS + latency + 2 * moving, BLOCKS + BLOCK_STEP * latency + moving]
    return min(found)
