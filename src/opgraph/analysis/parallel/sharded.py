"""The graph that one of the devices of a tensor-parallel group runs: the same operators on its share of
the data. What is said of a graph (memory over time, predicted time, the roofline) is then said of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from math import ceil, gcd

from opgraph.analysis.parallel.sharding import Sharding, sharding
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Storage


def divisors(found: Sharding) -> list[int]:
    """The numbers of devices that heads and features divide into."""
    common = gcd(*found.sizes)
    return [n for n in range(1, common + 1) if common % n == 0]


def sharded(graph: Graph, devices: int, found: Sharding | None = None) -> Graph:
    """The share of one of some devices. Rows of tables (of the vocabulary) are padded up where they do
    not divide; heads and features must divide.

    Raises `RenderError` with the numbers that do, and where there is nothing to split.
    """
    found = found or sharding(graph)
    if devices == 1:
        return graph
    if not found.sizes:
        raise RenderError(
            "tensor parallelism finds nothing to split here: no pair of linear layers",
            hint="--data-parallel and --pipeline-parallel do not need one",
        )
    fitting = divisors(found)
    if devices not in fitting:
        size = next(s for s in sorted(found.sizes) if s % devices)
        raise RenderError(
            f"{found.sizes[size]}: {size:,} heads or features do not divide into {devices}",
            hint=f"tensor-parallel sizes that fit: {', '.join(map(str, fitting))}",
        )
    return _Share(graph, found, devices).graph()


class _Share:
    def __init__(self, graph: Graph, found: Sharding, devices: int) -> None:
        self.whole, self.found, self.devices = graph, found, devices
        self.split_storages = {
            graph.value[v].storage for v in found.values if graph.value[v].storage is not None
        }
        self.ends = list(accumulate(len(n.kernels) for n in graph.nodes)) or [0]
        self.phases = [n.phase for n in graph.nodes]
        self.known = {v.storage for v in graph.values if v.storage is not None}

    def graph(self) -> Graph:
        parameters = tuple(map(self._parameter, self.whole.parameters))
        held = sum(p.bytes for p in parameters) / max(
            1, sum(p.bytes for p in self.whole.parameters)
        )
        nodes = tuple(map(self._node, self.whole.nodes))
        computed = _flops(nodes) / max(1, _flops(self.whole.nodes))
        shares = {"backward": computed, "recompute": computed, "optimizer": held}
        values = tuple(
            replace(v, bytes=ceil(v.bytes / self.devices)) if v.id in self.found.values else v
            for v in self.whole.values
        )
        return replace(
            self.whole,
            nodes=tuple(
                replace(n, kernels=tuple(_scaled(k, shares[n.phase]) for k in n.kernels))
                if n.phase in shares
                else n
                for n in nodes
            ),
            values=values,
            parameters=parameters,
            storages=tuple(self._storage(i, s, shares) for i, s in enumerate(self.whole.storages)),
        )

    def _parameter(self, p: Parameter) -> Parameter:
        if p.name not in self.found.weights:
            return p
        return replace(p, numel=ceil(p.numel / self.devices), bytes=ceil(p.bytes / self.devices))

    def _storage(self, number: int, s: Storage, shares: dict[str, float]) -> Storage:
        phase = (
            self.phases[bisect_right(self.ends, s.born)] if s.born < self.ends[-1] else "forward"
        )
        if phase != "forward":
            return replace(s, bytes=int(s.bytes * shares[phase]))
        # What is no node's result is a temporary of the node that made it.
        temporary = number not in self.known and s.node in self.found.nodes
        split = number in self.split_storages or temporary
        return replace(s, bytes=ceil(s.bytes / self.devices)) if split else s

    def _node(self, node: Node) -> Node:
        if node.id not in self.found.nodes or node.phase != "forward":
            return node
        style = self.found.styles.get(node.id)
        read = self._share(node.inputs)
        written = self._share(node.outputs)
        kernels = []
        for k in node.kernels:
            shapes = k.out_shapes
            if style in ("column", "gathered") and shapes and isinstance(shapes[0][-1], int):
                shapes = ((*shapes[0][:-1], ceil(shapes[0][-1] / self.devices)), *shapes[1:])
            kernels.append(
                replace(
                    k,
                    flops=k.flops // self.devices,
                    other_flops=k.other_flops // self.devices,
                    read=int(k.read * read),
                    written=int(k.written * written),
                    out_shapes=shapes,
                )
            )
        return replace(node, kernels=tuple(kernels))

    def _share(self, values: Iterable[int]) -> float:
        """The part of the bytes of some values that one device has."""
        whole = part = 0
        for number in values:
            value = self.whole.value[number]
            split = number in self.found.values or self._weight(number) in self.found.weights
            whole += value.bytes
            part += value.bytes // self.devices if split else value.bytes
        return part / whole if whole else 1.0

    def _weight(self, number: int) -> str | None:
        value = self.whole.value[number]
        while value.alias_of is not None:
            value = self.whole.value[value.alias_of]
        return value.name if value.kind == "parameter" else None


def _scaled(k: Kernel, share: float) -> Kernel:
    return replace(
        k, flops=int(k.flops * share), other_flops=int(k.other_flops * share),
        read=int(k.read * share), written=int(k.written * share),
    )  # fmt: skip


def _flops(nodes: Iterable[Node]) -> int:
    return sum(n.flops for n in nodes if n.phase == "forward")
