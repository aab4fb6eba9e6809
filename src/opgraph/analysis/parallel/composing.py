"""A step of a model over many devices, put together from the trace of one rank of a few of its layers:
what a layer takes and keeps is that of the trace, how many there are on a stage and how often they run is
arithmetic, and what stages wait for each other is found by running their schedule.

Sources of the schedules: Narayanan et al., "Efficient large-scale language model training on GPU clusters
using Megatron-LM", SC 2021, section 2.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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

INNER, BESIDE = "inner", ("first", "last")
"""A layer of the model, and what runs before and behind all layers, which is gathered as one."""

Pass = tuple[str, int]
"""A phase of a micro-batch: ("forward", 0)."""

REDUCE: Pass = ("reduce", 0)
"""What a stage does behind all micro-batches."""

AGAIN: Pass = ("forward", -1)
"""A forward for which weights are gathered, and not for the first time: what then sets them up is done."""


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
    the model each is one, and over how many ranks weights were sharded in it, by which `zero`: 0 where
    there is nothing but `copies`. One that is `staged` reduces its gradients behind all micro-batches, and
    keeps what a backward gathered, as torch's stages of a pipeline do."""

    graph: Graph
    blocks: tuple[str, ...]
    counts: tuple[float, ...]
    shards: int
    micro_batches: int = 1
    zero: int = 3
    copies: int = 1
    staged: bool = False

    @property
    def layers(self) -> int:
        """Those of the model."""
        return round(sum(self.counts))

    @property
    def spread(self) -> bool:
        """Whether other ranks have the same weights, or other pieces of them."""
        return self.shards > 1 or self.copies > 1

    @property
    def reduces_last(self) -> bool:
        """Whether the last micro-batch alone reduces gradients, those of all."""
        return not self.staged and (self.zero < 2 or self.copies > 1)


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


def _reduces(k: Kernel) -> bool:
    """Whether a kernel is of the exchange of gradients between ranks with other batches."""
    c = k.collective
    if c is None:
        return k.op.startswith("fsdp.chunk_cat")
    return c.group in (SHARDED, COPIED) and c.kind is not CollectiveKind.ALL_GATHER


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
        number, phase, reducing = -1, "", False
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
            last = self.sample.staged and number == self.sample.micro_batches - 1
            if last and now == "backward" and any(map(_reduces, node.kernels)):
                reducing = True
            if reducing and now == "backward":
                part, at = "first", ("reduce", 0)
            else:
                at = (now, max(0, number))
            yield node.id, (part, at)

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
            taken = Taken(seconds, host.get(node.id, 0.0), seconds if waits else 0.0,
                          0 if node.phase == "recompute" else node.flops)  # fmt: skip
            found[at][part] += taken
            gathers = at == ("forward", 0) and node.id in self._gathering
            if gathers or at == ("forward", self.sample.micro_batches - 1):
                found[AGAIN][part] += taken
        return found

    @property
    def _inner(self) -> range:
        """Which layers of the sample stand for those of the model."""
        count = len(self.sample.counts)
        alike = len(set(self.sample.counts)) == 1 and count > 2
        return range(1, count - 1) if alike else range(count)

    def layer(self, at: Pass) -> Taken:
        """What a layer of the model takes in a pass, on average. The first and the last of the sample are
        not asked where there are others like them: what is gathered ahead falls to their neighbours."""
        found, counts = self.taken.get(at, {}), self.sample.counts
        whole = sum(counts[i] for i in self._inner)
        total = Taken()
        for i in self._inner:
            total += found.get(i, Taken()) * (counts[i] / whole)
        return total

    def stage(self, at: Pass, beside: Pass, layers: int, first: bool, last: bool) -> Taken:
        """What a stage with so many layers takes in a pass of these, and one of what is beside them."""
        found, ends = self.taken.get(at, {}), len(self.sample.counts) - 1
        if at == REDUCE:
            share = self.weights(layers, first, last) * self.ranks / self.sample.shards
            return sum(found.values(), Taken()) * (share / max(1, sum(self._weights.values())))
        total = self.layer(at) * layers
        for here, part, end in ((first, "first", 0), (last, "last", ends)):
            if here:
                total += self.taken.get(beside, {}).get(part, Taken())
                if len(set(self.sample.counts)) == 1:  # at the ends nothing is gathered ahead
                    total += found.get(end, Taken()) + self.layer(at) * -1.0
        return total

    # What is kept.

    def weights(self, layers: int, first: bool, last: bool) -> int:
        """Bytes of this rank's pieces of the weights of a stage."""
        found = self._weights
        total = self._mean(found) * layers
        total += found.get("first", 0) * first + found.get("last", 0) * last
        return ceil(total * self.sample.shards / self.ranks)

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
        """The nodes that make room for gathered weights, and those that gather them, or copy them where
        each rank has them whole."""
        made = self.graph.producer
        by = [
            n for n in self.graph.nodes for k in n.kernels
            if k.op.startswith("fsdp.") or (k.collective is not None and k.collective.group == SHARDED)
            or (n.op == "copy" and n.parameters)
        ]  # fmt: skip
        roots = {self.graph.root(v).id for n in by for v in n.inputs}
        room = (made[v] for v in roots if v in made)
        return frozenset([n.id for n in by] + [n.id for n in room if n.op == "empty"])

    @cached_property
    def _saved(self) -> Mapping[str | int, int]:
        """Bytes of what each part keeps for its backward, without gathered weights."""
        found: dict[str | int, int] = defaultdict(int)
        end = next((i for i, (_, (phase, _)) in enumerate(self._owners) if phase != "forward"), 0)
        for s in self.graph.storages:
            alive = 0 < s.born < end and (s.died is None or s.died > end)
            if alive and s.node is not None and s.node not in self._gathering:
                found[self.parts[s.node][0]] += s.bytes
        return found

    @cached_property
    def _owners(self) -> list[tuple[str | int, Pass]]:
        """The part and the pass of each kernel."""
        return [self.parts[node.id] for node in self.graph.nodes for _ in node.kernels]

    def _part(self, name: str | int, ranks: int) -> Part:
        def of(found: Mapping[str | int, int]) -> float:
            return self._mean(found) if name == INNER else found.get(name, 0)

        whole = of(self._weights) * self.sample.shards
        return Part(whole, whole / ranks, of(self._saved))

    def run(self, layers: int, first: bool, last: bool, handed: int) -> list[Run]:
        """The parts of a stage, which keeps what it is `handed`, and what it hands on."""
        beside = handed * (not first) + handed * (not last)
        inner = self._part(INNER, self.ranks)
        found = [Run(INNER, replace(inner, saved=inner.saved + beside / max(1, layers)), layers)]
        found = [Run("first", self._part("first", self.ranks))] * first + found
        return found + [Run("last", self._part("last", self.ranks))] * last

    @cached_property
    def working(self) -> Mapping[tuple[str | int, Pass], float]:
        """The most bytes that a part of the sample has in a pass beside what is held when it begins."""
        ends = len(self._owners)
        change = [0] * (ends + 2)
        for s in self.graph.storages:
            died = ends if s.died is None else min(s.died, ends)
            if s.born > 0 or died < ends:
                change[max(0, s.born)] += s.bytes
                change[died] -= s.bytes
        most: dict[tuple[str | int, Pass], float] = defaultdict(float)
        live = 0
        for kernel, owner in enumerate(self._owners):
            live += change[kernel]
            most[owner] = max(most[owner], live)
        runs = [Run(p, self._part(p, self.sample.shards))
                for p in ("first", *range(len(self.sample.blocks)), "last")]  # fmt: skip
        todo = [(k, 0, m) for m in range(self.sample.micro_batches) for k in "FB"]
        found: dict[tuple[str | int, Pass], float] = defaultdict(float)
        for part, at, held in held_in(self.sample, todo, {0: runs}, len(todo) // 2):
            if not isinstance(part, int) or part in self._inner:
                name = INNER if isinstance(part, int) else part
                found[name, at] = max(found[name, at], most[part, at] - held.total)
        found |= {(name, AGAIN): most for (name, at), most in found.items() if at == ("forward", 0)}
        return found

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


def passes(
    sample: Sample, todo: Sequence[Action], batches: int
) -> Iterator[tuple[Action, Pass, Pass]]:
    """Which pass of a sample each action is like: of layers, and of what is beside them, which stays
    gathered from the first forward on. A forward of layers is like the second one where these were gathered
    before: for all of the step, or by the backward before it; else it gathers them again."""
    before: dict[int, str] = {}
    end = sample.micro_batches - 1
    for action in todo:
        kind, stage, number = action
        later = min(end, int(number > 0))
        if kind == "F":
            there = sample.zero < 3 or not sample.staged or before.get(stage) == "B"
            layers = ("forward", later) if there or not later else AGAIN
            yield action, layers, ("forward", later)
        elif sample.reduces_last:
            which = end if number == batches - 1 else min(max(0, end - 1), later)
            yield action, ("backward", which), ("backward", which)
        else:
            yield action, ("backward", later), ("backward", later)
        before[stage] = kind


# What is held.


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a part of a stage: its weights as they are gathered (`whole`), this rank's pieces of them,
    and what a micro-batch keeps for its backward."""

    whole: float
    piece: float
    saved: float


@dataclass(frozen=True, slots=True)
class Run:
    """Parts of a stage that are alike, one behind the other."""

    name: str | int
    part: Part
    count: int = 1


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that are held at a time: gathered weights, gradients, and what is kept for backwards."""

    gathered: float = 0.0
    gradients: float = 0.0
    saved: float = 0.0

    @property
    def total(self) -> float:
        return self.gathered + self.gradients + self.saved

    def after(self, step: Held, times: int = 1) -> Held:
        """What is held when so many more steps are done."""
        return Held(self.gathered + times * step.gathered, self.gradients + times * step.gradients,
                    self.saved + times * step.saved)  # fmt: skip


def held_in(
    sample: Sample, todo: Sequence[Action], stages: Mapping[int, Sequence[Run]], batches: int
) -> Iterator[tuple[str | int, Pass, Held]]:
    """What is held while each part of a rank's `stages` runs: of several that are alike, the first one and
    the last two. Weights are gathered and gradients reduced by the sample's `zero`."""
    held = Held()
    whole = sample.shards > 1 and (sample.staged or (sample.zero == 1 and batches > 1))
    gathered: set[tuple[int, str | int]] = set()
    with_gradients: set[int] = set()

    def lacking(stage: int, run: Run | None) -> float:
        there = run is None or not sample.spread or (stage, run.name) in gathered
        return 0.0 if run is None or there else run.part.whole

    for (kind, stage, number), layers, beside in passes(sample, todo, batches):
        forward, final = kind == "F", number == batches - 1
        along = list(stages[stage]) if forward else list(reversed(stages[stage]))
        for run, then in zip(along, [*along[1:], None], strict=True):
            part, root = run.part, run.name in BESIDE
            if forward:
                stays = sample.zero < 3 or root
            else:
                stays = sample.staged or root or (sample.zero in (1, 2) and not final)
            stays = stays and sample.spread
            made = (
                0.0 if forward or stage in with_gradients else part.whole if whole else part.piece
            )
            if not forward and final and whole and not sample.staged:
                made += part.piece - part.whole
            before = part.whole * ((stage, run.name) in gathered)
            step = Held(part.whole * stays - before, made, part.saved if forward else -part.saved)
            for nth in {0, max(0, run.count - 2), run.count - 1}:
                # A backward gathers the layer that it needs next, too, of which the last one has none.
                ahead = 0.0 if forward else lacking(stage, run if nth < run.count - 1 else then)
                at = beside if root else layers
                yield run.name, at, held.after(step, nth).after(Held(lacking(stage, run) + ahead))
            held = held.after(step, run.count)
            (gathered.add if stays else gathered.discard)((stage, run.name))
        if not forward:
            with_gradients.add(stage)
            for run in along if not sample.staged and (sample.zero in (0, 3) or final) else ():
                if (
                    stage,
                    run.name,
                ) in gathered:  # what is beside layers is kept until they are done
                    gathered.discard((stage, run.name))
                    held = held.after(Held(-run.part.whole * run.count))
    if sample.staged:
        yield "first", REDUCE, held


# A step.


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest device when it is fullest, by what they are of: pieces of `weights`, those that
    are `gathered`, `gradients`, `optimizer` state, `activations` kept for backwards, and all else that is
    `working`."""

    weights: int
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    working: int

    @property
    def total(self) -> int:
        return (self.weights + self.gathered + self.gradients + self.optimizer + self.activations
                + self.working)  # fmt: skip


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
    one micro-batch or a few (see `passes`). `known` are pieces that were found before. Where the memory of
    the fullest device is beyond the `capacity`, it is all that is found, unless `regardless`."""
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
    orders = [order(layout.schedule, stages, r, m, chunks) for r in range(stages)]
    ends = [(layers[at], at == 0, at == runs - 1) for at in range(runs)]
    # Ranks in between have no more layers than the one behind the first, and no more batches in flight.
    outer = {0, min(1, stages - 1), stages - 1}
    fullest = max((_memory(pieces, layout, held[r], orders[r], ends) for r in outer),
                  key=lambda f: f.total)  # fmt: skip
    fits = fullest.total <= capacity
    if not (fits or regardless):
        return fullest
    seconds: dict[tuple[int, Action], float] = {}
    behind: dict[tuple[int, Action], float] = {}
    spent: list[Taken] = [Taken()] * stages
    stage_of = cache(pieces.stage)
    for rank, todo in enumerate(orders):
        for action, at, beside in passes(sample, todo, m):
            taken = stage_of(at, beside, *ends[action[1]])
            # With one stage the host runs ahead of the device throughout; else no further than a pass.
            seconds[rank, action] = max(taken.device, taken.host * (stages > 1))
            spent[rank] += taken
            if sample.staged and action[::2] == ("B", m - 1):
                reducing = stage_of(REDUCE, REDUCE, *ends[action[1]])
                behind[rank, action] = max(reducing.device, reducing.host)
                spent[rank] += reducing
    moving = Collective(CollectiveKind.SEND, _handed(pieces, layout), 2,
                        layout.tensor * layout.shards * layout.data)  # fmt: skip
    sending = collective_seconds(moving, device) if stages > 1 else 0.0
    whole, bubble = makespan(gone_through(orders, seconds, sending, behind))
    updating = "optimizer", sample.micro_batches - 1
    updates = [stage_of(updating, updating, *h) for h in held]
    update = max(t.device for t in updates)
    step = max(whole + update, *((s + u).host for s, u in zip(spent, updates, strict=True)))
    flops = sum(t.flops for t in spent) * layout.tensor * layout.shards * layout.data
    low, high = pieces.prediction.ratios
    dtype = max(
        (k for n in pieces.graph.nodes for k in n.kernels), key=lambda k: k.flops
    ).multiplied
    peak = device.matrix_peak(device.multiplies(dtype)) * layout.devices
    return Candidate(
        layout, batch, checkpointing, step, (step * low, step * high), flops / (step * peak),
        max(t.exposed for t in spent), bubble, update, fullest, fits,
    )  # fmt: skip


def _handed(pieces: Pieces, layout: Layout) -> int:
    """Bytes that a stage hands to the next."""
    return pieces.hidden // (layout.tensor if layout.sequence else 1)


def _memory(
    pieces: Pieces, layout: Layout, all_of_it: tuple[int, bool, bool], todo: Sequence[Action],
    ends: Sequence[tuple[int, bool, bool]],
) -> Memory:  # fmt: skip
    """The memory of a rank that does some actions, when it is fullest."""
    weights = pieces.weights(*all_of_it)
    state = ceil(weights * pieces.state)
    handed = _handed(pieces, layout) if layout.pipeline > 1 else 0
    stages = {at: pieces.run(*ends[at], handed) for _, at, _ in todo}
    most, fullest = -1.0, Memory(weights, 0, weights, state, 0, ceil(weights * pieces.updating))
    for part, at, held in held_in(pieces.sample, todo, stages, layout.micro_batches):
        working = max(0.0, pieces.working[part, at])
        if held.total + working > max(most, fullest.total - weights - state):
            most = held.total + working
            fullest = Memory(weights, ceil(held.gathered), ceil(held.gradients), state,
                             ceil(held.saved), ceil(working))  # fmt: skip
    return fullest


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
