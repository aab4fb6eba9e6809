"""The time of any step of an engine, from the model's own graph at a few sizes.

A step runs some new tokens of some sequences: prompts in chunks, and one token each of those that decode.
Every number of a kernel (FLOPs, bytes, the sizes of its product) is a straight line in these tokens, or,
for what reads the cache, in the keys that are read and in the pairs of a query and a key; the lines are
exact, and the time of a kernel with such numbers is that of any other. Mixtures of experts have two lines,
with the corner where every expert has a token. What is not exact: what the cache of the device still holds
is taken from a short context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod
from typing import Any

from opgraph.analysis.cost.conventions import seen
from opgraph.analysis.memory import memory
from opgraph.analysis.parallel.paper import stages
from opgraph.analysis.parallel.sharding import sharded, sharding
from opgraph.analysis.serving.batches import GROUPED, at_batch
from opgraph.analysis.serving.engine import assumed, engine
from opgraph.analysis.timing.collectives import collective_seconds
from opgraph.analysis.timing.kernels import kernel_cost
from opgraph.analysis.timing.prediction import device_costs, predict_work
from opgraph.analysis.timing.workload import Contraction, Task, Work, workload
from opgraph.hardware import Device
from opgraph.record.errors import InputError
from opgraph.record.graph import Collective, Graph
from opgraph.record.kinds import CollectiveKind, Run
from opgraph.record.profile import KVCache, ProfileRecord


@dataclass(frozen=True, slots=True)
class Traces:
    """What the times of steps are made from: decoding steps of the same sequences after some contexts (the
    first two shorter than any window of attention, the last longer), and a prefill. Of a model with an
    encoder, what that reads in each of them: `source` tokens, of which further prefills read twice and
    three times as many (`longer`); 1 if all that it reads is always as long."""

    decodes: tuple[ProfileRecord, ...]
    prefill: ProfileRecord
    source: int = 0
    longer: tuple[ProfileRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What is in a step: new tokens, sequences that get a token, and for each limit of the layers that keep
    a cache (None for those that keep all) the keys read and the pairs of queries and keys; and both of what
    an encoder left."""

    tokens: int
    sampled: int
    keys: tuple[int, ...]
    pairs: tuple[int, ...]
    source: int = 0
    crossed: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    """A kernel over the tokens of a step: the same task at some numbers of tokens, and how far back its
    operands were touched."""

    tasks: tuple[Task, ...]
    distances: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class _Reader:
    """A kernel that reads the cache: its numbers as (fixed, a token, a key or a pair). `crosses` says that
    the keys are those of an encoder."""

    task: Task
    flops: tuple[float, float, float]
    other_flops: tuple[float, float, float]
    read: tuple[float, float, float]
    written: tuple[float, float, float]
    limit: int | None = None
    crosses: bool = False


@dataclass
class StepTimes:
    """The seconds of any step of a model on one device, or on several that share each operator (`tensor`).

    `weights` are the bytes of weights on a device, `activation` those of what else lives for each token of
    a step, and `cache` what a device keeps of a sequence, whose encoder read `source` tokens. What runs
    once for a request (an encoder, a tower for images) are the lines `apart`, over the tokens `sources`.
    `launch` are the seconds of a host that launches each kernel of a step, and `direct` is what a pair of a
    prompt takes of one of a decoding step, where that attends to latents (a prompt does to keys).

    In a pipeline of several `stages` the lines are those of the slowest one, which all others wait for, and
    `handed` are the bytes of a token that one gives to the next; a device keeps `kept` of the cache.
    `ratios` are those of the interval to the seconds, which are `pace` times what they are by the lines.
    """

    device: Device
    tensor: int
    knots: tuple[int, ...]
    lines: Counter[_Line]
    heads: Counter[_Line]
    readers: Counter[_Reader]
    exchanged: tuple[tuple[CollectiveKind, bool, float], ...]
    apart: tuple[_Line, ...]
    sources: tuple[int, ...]
    weights: int
    activation: float
    cache: KVCache
    source: int = 0
    launch: float = 0.0
    direct: float = 1.0
    stages: int = 1
    handed: float = 0.0
    kept: float = 1.0
    ratios: tuple[float, float] = (1.0, 1.0)
    pace: float = 1.0
    _known: dict[tuple[int, bool | str | None], float] = field(default_factory=dict)

    @cached_property
    def limits(self) -> tuple[int | None, ...]:
        """How many keys of a sequence layers read at most, each limit once."""
        found = {r.limit for r in self.readers if not r.crosses}
        return tuple(sorted(found, key=lambda n: (n is not None, n or 0)))

    def seconds(self, load: Load) -> float:
        """The seconds of a step."""
        if not load.tokens:
            return 0.0
        found = self._of(load.tokens, heads=False)
        if load.sampled:
            found += self._of(load.sampled, heads=True)
        for reader, times in self.readers.items():
            keys, pairs = load.source, load.crossed
            if not reader.crosses:
                at = self.limits.index(reader.limit)
                keys, pairs = load.keys[at], load.pairs[at]
            found += times * self._reading(reader, load.tokens, keys, pairs)
        return (found * self.stages + self._sending(load.tokens)) * self.pace

    def exchanging(self, load: Load) -> float:
        """The seconds of a step in which devices exchange something, for which all of them wait."""
        found = self._moving(load.tokens, heads=False) + self._moving(load.sampled, heads=True)
        return (found * self.stages + self._sending(load.tokens)) * self.pace

    def decoding(self, batch: int, context: int, source: int = 0) -> float:
        """The seconds of a step in which so many sequences get a token after such a context."""
        keys = tuple(batch * _kept(context + 1, n) for n in self.limits)
        return self.seconds(Load(batch, batch, keys, keys, batch * source, batch * source))

    def reading(self, tokens: int, before: int = 0, source: int = 0) -> float:
        """The seconds of a prompt, or of so many tokens of it after others."""
        keys = tuple(_kept(before + tokens, n) for n in self.limits)
        pairs = tuple(round(seen(before, tokens, n) * self.direct) for n in self.limits)
        return self.seconds(Load(tokens, 1, keys, pairs, source, tokens * source))

    def once(self, source: int = 0) -> float:
        """The seconds of what runs once for a request, whose encoder reads so many tokens."""
        key = (source, None)
        if key not in self._known:
            shares = _shares(self.sources, source)
            works = [_at(line, shares) for line in self.apart]
            self._known[key] = sum(c.seconds for c in device_costs(works, self.device)) + sum(
                collective_seconds(w.task.collective, self.device)
                for w in works
                if w.task.collective
            )
        return self._known[key] * self.pace

    def _of(self, count: int, *, heads: bool) -> float:
        key = (count, heads)
        if key not in self._known:
            lines = self.heads if heads else self.lines
            taken = 0.0
            shares = _on_lines(self.knots, count)
            for line, times in lines.items():
                (cost,) = device_costs([_at(line, shares)], self.device)
                taken += times * cost.seconds
            self._known[key] = taken + self._moving(count, heads=heads)
        return self._known[key]

    def _moving(self, count: int, *, heads: bool) -> float:
        """The seconds in which the devices of a stage exchange something of so many tokens."""
        key = (count, "heads" if heads else "tokens")
        if key not in self._known:
            self._known[key] = sum(
                collective_seconds(Collective(kind, round(each * count), self.tensor), self.device)
                for kind, of_heads, each in self.exchanged if of_heads is heads
            )  # fmt: skip
        return self._known[key] if count else 0.0

    def _sending(self, tokens: int) -> float:
        """The seconds in which so many tokens go from stage to stage."""
        if self.stages == 1 or not tokens:
            return 0.0
        sent = Collective(
            CollectiveKind.SEND, round(self.handed * tokens), self.stages, self.tensor
        )
        return (self.stages - 1) * collective_seconds(sent, self.device)

    def _reading(self, reader: _Reader, tokens: int, keys: int, pairs: int) -> float:
        def number(line: tuple[float, float, float], by: int) -> int:
            return max(0, round(line[0] + line[1] * tokens + line[2] * by))

        task = replace(
            reader.task, flops=number(reader.flops, pairs), other_flops=number(reader.other_flops, pairs),
            sizes=(number(reader.read, keys),), written=number(reader.written, keys),
        )  # fmt: skip
        return kernel_cost(task, 0, self.device).seconds


def _kept(tokens: int, limit: int | None) -> int:
    return tokens if limit is None else min(tokens, limit)


def step_times(traces: Traces, device: Device, tensor: int = 1, stages: int = 1) -> StepTimes:
    """The times of steps on a device, or on one of `tensor` devices that share each operator of one of the
    `stages` of a pipeline.

    Raises `RenderError` where the model does not divide, and `InputError` where its graph changes with the
    length in another way than kernels that read more.
    """
    return Shares(traces, device, tensor).in_stages(stages)


class Shares:
    """What a device runs of some traces where `tensor` of them share each operator, worked out once for
    pipelines of any number of stages. Raises what `step_times` raises."""

    def __init__(self, traces: Traces, device: Device, tensor: int) -> None:
        self.traces, self.device, self.tensor = traces, device, tensor
        first, *longer = traces.decodes
        if first.cache is None or not longer:
            raise InputError("the times of steps are made from decoding steps")
        if tensor > 1:
            device.linked()
        self.cache = first.cache
        self.batch = batch = first.cache.sequences
        self.whole = whole = first.graph
        self.knots = _knots(whole, batch)
        shares = [_share(at_batch(whole, n // batch), tensor)[0] for n in self.knots]
        self.share = shares[0]
        self.worked = [_works(share) for share in shares]
        self.long = [_works(_share(p.graph, tensor)[0]) for p in longer]
        if len({tuple(w.task.kernel for w in works) for works in (*self.worked, *self.long)}) != 1:
            raise InputError(f"{first.model.name} runs other kernels after another context",
                             hint="its steps cannot be worked out from a few of them")  # fmt: skip
        self.heads = _of_the_last_token(traces)
        self.found = sharding(whole) if tensor > 1 else None

    def in_stages(self, count: int) -> StepTimes:
        """The times of steps in a pipeline of so many stages."""
        one = self._times
        if count == 1:
            return one
        self.device.linked()
        if self.traces.source:
            raise InputError(
                f"{self.traces.prefill.model.name} has an encoder, and is not cut into stages"
            )
        cut = stages(self.share, count)
        blocks = sum(s.blocks for s in cut)
        each = [replace(one, **self._lines(s.first, s.last)) for s in cut]
        slowest = max(each, key=lambda times: times.decoding(*_USUAL))
        return replace(
            slowest, stages=count, weights=max(s.weights for s in cut),
            kept=max(s.blocks for s in cut) / blocks,
            handed=max(s.received for s in cut) / self.batch,
        )  # fmt: skip

    @cached_property
    def _times(self) -> StepTimes:
        traces, tensor, found = self.traces, self.tensor, self.found
        divided = found is not None and any(
            v in found.values and v not in found.gathered for v in self.whole.outputs
        )
        prefill = traces.prefill
        read = prefill.cache.tokens * prefill.cache.sequences if prefill.cache else 0
        known = {n.scope for n in self.whole.nodes}
        apart = [_apart(p, known, tensor) for p in (prefill, *traces.longer)]
        if len({tuple(w.task.kernel for w in works) for works in apart}) != 1:
            name = traces.decodes[0].model.name
            raise InputError(f"the encoder of {name} runs other kernels for another length",
                             hint="its time cannot be worked out from a few of them")  # fmt: skip
        peak = memory(engine(_share(prefill.graph, tensor)[0])).peak
        held = prefill.cache.bytes if prefill.cache else 0
        peak = max(0, peak - (held // tensor if divided else held))
        read = max(read, traces.source * (prefill.cache.sequences if prefill.cache else 0))
        lines: dict[str, Any] = self._lines(0, len(self.whole.nodes))
        readers = lines["readers"]
        moved = 0 if found is None else len(found.exchanges)
        return StepTimes(
            self.device, tensor, self.knots, **lines,
            apart=tuple(_Line(tuple(w.task for w in each), tuple(w.distances for w in each))
                        for each in zip(*apart, strict=True)),
            sources=tuple(traces.source * (i + 1) for i in range(len(apart))),
            weights=sum(p.bytes for p in self.share.parameters),
            activation=peak / max(1, read),
            cache=_divided(self.cache, tensor) if divided else self.cache, source=traces.source,
            direct=_direct(prefill, readers, tensor) if len(assumed(self.whole)) > 1 else 1.0,
            launch=_launching(self.whole, self.worked[0], self.device) + moved * self.device.host_call,
            ratios=self._ratios,
        )  # fmt: skip

    def _lines(self, first: int, last: int) -> dict[str, Any]:
        """What some nodes run, by the ids of both ends."""
        lines, head, readers = Counter[_Line](), Counter[_Line](), Counter[_Reader]()
        contexts = [_context(p) for p in self.traces.decodes]
        for i, work in enumerate(self.worked[0]):
            if not first <= work.node <= last:
                continue
            same = [w[i] for w in self.worked]
            after = [w[i] for w in self.long]
            if not all(_alike(work.task, w.task) for w in after):
                readers[_reader(same, after, self.batch, contexts)] += 1
            elif self.traces.source and work.task.category == "attention":
                readers[_crossing(work.task, self.batch, self.traces.source)] += 1
            else:
                line = _Line(tuple(w.task for w in same), tuple(w.distances for w in same))
                (head if work.node in self.heads else lines)[line] += 1
        exchanged = tuple(
            (CollectiveKind(e.kind), e.node in self.heads, e.bytes / self.batch)
            for e in (() if self.found is None else self.found.exchanges)
            if first <= e.node <= last
        )
        return {
            "lines": lines,
            "heads": head,
            "readers": readers,
            "exchanged": exchanged,
            "_known": {},
        }

    @property
    def _ratios(self) -> tuple[float, float]:
        """The wider of the intervals of a step of a few sequences and of one of many."""
        times = max(1, _USUAL[0] // self.batch)
        many = _works(_share(at_batch(self.whole, times), self.tensor)[0])
        found = [predict_work(w, self.device, Run.ENGINE).ratios for w in (self.worked[0], many)]
        return min(low for low, _ in found), max(high for _, high in found)


_USUAL = (32, 512)
"""Sequences of a step, and the tokens that each has in the cache, for which the slowest stage is found."""


def _share(graph: Graph, tensor: int) -> tuple[Graph, int]:
    """What one device runs. Several share each operator on paper."""
    return (graph if tensor == 1 else sharded(graph, tensor)), tensor


def _works(graph: Graph) -> list[Work]:
    return [w for w in workload(engine(graph)) if w.task.kernel]


def _direct(prefill: ProfileRecord, readers: Counter[_Reader], tensor: int) -> float:
    """What a pair of a prompt takes of one of a decoding step."""
    graph = engine(_share(prefill.graph, tensor)[0])
    flops = sum(k.flops for n in graph.nodes for k in n.kernels if k.category == "attention")
    each = sum(times * reader.flops[2] for reader, times in readers.items())
    cache = prefill.cache
    pairs = cache.sequences * seen(0, cache.tokens, None) if cache else 0
    return flops / (each * pairs) if each * pairs else 1.0


def _launching(graph: Graph, works: Sequence[Work], device: Device) -> float:
    """The seconds of a host that calls each module and launches each kernel."""
    scopes = {graph.node(w.node).scope for w in works}
    modules = {scope[:i] for scope in scopes for i in range(1, len(scope) + 1)
               if scope[i : i + 1] in ("", ".")}  # fmt: skip
    return len(works) * device.host_call + len(modules) * device.host_module


def _context(profile: ProfileRecord) -> int:
    return profile.cache.tokens if profile.cache is not None else 0


def _divided(cache: KVCache, tensor: int) -> KVCache:
    parts = tuple(
        replace(p, bytes_per_token=ceil(p.bytes_per_token / tensor), fixed=ceil(p.fixed / tensor))
        for p in cache.parts
    )
    return replace(cache, bytes=ceil(cache.bytes / tensor), parts=parts)


def _knots(graph: Graph, batch: int) -> tuple[int, ...]:
    """The tokens at which steps are worked out: two, and where every expert of a mixture has a token."""
    corner = 0
    for node in graph.nodes:
        for kernel in node.kernels:
            if GROUPED in kernel.op and len(kernel.shapes) > 1:
                rows, experts = kernel.shapes[0][0], kernel.shapes[1][0]
                if isinstance(rows, int) and isinstance(experts, int) and rows:
                    corner = max(corner, ceil(experts / rows) * batch)
    return (batch, corner, 2 * corner) if corner > batch else (batch, 2 * batch)


def _of_the_last_token(traces: Traces) -> set[int]:
    """The nodes of a decoding step that run for the last token of a sequence alone: those with weights
    that a prefill multiplies by one row a sequence, and all that follows from them."""
    graph = traces.prefill.graph
    prompts = traces.prefill.cache.sequences if traces.prefill.cache else 1
    weights: set[str] = set()
    for node in graph.nodes:
        for kernel in node.kernels:
            if kernel.flops and kernel.category == "matmul" and kernel.out_shapes:
                rows = 1
                for n in kernel.out_shapes[0][:-1]:
                    rows *= n if isinstance(n, int) else 1
                if rows == prompts:
                    weights.update(node.parameters or _weights(graph, node.inputs))
    graph = traces.decodes[0].graph
    found: set[int] = set()
    made: set[int] = set()
    for node in graph.nodes:
        multiplies = any(k.flops for k in node.kernels)
        own = multiplies and not weights.isdisjoint(_weights(graph, node.inputs))
        if own or not made.isdisjoint(node.inputs):
            found.add(node.id)
            made.update(node.outputs)
    return found


def _weights(graph: Graph, values: Sequence[int]) -> list[str]:
    roots = map(graph.root, values)
    return [value.name for value in roots if value.kind == "parameter" and value.name]


def _apart(prefill: ProfileRecord, known: set[str], tensor: int) -> list[Work]:
    """What a prefill runs once for each sequence: modules that a decoding step does not call, and what
    follows from inputs, but not from the tokens."""
    graph = engine(_share(prefill.graph, tensor)[0])
    texts = [v for v in graph.inputs if (graph.value[v].name or "").endswith("input_ids")]
    read = _following(graph, texts[-1:])
    once = _following(graph, [v for v in graph.inputs if v not in read]) - read
    return [
        w for w in workload(graph)
        if (node := graph.node(w.node)).scope not in known or not once.isdisjoint(node.outputs)
    ]  # fmt: skip


def _following(graph: Graph, values: Iterable[int]) -> set[int]:
    found = set(values)
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _alike(one: Task, two: Task) -> bool:
    return (one.flops, one.written, one.read) == (two.flops, two.written, two.read)


def _shares(knots: Sequence[int], count: int) -> list[float]:
    """What of the numbers at each knot is in those for a count, on the polynomial through all of them."""
    return [prod((count - b) / (a - b) for b in knots if b != a) for a in knots]


def _on_lines(knots: Sequence[int], count: int) -> list[float]:
    """The same on straight lines from knot to knot."""
    after = next((i for i, n in enumerate(knots) if i and count <= n), len(knots) - 1)
    found = [0.0] * len(knots)
    found[after - 1 : after + 1] = _shares(knots[after - 1 : after + 1], count)
    return found


def _at(line: _Line, shares: Sequence[float]) -> Work:
    """The work of a line, of such shares of what it is at each knot."""

    def mixed(values: Iterable[int]) -> int:
        return max(0, round(sum(v * share for v, share in zip(values, shares, strict=True))))

    def number(name: str) -> int:
        return mixed(getattr(t, name) for t in line.tasks)

    one = line.tasks[0]
    sizes = None
    each = [t.contraction for t in line.tasks if t.contraction is not None]
    if len(each) == len(line.tasks):
        many, m, n, k = (
            max(1, mixed(getattr(c, s) for c in each)) for s in ("batch", "m", "n", "k")
        )
        sizes = Contraction(many, m, n, k, each[0].window)
    task = replace(
        one, flops=number("flops"), other_flops=number("other_flops"), written=number("written"),
        sizes=tuple(map(mixed, zip(*(t.sizes for t in line.tasks), strict=True))),
        contraction=sizes, positions=number("positions"),
    )  # fmt: skip
    distances = tuple(
        None if any(d is None for d in each) else mixed(d for d in each if d is not None)
        for each in zip(*line.distances, strict=True)
    )
    return Work(0, task, distances)


def _crossing(task: Task, batch: int, source: int) -> _Reader:
    """The lines of attention to what an encoder left: its queries are as large as what it writes."""
    pairs, made = batch * source, task.written / batch
    return _Reader(
        replace(task, contraction=None, sizes=()), (0, 0, task.flops / pairs),
        (0, 0, task.other_flops / pairs), (0, made, (task.read - task.written) / pairs), (0, made, 0),
        crosses=True,
    )  # fmt: skip


def _reader(
    same: Sequence[Work], after: Sequence[Work], batch: int, contexts: Sequence[int]
) -> _Reader:
    """The lines of a kernel that reads the cache, from twice the sequences and from longer contexts."""
    first, twice, longer, longest = same[0].task, same[1].task, after[0].task, after[-1].task
    doubled = len(same) == 2
    short = contexts[0]
    step = (contexts[1] - short) * batch

    def line(name: str) -> tuple[float, float, float]:
        one, two, far = (getattr(t, name) for t in (first, twice, longer))
        each = (far - one) / step
        fixed = 2 * one - two if doubled else 0
        return fixed, (one - fixed) / batch - each * short, each

    read, flops = line("read"), line("flops")
    reach = (longest.read - first.read) / (batch * read[2]) + short if read[2] else contexts[-1]
    limit = None if reach > contexts[-1] - 1 else round(reach)
    task = replace(first, contraction=None, sizes=())
    return _Reader(task, flops, line("other_flops"), read, line("written"), limit)
