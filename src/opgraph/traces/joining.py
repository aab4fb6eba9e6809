"""The join: each operator and kernel of a trace at the node that it was for.

A kernel leads to the operator that launched it (by `correlation`, by `External id`, or by the time of its
launch), and an operator to a node: by our own marks around it, or by alignment. In an alignment name and
shapes of the inputs must be equal, either of the whole call (`aten::linear` and a node `linear`) or of a
kernel beneath it (`aten::addmm` and a node that ran `aten.addmm`). What is left is looked for by sequence
numbers, between its neighbours, in its module, by the names in a compiled kernel, and, where the launch
itself is not in the trace, by where the same kernels stand in another run. All else stays without a node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from opgraph.record.graph import Graph
from opgraph.record.run import EventKind, Gap, Held, Link, RunEvent, RunRecord, Slice
from opgraph.traces.alignment import matched
from opgraph.traces.allocations import Owner, at_peak, curve, own, storages_of
from opgraph.traces.events import Call, Trace, Work
from opgraph.traces.matching import ALIKE, DISPATCH, GRAPH, STEPS, WHOLE, Matching, Nodes, Run
from opgraph.traces.ranks import HOST_COLLECTIVE, together
from opgraph.traces.signatures import Positions

_Key = tuple[str, Nodes, EventKind, Link, str, int, int]
_NOWHERE: tuple[Nodes, Link] = ((), "")
_BY_OPERATOR = 2
_PART, _UNKNOWN = -1, -2
"""The run of what is in none that is whole, and of a kernel whose launch is not in the trace."""


def join(graph: Graph, traces: Sequence[Trace]) -> RunRecord:
    """What ran, on the nodes of the graph, summed over all runs of it that the traces hold whole."""
    positions = Positions.of(graph)
    first = traces[0]
    shown = _Rank(graph, positions, first).joined()
    ranks = [shown, *(_Rank(graph, positions, t).joined(shown.step) for t in traces[1:])]
    clocks, exchanges, ahead = together(traces) if len(traces) > 1 else ((), (), [0.0])
    rows = _Rows()
    for rank in ranks:
        rows.update(rank.rows)
    events, index = rows.events()
    timed = {c.rank for c in clocks} | {first.rank}
    slices = sorted(
        (start - later, seconds, index[key], stream, trace.rank)
        for trace, rank, later in zip(traces, ranks, ahead, strict=True)
        for start, seconds, key, stream in rank.slices
        if trace.rank in timed
    )
    begin = min((start for start, *_ in slices), default=0.0)
    timeline = tuple(
        Slice((start - begin) * 1e-6, seconds, event, stream, rank)
        for start, seconds, event, stream, rank in slices
    )
    partial = _Rows()
    for rank in ranks:
        partial.update(rank.partial)
    notes = [note for trace in traces for note in trace.notes]
    if any(trace.cut for trace in traces):
        notes.append("the trace is cut off: what came after is not in it")
    notes += dict.fromkeys(n for rank in ranks for n in rank.notes)
    return RunRecord(
        device=first.device,
        device_name=first.device_name,
        source=first.source,
        how="trace",
        events=events,
        timeline=timeline,
        gaps=tuple(gap for rank in ranks for gap in rank.gaps),
        clocks=clocks,
        exchanges=exchanges,
        memory=shown.memory,
        memory_nodes=shown.memory_nodes,
        held=shown.held,
        peak_nodes=shown.peak_nodes,
        profiled=tuple(s for rank in ranks for s in rank.seconds),
        steps=max(1, *(len(rank.seconds) for rank in ranks)),
        ranks=len(traces),
        notes=tuple(notes),
        versions=dict(first.versions),
        partial=partial.events()[0],
    )


class _Rows(dict[_Key, list[float]]):
    """Seconds and counts by what is one row."""

    def put(self, key: _Key, seconds: float, count: int = 1) -> None:
        row = self.get(key)
        if row is None:
            self[key] = [seconds, count]
        else:
            row[0] += seconds
            row[1] += count

    def update(self, other: _Rows) -> None:  # type: ignore[override]
        for key, (seconds, count) in other.items():
            self.put(key, seconds, int(count))

    def events(self) -> tuple[tuple[RunEvent, ...], dict[_Key, int]]:
        """The rows, those that took longest first, and where each key is."""
        ordered = sorted(self.items(), key=lambda item: (-item[1][0], item[0]))
        return (
            tuple(
                RunEvent(name, max(seconds, 0.0), nodes, kind, link, int(count), host, stream, rank)
                for (name, nodes, kind, link, host, stream, rank), (seconds, count) in ordered
            ),
            {key: i for i, (key, _) in enumerate(ordered)},
        )


@dataclass
class _Found:
    """What one rank gives to the record."""

    rows: _Rows = field(default_factory=_Rows)
    partial: _Rows = field(default_factory=_Rows)
    gaps: tuple[Gap, ...] = ()
    seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slices: list[tuple[float, float, _Key, int]] = field(default_factory=list)
    calls: list[tuple[int, float, float, _Key]] = field(default_factory=list)
    step: int = 0
    """Which of the runs is shown."""
    memory: tuple[tuple[float, int], ...] = ()
    memory_nodes: Nodes = ()
    held: tuple[Held, ...] = ()
    peak_nodes: Nodes = ()


class _Rank(Matching):
    """The join of one trace."""

    def joined(self, step: int | None = None) -> _Found:
        """Everything of this rank; its timeline is of that step, else of the one in the middle."""
        trace, out = self.trace, _Found()
        hosts = self.hosts()
        on_device = trace.device != "cpu"
        steps = self.steps()
        if self.marked:
            runs = [Run(range(0), c.start, c.end, 1) for c in steps]
        else:
            link: Link = "alignment" if self.shaped else "names"
            if any(GRAPH in launch.name for launch in trace.launches.values()):
                hosts = self.with_kernels(hosts, graphs=True)
            items = self.items(hosts if on_device else [*self.masks])
            runs = self.aligned(items, steps, link)
            if not runs and not any(h >= 0 and self.calls[h].kind == "operator" for h in hosts):
                hosts = self.with_kernels(hosts, graphs=False)
                items = self.items(hosts)
                runs = self.aligned(items, steps, "kernels")
            self.rest(items, runs)
        if not runs:
            runs = [Run(range(0), float("-inf"), float("inf"), 1)]
        self._account(out, hosts, runs, steps, step, on_device=on_device)
        self._allocated(out)
        return out

    def _allocated(self, out: _Found) -> None:
        """What was allocated, and for which nodes at the peak."""
        on_host = self.trace.device == "cpu"
        rows = sorted(self.trace.host_memory if on_host else self.trace.memory, key=lambda a: a.at)
        rows = own(rows) if on_host else rows
        if not rows:
            return
        made = [] if self.calls else storages_of(self.graph, rows)

        def owner(i: int) -> Owner:
            if made:
                node = made[i]
                return (() if node is None else (node,)), next(reversed(rows[i].operators), "")
            call = self.inside(rows[i].thread, rows[i].at)
            nodes = self.nodes.get(self.owner[call], _NOWHERE)[0] if call >= 0 else ()
            return nodes, self.name(call)

        out.memory = curve(rows)
        out.memory_nodes = tuple(next(iter(owner(i)[0]), 0) for i in range(len(rows)))
        out.held, out.peak_nodes = at_peak(rows, owner)
        if made and not any(made):
            out.notes.append(
                "the allocations are not those of this graph: is it the same model and sizes?"
            )

    def _account(
        self,
        out: _Found,
        hosts: list[int],
        runs: list[Run],
        steps: Sequence[Call],
        step: int | None,
        *,
        on_device: bool,
    ) -> None:
        trace, rank = self.trace, self.trace.rank
        starts = [run.start for run in runs]

        def run_of(at: float) -> int:
            """The whole run in which something was launched."""
            found = bisect_right(starts, at) - 1
            return found if found >= 0 and at < runs[found].end and runs[found].whole else _PART

        where: list[int] = []
        given: list[tuple[Nodes, Link]] = []
        for work, host in zip(trace.work, hosts, strict=True):
            owner = self.owner[host] if host >= 0 else -1
            given.append(self.nodes.get(owner if owner >= 0 else host, _NOWHERE))
            launch = None if work.correlation is None else trace.launches.get(work.correlation)
            if host >= 0:
                where.append(run_of(self.calls[host].start))
            else:
                where.append(_UNKNOWN if launch is None else run_of(launch.start))
        if on_device:
            self._repeated(where, given, hosts)
        keys: list[_Key] = []
        for work, host, at, (nodes, link) in zip(trace.work, hosts, where, given, strict=True):
            key: _Key = (work.name, nodes, work.kind, link, self.name(host), work.stream, rank)
            keys.append(key)
            (out.rows if at >= 0 else out.partial).put(key, work.seconds)
        times = self._times(runs, steps, self._calls_of(out, runs, run_of), where)
        out.seconds = list(times.values()) if trace.work or self.calls else []
        middle = sorted(times, key=lambda i: times[i])[len(times) // 2]
        middle = out.step = step if step in times else middle
        if on_device:
            out.gaps = self._gaps(where, given)
            for work, at, key in zip(trace.work, where, keys, strict=True):
                if at == middle:
                    out.slices.append((work.start, work.seconds, key, work.stream))
        out.slices += [
            (began, took, key, key[5]) for at, began, took, key in out.calls if at == middle
        ]
        works = {n.id for n in self.graph.nodes if any(k.cost != "zero" for k in n.kernels)}
        there = works.intersection(n for nodes, _ in self.nodes.values() for n in nodes)
        share = len(there) / max(1, len(works))
        if share and not self.shaped and not self.marked:
            out.notes.append(
                "the trace has no shapes: operators are matched by their names alone, which cannot tell "
                "layers apart where it begins within a step (record_shapes=True gives them)"
            )
        if self.calls and not share:
            out.notes.append(
                "what is in the trace is not this graph: is it the same model and sizes?"
            )
        elif self.calls and share < WHOLE:
            out.notes.append(f"{share:.0%} of the graph's operators are in the trace")

    def _times(
        self,
        runs: Sequence[Run],
        steps: Sequence[Call],
        spans: dict[int, tuple[float, float]],
        where: Sequence[int],
    ) -> dict[int, float]:
        """The seconds of each whole run: from where its step or its first operator began, or what ran
        before it ended on the device, to where its last work ended."""
        marks = {c.start: c.end for c in steps}
        ended = [
            max(spans.get(i, (0.0, 0.0))[1], marks.get(r.start, 0.0)) for i, r in enumerate(runs)
        ]
        busy = float("-inf")
        before: dict[int, float] = {}
        for work, at in sorted(zip(self.trace.work, where, strict=True), key=lambda w: w[0].start):
            end = work.start + work.seconds * 1e6
            if at >= 0:
                before.setdefault(at, busy)
                ended[at] = max(ended[at], end)
            busy = max(busy, end)
        last = float("-inf")
        found = {}
        for i, run in enumerate(runs):
            if run.whole:
                began = run.start if run.start in marks else spans.get(i, (ended[i],))[0]
                found[i] = max(0.0, ended[i] - max(began, before.get(i, began), last)) * 1e-6
                last = max(last, ended[i])
        return found

    def _calls_of(
        self, out: _Found, runs: Sequence[Run], run_of: Callable[[float], int]
    ) -> dict[int, tuple[float, float]]:
        """Rows of the host's own calls; when the outermost ones of each run began and ended."""
        rank, calls, on_device = self.trace.rank, self.calls, self.trace.device != "cpu"
        spans: dict[int, tuple[float, float]] = {}
        # Operators that hand over to a dispatch mode, which calls them again: as we mark a backward.
        handing = {self.parent[i] for i, call in enumerate(calls) if call.name == DISPATCH}
        following = self._following()
        for i, call in enumerate(calls):
            if i in self.kernels:
                break  # they come last
            run = run_of(call.start)
            nodes, link = self.nodes.get(self.owner[i], _NOWHERE)
            above = self.parent[i]
            host = calls[above].name if above >= 0 and calls[above].kind == "operator" else ""
            if call.kind == "operator":
                key: _Key = (call.name, nodes, "operator", link, host, 0, rank)
                if i in handing and not nodes and not on_device:
                    key = ("python", following[i][0], "python", following[i][1], "", 0, rank)
                if self.covered[i] < _BY_OPERATOR:
                    began, ended = spans.get(run, (call.start, call.end))
                    spans[run] = (min(began, call.start), max(ended, call.end))
                    if run >= 0 and not on_device and key[2] == "operator":
                        out.calls.append((run, call.start, (call.end - call.start) * 1e-6, key))
            elif not on_device and HOST_COLLECTIVE.match(call.name):
                key = (call.name, (), "communication", "", "", 1, rank)
                if run >= 0:
                    out.calls.append((run, call.start, (call.end - call.start) * 1e-6, key))
            elif not on_device and (nodes or self.covered[i]):
                key = ("python", following[i][0], "python", following[i][1], "", 0, rank)
            else:
                continue
            (out.rows if run >= 0 else out.partial).put(key, self.own[i])
        if not on_device:
            self._python(out, runs, following)
        return spans

    def _following(self) -> list[tuple[Nodes, Link]]:
        """The node of each call, or of the next on its thread, in its step, that has one."""
        found, after, thread = [_NOWHERE] * len(self.calls), _NOWHERE, None
        for i in range(len(self.calls) - 1, -1, -1):
            call = self.calls[i]
            after = self.nodes.get(self.owner[i], after if call.thread == thread else _NOWHERE)
            found[i], thread = after, call.thread
            if call.name.startswith(STEPS):
                after = _NOWHERE
        return found

    def _python(
        self, out: _Found, runs: Sequence[Run], following: Sequence[tuple[Nodes, Link]]
    ) -> None:
        """Rows of the time of each step between operators, at the node that comes next."""
        starts = {run.start for run in runs}
        for step, call in enumerate(self.calls):
            if not call.name.startswith(STEPS) or call.start not in starts:
                continue
            before = call.start
            for i in range(step + 1, len(self.calls)):
                inside = self.calls[i]
                if inside.thread != call.thread or inside.start >= call.end:
                    break
                if self.covered[i] or not self.covers(i):
                    continue
                nodes, link = following[i]
                gap = (inside.start - before) * 1e-6
                if gap > 0:
                    out.rows.put(("python", nodes, "python", link, "", 0, self.trace.rank), gap, 0)
                before = max(before, inside.end)
            last = (call.end - before) * 1e-6
            if last > 0:
                out.rows.put(("python", (), "python", "", "", 0, self.trace.rank), last, 0)

    def _repeated(
        self, where: list[int], given: list[tuple[Nodes, Link]], hosts: Sequence[int]
    ) -> None:
        """Kernels whose launch is not in the trace, or is that of a whole CUDA graph: they are what stands
        at the same place among the kernels of another run."""
        work, launches = self.trace.work, self.trace.launches

        def orphan(i: int) -> bool:
            if given[i][0]:
                return False
            launch = launches.get(work[i].correlation or -1)
            return hosts[i] < 0 if launch is None else GRAPH in launch.name

        streams: dict[int, list[int]] = defaultdict(list)
        for i in sorted(range(len(work)), key=lambda i: work[i].start):
            streams[work[i].stream].append(i)
        for order in streams.values():
            known: dict[int, list[int]] = defaultdict(list)
            for i in order:
                if where[i] >= 0 and not orphan(i):
                    known[where[i]].append(i)
            model = max(known.values(), key=len, default=[])
            alike = _Alike(work, model) if any(given[i][0] for i in model) else None
            at = 0
            while at < len(order):
                if not orphan(order[at]):
                    at += 1
                    continue
                end = at
                while end < len(order) and orphan(order[end]):
                    end += 1
                lost = order[at:end]
                before = where[order[at - 1]] if at else None
                after = where[order[end]] if end < len(order) else None
                inside = before is not None and before == after
                for i in lost:
                    if where[i] == _UNKNOWN:
                        where[i] = before if inside and before is not None else _PART
                last = before is None or (not inside and after is not None)
                for i, place in alike.places(lost, last=last) if alike else ():
                    if given[place][0]:
                        given[i] = (given[place][0], "repeat")
                at = end
        if not any(run >= 0 for run in where):
            where[:] = [0] * len(where)

    def _gaps(self, where: Sequence[int], given: Sequence[tuple[Nodes, Link]]) -> tuple[Gap, ...]:
        """The times in a run in which no stream had anything to do, by what the host did then."""
        both = zip(self.calls, self.covered, strict=True)
        outer = [c for c, over in both if c.kind == "operator" and over < _BY_OPERATOR]
        outer.sort(key=lambda c: c.start)
        starts = [c.start for c in outer]
        order: dict[int, list[int]] = defaultdict(list)
        for i, at in enumerate(where):
            if at >= 0:
                order[at].append(i)
        found: dict[tuple[str, int | None], list[float]] = {}
        for _, ids in sorted(order.items()):
            ids.sort(key=lambda i: self.trace.work[i].start)
            free = self.trace.work[ids[0]].start
            begin = free
            for i in ids:
                work = self.trace.work[i]
                if work.start > free:
                    launch = self.trace.launches.get(work.correlation or -1)
                    if launch is not None and launch.start <= free:
                        host = "queue"
                    else:
                        host = _busiest(outer, starts, free, work.start)
                    nodes = given[i][0]
                    row = found.setdefault(
                        (host, nodes[0] if nodes else None), [0.0, 0, free - begin]
                    )
                    row[0] += work.start - free
                    row[1] += 1
                free = max(free, work.start + work.seconds * 1e6)
        rows = sorted(found.items(), key=lambda item: -item[1][0])
        return tuple(
            Gap(took * 1e-6, host, node, int(count), start * 1e-6, self.trace.rank)
            for (host, node), (took, count, start) in rows
        )


class _Alike:
    """Where kernels would stand in a sequence of others, by their names."""

    def __init__(self, work: Sequence[Work], model: Sequence[int]) -> None:
        self.work, self.model = work, model
        self.bits: dict[tuple[str, bool], int] = defaultdict(int)
        for at, i in enumerate(model):
            self.bits[work[i].name, False] |= 1 << at
            self.bits[work[i].name, True] |= 1 << (len(model) - 1 - at)

    def places(self, lost: Sequence[int], *, last: bool) -> Iterator[tuple[int, int]]:
        """Each kernel with one of the sequence: as early as can be, or as late. None where fewer than nine
        in ten are alike: then it is another sequence."""
        ours = lost[::-1] if last else lost
        masks = [self.bits.get((self.work[i].name, last), 0) for i in ours]
        if sum(map(bool, masks)) < ALIKE * len(ours):
            return
        found = matched(masks, len(self.model))
        if sum(f is not None for f in found) >= ALIKE * len(ours):
            for i, place in zip(ours, found, strict=True):
                if place is not None:
                    yield i, self.model[len(self.model) - 1 - place if last else place]


def _busiest(calls: Sequence[Call], starts: Sequence[float], begin: float, end: float) -> str:
    """The operator that ran for most of a time, or "python" where none ran for longer."""
    at = max(0, bisect_right(starts, begin) - 1)
    took: dict[str, float] = {}
    rest = end - begin
    while at < len(calls) and calls[at].start < end:
        both = min(end, calls[at].end) - max(begin, calls[at].start)
        if both > 0:
            took[calls[at].name] = took.get(calls[at].name, 0.0) + both
            rest -= both
        at += 1
    took["python"] = took.get("python", 0.0) + rest
    return max(took, key=lambda name: took[name])
