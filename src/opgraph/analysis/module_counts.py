"""What a counter finds that looks at modules alone: it multiplies the weights of every leaf module that is
called with sizes of the module's output, as torchinfo does. What comes of it differs from the work that is
done, and here is by how much and where."""

from __future__ import annotations

from math import prod

from opgraph.graph import Graph, Scope


def called_leaves(graph: Graph) -> dict[str, Scope]:
    """The modules without children that are called, by path."""
    parents = {path.rpartition(".")[0] for path in graph.scope if path}
    return {s.path: s for s in graph.scopes if s.calls and s.path not in parents}


def weights_times_outputs(graph: Graph) -> dict[str, int]:
    """What such a counter leaves out, in FLOPs by the reason, or adds (a negative amount), where modules
    have weights; the work outside of these modules is left out altogether, and not in here.

    The rule, of https://github.com/TylerYep/torchinfo (`LayerInfo.calculate_macs`): what is called
    "weight" or "bias" counts once a sample, in a class with "Conv" in its name once a position of the
    output; other weights and biases (`weight_ih_l0`) count once a step.
    """
    own = dict.fromkeys(graph.scope, 0)
    for node in graph.nodes:
        own[node.scope] += node.flops
    found: dict[str, int] = {}
    weights = _weights(graph)
    for path, scope in called_leaves(graph).items():
        shape = _output(graph, scope)
        if path not in weights or shape is None:
            continue
        counted = (
            2 * scope.calls * sum(_rule(n, size, scope.cls, shape) for n, size in weights[path])
        )
        reason = _reason(own[path], counted, scope.cls, shape)
        found[reason] = found.get(reason, 0) + own[path] - counted
    return found


def _weights(graph: Graph) -> dict[str, list[tuple[str, int]]]:
    """The parameters of each module, a tied one in all of its modules: name and number of elements."""
    found: dict[str, list[tuple[str, int]]] = {}
    for parameter in graph.parameters:
        if parameter.kind == "parameter":
            for path in (parameter.name, *parameter.tied):
                owner, _, name = path.rpartition(".")
                found.setdefault(owner, []).append((name, parameter.numel))
    return found


def _output(graph: Graph, scope: Scope) -> list[int] | None:
    if not scope.outputs:
        return None
    shape = [n for n in graph.value[scope.outputs[0]].shape if isinstance(n, int)]
    return shape or None


def _rule(name: str, size: int, cls: str, shape: list[int]) -> int:
    if name in ("weight", "bias"):
        return size * (prod(shape[:1] + shape[2:]) if "Conv" in cls else shape[0])
    return size * prod(shape[:2]) if "weight" in name or "bias" in name else 0


def _reason(flops: int, counted: int, cls: str, shape: list[int]) -> str:
    if not flops:
        return "adds the weights of modules that multiply no matrices"
    if flops > counted:
        return f"counts a {cls} once a sample, whatever the sequence"
    if "Conv" in cls and len(shape) == 3 and counted > 2 * flops:
        return f"takes {cls} for a convolution"
    return "counts biases"
