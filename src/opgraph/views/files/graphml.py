"""The GraphML view, for networkx, Gephi, yEd and Cytoscape: nodes with the columns of the CSV view, and an
edge for each tensor that a node reads from another (http://graphml.graphdrawing.org/specification.html)."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.views.files.records import records
from opgraph.views.terminal import readable

Values = dict[str, str | int | float | None]
_EDGE_KEYS = {"value": "long", "shape": "string", "dtype": "string", "bytes": "long"}


def to_graphml(costed: CostedRecord) -> str:
    """The graph as GraphML."""
    return "\n".join(_lines(costed)) + "\n"


def _lines(costed: CostedRecord) -> Iterator[str]:
    graph = costed.graph
    rows = records(costed)
    keys = {name: _type([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    keys.pop("id", None)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    for name, kind in keys.items():
        yield f'  <key id="n_{name}" for="node" attr.name="{name}" attr.type="{kind}"/>'
    for name, kind in _EDGE_KEYS.items():
        yield f'  <key id="e_{name}" for="edge" attr.name="{name}" attr.type="{kind}"/>'
    yield f'  <graph id={quoteattr(readable(costed.profile.model.name))} edgedefault="directed">'
    for row in rows:
        data = _data("n", {name: row[name] for name in keys})
        yield f'    <node id="{row["id"]}">{data}</node>'
    number = 0
    producer = graph.producer
    for node in graph.nodes:
        for read in node.inputs:
            if read in producer:
                value = graph.value[read]
                about: Values = {
                    "value": read,
                    "shape": units.shape(value.shape),
                    "dtype": value.dtype,
                    "bytes": value.bytes,
                }
                ends = f'source="{producer[read].id}" target="{node.id}"'
                yield f'    <edge id="e{number}" {ends}>{_data("e", about)}</edge>'
                number += 1
    yield "  </graph>"
    yield "</graphml>"


def _type(values: list[str | int | float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known or any(isinstance(v, str) for v in known):
        return "string"
    return "double" if any(isinstance(v, float) for v in known) else "long"


def _data(prefix: str, values: Values) -> str:
    return "".join(
        f'<data key="{prefix}_{name}">{escape(readable(str(value)))}</data>'
        for name, value in values.items()
        if value is not None
    )
