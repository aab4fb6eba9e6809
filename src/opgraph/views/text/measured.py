"""The section below the table on what was measured: how long a step took and how sure that is, what of it
is on nodes, what was reached of the device's peaks, where most could be gained, and where predictions are
wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.measured.times import Allocated, Measurement, idle, overlap
from opgraph.record import units
from opgraph.record.kinds import Category
from opgraph.record.run import RunRecord
from opgraph.views.terminal import bar, columns, hanging, safe

_ROWS = 8
_DIFFERS = 0.01
"""The share by which two peaks of memory differ before it is said where."""


def measured(found: Measurement) -> Group:
    """The section."""
    run = found.run
    where = safe(run.device_name or run.device)
    if not run.accelerated and run.threads:
        where += f", {units.plural(run.threads, 'thread')}"
    parts: list[RenderableType] = [Text(f"Measured on {where}", style="bold")]
    parts.append(hanging(_facts(found)))
    memory = found.allocated
    if memory is not None and abs(memory.measured - memory.traced) >= _DIFFERS * memory.traced:
        parts += ["", _allocated(memory)]
    if run.exchanges:
        parts += ["", _exchanges(run)]
    if not run.work:
        return Group(*parts)
    parts += ["", _operators(found)]
    if found.costed.device is not None:
        parts += ["", _excess(found), "", _residuals(found)]
    return Group(*parts)


def _facts(found: Measurement) -> Iterator[str]:
    run = found.run
    times = run.repeats or run.profiled
    kind = "plain steps" if run.repeats else "steps of the trace"
    spread = (
        f", median of {len(times):,} {kind}, half of them within ± {units.percent(run.spread)}"
        if len(times) > 1
        else f", one of the {kind}"
    )
    if times:
        took = f"{units.seconds(run.seconds)}{spread}"
        yield f"Step         {took if run.seconds else 'unknown: no time was recorded'}"
    predicted = found.costed.prediction
    if run.seconds and times and predicted is not None and predicted.seconds:
        times_as = run.seconds / predicted.seconds
        yield f"Predicted    {predicted.written}: measured is {times_as:.2f} of that"
    if run.work:
        work = f", {units.seconds(run.work)} of work" if run.seconds else ""
        yield f"On nodes     {units.percent(run.attributed)} of the time of operators{work}"
    for name, seconds in islice(found.elsewhere, 3):
        yield f"             not: {safe(name, 60)}, {units.seconds(seconds)}"
    if found.elsewhere and run.how == "trace":
        made = ", ".join(f"{k} {v}" for k, v in found.costed.profile.versions.items())
        yield f"             the graph is of {safe(made, 200)}: other versions may run other operators"
    if (memory := found.allocated) is not None:
        share = memory.measured / memory.traced - 1 if memory.traced else 0.0
        apart = f"{_sign(share)}{units.percent(abs(share))}"
        yield (f"Memory       {units.size(memory.measured)} allocated by the step at its peak, "
               f"{units.size(memory.traced)} traced ({apart})")  # fmt: skip
        if memory.before:
            yield (f"             {units.size(memory.before)} were there before, "
                   f"{units.size(memory.traced_before)} traced: weights, inputs, state")  # fmt: skip
        for what, node in (("measured", memory.node), ("traced", memory.traced_node)):
            if node is not None:
                at = found.costed.graph.node(node)
                yield f"             the peak as {what} is at {node} {safe(at.name, 50)} ({safe(at.op)})"
    if run.gaps:
        waited = idle(run)
        doing = ", ".join(f"{safe(h, 40)} {units.seconds(s)}" for h, s in waited.hosts[:3])
        launching = units.seconds(waited.launching)
        yield (f"Idle         {units.seconds(waited.seconds)} of a step, {launching} of it waiting for "
               f"launches" + (f", while the host ran {doing}" if doing else ""))  # fmt: skip
    if (moved := overlap(run)).seconds:
        yield (f"Collectives  {units.seconds(moved.seconds)} of a step, {units.percent(moved.hidden)} of "
               "it beside other kernels")  # fmt: skip
    if run.clocks:
        off = units.seconds(max(c.spread for c in run.clocks))
        most = max(abs(c.ahead) for c in run.clocks)
        were = f", which were up to {units.seconds(most)} apart" if most else ""
        few = min(c.count for c in run.clocks)
        yield (f"Ranks        {len(run.clocks) + 1} on one clock{were}: the ends of {few:,} or more "
               f"collectives agree to ± {off}")  # fmt: skip
    if run.overhead:
        share = run.overhead / run.seconds if run.seconds else 0.0
        yield f"Profiler     added {units.percent(share)} to a step, which is taken out"
    if found.mfu is not None:
        yield (f"MFU          {units.percent(found.mfu)}: the model's FLOPs over what the peak at "
               f"{found.costed.main_dtype} computes in that time")  # fmt: skip
    if found.mbu is not None:
        yield (f"MBU          {units.percent(found.mbu)}: weights and cache, read once, over what the "
               "memory moves in that time")  # fmt: skip
    for note in run.notes:
        yield f"Note         {safe(note, 300)}"


def _allocated(found: Allocated) -> Table:
    """Where the peaks of memory differ most."""
    result = columns("held at the peak", "measured", "traced", "difference")
    rows = [row for row in found.alive if row.difference]
    for row in rows[:_ROWS]:
        path = row.path or "no node"
        name = path if not row.op or row.op in path else f"{path} ({row.op})"
        result.add_row(safe(name, 60), units.size(row.measured), units.size(row.traced),
                       f"{_sign(row.difference)}{units.size(abs(row.difference))}")  # fmt: skip
    if rest := rows[_ROWS:]:
        left = sum(r.difference for r in rest)
        more = f"… and {len(rest):,} more"
        result.add_row(more, "", "", f"{_sign(left)}{units.size(abs(left))}")
    return result


def _exchanges(run: RunRecord) -> Table:
    """What ranks exchanged in the whole trace, and how long they waited for the last of them."""
    heads = ("times", "seconds", "waiting before", "waits for rank")
    result = columns("exchanged, the mean of a rank", *heads)
    for each in run.exchanges[:_ROWS]:
        result.add_row(safe(each.name, 50), f"{each.count:,}", units.seconds(each.seconds),
                       units.seconds(each.waiting),
                       f"{each.last} ({each.times:,} of {each.count:,})")  # fmt: skip
    if len(run.exchanges) > _ROWS:
        result.add_row(f"… and {len(run.exchanges) - _ROWS:,} more")
    return result


def _sign(number: float) -> str:
    return "−" if number < 0 else "+"


def _operators(found: Measurement) -> Table:
    """Where the time goes by operator, beside what was predicted."""
    costed, taken = found.costed, dict[str, list[float]]()
    for node in costed.graph.nodes:
        row = taken.setdefault(node.op, [0.0, 0.0, 0.0])
        row[0] += node.id in found.by_node
        row[1] += found.by_node.get(node.id, 0.0)
        row[2] += found.predicted.get(node.id, 0.0)
    rows = sorted(taken.items(), key=lambda i: -i[1][1])
    whole = sum(row[1] for row in taken.values()) or 1.0
    heads = ("predicted",) if costed.device is not None else ()
    result = columns("operator", "nodes", "measured", "% measured", *heads, "")
    for op, (count, seconds, guess) in rows[:_ROWS]:
        more = (units.seconds(guess),) if heads else ()
        result.add_row(safe(op), f"{count:,.0f}", units.seconds(seconds),
                       units.percent(seconds / whole), *more, bar(seconds / whole))  # fmt: skip
    if len(rows) > _ROWS:
        result.add_row(f"… and {len(rows) - _ROWS} more")
    return result


def _excess(found: Measurement) -> Table:
    """What costs most above the roof."""
    heads = ("nodes", "measured", "at the roof", "reached")
    result = columns("costs more than it has to", *heads)
    for item in found.excess[:_ROWS]:
        reached = item.attainable / item.measured if item.measured else 0.0
        path = item.path if item.op in item.path else f"{item.path} ({item.op})"
        result.add_row(safe(path, 60), f"{len(item.nodes):,}", units.seconds(item.measured),
                       units.seconds(item.attainable), units.percent(reached))  # fmt: skip
    return result


def _residuals(found: Measurement) -> Table:
    """The prediction by class of work."""
    result = columns("class of work", "nodes", "measured", "predicted", "measured / predicted")
    for r in found.residuals[:_ROWS]:
        result.add_row(Category(r.category).label, f"{r.nodes:,}", units.seconds(r.measured),
                       units.seconds(r.predicted), f"{r.ratio:.2f}")  # fmt: skip
    return result
