"""The join: each operator and kernel of a trace at the node that it was for.

A kernel leads to the operator that launched it (by `correlation`, by `External id`, or by the time of its
launch), and an operator to a node: by our own marks around it, or by alignment. In an alignment name and
shapes of the inputs must be equal, either of the whole call (`aten::linear` and a node `linear`) or of a
kernel beneath it (`aten::addmm` and a node that ran `aten.addmm`). What is left is looked for by sequence
numbers, between its neighbours, in its module, by the names in a compiled kernel, and, where the launch
itself is not in the trace, by where the same kernels stand in another run. All else stays without a node.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise

from opgraph.record.graph import Graph, Kernel, Node
from opgraph.record.names import canonical
from opgraph.record.run import EventKind, Gap, Link, RunEvent, RunRecord, Slice
from opgraph.traces.alignment import matched, one_run
from opgraph.traces.events import FUSED, Call, Shapes, Trace, Work

NODE_MARK = "opgraph:node:"
STEP_MARK = "opgraph:step:"
_OPTIMIZER = "Optimizer.step#"
_STEPS = (STEP_MARK, "ProfilerStep#")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_WHOLE, _PARTIAL = 0.8, 0.2
"""A run is whole when it matches this share of what the fullest run of the trace matches, and none below
the other: then it is something else with the same operators."""

_LEAST = 0.05
_ENOUGH: dict[Link, float] = {"alignment": _LEAST, "names": 0.5, "kernels": 0.5}
"""The share of the graph that a run has at least: with shapes, and by names alone, which say little unless
the rest is in compiled kernels."""
_ALIKE = 0.9

_CONVOLUTION = re.compile(
    "^(?!.*nchwtonhwc|.*nhwctonchw).*(?:conv|cudnn|miopen|igemm|winograd|implicit)"
)
_CALLED = {
    "matmul": re.compile("gemm|gemv|cutlass|cijk_|xmma|nvjet|cublas|wgmma"),
    "convolution": _CONVOLUTION,
    "grouped_convolution": _CONVOLUTION,
    "depthwise_convolution": _CONVOLUTION,
    "attention": re.compile("flash|fmha|attn|attention"),
    "normalization": re.compile("norm|rowwisemoments|bn_fw"),
    "softmax": re.compile("softmax"),
    "pooling": re.compile("pool"),
    "copy": re.compile("copy_kernel|copy_device|memcpy"),
}
"""What kernels of a class of work are called in cuBLAS, cuDNN, CUTLASS, hipBLASLt, MIOpen, Composable
Kernel, Triton and torch's own sources."""
_ALSO = {
    "relu": "(?:relu|clamp)",
    "eq": "(?:eq|compareeq)",
    "all": "(?:all|and)_kernel",
    "embedding": "index",
    "arange": "elementwise_kernel_with_index",
}

Nodes = tuple[int, ...]
Signature = tuple[str, Shapes]
_Key = tuple[str, Nodes, EventKind, Link, str, int, int]


def join(graph: Graph, traces: Sequence[Trace]) -> RunRecord:
    """What ran, on the nodes of the graph, summed over all runs of it that the traces hold whole."""
    positions = _Positions.of(graph)
    ranks = [_Rank(graph, positions, trace).joined() for trace in traces]
    first = traces[0]
    shown = ranks[0]
    rows = _Rows()
    for rank in ranks:
        rows.update(rank.rows)
    events, index = rows.events()
    begin = min((start for start, *_ in shown.slices), default=0.0)
    timeline = tuple(
        Slice((start - begin) * 1e-6, seconds, index[key], stream, first.rank)
        for start, seconds, key, stream in sorted(shown.slices, key=lambda s: s[0])
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
        memory=_memory(first),
        profiled=tuple(s for rank in ranks for s in rank.seconds),
        steps=max(1, *(len(rank.seconds) for rank in ranks)),
        ranks=len(traces),
        notes=tuple(notes),
        versions=dict(first.versions),
        partial=partial.events()[0],
    )


def _memory(trace: Trace) -> tuple[tuple[float, int], ...]:
    rows = sorted(trace.host_memory if trace.device == "cpu" else trace.memory)
    return tuple(((at - rows[0][0]) * 1e-6, held) for at, held in rows)


_DISPATCH = "PythonDispatchMode"


@lru_cache(maxsize=4096)
def _canonical(name: str) -> str:
    """One name of an operator ("add" for "aten::add_" and "aten.add.Tensor"), on any device: for attention,
    and without `foreach`, whose loop over the weights is the same work."""
    found = canonical(name.rpartition("::")[2].removeprefix("aten.").partition(".")[0])
    if found.startswith("scaled_dot_product") and "attention" in found:
        return f"scaled_dot_product_attention{'_backward' if found.endswith('_backward') else ''}"
    return found.removeprefix("foreach_")


def _ordered(shapes: Iterable[tuple[int | str, ...]]) -> Shapes:
    """The shapes of all tensors that have any sizes, in one order."""
    return tuple(sorted(s for s in shapes if s and all(isinstance(d, int) for d in s)))  # type: ignore[misc]


@dataclass
class _Positions:
    """The graph as a sequence of what does work, and what each signature may be in it: apart for the
    backward, whose products look like those of the forward."""

    nodes: list[Node]
    signatures: tuple[dict[Signature, int], dict[Signature, int]]
    names: tuple[dict[str, int], dict[str, int]]
    forward: dict[int, list[int]]
    kernels: list[Kernel | None]
    works: int
    """How many of the positions do work, and are no views."""
    meant: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> _Positions:
        nodes: list[Node] = []
        found: tuple[dict[Signature, int], ...] = ({}, {})
        names: tuple[dict[str, int], ...] = ({}, {})
        forward: dict[int, list[int]] = {}
        done: list[Kernel | None] = []

        def note(side: int, op: str, shapes: Iterable[tuple[int | str, ...]], at: int) -> None:
            key = (op, _ordered(shapes))
            found[side][key] = found[side].get(key, 0) | 1 << at
            names[side][op] = names[side].get(op, 0) | 1 << at

        for node in graph.nodes:
            if node.kind != "call":
                continue
            if node.forward is not None:
                forward.setdefault(node.forward, []).append(len(nodes))
            backward = node.phase in ("backward", "recompute")
            # What the backward begins with is called from outside of autograd's engine.
            sides = (0, 1) if backward and node.forward is None else (int(backward),)
            inputs = [graph.value[v].shape for v in node.inputs]
            kernels = [k for k in node.kernels if k.cost != "zero"]
            for side in sides:
                note(side, _canonical(node.op), inputs, len(nodes))
                note(side, _canonical(node.target.rpartition(".")[2]), inputs, len(nodes))
                for i, kernel in enumerate(kernels):
                    op, at = _canonical(kernel.op), len(nodes) + i
                    note(side, op, kernel.shapes, at)
                    note(side, op, kernel.shapes + kernel.out_shapes, at)  # `out=` is an input, too
            nodes += [node] * max(1, len(kernels))
            done += kernels or [None]
        works = sum(k is not None for k in done)
        return cls(nodes, (found[0], found[1]), (names[0], names[1]), forward, done, works)

    def mask(self, call: Call, *, backward: bool, shaped: bool) -> int:
        """The positions that a call of the host may have."""
        op = _canonical(call.name)
        if not shaped:
            return self.names[backward].get(op, 0)
        if call.shapes is None:
            return 0
        return self.signatures[backward].get((op, _ordered(call.shapes)), 0)

    def kernel_mask(self, name: str) -> int | None:
        """The positions whose kernels a name may mean; None for a name that says nothing."""
        if name not in self.meant:
            text, mask = name.lower(), 0
            if FUSED.match(name):
                return None
            alike = {k: _means(text, k) for k in set(self.kernels) if k is not None}
            for at, kernel in enumerate(self.kernels):
                if kernel is not None and alike[kernel]:
                    mask |= 1 << at
            self.meant[name] = mask or None
        return self.meant[name]


def _means(name: str, kernel: Kernel) -> bool:
    """Whether the name of a device's kernel (in lower case) is that of an operator's work: by what kernels
    of its class are called in the libraries of all makers, or by the operator's own name in it."""
    op = _canonical(kernel.op)
    if op == "cat" or "catarray" in name:
        return op == "cat" and "catarray" in name
    called = _CALLED.get(kernel.category)
    if called is not None:
        return called.search(name) is not None
    return re.search(rf"(?<![a-z]){_ALSO.get(op) or re.escape(op)}", name) is not None


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
class _Run:
    """One run of the graph in a trace: which items of the sequence are in it, between which times."""

    items: range
    start: float
    end: float
    matches: int
    whole: bool = True


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


class _Rank:
    """The join of one trace."""

    def __init__(self, graph: Graph, positions: _Positions, trace: Trace) -> None:
        self.graph, self.positions, self.trace = graph, positions, trace
        self.calls = sorted(
            (c for c in trace.calls if c.kind != "module"),
            key=lambda c: (str(c.thread), c.start, -c.end),
        )
        self.marked = any(c.name.startswith(NODE_MARK) for c in self.calls)
        self.shaped = any(c.shapes is not None for c in self.calls)
        count = len(self.calls)
        self.parent = [-1] * count
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

    # The host's calls as a tree, and the kernels in it.

    def _nest(self) -> None:
        calls, positions = self.calls, self.positions
        stack: list[int] = []
        thread: object = None
        known: dict[tuple[str, Shapes | None, bool], int | None] = {}
        for i, call in enumerate(calls):
            if call.thread != thread:
                stack, thread = [], call.thread
            while stack and calls[stack[-1]].end <= call.start:
                stack.pop()
            took = call.end - call.start
            self.own[i] = took * 1e-6
            if stack:
                above = self.parent[i] = stack[-1]
                self.own[above] = max(0.0, self.own[above] - took * 1e-6)
                self.backward[i] = self.backward[above]
                self.optimizing[i] = self.optimizing[above] or calls[above].name.startswith(
                    _OPTIMIZER
                )
                self.owner[i] = self.owner[above]
                self.covered[i] = max(self.covered[above], self._covers(above))
            if not self.backward[i] and _BACKWARD.search(call.name):
                self.backward[i] = 1
            stack.append(i)
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

    def _name(self, call: int) -> str:
        """What launched something, where it is no mark of ours or of a step."""
        call = self.kernels.get(call, call)
        name = self.calls[call].name if call >= 0 else ""
        return "" if name.startswith((NODE_MARK, *_STEPS)) else name

    def _covers(self, call: int) -> int:
        return (
            2
            if self.calls[call].kind == "operator"
            else self.calls[call].name.startswith(NODE_MARK)
        )

    def _hosts(self) -> list[int]:
        """The call in which each work was launched, or -1."""
        by_external: dict[int, int] = {}
        for i, call in enumerate(self.calls):
            if call.external is not None:
                by_external.setdefault(call.external, i)
        threads: dict[object, tuple[list[float], list[int]]] = {}
        for i, call in enumerate(self.calls):
            starts, ids = threads.setdefault(call.thread, ([], []))
            starts.append(call.start)
            ids.append(i)
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
                    starts, ids = threads.get(launch.thread, ([], []))
                    host = ids[at] if (at := bisect_right(starts, launch.start) - 1) >= 0 else -1
                    while host >= 0 and self.calls[host].end < launch.start:
                        host = self.parent[host]
            elif named >= 0 and external != work.correlation:
                # (Until 2023 both were the driver's number, which is another count.)
                host = named
            found.append(host)
        return found

    # From calls to nodes.

    def joined(self) -> _Found:
        """Everything of this rank."""
        trace, out = self.trace, _Found()
        hosts = self._hosts()
        on_device = trace.device != "cpu"
        steps = self._steps()
        if self.marked:
            runs = [_Run(range(0), c.start, c.end, 1) for c in steps]
        else:
            link: Link = "alignment" if self.shaped else "names"
            if any(_GRAPH in launch.name for launch in trace.launches.values()):
                hosts = self._kernels(hosts, graphs=True)
            items = self._items(hosts if on_device else [*self.masks])
            runs = self._aligned(items, steps, link)
            if not runs and not any(h >= 0 and self.calls[h].kind == "operator" for h in hosts):
                hosts = self._kernels(hosts, graphs=False)
                items = self._items(hosts)
                runs = self._aligned(items, steps, "kernels")
            self._rest(items, runs)
        if not runs:
            runs = [_Run(range(0), float("-inf"), float("inf"), 1)]
        self._account(out, hosts, runs, steps, on_device=on_device)
        return out

    def _items(self, hosts: Sequence[int]) -> list[int]:
        """What is aligned: what launched something, or the outermost call with a signature around it."""
        found = (self.owner[host] if self.owner[host] >= 0 else host for host in hosts if host >= 0)
        return sorted(dict.fromkeys(found), key=lambda i: self.calls[i].start)

    def _steps(self) -> list[Call]:
        found = [c for c in self.calls if c.name.startswith(_STEPS)]
        own = [c for c in found if c.name.startswith(STEP_MARK)]
        return sorted(own or found, key=lambda c: c.start)

    def _kernels(self, hosts: list[int], *, graphs: bool) -> list[int]:
        """Make kernels themselves what is aligned, where no operator is: those of CUDA graphs, or all. What
        launches each, with these in it."""
        work, launches = self.trace.work, self.trace.launches
        of = [launches.get(-1 if w.correlation is None else w.correlation) for w in work]
        found = list(hosts)
        for i in sorted(range(len(work)), key=lambda i: work[i].start):
            launch = of[i]
            if launch is None and any(of):
                continue  # it was launched before the others: `_repeated` finds it
            if graphs and (launch is None or _GRAPH not in launch.name):
                continue
            at = work[i].start if launch is None else launch.start
            found[i] = len(self.calls)
            self.masks[found[i]] = self.positions.kernel_mask(work[i].name)
            self.kernels[found[i]] = hosts[i]
            self.owner.append(found[i])
            self.calls.append(Call(work[i].name, at, at, _DEVICE))
        more = len(self.calls) - len(self.parent)
        self.parent += [-1] * more
        self.own += [0.0] * more
        self.backward += bytes(more)
        self.covered += bytes(more)
        return found

    def _aligned(self, items: list[int], steps: Sequence[Call], link: Link) -> list[_Run]:
        """The runs of the graph, with the nodes of what is aligned in each."""
        positions = self.positions
        width = len(positions.nodes)
        starts = [c.start for c in steps]
        parts: dict[int, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            parts[bisect_right(starts, self.calls[item].start) - 1].append(at)
        known: dict[tuple[int | None, ...], tuple[int, list[int | None]]] = {}
        runs: list[_Run] = []
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
                runs.append(_Run(range(part[low + begin], part[-1] + 1), start, float("inf"),
                                 sum(place is not None for place in places)))  # fmt: skip
                low, first = low + end, False
        return self._kept(items, runs, steps, _ENOUGH[link])

    def _kept(
        self, items: list[int], runs: list[_Run], steps: Sequence[Call], enough: float
    ) -> list[_Run]:
        """The runs that are one, with their ends. What matches little, after a run, is no run: it is work
        of the one before, without nodes."""
        fullest = max(runs, key=lambda run: run.matches, default=None)
        most = fullest.matches if fullest else 0
        works = self.positions.works
        if most < enough * works and fullest:
            asked = [items[at] for at in fullest.items if self.masks.get(items[at], 0) is not None]
            compiled = len(asked) < len(fullest.items)
            enough = _LEAST if compiled and most >= _ALIKE * len(asked) else enough
        if most < enough * works:
            self.nodes.clear()
            return []
        kept: list[_Run] = []
        ends = {id(run): run.items.stop for run in runs}
        for run, after in pairwise(runs):
            run.items = range(run.items.start, min(run.items.stop, after.items.start))
        for run in runs:
            if run.matches >= _PARTIAL * most:
                run.whole = run.matches >= _WHOLE * most
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

    def _rest(self, items: list[int], runs: Sequence[_Run]) -> None:
        """What alignment left in each run: compiled kernels, and calls between two that have a node."""
        if runs:
            self._optimizer()
        order = self.positions.nodes
        first: dict[int, int] = {}
        for at, node in enumerate(order):
            first.setdefault(node.id, at)
        sequences = self._sequences()
        modules = (
            _Modules(self.trace.calls)
            if any(c.kind == "module" for c in self.trace.calls)
            else None
        )
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
                low, waiting = place, []
            left = [items[i] for i in run.items if items[i] not in self.nodes]
            for item in left:
                self._by_sequence(item, sequences, taken)
            if modules is not None:
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
                name = _canonical(call.name)
                late = bool(self.backward[item])
                free = [n for n in between if n not in taken and self._late(n) == late]
                nodes = tuple(islice((n for n in free if name in self._names(n)), 1))
                if nodes:
                    self.nodes[item] = (nodes, "names")
                    between = [n for n in between if n > nodes[0]]
            taken.update(nodes)
        return [n for n in (*before, *between) if n not in taken]

    def _late(self, node: int) -> bool:
        return self.graph.node(node).phase in ("backward", "recompute")

    def _names(self, node: int) -> set[str]:
        found = self.graph.node(node)
        return {_canonical(found.op), *(_canonical(k.op) for k in found.kernels)}

    def _fused(self, name: str, free: Sequence[int]) -> Iterator[int]:
        """The first nodes in a row whose operators are all in the name of a compiled kernel."""
        begun = False
        for node in free:
            ops = _worked(self.graph.node(node))
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
                named.setdefault(_canonical(node.op), (node.id,))
        for i, optimizing in enumerate(self.optimizing):
            if optimizing and self.owner[i] == i and i not in self.nodes:
                nodes = named.get(_canonical(self.calls[i].name))
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
        self, item: int, modules: _Modules, inside: Sequence[tuple[int, Nodes]], taken: set[int]
    ) -> None:
        """A call by the module that it is in, where that has one node of this name that is still free."""
        call = self.calls[item]
        scope = modules.around(call)
        if scope is None:
            return
        scopes = {
            self.graph.node(nodes[0]).scope
            for i, nodes in inside
            if modules.around(self.calls[i]) == scope
        }
        name = _canonical(call.name)
        free = [n for n in self.graph.nodes
                if n.scope in scopes and n.id not in taken and n.op == name]  # fmt: skip
        if len(scopes) == 1 and len(free) == 1:
            self.nodes[item] = ((free[0].id,), "module")
            taken.add(free[0].id)

    # Seconds on nodes.

    def _account(
        self,
        out: _Found,
        hosts: list[int],
        runs: list[_Run],
        steps: Sequence[Call],
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
            key: _Key = (work.name, nodes, work.kind, link, self._name(host), work.stream, rank)
            keys.append(key)
            (out.rows if at >= 0 else out.partial).put(key, work.seconds)
        times = self._times(runs, steps, self._calls_of(out, runs, run_of), where)
        out.seconds = list(times.values())
        middle = sorted(times, key=lambda i: times[i])[len(times) // 2]
        if on_device:
            out.gaps = self._gaps(where, given)
            for work, at, key in zip(trace.work, where, keys, strict=True):
                if at == middle:
                    out.slices.append((work.start, work.seconds, key, work.stream))
        out.slices += [(start, took, key, 0) for at, start, took, key in out.calls if at == middle]
        works = {n.id for n in self.graph.nodes if any(k.cost != "zero" for k in n.kernels)}
        there = works.intersection(n for nodes, _ in self.nodes.values() for n in nodes)
        share = len(there) / max(1, len(works))
        if self.calls and not share:
            out.notes.append(
                "what is in the trace is not this graph: is it the same model and sizes?"
            )
        elif self.calls and share < _WHOLE:
            out.notes.append(f"{share:.0%} of the graph's operators are in the trace")

    def _times(
        self,
        runs: Sequence[_Run],
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
        self, out: _Found, runs: Sequence[_Run], run_of: Callable[[float], int]
    ) -> dict[int, tuple[float, float]]:
        """Rows of the host's own calls; when the outermost ones of each run began and ended."""
        rank, calls, on_device = self.trace.rank, self.calls, self.trace.device != "cpu"
        spans: dict[int, tuple[float, float]] = {}
        # Operators that hand over to a dispatch mode, which calls them again: as we mark a backward.
        handing = {self.parent[i] for i, call in enumerate(calls) if call.name == _DISPATCH}
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
                    key = ("python", (), "python", "", "", 0, rank)
                if self.covered[i] < _BY_OPERATOR:
                    began, ended = spans.get(run, (call.start, call.end))
                    spans[run] = (min(began, call.start), max(ended, call.end))
                    if run >= 0 and not on_device:
                        out.calls.append((run, call.start, (call.end - call.start) * 1e-6, key))
            elif not on_device and (nodes or self.covered[i]):
                key = ("python", nodes, "python", link, "", 0, rank)
            else:
                continue
            (out.rows if run >= 0 else out.partial).put(key, self.own[i])
        if not on_device:
            self._python(out, runs)
        return spans

    def _python(self, out: _Found, runs: Sequence[_Run]) -> None:
        """Rows of the time of each step between operators, at the node of the operator that comes next."""
        starts = {run.start for run in runs}
        for step, call in enumerate(self.calls):
            if not call.name.startswith(_STEPS) or call.start not in starts:
                continue
            before = call.start
            for i in range(step + 1, len(self.calls)):
                inside = self.calls[i]
                if inside.thread != call.thread or inside.start >= call.end:
                    break
                if self.covered[i] or not self._covers(i):
                    continue
                nodes, link = self.nodes.get(self.owner[i], _NOWHERE)
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
            return hosts[i] < 0 if launch is None else _GRAPH in launch.name

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
        outer = [
            c
            for i, c in enumerate(self.calls)
            if c.kind == "operator" and self.covered[i] < _BY_OPERATOR
        ]
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
        if sum(map(bool, masks)) < _ALIKE * len(ours):
            return
        found = matched(masks, len(self.model))
        if sum(f is not None for f in found) >= _ALIKE * len(ours):
            for i, place in zip(ours, found, strict=True):
                if place is not None:
                    yield i, self.model[len(self.model) - 1 - place if last else place]


class _Modules:
    """The calls of modules in a trace, by thread and time."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.threads: dict[object, tuple[list[float], list[Call], list[int]]] = {}
        for call in sorted(
            (c for c in calls if c.kind == "module"), key=lambda c: (c.start, -c.end)
        ):
            starts, rows, parents = self.threads.setdefault(call.thread, ([], [], []))
            parent = len(rows) - 1
            while parent >= 0 and rows[parent].end < call.end:
                parent = parents[parent]
            starts.append(call.start)
            rows.append(call)
            parents.append(parent)

    def around(self, call: Call) -> tuple[object, int] | None:
        """The innermost module that a call is in."""
        starts, rows, parents = self.threads.get(call.thread, ([], [], []))
        at = bisect_right(starts, call.start) - 1
        while at >= 0 and rows[at].end < call.start:
            at = parents[at]
        return (call.thread, at) if at >= 0 else None


_NOWHERE: tuple[Nodes, Link] = ((), "")
_BY_OPERATOR = 2
_DEVICE = "the device itself"
_GRAPH = "GraphLaunch"
"""In the names of the calls of CUDA and HIP that launch a whole graph."""
_PART, _UNKNOWN = -1, -2
"""The run of what is in none that is whole, and of a kernel whose launch is not in the trace."""


def _ids(mark: str, count: int) -> Nodes:
    """The nodes that a mark names, of those that there are."""
    numbers = mark[len(NODE_MARK) :].split(",")
    return tuple(
        n for n in (int(t) for t in numbers if t.isdecimal() and len(t) < 10) if 0 < n <= count
    )


def _worked(node: Node) -> list[str]:
    """The operators of a node's kernels, as they stand in the name of a compiled kernel."""
    found = (k.op.removeprefix("aten.").partition(".")[0] for k in node.kernels if k.cost != "zero")
    return [op.rstrip("_") for op in found]


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
