"""From the calls and kernels of one trace to nodes: the host's calls as a tree, what launched each kernel,
and which nodes each call is for (see `opgraph.traces.joining`, which adds up their time)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from opgraph.record.graph import Graph, Node
from opgraph.record.run import Link
from opgraph.traces.alignment import matched, one_run
from opgraph.traces.events import FUSED, Call, Shapes, Trace
from opgraph.traces.signatures import Positions, canonical_name, worked

NODE_MARK = "opgraph:node:"
STEP_MARK = "opgraph:step:"
_OPTIMIZER = "Optimizer.step#"
STEPS = (STEP_MARK, "ProfilerStep#")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_BY_HOST = re.compile(r"HtoD|DtoH|Host-to-|-to-Host")
WHOLE, _PARTIAL = 0.8, 0.2
"""A run is whole when it matches this share of what the fullest run of the trace matches, and none below
the other: then it is something else with the same operators."""
_LEAST = 0.05
_ENOUGH: dict[Link, float] = {"alignment": _LEAST, "names": 0.5, "kernels": 0.5}
"""The share of the graph that a run has at least: with shapes, and by names alone, which say little unless
the rest is in compiled kernels."""
ALIKE = 0.9
DEVICE = "the device itself"
DISPATCH = "PythonDispatchMode"
GRAPH = "GraphLaunch"
"""In the names of the calls of CUDA and HIP that launch a whole graph."""

Nodes = tuple[int, ...]


@dataclass
class Run:
    """One run of the graph in a trace: which items of the sequence are in it, between which times."""

    items: range
    start: float
    end: float
    matches: int
    whole: bool = True


class Nested:
    """Calls by thread and time, with what is around each."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls = sorted(calls, key=lambda c: (str(c.thread), c.start, -c.end))
        self.parent: list[int] = []
        self.threads: dict[object, tuple[list[float], list[int]]] = {}
        for i, call in enumerate(self.calls):
            starts, ids = self.threads.setdefault(call.thread, ([], []))
            above = ids[-1] if ids else -1
            while above >= 0 and self.calls[above].end <= call.start:
                above = self.parent[above]
            self.parent.append(above)
            starts.append(call.start)
            ids.append(i)

    def inside(self, thread: object, at: float) -> int:
        """The innermost call that runs on a thread at a time, or -1."""
        starts, ids = self.threads.get(thread, ([], []))
        found = ids[i] if (i := bisect_right(starts, at) - 1) >= 0 else -1
        while found >= 0 and self.calls[found].end < at:
            found = self.parent[found]
        return found


class Matching:
    """The calls of one trace, and their nodes."""

    def __init__(self, graph: Graph, positions: Positions, trace: Trace) -> None:
        self.graph, self.positions, self.trace = graph, positions, trace
        nested = Nested(c for c in trace.calls if c.kind != "module")
        self.calls, self.parent, self.inside = nested.calls, nested.parent, nested.inside
        self.marked = any(c.name.startswith(NODE_MARK) for c in self.calls)
        self.shaped = any(c.shapes is not None for c in self.calls)
        count = len(self.calls)
        self.backward = bytearray(count)
        self.optimizing = bytearray(count)
        self.own = [0.0] * count
        """Seconds of a call without those of the calls in it."""
        self.covered = bytearray(count)
        """Whether the mark of a node is around a call (1), or an operator (2)."""
        self.owner: list[int] = [-1] * count
        """The call that is aligned, for a call in it: itself, or the outermost one with a signature."""
        self.masks: dict[int, int | None] = {}
        """The positions that a call may have; None for a compiled kernel, which may have several."""
        self.kernels: dict[int, int] = {}
        """What launched the kernels that are aligned themselves."""
        self.nodes: dict[int, tuple[Nodes, Link]] = {}
        """The nodes of calls that are aligned, and how they were found."""
        self._nest()

    def _nest(self) -> None:
        calls, positions = self.calls, self.positions
        known: dict[tuple[str, Shapes | None, bool], int | None] = {}
        for i, call in enumerate(calls):
            took = call.end - call.start
            self.own[i] = took * 1e-6
            if (above := self.parent[i]) >= 0:
                self.own[above] = max(0.0, self.own[above] - took * 1e-6)
                self.backward[i] = self.backward[above]
                self.optimizing[i] = self.optimizing[above] or calls[above].name.startswith(
                    _OPTIMIZER
                )
                self.owner[i] = self.owner[above]
                if (
                    calls[above].name != DISPATCH
                ):  # what a mode calls stands for what called the mode
                    self.covered[i] = max(self.covered[above], self.covers(above))
            if not self.backward[i] and _BACKWARD.search(call.name):
                self.backward[i] = 1
            if call.kind == "mark" and call.name.startswith(NODE_MARK):
                self.owner[i] = i
                self.nodes[i] = (_ids(call.name, len(self.graph.nodes)), "mark")
            elif self.marked or call.kind != "operator":
                continue
            elif self.owner[i] < 0 or self.owner[i] not in self.masks:
                if self.owner[i] < 0 and (self.optimizing[i] or self.backward[i]):
                    self.owner[i] = i
                key = (call.name, call.shapes, bool(self.backward[i]))
                if key not in known:
                    known[key] = positions.mask(
                        call, backward=bool(self.backward[i]), shaped=self.shaped
                    )
                    if not known[key] and FUSED.match(call.name):
                        known[key] = None
                if known[key] != 0:
                    self.owner[i] = i
                    self.masks[i] = known[key]

    def name(self, call: int) -> str:
        """What launched something, where it is no mark of ours or of a step."""
        call = self.kernels.get(call, call)
        name = self.calls[call].name if call >= 0 else ""
        return "" if name.startswith((NODE_MARK, *STEPS)) else name

    def covers(self, call: int) -> int:
        found = self.calls[call]
        return 2 if found.kind == "operator" else found.name.startswith(NODE_MARK)

    def hosts(self) -> list[int]:
        """The call in which each work was launched, or -1."""
        by_external: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            if call.external is not None:
                by_external.setdefault(call.external, i)
        found = []
        for work in self.trace.work:
            launch = None if work.correlation is None else self.trace.launches.get(work.correlation)
            host = -1
            external = work.external
            if external is None and launch is not None:
                external = launch.external
            named = by_external.get(external, -1) if external is not None else -1
            if launch is not None:
                if named >= 0 and self.calls[named].start <= launch.start <= self.calls[named].end:
                    host = named
                else:
                    host = self.inside(launch.thread, launch.start)
            elif named >= 0 and external != work.correlation:
                # (Until 2023 both were the driver's number, which is another count.)
                host = named
            found.append(host)
        return found

    def items(self, hosts: Sequence[int]) -> list[int]:
        """What is aligned: what launched something, or the outermost call with a signature around it. The
        name alone of a copy from or to the host says nothing: no kernel of a graph does that."""
        if not self.shaped:
            for work, host in zip(self.trace.work, hosts, strict=False):
                if host >= 0 and work.kind == "copy" and _BY_HOST.search(work.name):
                    self.masks[self.owner[host] if self.owner[host] >= 0 else host] = 0
        found = (self.owner[host] if self.owner[host] >= 0 else host for host in hosts if host >= 0)
        return sorted(dict.fromkeys(found), key=lambda i: self.calls[i].start)

    def steps(self) -> list[Call]:
        found = [c for c in self.calls if c.name.startswith(STEPS)]
        own = [c for c in found if c.name.startswith(STEP_MARK)]
        return sorted(own or found, key=lambda c: c.start)

    def with_kernels(self, hosts: list[int], *, graphs: bool) -> list[int]:
        """Make kernels themselves what is aligned, where no operator is: those of CUDA graphs, or all. What
        launches each, with these in it."""
        work, launches = self.trace.work, self.trace.launches
        of = [launches.get(-1 if w.correlation is None else w.correlation) for w in work]
        found = list(hosts)
        for i in sorted(range(len(work)), key=lambda i: work[i].start):
            launch = of[i]
            if launch is None and any(of):
                continue  # it was launched before the others: `_repeated` finds it
            if graphs and (launch is None or GRAPH not in launch.name):
                continue
            at = work[i].start if launch is None else launch.start
            found[i] = len(self.calls)
            self.masks[found[i]] = self.positions.kernel_mask(work[i].name)
            self.kernels[found[i]] = hosts[i]
            self.owner.append(found[i])
            self.calls.append(Call(work[i].name, at, at, DEVICE))
        more = len(self.calls) - len(self.parent)
        self.parent += [-1] * more
        self.own += [0.0] * more
        self.backward += bytes(more)
        self.covered += bytes(more)
        return found

    def aligned(self, items: list[int], steps: Sequence[Call], link: Link) -> list[Run]:
        """The runs of the graph, with the nodes of what is aligned in each."""
        positions = self.positions
        width = len(positions.nodes)
        starts = [c.start for c in steps]
        parts: dict[int, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            parts[bisect_right(starts, self.calls[item].start) - 1].append(at)
        known: dict[tuple[int | None, ...], tuple[int, list[int | None]]] = {}
        runs: list[Run] = []
        for step, part in sorted(parts.items()):
            low, first = 0, True
            while low < len(part):
                key = tuple(self.masks.get(items[at], 0) for at in part[low : low + 3 * width + 64])
                if key not in known:
                    end = one_run(key, width)
                    known[key] = (end, matched([mask or 0 for mask in key[:end]], width))
                end, places = known[key]
                if not end:
                    low += max(1, len(key) // 2)
                    continue
                for at, place in zip(part[low:], places, strict=False):
                    if place is not None:
                        how: Link = "kernels" if items[at] in self.kernels else link
                        self.nodes[items[at]] = ((positions.nodes[place].id,), how)
                begin = next(
                    i for i, place in enumerate(places) if place is not None or key[i] is None
                )
                start = self.calls[items[part[low + begin]]].start
                if first and step >= 0:
                    begin, start = 0, steps[step].start
                runs.append(Run(range(part[low + begin], part[-1] + 1), start, float("inf"),
                                 sum(place is not None for place in places)))  # fmt: skip
                low, first = low + end, False
        return self._kept(items, runs, steps, _ENOUGH[link])

    def _kept(
        self, items: list[int], runs: list[Run], steps: Sequence[Call], enough: float
    ) -> list[Run]:
        """The runs that are one, with their ends. What matches little, after a run, is no run: it is work
        of the one before, without nodes."""
        fullest = max(runs, key=lambda run: run.matches, default=None)
        most = fullest.matches if fullest else 0
        ends = {id(run): run.items.stop for run in runs}
        for run, after in pairwise(runs):
            run.items = range(run.items.start, min(run.items.stop, after.items.start))
        at_least = enough * self.positions.works
        # Of nodes, and not of their kernels: a single call of a recurrent layer is hundreds of these.
        reached = {self.nodes.get(items[at]) for at in fullest.items} - {None} if fullest else ()
        if len(reached) < at_least and fullest:
            asked = [items[at] for at in fullest.items if self.masks.get(items[at], 0) is not None]
            compiled = len(asked) < len(fullest.items)
            if compiled and most >= ALIKE * len(asked):
                at_least = _LEAST * self.positions.works
        if not most or len(reached) < at_least:
            self.nodes.clear()
            return []
        kept: list[Run] = []
        for run in runs:
            if run.matches >= _PARTIAL * most:
                run.whole = run.matches >= WHOLE * most
                kept.append(run)
            else:
                for at in run.items:
                    self.nodes.pop(items[at], None)
        for run, after in pairwise(kept):
            run.end = after.start
        for run, stop in zip(kept, [*(r.items.start for r in kept[1:]), len(items)], strict=True):
            run.items = range(run.items.start, min(ends[id(run)], stop))
        for run in kept:
            step = bisect_right([c.start for c in steps], run.start) - 1
            if step >= 0:
                run.end = min(run.end, max(steps[step].end, run.start))
        return kept

    def rest(self, items: list[int], runs: Sequence[Run]) -> None:
        """What alignment left in each run: compiled kernels, and calls between two that have a node."""
        if runs:
            self._optimizer()
        order = self.positions.nodes
        first: dict[int, int] = {}
        for at, node in enumerate(order):
            first.setdefault(node.id, at)
        sequences = self._sequences()
        modules = Nested(c for c in self.trace.calls if c.kind == "module")
        taken: set[int] = set()
        for run in runs:
            placed = [
                first[self.nodes[items[i]][0][0]] if items[i] in self.nodes else None
                for i in run.items
            ]
            taken = {order[p].id for p in placed if p is not None}
            low = -1
            waiting: list[int] = []
            before: list[int] = []
            for place, i in zip([*placed, len(order)], [*run.items, -1], strict=True):
                if place is None:
                    waiting.append(items[i])
                    continue
                inside = dict.fromkeys(n.id for n in order[low + 1 : place])
                before = self._between(
                    waiting, before, [n for n in inside if n not in taken], taken
                )
                if place < len(order):
                    self._operands(waiting, order[place])
                low, waiting = place, []
            left = [items[i] for i in run.items if items[i] not in self.nodes]
            for item in left:
                self._by_sequence(item, sequences, taken)
            if modules.calls:
                aligned = [
                    (i, self.nodes[i][0]) for i in (items[k] for k in run.items) if i in self.nodes
                ]
                for item in left:
                    if item not in self.nodes:
                        self._by_module(item, modules, aligned, taken)
        if runs:  # what launched nothing, or has no signature of the graph
            for i, late in enumerate(self.backward):
                if late and self.owner[i] == i and i not in self.nodes:
                    self._by_sequence(i, sequences, taken)

    def _between(
        self, waiting: Sequence[int], before: list[int], between: list[int], taken: set[int]
    ) -> list[int]:
        """Give the nodes between two aligned ones to the calls between them: to a compiled kernel those
        whose operators are in its name (which may be of `before`: they wait for it), to others the next one
        of their name. What is left of the nodes since the last compiled kernel is given back."""
        for item in waiting:
            call = self.calls[item]
            if fused := FUSED.match(call.name):
                free = [n for n in (*before, *between) if n not in taken]
                nodes = tuple(self._fused(f"_{fused[1]}_", free))
                if nodes:
                    self.nodes[item] = (nodes, "fusion")
                    before = []
                    between = [n for n in between if n > nodes[-1]]
            else:
                name = canonical_name(call.name)
                late = bool(self.backward[item])
                free = [n for n in between if n not in taken and self._late(n) == late]
                nodes = tuple(islice((n for n in free if name in self._names(n)), 1))
                if nodes:
                    self.nodes[item] = (nodes, "names")
                    between = [n for n in between if n > nodes[0]]
            taken.update(nodes)
        return [n for n in (*before, *between) if n not in taken]

    def _operands(self, waiting: Sequence[int], reader: Node) -> None:
        """Give copies that the graph does not make to what they are made for: one of the shape of an input
        of the node that comes next, where that is not contiguous in the graph, to that node; where it comes
        from outside of the graph, to the node that stands for it."""
        value, producer = self.graph.value, self.graph.producer
        free = list(dict.fromkeys(reader.inputs))
        for item in waiting:
            call = self.calls[item]
            if item in self.nodes or canonical_name(call.name) != "copy" or not call.shapes:
                continue
            for v in free if len(set(call.shapes)) == 1 else ():
                source = producer.get(v)
                outside = source is not None and source.kind in ("input", "constant")
                if value[v].shape == call.shapes[0] and (outside or value[v].strides):
                    self.nodes[item] = (
                        (source.id if outside and source else reader.id,),
                        "operand",
                    )
                    free.remove(v)
                    break

    def _late(self, node: int) -> bool:
        return self.graph.node(node).phase in ("backward", "recompute")

    def _names(self, node: int) -> set[str]:
        found = self.graph.node(node)
        return {canonical_name(found.op), *(canonical_name(k.op) for k in found.kernels)}

    def _fused(self, name: str, free: Sequence[int]) -> Iterator[int]:
        """The first nodes in a row whose operators are all in the name of a compiled kernel."""
        begun = False
        for node in free:
            ops = worked(self.graph.node(node))
            if ops and all(f"_{op}_" in name for op in ops):
                begun = True
                yield node
            elif ops and begun:
                return

    def _optimizer(self) -> None:
        """The calls of an optimizer that goes over the weights one by one, at the nodes that take all."""
        named: dict[str, Nodes] = {}
        for node in self.graph.nodes:
            if node.phase == "optimizer" and node.kind == "call":
                for name in {canonical_name(k.op) for k in node.kernels}:
                    divided = any(k.share < 1 for k in node.kernels)
                    named[name] = (
                        (*named.get(name, ()), node.id) if divided else named.get(name, (node.id,))
                    )
        for i, optimizing in enumerate(self.optimizing):
            if optimizing and self.owner[i] == i and i not in self.nodes:
                nodes = named.get(canonical_name(self.calls[i].name))
                if nodes:
                    self.nodes[i] = (nodes, "names")

    def _sequences(self) -> dict[int, int]:
        """The aligned call of the forward by its sequence number."""
        found: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            if call.sequence is not None and not self.backward[i] and self.owner[i] in self.nodes:
                found[call.sequence] = self.owner[i]
        return found

    def _by_sequence(self, item: int, sequences: dict[int, int], taken: set[int]) -> None:
        """A call of the backward by the number of the forward call whose gradient it computes."""
        at = item
        while at >= 0 and self.calls[at].sequence is None:
            at = self.parent[at]
        if at < 0 or not self.backward[item]:
            return
        source = sequences.get(self.calls[at].sequence or -1)
        if source is None:
            return
        order = self.positions.nodes
        places = (p for n in self.nodes[source][0] for p in self.positions.forward.get(n, ()))
        nodes = tuple(dict.fromkeys(order[p].id for p in places))
        free = tuple(n for n in nodes if n not in taken)
        if nodes:
            self.nodes[item] = (free or nodes, "sequence")

    def _by_module(
        self, item: int, modules: Nested, inside: Sequence[tuple[int, Nodes]], taken: set[int]
    ) -> None:
        """A call by the module that it is in, where that has one node of this name that is still free."""
        call = self.calls[item]
        scope = modules.inside(call.thread, call.start)
        if scope < 0:
            return
        scopes = {
            self.graph.node(nodes[0]).scope
            for i, nodes in inside
            if modules.inside(self.calls[i].thread, self.calls[i].start) == scope
        }
        name = canonical_name(call.name)
        free = [n for n in self.graph.nodes
                if n.scope in scopes and n.id not in taken and n.op == name]  # fmt: skip
        if len(scopes) == 1 and len(free) == 1:
            self.nodes[item] = ((free[0].id,), "module")
            taken.add(free[0].id)


def _ids(mark: str, count: int) -> Nodes:
    """The nodes that a mark names, of those that there are."""
    numbers = mark[len(NODE_MARK) :].split(",")
    return tuple(
        n for n in (int(t) for t in numbers if t.isdecimal() and len(t) < 10) if 0 < n <= count
    )
