"""The words in and around boxes, short and safe: text from a model is cut to what can be read, without
control characters."""

from __future__ import annotations

from urllib.parse import quote

from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Shape
from opgraph.views.picture.coloring import Coloring
from opgraph.views.picture.model import Box, Drawing, Edge
from opgraph.views.terminal import safe

SMALLEST = 0.0005
"""Shares below this are not said."""

NAME = 60
LONG = 400


def plain(text: str, limit: int = NAME) -> str:
    """Text of a model in one line, without control characters."""
    return safe(" ".join(text[: 4 * limit].split()), limit)


def shape(dims: Shape | None) -> str:
    """1×64×112×112, as it stands in pictures."""
    return "" if dims is None else plain("×".join(map(str, dims)) or "scalar", 40)


def title(box: Box) -> str:
    """The name that stands at the top of a box."""
    return plain(box.name) or plain(box.cls) or box.kind


def kind(box: Box) -> str:
    """Class or operator, whichever the title does not say."""
    if box.kind in ("input", "output"):
        return box.dtype
    return plain(box.decided or box.cls or ("" if box.op == box.name else box.op), 40)


def costs(box: Box) -> str:
    """Parameters and FLOPs of one repetition, as far as there are any."""
    parts = []
    if box.parameters:
        parts.append(f"{units.count(box.parameters)} params")
    elif box.tied:
        parts.append("reused weights" if box.turn > 1 else "tied weights")
    if box.cost.flops:
        parts.append(units.flops(box.cost.flops))
    return " · ".join(parts)


def figures(box: Box, coloring: Coloring) -> str:
    """What one repetition of a box costs, by what the colours mean."""
    found = coloring.values.get(box.id) or costs(box)
    return f"each {found}" if found and box.times > 1 else found


def shares(box: Box, coloring: Coloring) -> tuple[str, str]:
    """The share of the whole that a box has, and where it stands for repetitions, before it the share that
    each has and how often it runs: ("each 2.7 % × 12", "32.4 % of the total")."""
    share = coloring.shares.get(box.id, 0.0)
    if share < SMALLEST:
        return "", ""
    if box.times == 1:
        return "", f"{units.percent(share)} {coloring.whole}"
    each = f"each {units.percent(share / box.times)}" if share / box.times >= SMALLEST else ""
    return f"{each} × {box.times}".strip(), f"{units.percent(share)} {coloring.whole}"


def share_text(box: Box, coloring: Coloring) -> str:
    """The same in one piece: 2.7 % × 12 = 32.4 % of the total."""
    return " = ".join(part for part in shares(box, coloring) if part)


def headers(box: Box, coloring: Coloring) -> tuple[str, str, str]:
    """The costs of an open box, each and of all; and what of that is said where there is less room."""
    said = (figures(box, coloring), share_text(box, coloring))
    return " · ".join(part for part in said if part), said[1], shares(box, coloring)[1]


def badge(box: Box) -> str:
    """How often a box ran, or which call of its module it is, where that is worth saying: not of an
    activation that a block uses twice."""
    if box.count > 1:
        return f"× {box.count}"
    worth = box.kind == "module" or box.parameters or box.tied
    return f"call {box.turn} of {box.turns}" if box.turns > 1 and worth else ""


def numbers(box: Box) -> str:
    """The numbers of the nodes in a box, as `explore` takes them."""
    if box.kind not in ("operator", "module", "input", "output"):
        return ""
    return f"#{box.first}" if box.first == box.last else f"#{box.first}–{box.last}"


def tooltip(box: Box, coloring: Coloring) -> str:
    """All that is known of a box, a line each."""
    total = box.total
    share = coloring.shares.get(box.id, 0.0)
    said = units.percent(share)
    if box.times > 1:
        said = f"{units.percent(share / box.times)} each, × {box.times}: {said}"
    lines = [
        plain(box.path or box.name, LONG),
        " · ".join(p for p in (plain(box.cls, 80), plain(box.op, 80), numbers(box)) if p),
    ]
    if box.shape is not None:
        lines.append(f"output {shape(box.shape)} {box.dtype}")
    if box.arguments:
        lines.append(f"arguments {plain(box.arguments, LONG)}")
    if box.times > 1:
        lines.append(f"{box.times} repetitions; figures are of all of them")
    if box.all_parameters:
        lines.append(f"{units.integer(box.all_parameters)} parameters")
    if box.tied:
        lines.append(f"shares {plain(', '.join(box.tied), LONG)}")
    if total.kernels:
        lines += [
            f"{units.flops(total.flops)}, {units.macs(total.macs)}, "
            f"{units.flops(total.other_flops)} in other work",
            f"{units.size(total.read)} read, {units.size(total.written)} written, "
            f"{units.intensity(total.arithmetic_intensity)} FLOPs/byte",
            f"{units.plural(total.kernels, 'kernel')}"
            + (f", {total.unknown:,} of unknown cost" if total.unknown else ""),
            f"{said} of {coloring.measure}",
        ]
    if box.operators > 1:
        lines.append(units.plural(box.operators, "operator"))
    if box.file:
        lines.append(f"{plain(box.file, LONG)}:{box.line}")
    lines += [plain(line, LONG) for line in (coloring.notes.get(box.id, ""), *box.lines)]
    if box.error:
        lines.append(plain(box.error, LONG))
    if box.doc:
        lines.append(plain(box.doc, LONG))
    return "\n".join(line for line in lines if line)


def edge_tooltip(edge: Edge, drawing: Drawing) -> str:
    """From where to where, and what."""
    ends = (drawing.box[edge.source], drawing.box[edge.target])
    line = " → ".join(plain(b.path or b.name, 120) for b in ends)
    count = len(edge.values)
    what = f"{shape(edge.shape)} {edge.dtype}"
    if count > 1:
        what = f"{units.plural(count, 'tensor')}, the first {what}"
    return f"{line}\n{what}, {units.size(edge.bytes)}"


def source_link(box: Box, template: str | None) -> str | None:
    """The link to a box's source line, by the template."""
    if template is None or box.file is None:
        return None
    if not template.startswith(("https://", "http://", "file://", "vscode://", "/", "./")):
        raise RenderError(
            f"links cannot begin with {template[:20]!r}",
            hint="write a URL like https://github.com/me/repo/blob/main/{path}#L{line}",
        )
    path = quote(box.file[:LONG].replace("\\", "/"))
    return template.replace("{path}", path).replace("{line}", str(box.line or 1))
