"""Mixtures of experts: which parameters belong to experts, and how many of them one token uses.

Found in the graph, whatever the model is called and however its experts are run. A router chooses `k` of
`E` (a `topk`, or a maximum for one of them); its experts are the weights in the same block that come `E`
at a time: stacked in one tensor [E, …], or as `E` modules side by side. A token uses `k / E` of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod

from opgraph.record.graph import Graph, Kernel, Node, Parameter, around

_CHOICES = ("aten.topk", "aten.max", "aten.argmax")


@dataclass(frozen=True, slots=True)
class Mixture:
    """One block with a router: it sends each of `tokens` to `chosen` of `experts`.

    `parameters` are those of all its experts, `active` those that one token uses. `flops` are what the
    experts' contractions did as they ran, `active_flops` what the chosen experts alone cost: where an
    implementation computes every expert for every token, the first is `experts / chosen` times the second.
    """

    scope: str
    experts: int
    chosen: int
    tokens: int
    parameters: int
    active: int
    flops: int
    active_flops: int


def mixtures(graph: Graph) -> tuple[Mixture, ...]:
    """The mixtures of a graph, in the order in which they run."""
    found: dict[str, _Router] = {}
    claimed: dict[str, str] = {}
    by_scope = _under(graph.parameters)
    rows: dict[str, int] | None = None
    for node in graph.nodes:
        for kernel in node.kernels if node.phase == "forward" else ():
            choice = _choice(kernel)
            if choice is None:
                continue
            rows = _in_rows(graph) if rows is None else rows
            for block in islice(around(node.scope), 3):
                weights = [
                    p for p in _experts(by_scope.get(block, ()), block, choice[0], rows)
                    if claimed.get(p.name, block) == block
                ]  # fmt: skip
                if weights and (kept := _not_of_router(graph, node, block, weights)):
                    router = _Router(choice, _indices_are_used(graph, node), kept)
                    if block not in found or router.used >= found[block].used:
                        found[block] = router
                    claimed.update((p.name, block) for p in kept)
                    break
    return tuple(_mixture(graph, block, *r.choice, r.weights) for block, r in found.items())


@dataclass(frozen=True, slots=True)
class _Router:
    """A choice of experts, whether anything is done with which were chosen, and their weights. Groups of
    experts have scores that may be sums over a choice, too, of which the values alone are used."""

    choice: tuple[int, int, int]
    used: bool
    weights: list[Parameter]


def _indices_are_used(graph: Graph, node: Node) -> bool:
    """Whether anything reads the last output of a node that chooses: the indices."""
    return any(v in graph.users for v in node.outputs[-1:])


def active_parameters(graph: Graph, found: Iterable[Mixture]) -> int:
    """Parameters that one token uses: all but the experts that are not chosen."""
    everything = sum(p.numel for p in graph.parameters if p.kind == "parameter")
    return everything - sum(m.parameters - m.active for m in found)


def looked_up(graph: Graph) -> int:
    """Parameters of tables that are only looked up in, one row a token: published counts of active
    parameters have them in (Mixtral, Qwen3) or not (gpt-oss)."""
    rows, whole = set[str](), set[str]()
    for node in graph.nodes:
        (rows if node.op == "embedding" else whole).update(node.parameters)
    return sum(p.numel for p in graph.parameters if p.name in rows - whole)


def _choice(kernel: Kernel) -> tuple[int, int, int] | None:
    """(experts, chosen, tokens) of a kernel that chooses along its last dimension."""
    if kernel.op not in _CHOICES or len(kernel.shapes) != 1 or not kernel.out_shapes:
        return None
    scores, kept = kernel.shapes[0], kernel.out_shapes[0]
    if not all(isinstance(n, int) for n in (*scores, *kept)) or len(scores) < 2:
        return None
    numbers = [n for n in scores if isinstance(n, int)]
    many, rows = numbers[-1], prod(numbers[:-1])
    taken = prod(n for n in kept if isinstance(n, int)) // max(1, rows)
    if kernel.op != "aten.topk" and taken != 1:
        return None
    return (many, taken, rows) if 0 < taken < many else None


def _under(parameters: Iterable[Parameter]) -> dict[str, list[Parameter]]:
    """The parameters at or below each module."""
    found: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        if parameter.kind == "parameter":
            for scope in around(parameter.scope):
                found.setdefault(scope, []).append(parameter)
    return found


def _in_rows(graph: Graph) -> dict[str, int]:
    """How many matrices lie below one another in a weight [E * rows, columns], by its name, where a view
    takes it apart to [E, rows, columns]."""
    value, found = graph.value, dict[str, int]()
    for node in graph.nodes:
        if node.op == "reshape" and len(node.parameters) == 1 and node.outputs:
            shape = value[node.outputs[0]].shape
            if len(shape) == 3 and isinstance(shape[0], int):
                found[node.parameters[0]] = shape[0]
    return found


def _experts(
    parameters: Iterable[Parameter], block: str, many: int, rows: Mapping[str, int]
) -> list[Parameter]:
    """Weights that are stacked [E, rows, columns] with the biases beside them, or below one another in one
    matrix that the forward takes apart, or those of E modules side by side with equal sizes."""
    listed = list(parameters)
    homes = {p.scope for p in listed if len(p.shape) == 3 and p.shape[0] == many}
    stacked = [
        p for p in listed if p.scope in homes and len(p.shape) in (2, 3) and p.shape[0] == many
    ]
    if stacked:
        return stacked
    below = [p for p in listed if len(p.shape) == 2 and rows.get(p.name) == many]
    if below:
        return below
    sides: dict[str, dict[int, list[Parameter]]] = {}
    start = len(block) + 1 if block else 0
    for parameter in listed:
        numbered = re.match(r"((?:[^.]+\.)?[^.\d]*)(\d+)\.", parameter.name[start:])
        if numbered:
            side = sides.setdefault(numbered[1], {})
            side.setdefault(int(numbered[2]), []).append(parameter)
    for side in sides.values():
        if set(side) == set(range(many)) and len({_sizes(ps) for ps in side.values()}) == 1:
            return [p for ps in side.values() for p in ps]
    return []


def _sizes(parameters: Iterable[Parameter]) -> tuple[object, ...]:
    return tuple(p.shape for p in parameters)


def _not_of_router(
    graph: Graph, router: Node, block: str, weights: list[Parameter]
) -> list[Parameter]:
    """Weights without those that the router's own scores come from, as the router's matrix [E, hidden]."""
    names = {p.name for p in weights}
    before: set[str] = set()
    waiting, seen = [router], {router.id}
    while waiting:
        node = waiting.pop()
        before |= names.intersection(node.parameters)
        for value in node.inputs:
            maker = graph.producer.get(value)
            if maker is None or maker.id in seen or not _within(maker.scope, block):
                continue
            seen.add(maker.id)
            waiting.append(maker)
    return [p for p in weights if p.name not in before]


def _within(scope: str, block: str) -> bool:
    return not block or scope == block or scope.startswith(block + ".")


def _mixture(
    graph: Graph, block: str, many: int, taken: int, tokens: int, weights: list[Parameter]
) -> Mixture:
    matrices = sum(p.numel for p in weights if len(p.shape) >= 2 and not _is_bias(p, many))
    everything = sum(p.numel for p in weights)
    flops = _flops(graph, block, {p.name for p in weights})
    if taken == 1 and matrices:
        # Maxima may be taken several times over, without those already found: what ran says how often.
        often, rest = divmod(flops * many, 2 * tokens * matrices)
        taken = often if not rest and 1 < often < many else 1
    return Mixture(
        scope=block,
        experts=many,
        chosen=taken,
        tokens=tokens,
        parameters=everything,
        active=everything * taken // many,
        flops=flops,
        active_flops=2 * tokens * matrices * taken // many,
    )


def _is_bias(parameter: Parameter, many: int) -> bool:
    """A stacked bias [E, columns], as against the matrix of one of several modules."""
    return len(parameter.shape) == 2 and parameter.shape[0] == many


def _flops(graph: Graph, block: str, names: set[str]) -> int:
    """The forward contractions with these weights, which may be turned, cast or taken out of their stack
    on the way."""
    held = {v.id for v in graph.values if v.name in names}
    total = 0
    for node in graph.nodes:
        if node.phase != "forward" or not _within(node.scope, block):
            continue
        if held.intersection(node.inputs):
            if node.flops:
                total += node.flops
            elif all(v in held or _whole(graph, v) for v in node.inputs):
                held.update(node.outputs)
    return total


def _whole(graph: Graph, value: int) -> bool:
    """Whether a value holds whole numbers: an index, and not something to compute with."""
    return graph.value[value].dtype.startswith(("int", "uint", "bool"))
