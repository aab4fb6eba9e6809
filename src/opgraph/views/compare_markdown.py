"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from opgraph import units
from opgraph.analysis.alignment import Change
from opgraph.analysis.compare import Comparison
from opgraph.views.changes import fitting_depth, name_of, worth_showing
from opgraph.views.compare import known, verdict
from opgraph.views.differences import MARKS, letter, ratio, ratio_of
from opgraph.views.listing import markdown_cell


def comparison_markdown(comparison: Comparison, *, depth: int | None = None) -> str:
    """The comparison as Markdown, for a comment on a pull request: totals, gates, and what changed,
    folded away."""
    letters = [letter(i) for i in range(len(comparison.profiles))]
    lines = [
        *(
            f"**{x}** {markdown_cell(label)}  "
            for x, label in zip(letters, comparison.labels, strict=True)
        ),
        "",
        "| | " + " | ".join(["A", *(f"{x} | {x} / A" for x in letters[1:])]) + " |",
        "|---" + "|---:" * (2 * len(letters) - 1) + "|",
    ]
    for q, first, values in known(comparison):
        cells = [cell for v in values for cell in (q.format(v), ratio(first, v))]
        lines.append(f"| {q.label} | " + " | ".join([q.format(first), *cells]) + " |")
    if comparison.verdicts:
        lines.append("")
        lines += [f"- {'❌' if v.broken else '✅'} `{v.gate.text}`: {verdict(comparison, v)}"
                  for v in comparison.verdicts]  # fmt: skip
    for x, change in zip(letters[1:], comparison.changes, strict=True):
        lines += ["", *_markdown_changes(change, x, depth)]
    return "\n".join(lines) + "\n"


def _markdown_changes(change: Change, name: str, depth: int | None) -> Iterator[str]:
    if change.status == "same":
        yield f"From A to {name}, no module differs."
        return
    depth = fitting_depth(change) if depth is None else depth
    yield from (
        f"<details><summary>What changed from A to {name}, by module</summary>",
        "",
        "| | module | FLOPs before | after | | what differs |",
        "|---|---|---:|---:|---:|---|",
    )
    for c in change.walk(depth):
        if worth_showing(c):
            path = "\u2003" * c.depth + name_of(c)
            values = [None if m is None else m.flops for m in (c.before, c.after)]
            flops = ["—" if v is None else units.flops(v) for v in values]
            cells = [
                MARKS[c.status][0],
                path,
                *flops,
                ratio_of(values).strip(),
                ", ".join(c.details),
            ]
            yield "| " + " | ".join(map(markdown_cell, cells)) + " |"
    yield from ("", "</details>")
