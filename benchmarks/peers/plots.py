"""The plots of the page, as SVG that is the same for the same rows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from adapters import OURS, PEERS
from judge import Board

INK, BLUE, ORANGE = "#1b1f24", "#3b6fd4", "#d9822b"
COLOURS = ("#3b6fd4", "#d9822b", "#2e9e6b", "#b04a8a", "#7a5cc4", "#8a7a4a")
STEPS = ("build", "trace", "save", "load", "table", "draw", "view")


def compared(board: Board, file: Path) -> None:
    """How long each tool takes in plain forwards of the model, a dot for each model."""
    figure, axes = _figure(1, width=8.2, height=4.6)
    tools = [t for t in (OURS, *PEERS) if any(board.ran(t, e) for e in board.entries)]
    medians = {}
    for place, tool in enumerate(reversed(tools)):
        ratios = [r for e in board.entries if (r := board.cell(tool, e).get("ratio"))]
        if not ratios:
            continue
        medians[tool] = statistics.median(ratios)
        colour = BLUE if tool == OURS else "#8b939c"
        axes[0].scatter(ratios, [place] * len(ratios), s=16, alpha=0.45, color=colour, linewidths=0)
        axes[0].plot([medians[tool]] * 2, [place - 0.32, place + 0.32], color=colour, linewidth=2.4)
        axes[0].annotate(f"{medians[tool]:.2g}", (medians[tool], place + 0.33), fontsize=7,
                         ha="center", va="bottom", color=INK)  # fmt: skip
    axes[0].set_yticks(range(len(tools)), list(reversed(tools)))
    axes[0].set_ylim(-0.6, len(tools) - 0.2)
    axes[0].axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axes[0].set_xscale("log")
    axes[0].set_xlabel("CPU time of a call, in plain forwards of the model on one thread")
    _save(figure, file)


def grown(rows: list[dict[str, Any]], file: Path) -> None:
    """Time by the number of layers, by parameters, and by the length of the sequence."""
    from matplotlib.ticker import NullFormatter

    figure, axes = _figure(3, width=11.5, height=3.8)
    series = {
        name: [r for r in rows if r["kind"] == "growth" and r["series"] == name and "trace" in r]
        for name in ("layers", "width", "length")
    }
    marks = {"layers": "nodes", "width": "parameters", "length": "at"}
    labels = ("nodes of the graph (1 to 126 layers)", "parameters", "tokens of the sequence (8B)")
    for panel, (name, found), label in zip(axes, series.items(), labels, strict=True):
        if not found:
            panel.set_visible(False)
            continue
        for colour, step in zip((*COLOURS, "#6b7480"), STEPS, strict=True):
            panel.plot([r[marks[name]] for r in found], [r[step] for r in found], marker="o",
                       markersize=3, linewidth=1.4, color=colour, label=step)  # fmt: skip
        panel.set_xscale("log")
        panel.set_yscale("log")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_minor_formatter(NullFormatter())
        panel.set_xlabel(label)
    axes[0].set_ylabel("CPU seconds")
    drawn = next(panel for panel in axes if panel.lines)
    axes[-1].legend(
        *drawn.get_legend_handles_labels(),
        fontsize="small",
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )
    _save(figure, file)


def _figure(panels: int, width: float, height: float) -> tuple[Any, list[Any]]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "opgraph", "svg.fonttype": "none", "font.size": 9,
                         "font.family": "sans-serif", "font.sans-serif": ["Inter", "Arial", "DejaVu Sans"],
                         "axes.edgecolor": "#8b939c", "text.color": INK, "axes.labelcolor": INK,
                         "xtick.color": INK, "ytick.color": INK})  # fmt: skip
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, panels, n + 1) for n in range(panels)]
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
