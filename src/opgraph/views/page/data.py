"""What the interactive page reads, as JSON-ready data: the profile, and beside it what only Python works
out. The page in a file and the widget in a notebook are given the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opgraph.analysis.compare.pairing import pair_nodes
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.timing.prediction import CACHE, FITTED, arithmetic, serial, traffic_class
from opgraph.analysis.timing.workload import workload
from opgraph.hardware import Device, devices
from opgraph.record.graph import Graph
from opgraph.views.files.json import profile_data


def page_data(costed: CostedRecord, *, against: CostedRecord | None = None) -> dict[str, Any]:
    """Everything the page shows.

    `against` is another model, whose nodes are paired with those of this one. The device that it is costed
    on is chosen at first.
    """
    data: dict[str, Any] = {
        "profile": profile_data(costed),
        "devices": [_device(d) for d in devices()],
        "work": _work(costed.graph),
        "partition": _partition(costed.parts),
    }
    if costed.device is not None:
        data["device"] = costed.device.id
    if against is not None:
        pairing = pair_nodes(against.graph, costed.graph)
        data["against"] = {
            "profile": profile_data(against),
            "before": list(pairing.before),
            "removed": [[r.id, r.scope, r.at] for r in pairing.removed],
        }
    return data


def _partition(parts: Sequence[Subgraph]) -> dict[str, Any]:
    """The fused subgraphs: rules with their reasons, and for each subgraph its rule, the bytes that it
    reads and writes as one kernel, and the ids of its nodes."""
    rules = list(dict.fromkeys((p.rule, p.reason) for p in parts))
    place = {rule: i for i, rule in enumerate(rules)}
    return {
        "rules": [list(rule) for rule in rules],
        "subgraphs": [
            [place[p.rule, p.reason], p.fused_read, p.fused_written, list(p.nodes)] for p in parts
        ],
    }


def _work(graph: Graph) -> dict[str, Any]:
    """What the page needs to predict times for any device: the efficiencies, the kinds of work, each
    once, and by node which of them it runs."""
    kinds: dict[tuple[Any, ...], int] = {}
    by_node: list[list[int]] = [[] for _ in graph.nodes]
    for work in workload(graph):
        sums = arithmetic(work)
        # Where the cache spares nothing, it does not matter what it holds.
        reads = tuple(r for r in work.reads if r[1] is not None) if FITTED.cached != 1 else ()
        kind = (sums.flops, sums.kind, sums.unit, sums.dtype, work.bytes, traffic_class(work),
                serial(work), reads)  # fmt: skip
        by_node[work.node - 1].append(kinds.setdefault(kind, len(kinds)))
    return {
        "compute": dict(FITTED.compute),
        "traffic": dict(FITTED.traffic),
        "cached": FITTED.cached,
        "cache": CACHE,
        "kinds": [list(kind) for kind in kinds],
        "nodes": by_node,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "kind": device.kind,
        "figures": {key: figure.value for key, figure in device.figures.items()},
    }
