"""A step of a model over many devices, put together from the trace of one rank of a few of its layers:
what a layer takes and keeps is that of the trace, how many there are on a stage and how often they run is
arithmetic, and what stages wait for each other is found by running their schedule.

Sources of the schedules: Narayanan et al., "Efficient large-scale language model training on GPU clusters
using Megatron-LM", SC 2021, section 2.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from math import ceil
from typing import Any

from opgraph.analysis.timing.collectives import collective_seconds
from opgraph.analysis.timing.pipeline import gone_through, makespan
from opgraph.analysis.timing.prediction import Prediction, predict
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.graph import Collective, Graph, Kernel, Node, around
from opgraph.record.kinds import CollectiveKind
from opgraph.record.layout import Action, Layout

SHARDED = "fsdp"
"""The group of ranks that weights are sharded over."""

COPIED = "data"
"""The group of ranks that have the same pieces of them."""

Pass = tuple[str, int]
"""A phase of a micro-batch: ("forward", 0)."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of a device, those of its host, those of exchanges that nothing hides, and FLOPs."""

    device: float = 0.0
    host: float = 0.0
    exposed: float = 0.0
    flops: int = 0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.device + other.device, self.host + other.host, self.exposed + other.exposed,
                     self.flops + other.flops)  # fmt: skip

    def __mul__(self, times: float) -> Taken:
        return Taken(self.device * times, self.host * times, self.exposed * times,
                     round(self.flops * times))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """The trace of one rank of a few layers: its graph, the paths of the `blocks`, in order, of how many of
    the model each is one, and over how many ranks weights were sharded in it, by which `zero`."""

    graph: Graph
    blocks: tuple[str, ...]
    counts: tuple[float, ...]
    shards: int
    micro_batches: int = 1
    zero: int = 3

    @property
    def layers(self) -> int:
        """Those of the model."""
        return round(sum(self.counts))


def over(graph: Graph, layout: Layout, before: int) -> Graph:
    """The graph of a rank in a layout that shards and copies the model over other ranks than the trace,
    which shards it over `before`: groups are as large as they are, and what the optimizer goes over, and
    what copies reduce, is what a rank has."""
    share = before / layout.shards
    sizes = {
        SHARDED: (layout.shards, layout.tensor),
        COPIED: (layout.data, layout.tensor * layout.shards),
    }

    def group(k: Kernel) -> Kernel:
        c = k.collective
        if c is None or c.group not in sizes:
            return k
        (ranks, stride), moved = sizes[c.group], c.bytes
        if c.group == COPIED:
            moved = round(moved * share)
        return replace(
            k, collective=replace(c, bytes=moved, ranks=ranks, stride=stride, members=())
        )

    def node(n: Node) -> Node:
        if n.phase == "optimizer":
            kernels = tuple(
                replace(k, flops=round(k.flops * share), other_flops=round(k.other_flops * share),
                        read=round(k.read * share), written=round(k.written * share))
                for k in n.kernels
            )  # fmt: skip
            return replace(n, kernels=kernels)
        kernels = tuple(map(group, n.kernels))
        return n if kernels == n.kernels else replace(n, kernels=kernels)

    return replace(graph, nodes=tuple(map(node, graph.nodes)))


class Pieces:
    """What the parts of a sample take on a device and keep there: "first" is what runs before the layers,
    "last" what runs behind them, and the layers are numbers."""

    def __init__(self, sample: Sample, device: Device, layout: Layout) -> None:
        self.sample, self.device = sample, device
        self.graph, self.ranks = over(sample.graph, layout, sample.shards), layout.shards
        self.parts = dict(self._parts())

    @cached_property
    def prediction(self) -> Prediction:
        """When the nodes of the sample run, over as many ranks as the layout has."""
        return predict(self.graph, self.device)

    def _parts(self) -> Iterator[tuple[int, tuple[str | int, Pass]]]:
        """The part of each node and its pass."""
        blocks = {path: i for i, path in enumerate(self.sample.blocks)}
        before: Any = "first"
        number, phase = -1, ""
        for node in self.graph.nodes:
            now = "backward" if node.phase == "recompute" else node.phase
            if now != phase:
                number += now == "forward"
                before, phase = ("first" if now == "forward" else "last"), now
            part: Any = next((blocks[s] for s in around(node.scope) if s in blocks), None)
            if part is None:
                part = before
            elif now == "forward" and part == len(blocks) - 1:
                before = "last"
            elif now == "backward" and part == 0:
                before = "first"
            yield node.id, (part, (now, max(0, number)))

    @cached_property
    def taken(self) -> Mapping[Pass, Mapping[str | int, Taken]]:
        """What each part takes in each pass."""
        found: dict[Pass, dict[str | int, Taken]] = defaultdict(lambda: defaultdict(Taken))
        device = self.prediction.by_queue.get("device", {})
        host = self.prediction.by_queue.get("host", {})
        for node in self.graph.nodes:
            part, at = self.parts[node.id]
            waits = any(k.collective is not None for k in node.kernels)
            seconds = device.get(node.id, 0.0)
            found[at][part] += Taken(seconds, host.get(node.id, 0.0), seconds if waits else 0.0,
                                     0 if node.phase == "recompute" else node.flops)  # fmt: skip
        return found

    def layer(self, at: Pass) -> Taken:
        """What a layer of the model takes in a pass, on average. The first and the last of the sample are
        not asked where there are others like them: what is gathered ahead falls to their neighbours."""
        found, counts = self.taken.get(at, {}), self.sample.counts
        inner = range(1, len(counts) - 1) if len(set(counts)) == 1 else range(len(counts))
        whole = sum(counts[i] for i in inner)
        total = Taken()
        for i in inner:
            total += found.get(i, Taken()) * (counts[i] / whole)
        return total

    def stage(self, at: Pass, layers: int, first: bool, last: bool) -> Taken:
        """What a stage with so many layers takes in a pass."""
        found, ends = self.taken.get(at, {}), len(self.sample.counts) - 1
        total = self.layer(at) * layers
        for here, part, end in ((first, "first", 0), (last, "last", ends)):
            if here:
                total += found.get(part, Taken())
                if len(set(self.sample.counts)) == 1:  # at the ends nothing is gathered ahead
                    total += found.get(end, Taken()) + self.layer(at) * -1.0
        return total

    # What is kept.

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """How many kernels run before the first backward, and until it is over."""
        count, begin, end = 0, -1, -1
        for node in self.graph.nodes:
            if node.phase in ("backward", "recompute"):
                begin = count if begin < 0 else begin
            elif begin >= 0 and end < 0:
                end = count
            count += len(node.kernels)
        return (count if begin < 0 else begin), (count if end < 0 else end)

    def weights(self, layers: int, first: bool, last: bool, *, whole: bool = False) -> int:
        """Bytes of the weights of a stage: of this rank's pieces, or of the `whole` of what it gathers."""
        found = self._weights
        share = self.sample.shards * (1.0 if whole else 1 / self.ranks)
        total = self._mean(found) * layers
        total += found.get("first", 0) * first + found.get("last", 0) * last
        return ceil(total * share)

    @cached_property
    def _weights(self) -> Mapping[str | int, int]:
        """Bytes of the pieces of weights in the sample, by part."""
        found: dict[str | int, int] = defaultdict(int)
        blocks = {path: i for i, path in enumerate(self.sample.blocks)}
        runs = {n.scope: self.parts[n.id][0] for n in reversed(self.graph.nodes)
                if n.phase == "forward"}  # fmt: skip
        for p in self.graph.parameters:
            part: Any = next((blocks[s] for s in around(p.scope) if s in blocks), None)
            found[runs.get(p.scope, "last") if part is None else part] += p.bytes
        return found

    def _mean(self, found: Mapping[str | int, int]) -> float:
        counts = self.sample.counts
        return sum(found.get(i, 0) * n for i, n in enumerate(counts)) / sum(counts)

    @cached_property
    def _gathering(self) -> frozenset[int]:
        """The nodes that make room for gathered weights, and those that gather them."""
        made = self.graph.producer
        by = [
            n for n in self.graph.nodes for k in n.kernels
            if k.op.startswith("fsdp.") or (k.collective is not None and k.collective.group == SHARDED)
        ]  # fmt: skip
        roots = {self.graph.root(v).id for n in by for v in n.inputs}
        room = (made[v] for v in roots if v in made)
        return frozenset([n.id for n in by] + [n.id for n in room if n.op == "empty"])

    @cached_property
    def saved(self) -> Mapping[str | int, int]:
        """Bytes of what each part keeps for its backward, without gathered weights."""
        found: dict[str | int, int] = defaultdict(int)
        end, _ = self._bounds
        for s in self.graph.storages:
            alive = 0 < s.born < end and (s.died is None or s.died > end)
            if alive and s.node is not None and s.node not in self._gathering:
                found[self.parts[s.node][0]] += s.bytes
        return found

    @cached_property
    def working(self) -> Mapping[str, int]:
        """The most bytes of "inner" parts (layers), and of the "last" one, beside what is kept for
        backwards and what is there from beginning to end; gathered weights are among them."""
        end, over = self._bounds
        keeps = self.sample.zero < 3  # what is gathered stays for the next one
        owner: list[str | int] = []
        for node in self.graph.nodes:
            owner += [self.parts[node.id][0]] * len(node.kernels)
        change = [0] * (len(owner) + 2)
        for s in self.graph.storages:
            died = len(owner) if s.died is None else s.died
            lasting = s.born <= 0 and died >= len(owner)
            kept = 0 < s.born < end and died > end and (keeps or s.node not in self._gathering)
            gradient = end <= s.born < over and died > over
            if not (lasting or kept or gradient):
                change[max(0, s.born)] += s.bytes
                change[min(died, len(owner))] -= s.bytes
        live, most = 0, {"inner": 0, "last": 0}
        for at, part in enumerate(owner[:over]):
            live += change[at]
            key = "last" if part == "last" else "inner"
            most[key] = max(most[key], live)
        return most

    def activations(self, layers: int, first: bool, last: bool) -> int:
        """Bytes that a micro-batch keeps on a stage."""
        saved = self.saved
        return ceil(
            self._mean(saved) * layers + saved.get("first", 0) * first + saved.get("last", 0) * last
        )

    @cached_property
    def hidden(self) -> int:
        """Bytes of what a layer hands to the next."""
        scope = next((s for s in self.graph.scopes if s.path == self.sample.blocks[-1]), None)
        values = self.graph.value
        sizes = [values[v].bytes for v in (() if scope is None else scope.outputs) if v in values]
        return max(sizes, default=0)

    @cached_property
    def state(self) -> float:
        """Bytes that the optimizer keeps for each byte of weights."""
        from opgraph.analysis.cost.training import training

        whole = training(self.graph)
        return whole.optimizer_state / max(1, whole.gradients)

    @cached_property
    def updating(self) -> float:
        """Bytes that the optimizer works with for each byte of weights, beside its state."""
        from opgraph.analysis.cost.training import training, working

        return working(self.graph).get("optimizer", 0) / max(1, training(self.graph).gradients)


# Schedules.


def order(schedule: str, ranks: int, rank: int, batches: int, chunks: int = 1) -> list[Action]:
    """What a rank of a pipeline does, in order; of `chunks` runs of layers it has every `ranks`-th."""
    if schedule == "gpipe":
        return [("F", rank, m) for m in range(batches)] + [("B", rank, m) for m in range(batches)]
    if chunks == 1:
        warm = min(batches, ranks - rank - 1)
    else:
        warm = min(batches * chunks, 2 * (ranks - rank - 1) + (chunks - 1) * ranks)

    def nth(kind: str, n: int) -> Action:
        if chunks == 1:
            return kind, rank, n
        group, within = divmod(n, ranks * chunks)
        chunk, m = divmod(within, ranks)
        last = chunk if kind == "F" else chunks - 1 - chunk
        return kind, last * ranks + rank, group * ranks + m

    total = batches * chunks
    found = [nth("F", n) for n in range(warm)]
    for n in range(total - warm):
        found += [nth("F", warm + n), nth("B", n)]
    return found + [nth("B", n) for n in range(total - warm, total)]


def in_flight(schedule: str, ranks: int, rank: int, batches: int, chunks: int = 1) -> float:
    """How many micro-batches' activations a rank keeps at most, each of all of its layers."""
    now = most = 0
    for kind, _, _ in order(schedule, ranks, rank, batches, chunks):
        now += 1 if kind == "F" else -1
        most = max(most, now)
    return most / chunks


# A step.


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest device, by what they are of: pieces of `weights`, those that are `gathered` for
    a whole step, `gradients`, `optimizer` state, `activations` kept for backwards, and what is `working`
    at a time (of which weights gathered for one layer are a part)."""

    weights: int
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    working: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout with its step: seconds with those of the interval's ends, the share of the peak that the
    model's own FLOPs reach (`mfu`), the seconds in which a device waits for exchanges (`exposed`) and for
    other stages (`bubble`), those of the optimizer, and the memory of the fullest device. `batch` is that
    of a micro-batch; `checkpointing` says that layers run again in the backward."""

    layout: Layout
    batch: int
    checkpointing: bool
    seconds: float
    interval: tuple[float, float]
    mfu: float
    exposed: float
    bubble: float
    optimizer: float
    memory: Memory
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        found = asdict(self)
        found["memory"]["total"] = self.memory.total
        return found


def composed(
    sample: Sample, device: Device, layout: Layout, *, batch: int, checkpointing: bool, capacity: float,
    known: dict[Any, Pieces] | None = None, regardless: bool = False,
) -> Candidate | Memory:  # fmt: skip
    """A step of training in a layout, of a sample that is traced with its split of operators and `zero`,
    one micro-batch or two. The second stands for all forwards that follow, and for all backwards, but where
    the last one alone reduces gradients (`zero` 1, and copies of shards): there the first stands for the
    others. `known` are pieces that were found before. Where the memory of the fullest device is beyond the
    `capacity`, it is all that is found, unless `regardless`."""
    stages, m = layout.pipeline, layout.micro_batches
    key = (id(sample), layout.shards, layout.data)
    known = {} if known is None else known
    pieces = known.get(key)
    if pieces is None:
        pieces = known[key] = Pieces(sample, device, layout)
    chunks = layout.chunks
    layers = layout.layers(sample.layers)
    runs = len(layers)
    held = [(sum(layers[rank::stages]), rank == 0, rank == stages - 1) for rank in range(stages)]
    memory = (_memory(pieces, layout, h, rank, chunks) for rank, h in enumerate(held))
    fullest = max(memory, key=lambda f: f.total)
    fits = fullest.total <= capacity
    if not (fits or regardless):
        return fullest
    orders = [order(layout.schedule, stages, r, m, chunks) for r in range(stages)]
    seconds: dict[tuple[int, Action], float] = {}
    spent: list[Taken] = [Taken()] * stages
    stage_of = cache(pieces.stage)
    for rank, todo in enumerate(orders):
        for kind, stage, number in todo:
            ends = (layers[stage], stage == 0, stage == runs - 1)
            taken = stage_of(_pass(pieces, kind, number, layout), *ends)
            # With one stage the host runs ahead of the device throughout; else no further than a pass.
            seconds[rank, (kind, stage, number)] = max(taken.device, taken.host * (stages > 1))
            spent[rank] += taken
    moving = Collective(CollectiveKind.SEND, pieces.hidden // (layout.tensor if layout.sequence else 1),
                        2, layout.tensor * layout.shards * layout.data)  # fmt: skip
    sending = collective_seconds(moving, device) if stages > 1 else 0.0
    whole, bubble = makespan(gone_through(orders, seconds, sending))
    updates = [stage_of(("optimizer", sample.micro_batches - 1), *h) for h in held]
    update = max(t.device for t in updates)
    step = max(whole + update, *((s + u).host for s, u in zip(spent, updates, strict=True)))
    flops = sum(t.flops for t in spent) * layout.tensor * layout.shards * layout.data
    low, high = pieces.prediction.ratios
    dtype = max((k for n in pieces.graph.nodes for k in n.kernels), key=lambda k: k.flops).dtype
    peak = device.matrix_peak(dtype) * layout.devices
    return Candidate(
        layout, batch, checkpointing, step, (step * low, step * high), flops / (step * peak),
        max(t.exposed for t in spent), bubble, update, fullest, fits,
    )  # fmt: skip


def _pass(pieces: Pieces, kind: str, number: int, layout: Layout) -> Pass:
    """The pass of the sample that a forward or a backward of the micro-batch `number` is like."""
    sample = pieces.sample
    reduces_last = sample.zero == 1 or min(layout.data, layout.shards) > 1
    if sample.micro_batches == 1:
        which = 0
    elif kind == "B" and reduces_last:
        which = int(number == layout.micro_batches - 1)
    else:
        which = int(number > 0)
    return "forward" if kind == "F" else "backward", which


def _memory(
    pieces: Pieces, layout: Layout, ends: tuple[int, bool, bool], rank: int, chunks: int
) -> Memory:
    weights, whole = pieces.weights(*ends), pieces.weights(*ends, whole=True)
    kept = layout.zero < 3 and layout.shards > 1
    gathered = whole if kept else 0
    flying = in_flight(layout.schedule, layout.pipeline, rank, layout.micro_batches, chunks)
    working = max(n for part, n in pieces.working.items() if ends[2] or part != "last")
    gradients = whole if layout.zero == 1 and kept and layout.micro_batches > 1 else weights
    activations = ceil(pieces.activations(*ends) * flying)
    # When the optimizer works, its pieces of gradients are all that is left of these.
    gone = gathered + activations + gradients - weights
    return Memory(
        weights=weights,
        gathered=gathered,
        gradients=gradients,
        optimizer=ceil(weights * pieces.state),
        activations=activations,
        working=max(working, ceil(weights * pieces.updating) - gone),
    )


# What was found.


@dataclass(frozen=True)
class Planned:
    """What was found: the best layouts that fit, the quickest first, of so many that were `tried`; the
    `asked` one where there is one to explain, what could not be traced, with the reason, and what was
    `assumed`."""

    model: str
    device: str
    devices: int
    global_batch: int
    capacity: int
    best: tuple[Candidate, ...]
    tried: int
    fitting: int
    asked: Candidate | None = None
    refused: tuple[str, ...] = ()
    traces: int = 0
    assumed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        found = {n: getattr(self, n) for n in ("model", "device", "devices", "global_batch", "capacity",
                                               "tried", "fitting", "refused", "traces")}  # fmt: skip
        found |= {"refused": list(self.refused), "assumed": list(self.assumed)}
        found["best"] = [
            c.to_dict() | {"why": w} for c, w in zip(self.best, self.whys, strict=True)
        ]
        found["asked"] = None if self.asked is None else self.asked.to_dict()
        found["explained"] = self.explained
        return found

    def records(self) -> list[dict[str, Any]]:
        """A flat record for each layout."""
        return [
            {
                "layout": str(c.layout), "micro_batches": c.layout.micro_batches, "batch": c.batch,
                "zero": c.layout.zero, "schedule": c.layout.schedule, "checkpointing": c.checkpointing,
                "seconds": c.seconds, "low": c.interval[0], "high": c.interval[1], "mfu": c.mfu,
                "exposed": c.exposed, "bubble": c.bubble, "memory": c.memory.total, "why": why,
            }
            for c, why in zip(self.best, self.whys, strict=True)
        ]  # fmt: skip

    @property
    def whys(self) -> tuple[str, ...]:
        """Of each layout but the best, what most of the time goes to that it takes longer."""
        return tuple(difference(c, self.best[0]) for c in self.best)

    @property
    def explained(self) -> str | None:
        """What the layout that was asked for loses to the best."""
        if self.asked is None or not self.best:
            return None
        return difference(self.asked, self.best[0])


def difference(one: Candidate, best: Candidate) -> str:
    """What one step takes longer than another for, the largest part first, and what it saves of it; "" of
    the same."""
    if one == best:
        return ""
    parts = {
        "waiting for other stages": one.bubble - best.bubble,
        "exchanges that nothing hides": one.exposed - best.exposed,
        "the optimizer": one.optimizer - best.optimizer,
    }
    if one.checkpointing and not best.checkpointing:
        parts["layers that run again"] = one.seconds - best.seconds - sum(parts.values())
    else:
        parts["smaller work, or launching more of it"] = (
            one.seconds - best.seconds - sum(parts.values())
        )
    told = {n: v for n, v in parts.items() if abs(v) > 0.005 * best.seconds}
    if one.seconds < 1.005 * best.seconds:
        told = {}
    more = sorted(told, key=lambda n: -told[n])
    said = ", ".join(
        f"{'+' if told[n] > 0 else '−'}{units.seconds(abs(told[n]))} {n}" for n in more
    )
    said = said or "nothing to speak of"
    return said if one.fits else f"does not fit; {said}"
