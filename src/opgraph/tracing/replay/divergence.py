"""What is to be said of a graph that a compiler captured when a plain run does something else: models ask
whether they are being compiled (see `compile_flags`), and the totals of such a profile are not those of
the plain one."""

from __future__ import annotations

from opgraph.inputs.base import Example
from opgraph.record.graph import Graph
from opgraph.sources.base import Model
from opgraph.tracing import eager
from opgraph.tracing.base import Outcome
from opgraph.tracing.compile_flags import TELLS


def remark(model: Model, example: Example, outcome: Outcome, *, warm_up: bool) -> str | None:
    """How the totals of a whole graph by Dynamo or export differ from those of a plain run, and why; None
    where they do not, or where nothing on fake tensors can tell."""
    told = TELLS.get(outcome.tracer)
    if told is None or outcome.graph is None or outcome.error or outcome.tensors != "fake":
        return None
    plain = eager.trace_fake(model, example, warm_up=warm_up)
    if plain.graph is None or plain.error or _work(plain.graph) == _work(outcome.graph):
        return None
    heard = eager.trace_fake(model, example, warm_up=warm_up, told=told)
    same = heard.graph is not None and _work(heard.graph) == _work(outcome.graph)
    why = f"the model asks whether it is {_SAID[told]}, and then has" if same else "this graph has"
    where = "" if same else "; opgraph check says where"
    return f"{why} {_differences(plain.graph, outcome.graph)} than a plain run{where}"


_SAID = {"compiling": "being compiled", "exporting": "being exported"}


def _work(graph: Graph) -> tuple[int, int]:
    return sum(n.flops for n in graph.nodes), sum(n.bytes for n in graph.nodes)


def _differences(plain: Graph, other: Graph) -> str:
    """The differences of FLOPs and of bytes, such as "0.33 % more bytes"."""
    pairs = zip(("FLOPs", "bytes of traffic"), _work(plain), _work(other), strict=True)
    return " and ".join(
        f"{abs(b / a - 1) * 100:.2g} % {'more' if b > a else 'fewer'} {what}"
        if a
        else f"{b:,} {what}"
        for what, a, b in pairs
        if a != b
    )
