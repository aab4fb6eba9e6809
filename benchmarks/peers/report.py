"""The page: docs/benchmarks.md and its plots, from the rows of a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import plots
import processes
from adapters import OURS, PEERS
from judge import TOLERANCE, Board, Row
from models import Entry

REFERENCE = 1.2
"""Seconds in which the machine imports torch on which the goals for processes were set."""

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
AN_OPERATOR = 0.25e-3
"""Seconds of a profile for each operator, at most."""
BUSY = 1.0
"""Load of the machine at the start above which the page says that it was shared."""


def write(rows: list[Row], entries: list[Entry]) -> Path:
    """Write the page and its plots; gives the page's path."""
    board = Board.of(rows, entries)
    plots.compared(board, DOCS / "images" / "benchmarks-peers.svg")
    if any(r["kind"] == "growth" for r in rows):
        plots.grown(rows, DOCS / "images" / "benchmarks-growth.svg")
    parts = [
        *_head(rows),
        *_goals(rows, board, len(entries)),
        *_tools(board),
        *_right(board),
        *_fast(board),
        *_processes(rows),
        *_growth(rows),
        *_conventions(board),
    ]
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return PAGE


def _head(rows: list[Row]) -> Iterator[str]:
    machine = next(r for r in rows if r["kind"] == "machine")
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    shared = (
        f" The machine was shared (load {machine['load']:.0f} on {machine['cores']} cores at the start): "
        "times are of the CPU unless it says otherwise, and ratios come from calls made in turn."
        if machine["load"] > BUSY
        else ""
    )
    yield "# Benchmarks\n"
    yield (
        "Made by one command, `python benchmarks/peers`, which takes up where it was interrupted. Every "
        "tool runs on the same models with the same inputs, in a process of its own, on one thread.\n"
    )
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, no accelerator, {machine['system']}, "
        f"Python {machine['python']}, {machine['date']}.{shared}\n"
    )
    yield f"Versions: {versions}. {_missing(machine)}\n"


def _missing(machine: Row) -> str:
    missing = [k for k, v in machine["versions"].items() if v == "not installed"]
    return f"Not installed: {', '.join(missing)}." if missing else "All of them could be installed."


def _goals(rows: list[Row], board: Board, models: int) -> Iterator[str]:
    """The goals, each with the figure and whether it holds."""
    count = len(board.entries)
    flops = sum(board.flops_right(OURS, e) for e in board.entries)
    parameters = sum(board.parameters_right(OURS, e) for e in board.entries)
    known = sum(board.flops(e) is not None for e in board.entries)
    whole = [e for e in board.entries if board.whole(e)]
    fastest = sum(board.fastest(e) == OURS for e in whole)
    ours = [board.cell(OURS, e) for e in board.entries]
    real = statistics.median(c["ratio"] for c in ours if "ratio" in c)
    fake = statistics.median(c["seconds"] / c["fake"] for c in ours if "fake" in c)
    each = {e.name: s / c["nodes"] for e, c in zip(board.entries, ours, strict=True)
            if (s := c.get("seconds")) and c.get("nodes")}  # fmt: skip
    slow = sorted((n for n in each if each[n] > AN_OPERATOR), key=lambda n: -each[n])
    found = {r["command"]: r for r in rows if r["kind"] == "process"}
    big = found.get("opgraph profile Llama-3.1-405B")
    saved = found.get("opgraph profile saved.json (405B)")
    help_ = found.get("opgraph --help")
    goals = [
        ("right FLOPs on every model", f"{flops} of {known}", flops == known),
        ("right parameters on every model", f"{parameters} of {count}", parameters == count),
        (
            "fastest of all on every model, after imports",
            f"{fastest} of {len(whole)}",
            fastest == len(whole),
        ),
        ("at most one plain forward, median", f"{real:.2f}", real <= 1),
        (
            "at most 0.25 ms an operator on every model",
            f"{len(each) - len(slow)} of {len(each)}; "
            + (
                ", ".join(f"`{n}` {each[n] * 1e3:.2f}" for n in slow)
                or f"{max(each.values()) * 1e3:.2f} ms"
            ),
            not slow,
        ),
        ("at most 2 forwards on fake tensors, median", f"{fake:.2f}", fake <= 2),
    ]
    bert = found.get("opgraph profile bert-base-uncased")
    if bert and processes.BERT in found:
        ratio = bert["cpu"] / found[processes.BERT]["cpu"]
        goals.append(
            (
                "`profile bert-base-uncased` in 1.5 times the imports it needs",
                f"{ratio:.2f}",
                ratio <= 1.5,
            )
        )
    again = [found[name]["cpu"] for name in processes.CACHED if name in found]
    if again:
        goals.append(
            ("its second commands in 0.4 s, worst", f"{max(again):.2f} s", max(again) <= 0.4)
        )
    if big and saved and help_:
        goals += [
            ("Llama-3.1-405B at 4,096 tokens in 6 s", _both(big), big["cpu"] < 6),
            ("and in 1 GB", f"{big['memory'] / 1e6:.0f} MB", big["memory"] < 1e9),
            ("a saved profile of it as a table in 0.3 s", _both(saved), saved["cpu"] < 0.3),
            ("`--help` in 0.2 s", _both(help_), help_["cpu"] < 0.2),
        ]
    yield "| goal | measured | |\n|---|---:|---|"
    yield from (
        f"| {goal} | {figure} | {'holds' if ok else '**missed**'} |" for goal, figure, ok in goals
    )
    yield "\nA goal in seconds of a process holds when its CPU time does."
    if processes.IMPORT in found:
        seconds = found[processes.IMPORT]["cpu"]
        yield (
            f"They were set on a machine that imports torch in {REFERENCE} s; this one takes "
            f"{seconds:.1f} s, {seconds / REFERENCE:.1f} times as long."
        )
    yield ""
    tools = (OURS, *PEERS)
    cells = models * len(tools)
    there = sum(board.tried(t, e) for t in tools for e in board.entries)
    if there < cells:
        yield (
            f"**The run was cut short**: {there} of the {cells} pairs of a tool and one of {models} models "
            "were tried, and all that is said here is of those. The command goes on where it stopped.\n"
        )


def _both(row: Row) -> str:
    return f"{row['cpu']:.2f} s of CPU, {row['wall']:.2f} s"


def _tools(board: Board) -> Iterator[str]:
    count = len(board.entries)
    yield f"## What works: {count} models\n"
    yield (
        "| tool | ran | FLOPs right | parameters right | graph | time in plain forwards (median, worst) | "
        "peak memory (median, most) |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for tool in (OURS, *PEERS):
        tried = [e for e in board.entries if board.tried(tool, e)]
        cells = [board.cell(tool, e) for e in tried if board.ran(tool, e)]
        ratios = [c["ratio"] for c in cells if "ratio" in c]
        memory = [c["rss"] / 1e9 for c in cells]
        counts = tool == OURS or PEERS[tool].unit is not None
        flops = str(sum(board.flops_right(tool, e) for e in board.entries)) if counts else "–"
        says = any(c.get("parameters") is not None for c in cells)
        right = str(sum(board.parameters_right(tool, e) for e in board.entries)) if says else "–"
        graph = sum(c.get("nodes") is not None for c in cells)
        yield (
            f"| {_strong(tool)} | {len(cells)} of {len(tried)} | {flops} | {right} | {graph or '–'} | "
            f"{_spread(ratios, '.2f')} | {_spread(memory, '.2f', ' GB')} |"
        )
    yield "\n![Time in plain forwards, a dot for each model](images/benchmarks-peers.svg)\n"


def _spread(values: list[float], form: str, unit: str = "") -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):{form}}{unit}, {max(values):{form}}{unit}"


def _right(board: Board) -> Iterator[str]:
    counting = [t for t in (OURS, *PEERS) if t == OURS or PEERS[t].unit is not None]
    yield "## FLOPs, model by model\n"
    yield (
        f"✓ is right within {TOLERANCE:.0%}; otherwise how far the tool is off, or that it raised. "
        "The right figure is in GFLOPs.\n"
    )
    yield _row(["model", "", "right", *counting])
    yield _row(["---", "---", "---:", *["---:"] * len(counting)])
    for entry in board.entries:
        right = board.flops(entry)
        figure = "–" if right is None else f"{right / 1e9:.3f}"
        verdicts = [_verdict(board, tool, entry) for tool in counting]
        yield _row([f"`{_name(entry)}`", entry.family, figure, *verdicts])
    yield ""


def _verdict(board: Board, tool: str, entry: Entry) -> str:
    off = board.deviation(tool, entry)
    if not board.tried(tool, entry):
        return ""
    if off is None:
        return "raised" if not board.ran(tool, entry) else "–"
    if abs(off) <= TOLERANCE:
        return "✓"
    return f"{off:+.0%}" if abs(off) < 10 else f"×{off + 1:.0f}"


def _fast(board: Board) -> Iterator[str]:
    yield "## Time after imports, model by model\n"
    yield (
        "CPU time on one thread: a plain forward, one on fake tensors, opgraph's first profile in the "
        "process and a warm one, and the quickest peer (warm). Where opgraph needs values, it runs on real "
        "tensors and there is nothing to compare on fake ones.\n"
    )
    yield _row(
        [
            "model",
            "forward",
            "on fake",
            "opgraph, first",
            "opgraph",
            "quickest peer",
            "opgraph / forward",
        ]
    )
    yield _row(["---", "---:", "---:", "---:", "---:", "---:", "---:"])
    for entry in board.entries:
        cell = board.cell(OURS, entry)
        peers = [(s, t) for t in PEERS if (s := board.seconds(t, entry)) is not None]
        quick = f"{min(peers)[1]} {_ms(min(peers)[0])}" if peers else "–"
        fake = _ms(cell["fake"]) if "fake" in cell else "–"
        yield _row(
            [f"`{_name(entry)}`", _ms(cell.get("real")), fake, _ms(cell.get("first")),
             _ms(cell.get("seconds")), quick, f"{cell['ratio']:.2f}" if "ratio" in cell else "–"]
        )  # fmt: skip
    yield ""
    yield from _faster(board)


def _faster(board: Board) -> Iterator[str]:
    """The peers that are faster, by model: what each does in that time is another thing."""
    rows = []
    for entry in board.entries:
        ours = board.seconds(OURS, entry)
        times = {t: s for t in PEERS if (s := board.seconds(t, entry)) is not None}
        ahead = sorted((s, t) for t, s in times.items() if ours and s < ours)
        if ahead and ours:
            said = ", ".join(f"{t} {ours / s:.1f}×" if s else t for s, t in ahead)
            rows.append(_row([f"`{_name(entry)}`", _ms(ours), said]))
    yield "## Where peers are faster\n"
    yield (
        f"On {len(rows)} of {len(board.entries)} models a peer takes less CPU time than opgraph, by the "
        "factor behind its name. Peers run the model once on real numbers: their time goes by its sizes, "
        "opgraph's by its operators. What they find there stands above.\n"
    )
    yield _row(["model", "opgraph", "peers that are faster, and how much"])
    yield _row(["---", "---:", "---"])
    yield from rows
    yield ""


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _processes(rows: list[Row]) -> Iterator[str]:
    found = [r for r in rows if r["kind"] == "process"]
    if not found:
        return
    yield "## Whole processes\n"
    yield "Interpreter, imports, building and figures: medians of runs made in turn.\n"
    yield "| process | wall | CPU | peak memory |\n|---|---:|---:|---:|"
    for r in found:
        failed = " (it fails)" if r["status"] else ""
        times = f"{r['wall']:.2f} s | {r['cpu']:.2f} s"
        yield f"| `{r['command']}`{failed} | {times} | {r['memory'] / 1e6:.0f} MB |"
    yield ""


def _growth(rows: list[Row]) -> Iterator[str]:
    titles = {
        "layers": "Layers of a Llama of the width of 405B, 1,024 tokens",
        "width": "Parameters, 1,024 tokens",
        "length": "Tokens, Llama-3.1-8B",
    }
    if not any(r["kind"] == "growth" for r in rows):
        return
    yield "## How it grows\n"
    yield "CPU seconds, each row a process of its own; memory is the peak of the process after tracing.\n"
    yield "![Time by layers, parameters and tokens](images/benchmarks-growth.svg)\n"
    for series, title in titles.items():
        yield _row([title, "parameters", "nodes", *plots.STEPS, "memory", "file"])
        yield _row(["---", *["---:"] * 11])
        for r in (r for r in rows if r["kind"] == "growth" and r["series"] == series):
            if "trace" not in r:
                yield _row([str(r["at"]), r.get("error", "")[:80], *[""] * 10])
                continue
            yield _row(
                [f"{r['at']:,}" if isinstance(r["at"], int) else r["at"], f"{r['parameters'] / 1e9:.2f} B",
                 f"{r['nodes']:,}", *(f"{r[s]:.2f}" for s in plots.STEPS),
                 f"{r['memory'] / 1e6:.0f} MB", f"{r['bytes'] / 1e6:.1f} MB"]
            )  # fmt: skip
        yield ""


def _conventions(board: Board) -> Iterator[str]:
    yield "## What is right\n"
    yield (
        "FLOPs are those of the contractions (1 MAC is 2 FLOPs): what torch's own `FlopCounterMode` finds "
        "on a real forward, and where it is blind:\n"
    )
    yield from (f"- `{_name(e)}`: {e.why}." for e in board.entries if e.why)
    units = "; ".join(f"{t} counts {p.unit}" for t, p in PEERS.items() if p.unit)
    yield f"\n{units}. A figure in MACs is right when twice of it is. Parameters count each tensor once.\n"
    yield "The peers need the weights in memory: where one has fewer layers for that, its family says so.\n"
    raised = [
        (tool, e, board.cell(tool, e)["error"])
        for e in board.entries
        for tool in (OURS, *PEERS)
        if board.tried(tool, e) and not board.ran(tool, e)
    ]
    if raised:
        yield "## What raised\n"
        yield "| tool | model | why |\n|---|---|---|"
        yield from (f"| {t} | `{_name(e)}` | {_cell(why)} |" for t, e, why in raised)


def _row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _strong(tool: str) -> str:
    return f"**{tool}**" if tool == OURS else tool


def _name(entry: Entry) -> str:
    return entry.local or entry.name


def _cell(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return plain[:140].replace(str(Path(__file__).parents[2]), "…")
