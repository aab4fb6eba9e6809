"""The time of what ranks exchange: how many of a group share a node, the bytes that a rank sends and in how
many steps, by each algorithm of a library, over the link of a node and the network between nodes.

Ranks are taken to be placed in order: the first so many on the first node. An algorithm moves words with a
flag each, which start at once and take half of the link, or blocks, which start later and take all of it. A
library takes the quickest way, and so is it here. What a link reaches, its latency and when a collective
starts are fitted (benchmarks/collectives.py); what is between nodes is what NCCL counts on
(src/graph/tuning.cc, Apache-2.0), and nothing measured stands behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil, log2
from typing import Any, Literal

from opgraph.hardware import Device
from opgraph.record.graph import Collective, Graph
from opgraph.record.kinds import TRANSFERS, CollectiveKind

TREE = 0.92
"""The share of a ring's bandwidth that a tree reaches. Source: NCCL, src/graph/tuning.cc."""

Algorithm = Literal["ring", "tree", "multicast", "direct"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing a collective: `near` steps over the link and `far` ones over the network, and the
    seconds that its bytes take at full rate."""

    algorithm: Algorithm
    near: int
    far: int
    moving: float


def ring(collective: Collective) -> int:
    """The bytes that a rank sends for a collective over a ring, or over the link to its host.

    Of n ranks each sends (n - 1) / n of what is gathered or scattered, and twice that of what is reduced
    for all, which is scattered and then gathered. Source: Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009.
    """
    n = max(1, collective.ranks)
    if collective.kind in TRANSFERS:
        return collective.bytes
    if n == 1 or collective.kind in (CollectiveKind.RECEIVE, CollectiveKind.BARRIER):
        return 0
    if collective.kind in (CollectiveKind.SEND, CollectiveKind.PERMUTE, CollectiveKind.BROADCAST,
                           CollectiveKind.REDUCE):  # fmt: skip
        return collective.bytes
    times = 2 if collective.kind is CollectiveKind.ALL_REDUCE else 1
    return ceil(times * collective.bytes * (n - 1) / n)


def placed(collective: Collective, node: int) -> tuple[int, int]:
    """How many ranks of the group share a node of so many devices, at most, and on how many nodes it is."""
    if collective.members:
        on = Counter(rank // node for rank in collective.members)
        return max(on.values()), len(on)
    shared = max(1, min(collective.ranks, node // max(1, collective.stride)))
    return shared, ceil(collective.ranks / shared)


def crosses(collective: Collective, device: Device) -> bool:
    """Whether a group is on several nodes whose network is known."""
    return bool(device.network_reached) and placed(collective, device.node)[1] > 1


def ways(collective: Collective, device: Device) -> Iterator[Way]:
    """The ways in which a library would do a collective among devices that are linked.

    Between nodes a ring enters and leaves each as often as there are ranks on it, each over the network of
    its own device, and the slower of link and network counts. A tree goes up and down, all bytes each way
    (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    2009). Where a switch adds up and copies, each rank sends its part and all bytes once (NVLink SHARP;
    NCCL calls it NVLS), and between nodes each rank's part goes over a tree of its own.
    """
    n, size, kind = collective.ranks, collective.bytes, collective.kind
    shared, nodes = placed(collective, device.node)
    link, network = device.link_reached, device.network_reached
    if not network:
        shared, nodes = n, 1
    both = link if nodes == 1 else min(link, shared * network)
    if kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE, CollectiveKind.PERMUTE):
        yield Way(
            "direct", int(nodes == 1), int(nodes > 1), size / (link if nodes == 1 else network)
        )
        return
    if kind is CollectiveKind.ALL_TO_ALL:
        inside, outside = size * (shared - 1) / n, size * (n - shared) / n
        beyond = outside / network if nodes > 1 else 0.0
        yield Way("direct", 1, int(nodes > 1), max(inside / link, beyond))
        return
    reduces = kind is CollectiveKind.ALL_REDUCE
    far = (nodes - 1) * (1 + reduces)
    yield Way("ring", (n - 1) * (1 + reduces) - far, far, ring(collective) / both)
    if not reduces:
        return
    levels = 2 * ceil(log2(nodes))
    if nodes > 1:
        yield Way("tree", 2 * (shared - 1), levels, 2 * size / (both * TREE))
    if device.link_multicast and shared > 2:
        inside = size * (shared + 1) / shared / device.link_multicast
        beyond = 2 * size / shared / network if nodes > 1 else 0.0
        yield Way("multicast", 1, levels, max(inside, beyond))


def quickest(collective: Collective, device: Device) -> tuple[float, Algorithm]:
    """The seconds of a collective among devices that are linked, and the algorithm that takes them."""
    found: list[tuple[float, Algorithm]] = []
    for way in ways(collective, device):
        near = device.link_start + way.near * device.link_latency
        words = near + way.far * device.of_network("latency") + 2 * way.moving
        blocks = near + way.far * device.of_network("block_latency") + way.moving
        if way.algorithm != "multicast":
            found.append((words, way.algorithm))
        found.append((blocks + device.link_block_start, way.algorithm))
    return min(found)


def collective_seconds(collective: Collective, device: Device) -> float:
    """The seconds of a collective among devices that are linked; of what a rank moves between its device
    and its host, those of the link between these."""
    if collective.kind in TRANSFERS:
        if device.kind == "cpu":  # whose memory is the host's
            return 0.0
        return device.launch_overhead + collective.bytes / device.host_link
    return quickest(collective, device)[0] if collective.ranks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The collectives of one kind in one group and phase: how often, the bytes of their buffers, and those
    that a rank sends for them over a ring."""

    phase: str
    kind: CollectiveKind
    ranks: int
    group: str
    times: int
    bytes: int
    sent: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self)


def exchanges(graph: Graph) -> tuple[Exchanged, ...]:
    """What a rank exchanges with others in a run, in the order in which the kinds first occur."""
    found: dict[tuple[str, CollectiveKind, int, str], list[Collective]] = {}
    for node in graph.nodes:
        for each in (kernel.collective for kernel in node.kernels):
            if each is not None:
                key = (node.phase, each.kind, each.ranks, each.group)
                found.setdefault(key, []).append(each)
    return tuple(Exchanged(*key, len(all_), sum(c.bytes for c in all_), sum(map(ring, all_)))
                 for key, all_ in found.items())  # fmt: skip
