"""What changed from one profile to another as text: by module, operator or node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opgraph import units
from opgraph.analysis.alignment import Change, Status
from opgraph.analysis.compare import Comparison, NodeChange
from opgraph.views.differences import MARKS, letter, ratio, ratio_of
from opgraph.views.terminal import fit, fit_tail, safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WAYS = ("module", "op", "node")
FITTING_ROWS = 48
TOP_OPERATORS = 15
TOP_NODES = 60


def changes(
    comparison: Comparison, other: int, by: str, depth: int | None, width: int
) -> Iterator[RenderableType]:
    if by == "op":
        yield from _by_op(comparison, other, width)
    elif by == "node":
        yield from _by_node(comparison.nodes(other), other, width)
    else:
        yield from _by_module(comparison.changes[other - 1], other, depth, width)


def _by_module(
    change: Change, other: int, depth: int | None, width: int
) -> Iterator[RenderableType]:
    from rich.text import Text

    if change.status == "same":
        yield "  Nothing differs."
        return
    if depth is None:
        depth = fitting_depth(change)
    shown = [c for c in change.walk(depth) if worth_showing(c)]
    figures = 29
    label = min(width - figures, 50)
    room = width - figures - label - 2
    b = letter(other)
    head = fit("", label) + "FLOPs A".rjust(10) + f"FLOPs {b}".rjust(10) + f"{b} / A".rjust(9)
    yield Text(head + ("  what differs" if room >= 24 else ""), "bold")
    for c in shown:
        mark, style = MARKS[c.status]
        if c.status == "changed" and not c.details:
            mark, style = " ", "dim"
        line = Text(f"{mark} ", style=style, no_wrap=True)
        line.append(fit(f"{'  ' * c.depth}{name_of(c)}", label - 2), style=style)
        line.append(_flops(c))
        if c.details and room >= 24:
            line.append("  " + fit(", ".join(c.details), room).rstrip(), style="dim")
        yield line
        if c.details and room < 24:
            indent = " " * (2 * c.depth + 4)
            yield Text(
                indent + fit(", ".join(c.details), width - len(indent)).rstrip(), style="dim"
            )
    deeper = sum(worth_showing(c) for c in change.walk()) - len(shown)
    if deeper > 0:
        yield Text(f"  … and {deeper} more below; --depth N shows them", style="dim")
    same = sum(1 for c in _unfolded(change) if c == "same")
    if same:
        yield Text(f"  {units.plural(same, 'module')} left out: nothing differs there", style="dim")


def worth_showing(change: Change) -> bool:
    """Not what is the same, nor what costs nothing and only has another shape."""
    if change.status == "same":
        return False
    if change.status != "changed":
        return True
    costly = any(m and (m.parameters or m.cost.bytes) for m in (change.before, change.after))
    return costly or any(not d.startswith("output ") for d in change.details)


def fitting_depth(change: Change) -> int:
    """The deepest level at which the changes still fit a page."""
    deepest = max(c.depth for c in change.walk())
    for depth in range(deepest, 1, -1):
        if sum(worth_showing(c) for c in change.walk(depth)) <= FITTING_ROWS:
            return depth
    return 1


def _unfolded(change: Change, times: int = 1) -> Iterator[Status]:
    """The status of every module, folded ones as often as they occur."""
    times *= change.count
    yield from [change.status] * times
    for child in change.children:
        yield from _unfolded(child, times)


def name_of(change: Change) -> str:
    a, b = change.before, change.after
    new = change.either
    name = new.name or new.cls
    if change.renamed and a is not None and b is not None and new.path:
        name = f"{a.name} → {b.name}"
    times = f" × {change.count}" if change.count > 1 else ""
    return f"{name}{times}  {new.cls if new.name else ''}".rstrip()


def _flops(change: Change) -> str:
    """FLOPs before and after; where there are none on either side, the traffic."""
    a, b = change.before, change.after
    flops = [None if m is None else m.flops for m in (a, b)]
    if any(flops):
        cells = ["—" if f is None else units.count(f) for f in flops]
        return "".join(c.rjust(10) for c in cells) + ratio_of(flops)
    traffic = [None if m is None else m.bytes for m in (a, b)]
    if any(traffic):
        cells = ["—" if t is None else units.size(t) for t in traffic]
        return "".join(c.rjust(10) for c in cells) + ratio_of(traffic)
    return " " * 29


def _by_op(comparison: Comparison, other: int, width: int) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    changes = [c for c in comparison.operators(other) if not c.same]
    if not changes:
        yield "  Nothing differs."
        return
    roomy = width >= 110
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("", width=1)
    table.add_column("operator", no_wrap=True, overflow="ellipsis", max_width=30)
    b, share = letter(other), f"{letter(other)} / A"
    for head in ("nodes A", b, "FLOPs A", b, share) + (("traffic A", b, share) * roomy):
        table.add_column(head, justify="right", no_wrap=True)
    for c in changes[:TOP_OPERATORS]:
        status: Status = (
            "added" if c.before is None else "removed" if c.after is None else "changed"
        )
        mark, style = MARKS[status]
        sides = (c.before, c.after)
        flops = [0 if s is None else s.flops for s in sides]
        traffic = [0 if s is None else s.bytes for s in sides]
        cells = [str(s.count) if s else "—" for s in sides]
        cells += [units.count(f) if f else "—" for f in flops] + [_known_ratio(flops)]
        if roomy:
            cells += [units.size(t) if t else "—" for t in traffic] + [_known_ratio(traffic)]
        table.add_row(mark, Text(safe(c.op), style=style), *cells)
    yield table
    if len(changes) > TOP_OPERATORS:
        yield Text(f"  … and {len(changes) - TOP_OPERATORS} more", style="dim")


def _known_ratio(values: Sequence[int]) -> str:
    return ratio(*values) if any(values) else ""


def _by_node(changes: Sequence[NodeChange], other: int, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    if not changes:
        yield "  Nothing differs."
        return
    module = None
    yield Text(
        "    " + "".join(f"{h:>5} " for h in (f"# {letter(0)}", f"# {letter(other)}")), "bold"
    )
    for change in changes[:TOP_NODES]:
        if (change.module, change.count) != module:
            module = (change.module, change.count)
            times = f"  × {change.count}" if change.count > 1 else ""
            yield Text(
                fit_tail((change.module or "(root)") + times, width - 1).rstrip(), style="bold"
            )
        yield _node_line(change)
    if len(changes) > TOP_NODES:
        yield Text(f"… and {units.plural(len(changes) - TOP_NODES, 'more node')}; "
                   "--json has them all", style="dim")  # fmt: skip


def _node_line(change: NodeChange) -> Text:
    from rich.text import Text

    a, b = change.before, change.after
    status: Status = "added" if a is None else "removed" if b is None else "changed"
    mark, style = MARKS[status]
    node = b or a
    line = Text(f"  {mark} ", style=style)
    if node is None:
        return line
    ids = f"{a.id if a else '—':>5} {b.id if b else '—':>5}  "
    line.append(ids, style="dim")
    line.append(fit(node.op, 30), style=style)
    flops = [None if n is None else n.flops for n in (a, b)]
    traffic = [None if n is None else n.bytes for n in (a, b)]
    values, form = (flops, units.count) if any(flops) else (traffic, units.size)
    for value in values:
        line.append(("—" if value is None else form(value) if value else "free").rjust(11))
    line.append(ratio_of(values))
    return line
