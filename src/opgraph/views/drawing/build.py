"""From a graph to a `Drawing`: how deep, which repeats are one box, and which edges that leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opgraph.graph import Graph, Node
from opgraph.views.drawing.boxes import Boxes
from opgraph.views.drawing.calls import Call, call_tree, joined
from opgraph.views.drawing.folding import fold
from opgraph.views.drawing.model import Box, Drawing, Edge
from opgraph.views.drawing.neighbours import Neighbours
from opgraph.views.drawing.plan import Plan

FITTING_BOXES = 150


def build(
    graph: Graph,
    *,
    depth: int | None = None,
    fold_repeats: bool = True,
    nodes: tuple[Node, ...] | None = None,
    module: str = "",
    parameters: bool = False,
) -> Drawing:
    """The drawing of a graph, or of some of its nodes below a module, with their neighbours as stubs.

    Modules at `depth` levels below the root are closed; by default the deepest level that leaves at
    most about 150 boxes.
    """
    chosen = graph.nodes if nodes is None else nodes
    tree = call_tree(graph, chosen, module)
    tree = joined(fold(graph, tree) if fold_repeats else tree)
    deepest = max((c.level + 1 for c in tree.walk() if c.body and c.level), default=1)
    depth = min(_fitting(tree, deepest) if depth is None else depth, deepest)
    plan = Plan(graph, tree, depth)
    boxes = Boxes(graph, plan, parameters=parameters)
    root = boxes.make(tree)
    looped: set[str] = set()
    nets: dict[tuple[int, int], int] = {}
    edges = [*_edges(graph, plan, chosen, nets, looped), *boxes.parameter_edges]
    root = _with_loops(root, looped)
    if nodes is not None:
        neighbours = Neighbours(graph, module)
        neighbours.find(plan, chosen, nets)
        root = neighbours.around(root)
        edges += neighbours.edges.values()
    return Drawing(graph, root, tuple(edges), depth, deepest)


def _fitting(tree: Call, deepest: int) -> int:
    """The deepest level at which the picture still fits a page, and at least 1."""

    def boxes(call: Call, depth: int) -> int:
        if not call.body or 0 < depth <= call.level:
            return 1
        return sum(boxes(c, depth) for c in call.body)

    return next((d for d in range(deepest, 1, -1) if boxes(tree, d) <= FITTING_BOXES), 1)


def _edges(
    graph: Graph,
    plan: Plan,
    nodes: Iterable[Node],
    nets: dict[tuple[int, int], int],
    looped: set[str],
) -> Iterator[Edge]:
    """The edges between boxes, one for each pair. `nets` gets the nets by the node and the number of
    the output that begins them, `looped` the boxes whose repetitions read each other's results."""
    found: dict[tuple[str, str], dict[int, None]] = {}
    net_of: dict[tuple[str, str], int] = {}
    for node in nodes:
        target = plan.place.get(node.id)
        if target is None:
            continue
        for value in node.inputs:
            producer = graph.producer.get(value)
            source = None if producer is None else plan.place.get(producer.id)
            if source is None or producer is None:
                continue
            again = plan.loop_between(source, target)
            if again is not None:
                looped.add(again)
            elif source.box != target.box:
                output = producer.outputs.index(value)
                net = nets.setdefault((source.stand_in.id, output), value)
                pair = (source.box, target.box)
                found.setdefault(pair, {})[value] = None
                net_of.setdefault(pair, net)
    for pair, values in found.items():
        first = graph.value[next(iter(values))]
        total = sum(graph.value[v].bytes for v in values)
        yield Edge(*pair, net_of[pair], tuple(values), first.shape, first.dtype, total)


def _with_loops(box: Box, looped: set[str]) -> Box:
    children = tuple(_with_loops(c, looped) for c in box.children)
    return replace(box, children=children, looped=box.id in looped)
