"""What TorchInductor would run as one kernel: its own scheduler's groups, for each fragment that Dynamo
captures. The compiler is stopped once it has scheduled, so no code is generated and no compiler of C++
is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch import fx

from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError, first_line
from opgraph.sources.base import Model
from opgraph.tracing.base import Outcome, TraceOptions
from opgraph.tracing.replay import dynamo

Groups = tuple[tuple[int, ...], ...]
"""Node ids that go together, group by group."""


class _Scheduled(BaseException):
    """The scheduler is done: nothing that follows is needed."""


def trace(model: Model, example: Example, options: TraceOptions) -> tuple[list[Outcome], Groups]:
    """Dynamo's trace of a model, and the groups of its nodes.

    Raises `TraceError` when TorchInductor cannot compile a fragment.
    """
    fused: dict[tuple[int, int], list[int]] = {}
    failed: list[BaseException] = []

    def schedule(gm: fx.GraphModule, inputs: Sequence[Any]) -> Mapping[str, int]:
        try:
            return groups(gm, inputs)
        except Exception as error:  # noqa: BLE001  (a compiler may raise anything)
            failed.append(error)
            return {}

    outcomes = dynamo.trace(model, example, options, dynamo.Groups(schedule, fused))
    if failed:
        raise TraceError(f"TorchInductor cannot compile {model.info.name}: {first_line(failed[0])}")
    return outcomes, tuple(tuple(sorted(set(nodes))) for nodes in fused.values())


def groups(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, int]:
    """For each node of a captured graph, by name, the number of the kernel in which it is computed."""
    from torch._inductor.compile_fx import compile_fx
    from torch.utils._python_dispatch import _disable_current_modes

    found: dict[str, int] = {}
    with _disable_current_modes(), _stopping(found), torch.no_grad(), suppress(_Scheduled):
        compile_fx(gm, list(inputs))
    return found


@contextmanager
def _stopping(found: dict[str, int]) -> Iterator[None]:
    """Within, the scheduler notes its groups and ends the compilation."""
    from torch._functorch import config as functorch
    from torch._inductor import config, scheduler
    from torch._inductor.virtualized import V

    def noted(self: Any) -> None:
        found.update(_by_origin(self.nodes, V.graph.graph))
        raise _Scheduled

    with (
        mock.patch.object(scheduler.Scheduler, "codegen", noted),
        config.patch(fx_graph_cache=False, force_disable_caches=True),
        functorch.patch(enable_autograd_cache=False),
    ):
        yield


def _by_origin(kernels: Sequence[Any], graph: fx.Graph) -> dict[str, int]:
    """The kernel of each node of Dynamo's graph.

    A buffer knows the node of the lowered graph that it holds. What has no buffer of its own is computed
    inside of the first kernel that uses it. A node of Dynamo's is where the last buffer is of what it was
    lowered to, or else the last node: behind a product there are views, which its user may take.
    """
    held: dict[str, int] = {}
    for number, kernel in enumerate(kernels):
        for part in kernel.get_nodes():
            origin = None if part.node is None else part.node.get_origin_node()
            if origin is not None:
                held[origin.name] = number
    kernel_of: dict[str, int] = {}
    for node in reversed(graph.nodes):
        users = (kernel_of[u.name] for u in node.users if u.name in kernel_of)
        own = held.get(node.name)
        chosen = own if own is not None else min(users, default=None)
        if chosen is not None:
            kernel_of[node.name] = chosen
    found: dict[str, int] = {}
    for nodes in (
        [n for n in graph.nodes if n.name not in held],
        [n for n in graph.nodes if n.name in held],
    ):
        for node in nodes:
            for source in node.meta.get("from_node") or ():
                if node.name in kernel_of:
                    found[_first(source)] = kernel_of[node.name]
    return found


def _first(source: Any) -> str:
    """The name that a node had in the graph that Dynamo captured."""
    while source.from_node:
        source = source.from_node[0]
    return str(source.name)
