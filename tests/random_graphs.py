"""Random nested graphs for hypothesis, made without a model: kinds of modules that hold operators, other
kinds and lists of them, each instance wired like the others of its kind but for a few lines too many.

Values lie behind one another in a kind as in a forward: a step reads the running value, and may add one
from further back (a residual, within the module or across modules). Lists chain their members or give all
of them the same, modules may be called again, and a graph may break into fragments or go on backward.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

from opgraph.record.graph import (
    Graph,
    GraphBreak,
    Kernel,
    Node,
    Parameter,
    Scope,
    Value,
)

SEED = int(os.environ.get("OPGRAPH_SEED", "20261122"))
EXAMPLES = int(os.environ.get("OPGRAPH_EXAMPLES", "30"))
"""How many models or graphs are tried; benchmarks/random_models.py tries 2,000 models."""


def tried(examples: int) -> Any:
    """So many examples, all of them from the seed."""
    how = settings(
        max_examples=examples, deadline=None, database=None, print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    return lambda test: seed(SEED)(how(test))


SHAPE = (4, 8)
KERNELS = {
    "linear": Kernel("aten.addmm", "matmul", "float32", 512, 32, 384, 128),
    "relu": Kernel("aten.relu", "elementwise", "float32", 0, 32, 128, 128),
    "add": Kernel("aten.add", "elementwise", "float32", 0, 32, 256, 128),
    "reshape": Kernel("aten.view", "view", "float32", cost="zero"),
    "odd": Kernel("odd.op", "other", "float32", cost="unknown"),
}
OPERATORS = tuple(KERNELS)
LONGEST = 25
"""Nodes of a graph in which no further module is called."""


@dataclass(frozen=True)
class Step:
    """A pattern of operators and modules of earlier kinds, `count` times: one behind the other where it is
    `chained`, else all from the same. Each is called `calls` times. `back` is how far behind the running
    value lies what is added to the result (0: nothing)."""

    what: tuple[str | int, ...]
    count: int = 1
    chained: bool = True
    calls: int = 1
    back: int = 0


@dataclass
class _Writer:
    """Writes nodes, values and modules down as a run would."""

    kinds: tuple[tuple[Step, ...], ...]
    extra: set[int]
    cuts: set[int]
    nodes: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    parameters: list[Parameter] = field(default_factory=list)
    fragment: int = 0

    def value(self, kind: Any = "activation", name: str | None = None) -> int:
        self.values.append(Value(len(self.values), SHAPE, "float32", 128, kind, name))
        return self.values[-1].id

    def node(self, op: str, scope: str, inputs: tuple[int, ...], phase: str = "forward") -> int:
        id_ = len(self.nodes) + 1
        if id_ in self.cuts:
            self.fragment += 1
        if id_ in self.extra:
            inputs = (*inputs, id_ % inputs[0] if inputs[0] else 0)
        used: tuple[str, ...] = ()
        if op == "linear" and phase == "forward":
            name = f"{scope}.weight".removeprefix(".")
            if all(p.name != name for p in self.parameters):
                self.parameters.append(Parameter(name, (8, 8), "float32", 64, 256, scope))
                self.value("parameter", name)
            used = (name,)
        made = self.value()
        self.nodes.append(
            Node(id_, "call", op, f"{op}_{id_}", scope, inputs=tuple(dict.fromkeys(inputs)),
                 outputs=(made,), parameters=used, kernels=(KERNELS[op],), phase=phase,
                 fragment=self.fragment)
        )  # fmt: skip
        return made

    def call(self, kind: int, path: str, value: int) -> int:
        known = self.scopes.get(path)
        self.scopes[path] = Scope(path, f"Kind{kind}", known.calls + 1 if known else 1)
        seen = [value]
        for number, step in enumerate(self.kinds[kind]):
            own = f"{path}.s{number}".removeprefix(".")
            self.scopes.setdefault(own, Scope(own, "ModuleList"))
            made = seen[-1]
            for i in range(step.count * len(step.what)):
                what = step.what[i % len(step.what)]
                read = made if step.chained else seen[-1]
                for _ in range(step.calls):
                    if isinstance(what, str):
                        read = self.node(what, path, (read,))
                    elif len(self.nodes) < LONGEST:
                        read = self.call(what, f"{own}.{i}", read)
                made = read if step.chained else self.node("add", path, (read, made))
            if 0 < step.back <= len(seen):
                made = self.node("add", path, (made, seen[-step.back]))
            seen.append(made)
        return seen[-1]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any nested graph of up to some hundreds of nodes."""
    kinds: list[tuple[Step, ...]] = []
    for kind in range(draw(st.integers(2, 4))):
        what = st.sampled_from([*OPERATORS, *range(kind), *range(kind)])
        step = st.builds(
            Step, st.lists(what, min_size=1, max_size=3).map(tuple), st.sampled_from([1, 1, 2, 3, 4]),
            st.booleans(), st.sampled_from([1, 1, 1, 2]), st.sampled_from([0, 0, 1, 2, 3]),
        )  # fmt: skip
        kinds.append(tuple(draw(st.lists(step, min_size=1, max_size=4))))
    writer = _Writer(
        tuple(kinds),
        draw(st.sets(st.integers(2, 60), max_size=draw(st.sampled_from([0, 0, 3])))),
        draw(st.sets(st.integers(3, 60), max_size=draw(st.sampled_from([0, 0, 2])))),
    )
    given = writer.value("input", "x")
    writer.nodes.append(Node(1, "input", "input", "x", outputs=(given,)))
    out = writer.call(len(kinds) - 1, "", given)
    if draw(st.booleans()):
        for node in reversed(list(writer.nodes[1:])):
            out = writer.node(node.op, node.scope, (out, *node.outputs), "backward")
    writer.nodes.append(
        Node(len(writer.nodes) + 1, "output", "output", "output", inputs=(out,),
             fragment=writer.fragment)
    )  # fmt: skip
    breaks = tuple(GraphBreak(i, "data-dependent", "m.py", i) for i in range(writer.fragment))
    return Graph(tuple(writer.nodes), tuple(writer.values), tuple(writer.scopes.values()),
                 tuple(writer.parameters), inputs=(given,), outputs=(out,), breaks=breaks)  # fmt: skip
