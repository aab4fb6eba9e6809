"""What a model costs at other sizes of its inputs, worked out from the formulas of its profile for the
sizes that the page offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import log2
from typing import Any

from opgraph.record.formulas import Formula, Formulas, Point
from opgraph.record.graph import Graph, around

MOST = 150
"""At most so many points are offered: with two variables a dozen sizes of each."""

_QUANTITIES = ("flops", "other_flops", "bytes")

_Own = tuple[Formula, tuple[Formula, ...]]
"""A quantity of a module, and of each module in it."""


def sizes_data(formulas: Formulas, graph: Graph) -> tuple[dict[str, Any], dict[int, int]] | None:
    """The variables with the sizes that are offered; by point (the last variable changes first) the totals
    FLOPs, other FLOPs, bytes and peak of activations, and by distinct cost of a node the first three of
    them; null where no formula holds. And by id of a node its distinct cost. None where a module has no
    formulas.

    Formulas are of modules: nodes that stand directly in one share its own part as they do in the profile.
    """
    offered = [_offered(formulas, at) for at in range(len(formulas.variables))]
    owns = _owns(formulas)
    rows: dict[tuple[Any, ...], tuple[tuple[_Own, ...], list[float]]] = {}
    by_node: dict[int, tuple[Any, ...]] = {}
    for path, nodes in graph.inside.items():
        own = owns.get(path)
        if own is None:
            return None
        bases = [(node.flops, node.other_flops, node.bytes) for node in nodes]
        sums = [sum(of) for of in zip(*bases, strict=True)]
        for node, base in zip(nodes, bases, strict=True):
            shares = [b / s if s else 1 / len(nodes) for b, s in zip(base, sums, strict=True)]
            by_node[node.id] = key = (own, *shares)
            rows.setdefault(key, (own, shares))
    points = list(product(*offered))
    place = {key: at for at, key in enumerate(rows)}
    data = {
        "variables": [
            {"name": v.name, "meaning": v.meaning, "value": v.value, "offered": sizes}
            for v, sizes in zip(formulas.variables, offered, strict=True)
        ],
        "totals": [
            _whole(formulas.totals[q](point) for q in (*_QUANTITIES, "peak_memory"))
            for point in points
        ],
        "costs": [_costs(rows.values(), point) for point in points],
        "notes": list(formulas.notes),
    }
    return data, {node: place[key] for node, key in by_node.items()}


def _offered(formulas: Formulas, at: int) -> list[int]:
    """Sizes of one variable at which the formulas hold: its own, its multiples and parts by powers of two,
    and powers of two; those nearest to its own, if they are many."""
    own = formulas.variables[at].value
    doubled = {2**k for k in range(12)}
    doubled |= {own * 2**k for k in range(8)} | {own >> k for k in range(8) if not own % 2**k}
    point = formulas.point()
    held = [
        size
        for size in doubled
        if None not in _values(formulas.totals, (*point[:at], size, *point[at + 1 :]))
    ]
    count = int(MOST ** (1 / len(formulas.variables)))
    return sorted(sorted({own, *held}, key=lambda size: abs(log2(size / own)))[:count])


def _values(totals: Mapping[str, Formula], point: Point) -> list[int | None]:
    return [totals[q](point) for q in _QUANTITIES]


def _owns(formulas: Formulas) -> dict[str, tuple[_Own, ...]]:
    """By path of a module, of each quantity the formula of the whole and those of the modules in it."""
    modules = {"": formulas.totals, **formulas.modules}
    inside: dict[str, list[str]] = {path: [] for path in modules}
    for path in modules:
        for above in [p for p in around(path) if p in modules and p != path][:1]:
            inside[above].append(path)
    # Equal formulas are one object, so that layers that are alike are found to be.
    same: dict[Formula, Formula] = {}
    return {
        path: tuple(
            (own[q], tuple(same.setdefault(f, f) for f in (modules[i][q] for i in inside[path])))
            for q in _QUANTITIES
        )
        for path, own in modules.items()
    }


def _costs(
    rows: Iterable[tuple[tuple[_Own, ...], Sequence[float]]], point: Point
) -> list[list[float]] | None:
    known: dict[int, int | None] = {}

    def at(formula: Formula) -> int | None:
        if id(formula) not in known:
            known[id(formula)] = formula(point)
        return known[id(formula)]

    found = []
    for owns, shares in rows:
        row: list[float] = []
        for (whole, inner), share in zip(owns, shares, strict=True):
            values = _whole(map(at, (whole, *inner)))
            if values is None:
                return None
            value = round((values[0] - sum(values[1:])) * share, 3)
            row.append(int(value) if value.is_integer() else value)
        found.append(row)
    return found


def _whole(values: Iterable[int | None]) -> list[int] | None:
    found = list(values)
    return None if None in found else [v for v in found if v is not None]
