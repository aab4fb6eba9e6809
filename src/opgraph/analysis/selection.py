"""Which nodes of a graph are meant: ranges and filters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

from opgraph.analysis.costed import CostedRecord
from opgraph.record.errors import RenderError, did_you_mean
from opgraph.record.graph import Graph, Node

# Who reads what: edges between nodes, also where only some of the nodes are listed.


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from a listed node, direct or by way of hidden ones."""

    source: int
    direct: bool = True


def edges(graph: Graph, listed: Iterable[int]) -> dict[int, tuple[Edge, ...]]:
    """The edges into each listed node, by its id, from listed nodes.

    Where nodes in between are not listed, what they pass on counts as read from the listed nodes
    behind them; such indirect edges are kept only where no longer way over listed nodes says the same
    (the transitive reduction), so that a residual stream is one line and not a hundred.
    """
    wanted = sorted(set(listed))
    if not wanted:
        return {}
    position = {node: bit for bit, node in enumerate(wanted)}
    behind: dict[int, int] = {}  # of listed nodes: all listed nodes before them, as bits
    passed: dict[int, int] = {}  # of hidden nodes: the listed nodes whose results they carry
    found: dict[int, tuple[Edge, ...]] = {}
    for node in graph.nodes[wanted[0] - 1 : wanted[-1]]:
        direct = indirect = 0
        for source in graph.reads(node):
            if source in position:
                direct |= 1 << position[source]
            else:
                indirect |= passed.get(source, 0)
        if node.id not in position:
            passed[node.id] = direct | indirect
            continue
        indirect = _reduced(indirect & ~direct, direct, wanted, behind)
        for bit in _bits(direct | indirect):
            behind[node.id] = behind.get(node.id, 0) | behind.get(wanted[bit], 0) | 1 << bit
        found[node.id] = tuple(
            Edge(wanted[bit], bool(direct >> bit & 1)) for bit in _bits(direct | indirect)
        )
    return found


def _reduced(candidates: int, direct: int, wanted: list[int], behind: dict[int, int]) -> int:
    """The candidates that are behind no other and no direct source."""
    covered = 0
    for bit in _bits(direct):
        covered |= behind.get(wanted[bit], 0)
    kept = 0
    for bit in reversed(list(_bits(candidates))):
        if not covered >> bit & 1:
            kept |= 1 << bit
            covered |= behind.get(wanted[bit], 0)
    return kept


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def heaviest_path(read: Sequence[Sequence[int]], weights: Sequence[float]) -> list[int]:
    """The ids of the chain of nodes that weighs most.

    Each reads what the one before it made. `read` has the ids of the nodes that every node reads, `weights`
    what it weighs.
    """
    best, behind = [0.0], [0]
    for made, weight in zip(read, weights, strict=True):
        source = max(made, key=best.__getitem__, default=0)
        best.append(weight + best[source])
        behind.append(source)
    path = [max(range(len(best)), key=best.__getitem__)]
    while behind[path[-1]]:
        path.append(behind[path[-1]])
    return path[::-1] if path[0] else []


CONTEXT = 10
"""Nodes shown on each side of the one that is asked for."""


class SelectionError(RenderError):
    """A range that cannot be meant."""


@dataclass(frozen=True, slots=True)
class Range:
    """Nodes by number, 1-based and inclusive.

    In one of three ways: from `start` to `end` (either may be left out), `context` nodes on each side
    `around` one, or the first `count`.
    """

    start: int | None = None
    end: int | None = None
    around: int | None = None
    context: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        given = {
            "--start and --end": self.start is not None or self.end is not None,
            "--around": self.around is not None,
            "--max-nodes": self.count is not None,
        }
        ways = [way for way, asked in given.items() if asked]
        if len(ways) > 1:
            raise SelectionError(f"{' and '.join(ways)} are two ways to say which nodes: give one")
        if self.context is not None and self.around is None:
            raise SelectionError("--context goes with --around N")
        for name, value, least in (
            ("--start", self.start, 1),
            ("--end", self.end, 1),
            ("--around", self.around, 1),
            ("--context", self.context, 0),
            ("--max-nodes", self.count, 1),
        ):
            if value is not None and value < least:
                raise SelectionError(f"{name} is {value}: it takes a number of at least {least}")
        if self.start is not None and self.end is not None and self.start > self.end:
            raise SelectionError(f"--start {self.start} is after --end {self.end}")

    def bounds(self, nodes: int) -> tuple[int, int, str | None]:
        """The first and the last node, and a note where clipped.

        Raises `SelectionError` when it lies wholly outside.
        """
        if self.around is not None:
            if self.around > nodes:
                raise SelectionError(f"there is no node {self.around}: the last one is {nodes}")
            context = CONTEXT if self.context is None else self.context
            return max(1, self.around - context), min(nodes, self.around + context), None
        first, last = self.start or 1, self.end or nodes
        if first > nodes:
            raise SelectionError(f"there is no node {first}: the last one is {nodes}")
        if last > nodes:
            return first, nodes, f"clipped: there is no node {last}, the last one is {nodes}"
        return first, last, None


@dataclass(frozen=True, slots=True)
class Filter:
    """What a node must be to be listed.

    Its operator (a pattern), its module (a pattern of paths, or the path of a module with all below
    it), what bounds it, the FLOPs it takes at least, and a text that occurs in its name, operator,
    class, arguments or source.
    """

    op: str | None = None
    module: str | None = None
    bottleneck: str | None = None
    min_flops: float | None = None
    text: str | None = None

    def __bool__(self) -> bool:
        return self != Filter()


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes that are meant, in order.

    Whether they are neighbours, how many more were left out to keep the list short, and what there is
    to say.
    """

    nodes: tuple[Node, ...]
    contiguous: bool
    omitted: int = 0
    notes: tuple[str, ...] = ()


def select(
    costed: CostedRecord,
    where: Range | None = None,
    which: Filter | None = None,
    *,
    limit: int | None = None,
) -> Selection:
    """The nodes in a range that pass a filter.

    `limit` keeps a filter's answer to that many, where no range says how many are wanted. Raises
    `SelectionError` for a range outside the graph, and for an operator, a module or a text that it does
    not have.
    """
    graph = costed.graph
    where, which = where or Range(), which or Filter()
    if not graph.nodes:
        return Selection((), contiguous=True, notes=("the graph has no nodes",))
    first, last, note = where.bounds(len(graph.nodes))
    notes = [note] if note else []
    found = graph.nodes[first - 1 : last]
    if which:
        passes = _test(costed, which)
        found = tuple(n for n in found if passes(n))
        if not found:
            notes.append("no node passes")
        most = where.count or (limit if where == Range() else None)
    else:
        most = where.count
        if most is not None and most > len(graph.nodes):
            notes.append(f"clipped: the graph has {len(graph.nodes)} nodes")
    kept = found[:most]
    contiguous = bool(kept) and kept[-1].id - kept[0].id == len(kept) - 1
    omitted = len(found) - len(kept) if which else 0
    return Selection(kept, contiguous, omitted, tuple(notes))


def _test(costed: CostedRecord, which: Filter) -> Callable[[Node], bool]:
    graph = costed.graph
    tests: list[Callable[[Node], bool]] = []
    if which.op is not None:
        _check_operator(graph, which.op)
        op = re.compile(translate(which.op.lower()))
        tests.append(lambda n: op.match(n.op.lower()) is not None)
    if which.module is not None:
        module = module_meant(graph, which.module)
        tests.append(lambda n: matches(module, n.scope))
    if which.bottleneck is not None:
        known, bound = {b.bound.value for b in costed.bounds}, which.bottleneck
        if bound not in known:
            on = "without a device" if costed.device is None else f"on {costed.device.name}"
            raise SelectionError(
                f"{on}, nodes are bound by {', '.join(sorted(known))}, not by {bound}"
            )
        tests.append(lambda n: costed.node_bounds.get(n.id) == bound)
    if which.min_flops is not None:
        least = which.min_flops
        tests.append(lambda n: n.flops >= least)
    if which.text is not None:
        text = which.text.casefold()
        if not any(text in t.casefold() for n in graph.nodes for t in _texts(graph, n)):
            raise SelectionError(
                f"no node has {which.text!r:.80} in its name, class, arguments or source",
                hint="--op takes an operator, --module a path: opgraph explore shows both",
            )
        tests.append(lambda n: any(text in t.casefold() for t in _texts(graph, n)))
    return lambda n: all(test(n) for test in tests)


def _texts(graph: Graph, node: Node) -> Iterable[str]:
    yield from (node.name, node.op, node.target, node.arguments, graph.scope[node.scope].cls)
    yield node.file or ""
    yield from (k.op for k in node.kernels)


def module_meant(graph: Graph, pattern: str) -> str:
    """The pattern as one of whole paths: as it is, or with what stands before it where it is the end of
    paths, and the highest of these are in one module.

    Raises `SelectionError`, with near paths, where no module is meant, or several are.
    """
    if any(matches(pattern, path) for path in graph.scope):
        return pattern
    ends = {
        path[: -len(end) - 1]: path
        for path in graph.scope
        for end in _ends(path)
        if pattern and matches(pattern, end, below=False)
    }
    top = min((before.count(".") for before in ends), default=0)
    highest = [before for before in ends if before.count(".") == top]
    if len(highest) == 1:
        return f"{highest[0]}.{pattern}"
    paths = [path for path in graph.scope if path]
    tops = ", ".join([path for path in paths if "." not in path][:6])
    if highest:
        listed = ", ".join(f"{before}.{pattern}" for before in highest[:3])
        hint: str | None = f"*.{pattern} means all of {listed}" + " …" * (len(highest) > 3)
    else:
        hint = did_you_mean(pattern, paths, cutoff=0.5) or (f"there are {tops}" if tops else None)
    raise SelectionError(f"there is no module {pattern!r:.80}", hint=hint)


def _ends(path: str) -> Iterator[str]:
    """The ends of a path, without the whole."""
    _, dot, end = path.partition(".")
    while dot:
        yield end
        _, dot, end = end.partition(".")


def _check_operator(graph: Graph, pattern: str) -> None:
    known = Counter(n.op for n in graph.nodes if n.kind == "call")
    if any(re.match(translate(pattern.lower()), n.op.lower()) for n in graph.nodes):
        return
    common = ", ".join(f"{op} × {n}" for op, n in known.most_common(6))
    raise SelectionError(
        f"there is no operator {pattern!r:.80}",
        hint=did_you_mean(pattern.lower(), known) or (f"there are {common}" if common else None),
    )


def matches(pattern: str, path: str, *, below: bool = True) -> bool:
    """Whether the pattern means a module's path.

    `*` and `?` stand for any characters, `[0-11]` for the numbers from 0 to 11 and `[0-30:6]` for every
    sixth of them, as tables print them; a path without `*` means the module with all that is `below`
    it.
    """
    return _pattern(pattern, below).fullmatch(path) is not None


def stem(pattern: str) -> str:
    """The path as far as a pattern says one module alone."""
    plain = re.split(r"[\[*?]", pattern, maxsplit=1)[0]
    return pattern if plain == pattern else plain.rpartition(".")[0]


@cache
def _pattern(pattern: str, below: bool) -> re.Pattern[str]:
    parts = re.split(r"(\[\d+-\d+(?::\d+)?\]|\*|\?)", pattern)
    text = "".join(_piece(part) for part in parts)
    return re.compile(text + r"(\..*)?" if pattern and below and "*" not in pattern else text)


def _piece(part: str) -> str:
    if part == "*":
        return ".*"
    if part == "?":
        return "."
    span = re.fullmatch(r"\[(\d+)-(\d+)(?::(\d+))?\]", part)
    if span and int(span[2]) - int(span[1]) < 10_000:
        numbers = range(int(span[1]), int(span[2]) + 1, max(int(span[3] or 1), 1))
        return "(?:" + "|".join(map(str, numbers)) + ")"
    return re.escape(part)
