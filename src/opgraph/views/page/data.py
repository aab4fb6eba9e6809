"""What the interactive page reads, as JSON-ready data: the profile, and beside it every answer that the
page shows and does not work out itself. The page in a file and the widget in a notebook are given the same.

- `profile`: the profile as it is saved; with `against`, its graph is the union of both.
- `tree`: the items of the one tree in preorder, by column (see `_tree`).
- `marks`: those of `opgraph.views.marks`: a label, a sign, a colour for light and for dark.
- `ridge`: FLOPs/byte, where no device is chosen; `balanced` are the parts of a ridge point below and above
  which work is bound by memory and by compute.
- `live`: how many more bytes are live after a kernel than after the one before: the distinct changes, and
  by kernel which of them (a text or a list, as `work`); the `peak` is the kernel after which most are.
- `paths`: the costliest ways through the graph, as the id of the first node and the steps to the others (as
  `work`); by measure the place of its one in `path`.
- `headline`: the words of the sentence over the graph (see `opgraph.views.headline`).
- `details`: "7×7 /2" and the like, and "branch taken: True", each with the ids of its nodes (see
  `opgraph.views.details`).
- `plumbing`: by node 1 where it is drawn only if that is asked for (see `opgraph.views.details`).
- `work`: by node its distinct work, as a place in a device's `work` and `bounds`; -1 for none. It is a text
  whose characters are "0" for -1, "1" for 0 and so on, or a list where there are too many.
- `spots`: every module that computes something itself: its title, its item, and its own leaves.
- `partition`: rules with their reasons; distinct parts by rule, bytes read and bytes written as one kernel;
  and every subgraph as its distinct part, the id of its first node, and the steps to the others.
- `next`: questions that the page does not answer, each with the command that does.
- `sizes`: what it costs at other sizes, where the profile has formulas (see `opgraph.views.page.sizes`),
  and by node which of the distinct costs it has (as `work`).
- `devices`: every device with the bytes that a run needs and those there are, with its ridge and roof
  in the model's main dtype, and with the place of its costliest path; the seconds of a run, and where the
  host is the `limit` what is said of that; by distinct work its microseconds in the queues of the device
  and of the host, and what it waits for (`c`ompute, `m`emory, `l`aunch), by distinct part its microseconds
  and, as `fused`, what that waits for;
  with `against`, `before` are those of that one's distinct work on the device.
- `ran`: by node the kernels that memory is counted in, where others run (a compiler's).
- `measured`: of a run that was measured, on what and how long it took (see `_measured`).
- `device`: the id of the one that the model is costed on, if any, and `queues`: when what runs there, by
  queue, where ranks exchange something (see `_queues`).
- `against`: the other model: its totals, and by node of the union what became of it (see `_against`) and
  its distinct `work`.

Repeated layers share their distinct work, so a model of 126 equal layers has one layer's times for each
device. What the page does itself are sums over these figures, and shares of them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, sub
from typing import Any, NamedTuple

from opgraph.analysis.compare.pairing import Union, unite
from opgraph.analysis.cost.quantization import multiplies
from opgraph.analysis.cost.totals import BALANCED, GENERIC_RIDGE
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.measured.times import Measurement, curve
from opgraph.analysis.memory import Fit, Footprint, memory
from opgraph.analysis.selection import heaviest_path
from opgraph.analysis.targets import as_one, instead, kernel_instead, put_together
from opgraph.analysis.timing.kernels import KernelCost
from opgraph.analysis.timing.prediction import (
    Known,
    Prediction,
    predict,
    predict_parts,
    predict_work,
)
from opgraph.analysis.timing.streams import (
    KERNELS,
    WAITING,
    Slot,
    alone_in_time,
    exchanges_something,
)
from opgraph.analysis.timing.workload import Task, Work, workload
from opgraph.analysis.tree import ItemKind, Metric, Tree, build_tree
from opgraph.hardware import Device, devices
from opgraph.record import schema
from opgraph.record.graph import Graph
from opgraph.record.kinds import Bound, ChangeKind
from opgraph.record.profile import ProfileRecord
from opgraph.views.details import branches, details, plumbing
from opgraph.views.files.json import profile_data
from opgraph.views.headline import headline_data, total_of, way
from opgraph.views.marks import BOUNDS, CATEGORIES, CHANGES, NO_WORK, RULES, SERIES, UNKNOWN, Mark
from opgraph.views.page.sizes import sizes_data

DIGITS = 9
"""Of times: with as many, sums over ten thousand nodes are printed as they are in Python."""

_LETTERS = {
    ItemKind.ROOT: "r", ItemKind.PHASE: "p", ItemKind.MODULE: "m", ItemKind.FOLD: "f", ItemKind.GROUP: "g",
    ItemKind.NODE: "n",
}  # fmt: skip
_SIGNS = {
    ChangeKind.SAME: "=", ChangeKind.ADDED: "+", ChangeKind.REMOVED: "-", ChangeKind.COSTLIER: ">",
    ChangeKind.CHEAPER: "<", ChangeKind.CHANGED: "~",
}  # fmt: skip


def page_data(costed: CostedRecord, *, against: CostedRecord | None = None) -> dict[str, Any]:
    """Everything the page shows.

    `against` is another model, whose nodes are paired with those of this one. The device that it is costed
    on is chosen at first.
    """
    graph = costed.graph
    union = None if against is None else unite(against.graph, graph)
    profile = profile_data(costed, as_run=True)
    del profile["memory"]  # the page has the storages
    profile.pop("formulas", None)  # the page has what they give at the sizes that it offers
    profile.pop("inductor", None)  # its kernels are at the nodes, and its groups in the partition
    if union is None:
        # Without a device: the page weighs hot spots by the one that is chosen there.
        tree = replace(costed.tree, seconds=None, bounds=None, measured=None)
        place = list(range(len(graph.nodes) + 1))
        removed: set[int] = set()
    else:
        became = union.changes
        tree = build_tree(union.graph, mark=lambda node: became[node.id - 1])
        place = _places(union)
        removed = {at for at, change in enumerate(became, 1) if change is ChangeKind.REMOVED}
        profile["graph"] = schema.encode(union.graph)
    times = _Times(costed)
    machines = {d.id: d for d in devices() if multiplies(costed.profile, d)}
    if costed.device is not None:  # it may be from a file of its own
        machines[costed.device.id] = costed.device
    work = _by_place(times.by_node, place, len(tree.nodes))
    ways = _Ways(tree.graph)
    decided = {place[node] for node in branches(graph)}
    changes = _steps(costed.memory.live)
    ran = [0] * len(tree.nodes)
    for node in graph.nodes:
        ran[place[node.id] - 1] = len(node.kernels)
    distinct = {change: at for at, change in enumerate(dict.fromkeys(changes))}
    data: dict[str, Any] = {
        "profile": profile,
        "tree": _tree(tree),
        "marks": _marks(),
        "ridge": GENERIC_RIDGE,
        "balanced": BALANCED,
        "live": [list(distinct), _text([distinct[c] for c in changes])],
        "peak": costed.memory.peak_kernel,
        "headline": headline_data(costed),
        "details": _details(costed.graph, place),
        "plumbing": "".join("01"[h] for h in plumbing(tree.graph, ways.read, removed, decided)),
        "work": _text(work),
        "spots": [
            [spot.label, spot.item.id, *(leaf.id for leaf in spot.leaves)]
            for spot in tree.hot_spots(every=True)
        ],
        "partition": _partition(costed.parts, times, place),
        "devices": [
            times.on(d, costed.multiplied, times.footprint(d).on(d)) for d in machines.values()
        ],
        "next": _next(costed.profile),
    }
    metrics = (Metric.FLOPS, Metric.BYTES, Metric.MEMORY)
    if ran != [len(node.kernels) for node in tree.graph.nodes]:
        data["ran"] = _text(ran)
    data["path"] = {m: ways.place([tree.each(m, leaf) for leaf in tree.leaves]) for m in metrics}
    for machine in data["devices"]:
        taken = [*machine["queues"]["device"], 0.0]  # of no work
        machine["path"] = ways.place([taken[kind] for kind in work])
    data["paths"] = [_text(_steps(path)) for path in ways.known]
    formulas = costed.profile.formulas
    if formulas is not None and (found := sizes_data(formulas, graph)) is not None:
        data["sizes"], kinds = found
        data["sizes"]["nodes"] = _text(_by_place(kinds, place, len(tree.nodes)))
    if costed.device is not None:
        data["device"] = costed.device.id
        if costed.prediction is not None and costed.prediction.slots:
            data["queues"] = _queues(costed.prediction.slots, place)
        if costed.price is not None:
            chosen = next(d for d in data["devices"] if d["id"] == costed.device.id)
            chosen["said"] = total_of(costed)
    if costed.measurement is not None:
        data["measured"] = _measured(costed.measurement, place)
        took = dict(data["measured"]["nodes"])
        data["path"]["measured"] = ways.place([took.get(leaf.node, 0.0) for leaf in tree.leaves])
    if against is not None and union is not None:
        data["against"] = _against(against, union)
        then = _Times(against)
        works = [-1 if node is None else then.by_node.get(node.id, -1) for node in union.before]
        data["against"]["work"] = _text(works)
        for machine in data["devices"]:
            device = machines[machine["id"]]
            machine["before"] = then.taken(then.predicted(device, then.instead_on(device)).by_node)
    return data


def _by_place(kinds: Mapping[int, int], place: Sequence[int], count: int) -> list[int]:
    """What nodes have by their ids, by the positions in the page; -1 for those that have none."""
    found = [-1] * count
    for node, kind in kinds.items():
        found[place[node] - 1] = kind
    return found


def _details(graph: Graph, place: Sequence[int]) -> dict[str, list[int]]:
    """The nodes of which there is something to say in few characters, by what that is."""
    found: dict[str, list[int]] = {}
    for node in graph.nodes:
        if node.kernels and (said := details(graph, node)):
            found.setdefault(said, []).append(place[node.id])
    for asked, said in branches(graph).items():
        found.setdefault(said, []).append(place[asked])
    return found


def _marks() -> dict[str, Any]:
    def all_of(marks: Mapping[Any, Mark]) -> dict[str, Any]:
        return {key.value: mark.to_dict() for key, mark in marks.items()}

    return {
        "bounds": all_of(BOUNDS),
        "changes": all_of(CHANGES),
        "work": all_of(CATEGORIES),
        "rules": all_of(RULES),
        "none": NO_WORK.to_dict(),
        "unknown": UNKNOWN.to_dict(),
        "spare": [Mark(tone, "", "").to_dict() for tone in SERIES],
    }


def _tree(tree: Tree) -> dict[str, Any]:
    """The items by column: a letter for each kind; of every branch how many children it has; labels by
    their place in `texts`; a path by its length, as it begins that of its first node's module; pairs of an
    item and its class, where that is not its module's; of an item and which call it is; and of a module and
    the shape of its first result."""
    scopes = tree.graph.scope
    texts: dict[str, int] = {}
    found: dict[str, Any] = {"kinds": "".join(_LETTERS[item.kind] for item in tree.items)}
    found["counts"] = [len(item.children) for item in tree.items if not item.node]
    found["labels"] = _text([texts.setdefault(item.label, len(texts)) for item in tree.items])
    found["classes"] = [
        [item.id, texts.setdefault(item.cls, len(texts))]
        for item in tree.items
        if item.cls != (scopes[item.path].cls if item.path and item.path in scopes else "")
    ]
    found["paths"] = _text(
        [len(item.path.encode("utf-16-le", "surrogatepass")) // 2 for item in tree.items]
    )
    found["calls"] = [[item.id, item.call] for item in tree.items if item.call]
    outputs: dict[int, list[int]] = {}
    for item in tree.items:
        if not item.node and item.path and (made := tree.output(item)) is not None:
            shape = "×".join(map(str, made.shape)) or "scalar"
            outputs.setdefault(texts.setdefault(shape, len(texts)), []).append(item.id)
    found["outputs"] = [[text, *ids] for text, ids in outputs.items()]
    found["texts"] = list(texts)
    return found


class _Ways:
    """The distinct costliest ways through a graph, by what its nodes weigh."""

    def __init__(self, graph: Graph) -> None:
        self.read = [
            [s for s in graph.reads(node) if s < at] for at, node in enumerate(graph.nodes, 1)
        ]
        self.known: dict[tuple[int, ...], int] = {}

    def place(self, weights: Sequence[float]) -> int:
        """Where the costliest way by these weights stands among those known."""
        path = tuple(heaviest_path(self.read, weights))
        return self.known.setdefault(path, len(self.known))


class _Times:
    """The distinct work of a graph, and what it takes on a device. Nodes do the same work if all of their
    kernels are equal; subgraphs are the same part if their nodes are, and what they move as one kernel."""

    def __init__(self, costed: CostedRecord) -> None:
        self.run, self.graph, parts = costed.run, costed.graph, costed.parts
        self.costed = costed
        self.works: dict[int, list[Work]] = {}
        self.all = costed.work
        for work in self.all:
            self.works.setdefault(work.node, []).append(work)
        self.exchanges = exchanges_something(self.all)
        kinds: dict[tuple[Work, ...], int] = {}
        self.first: list[int] = []
        self.by_node: dict[int, int] = {}
        for node, works in self.works.items():
            # What others wait for of an exchange is not the same wherever it is.
            apart = self.exchanges and alone_in_time(works)
            alone = works if apart else [w._replace(node=0) for w in works]
            kind = kinds.setdefault(tuple(alone), len(kinds))
            self.by_node[node] = kind
            if kind == len(self.first):
                self.first.append(node)
        equal: dict[tuple[object, ...], int] = {}
        self.by_part: list[int] = []
        self.parts: list[Subgraph] = []
        for part in parts:
            nodes = tuple(self.by_node.get(node, -1) for node in part.nodes)
            moved = part.fused_read, part.fused_written
            kind = equal.setdefault((part.rule, part.reason, nodes, *moved), len(equal))
            self.by_part.append(kind)
            if kind == len(self.parts):
                self.parts.append(part)
        alike = Counter(self.by_node.values())
        self.often = {node: alike[self.by_node[node]] for node in self.first}
        self.work_of_nodes = [w for node in self.first for w in self.works[node]]
        self.together: dict[frozenset[str], dict[int, list[Work]]] = {}
        self.footprints: dict[frozenset[str], Footprint] = {}
        self.work_of_parts = [
            w for p in self.parts for node in p.nodes for w in self.works.get(node, ())
        ]

    def instead_on(self, device: Device) -> _Instead:
        """The work for which a device has another kernel, with that, and that of nodes which it runs as one
        kernel."""
        names, ops = instead(self.costed.profile, device), as_one(self.costed.profile, device)
        tasks = {
            w.task: replace(w.task, kernel=kernel_instead(w.task.kernel, names))
            for w in (self.all if names else ())
        }
        if not ops or self.run.compiled:
            return _Instead(tasks, {})
        if ops not in self.together:
            found = self.together[ops] = {}
            nodes = {n.id for n in self.graph.nodes if n.op in ops}
            for work in workload(put_together(self.graph, ops)):
                if work.node in nodes:
                    found.setdefault(work.node, []).append(work)
        return _Instead(tasks, self.together[ops])

    def footprint(self, device: Device) -> Footprint:
        """What the run needs of memory, with what a device runs as one kernel."""
        ops = as_one(self.costed.profile, device)
        if not ops or self.run.compiled:
            return self.costed.footprint
        if ops not in self.footprints:
            graph = put_together(self.graph, ops)
            self.footprints[ops] = Footprint(graph, memory(graph))
        return self.footprints[ops]

    def predicted(self, device: Device, other: _Instead, known: Known | None = None) -> Prediction:
        """The time on a device: of the first node of each kind, and of the whole."""
        if self.exchanges:
            pipeline = self.costed.profile.pipeline
            works = other.of(self.all)
            return predict(self.graph, device, self.run, works=works, pipeline=pipeline)
        works = other.of(self.work_of_nodes)
        times = [self.often[w.node] for w in works]
        return predict_work(works, device, self.run, times=times, known=known)

    def taken(self, queue: Mapping[int, float]) -> list[float]:
        """The microseconds of each kind of work in a queue."""
        return [_microseconds(queue.get(node, 0.0)) for node in self.first]

    def on(self, device: Device, dtype: str, need: Fit) -> dict[str, Any]:
        """A device with its figures in a dtype, its times, and what a run needs of its memory."""
        dtype = device.multiplies(dtype)
        other, known = self.instead_on(device), dict[tuple[int, int], KernelCost]()
        found = self.predicted(device, other, known)
        often = {} if self.exchanges else self.often
        found = self.costed.believed(found, device, often)
        fused = predict_parts(
            other.of(self.work_of_parts), self.parts, device, self.run, known=known
        )
        return {
            "id": device.id,
            "name": device.name,
            "vendor": device.vendor,
            "dtype": dtype,
            "said": found.said + way(self.run),
            "ridge": device.ridge_point(dtype),
            "peak": device.matrix_peak(dtype),
            "bandwidth": device.bandwidth,
            "memory": [need.needed, round(need.capacity)],
            "seconds": _digits(found.seconds),
            "limit": found.limiting if found.limit == "host" else "",
            "queues": {name: self.taken(queue) for name, queue in found.by_queue.items()},
            "bounds": "".join(found.bounds.get(node, Bound.LAUNCH)[0] for node in self.first),
            "parts": [_microseconds(part.seconds, 5) for part in fused],
            "fused": "".join(part.bound[0] for part in fused),
        }


class _Instead(NamedTuple):
    """What a device runs instead of the work of a trace: other kernels of attention, and the work of nodes
    that are one kernel there."""

    tasks: Mapping[Task, Task]
    nodes: Mapping[int, Sequence[Work]]

    def of(self, works: Sequence[Work]) -> Sequence[Work]:
        """The work, one node after the other, as the device runs it."""
        if not self.tasks and not self.nodes:
            return works
        return [
            w._replace(task=self.tasks.get(w.task, w.task))
            for node, own in groupby(works, key=attrgetter("node"))
            for w in self.nodes.get(node, own)
        ]


def _next(profile: ProfileRecord) -> list[list[str]]:
    """What one would ask next, with the command that answers it."""
    name = shlex.quote(profile.model.name)
    return [
        ["larger batches", f"opgraph sweep {name} --batch-size 1,8,32,128"],
        ["what changed since", f"opgraph view {name} --against saved.json"],
        ["a step of training", f"opgraph view {name} --mode train"],
    ]


def _microseconds(seconds: float, digits: int = DIGITS) -> float:
    """In so many digits, and without a fraction where there is none: a page has thousands of them."""
    found = _digits(seconds * 1e6, digits)
    return int(found) if found.is_integer() else found


def _digits(value: float, digits: int = DIGITS) -> float:
    """So many digits: how sums are rounded beyond that is Python's own business, and other from 3.12 on."""
    return float(f"{value:.{digits}g}")


def _text(kinds: Sequence[int]) -> str | list[int]:
    """Small numbers from -1 as characters from "0" on, which take a third of the place."""
    if max(kinds, default=0) > _MOST_CHARACTERS:
        return list(kinds)
    return "".join(chr(ord("1") + kind) for kind in kinds)


_MOST_CHARACTERS = 50_000
"""Below the surrogates of UTF-16."""


def _steps(ids: Sequence[int]) -> list[int]:
    """The first number, and by how much each further one is more: small numbers, in a large page."""
    return list(map(sub, ids, [0, *ids]))


def _partition(parts: Sequence[Subgraph], times: _Times, place: Sequence[int]) -> dict[str, Any]:
    rules = list(dict.fromkeys((p.rule, p.reason) for p in times.parts))
    return {
        "rules": [list(rule) for rule in rules],
        "parts": [
            [rules.index((p.rule, p.reason)), p.fused_read, p.fused_written] for p in times.parts
        ],
        "subgraphs": [
            [part, *_steps([place[n] for n in p.nodes])]
            for p, part in zip(parts, times.by_part, strict=True)
        ],
    }


def _measured(found: Measurement, place: Sequence[int]) -> dict[str, Any]:
    """On what it ran and how long a step took; of each node that took any time its id and microseconds; the
    names of what ran; by stream, or thread of the host, one step of it: begin and length in
    microseconds, the id of the node it was for (0 for none), and the place of its name; and by node the
    most bytes that were allocated in it."""
    run = found.run
    names: dict[str, int] = {}
    lanes: dict[str, list[list[float]]] = {}
    for part in sorted(run.timeline, key=lambda s: (s.rank, s.stream, s.start)):
        event = run.events[part.event]
        lane = f"{'stream' if run.accelerated else 'thread'} {part.stream}"
        lane = f"rank {part.rank}, {lane}" if run.ranks > 1 else lane
        node = place[event.nodes[0]] if event.nodes else 0
        times = (_microseconds(time, 7) for time in (max(part.start, 0.0), part.seconds))
        row = [*times, node, names.setdefault(event.name, len(names))]
        lanes.setdefault(lane, []).append(row)
    by_node = [[place[node], _microseconds(s)] for node, s in found.by_node.items()]
    held = [[place[node], most] for node, most in curve(found.costed.graph, run)]
    return {"on": run.device_name or run.device, "seconds": run.seconds, "nodes": by_node,
            "names": list(names), "lanes": lanes, "memory": held}  # fmt: skip


def _queues(slots: Iterable[Slot], place: Sequence[int]) -> dict[str, list[list[float]]]:
    """By queue what runs in it, the kernels first: begin and length in microseconds, the id of the node it
    is for, and 0, or 1 where kernels wait for a collective, 2 for another stage."""
    lanes: dict[str, list[list[float]]] = {KERNELS: []}
    for slot in slots:
        if slot.end > slot.begin:
            times = (_microseconds(time, 7) for time in (slot.begin, slot.end - slot.begin))
            wait = 0 if slot.queue != WAITING else 1 + slot.bubble
            lanes.setdefault(slot.queue, []).append([*times, place[slot.node], wait])
    return lanes


# Two models as one graph.


def _places(union: Union) -> list[int]:
    """By id of a node in its own graph, its id in the union."""
    found = [0] * (max(union.own, default=0) + 1)
    for here, own in enumerate(union.own, start=1):
        found[own] = here
    return found


def _against(other: CostedRecord, union: Union) -> dict[str, Any]:
    """Of the other model its name and totals. Of every node of the union its id in its own graph and a sign
    for what became of it (see `_SIGNS`). Further of nodes that read something only before the position, and
    how many of their last inputs that are; and where it differs what a node cost before (its position,
    FLOPs and bytes)."""
    totals = other.totals
    rows = list(zip(union.graph.nodes, union.before, union.own, union.former, strict=True))
    cost = {
        i: (then.flops, then.bytes) if then else (0, 0) for i, (_, then, _, _) in enumerate(rows)
    }
    return {
        "name": other.profile.model.name,
        "totals": {
            "parameters": totals.parameters, "flops": totals.flops, "bytes": totals.cost.bytes,
            "nodes": totals.nodes,
        },
        "ids": [own or (then.id if then else 0) for _, then, own, _ in rows],
        "changes": "".join(_SIGNS[change] for change in union.changes),
        "former": [[i, former] for i, (_, _, _, former) in enumerate(rows) if former],
        "before": [
            [i, *cost[i]] for i, (node, _, _, _) in enumerate(rows) if cost[i] != (node.flops, node.bytes)
        ],
    }  # fmt: skip
