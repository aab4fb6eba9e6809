"""Serving a model that generates, on paper: the time of a prefill or of a decoding step on a device against
the batch, and how many sequences fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from opgraph.analysis.cost.totals import cost_of
from opgraph.analysis.memory import fit
from opgraph.analysis.serving.engine import engine
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph, Kernel, Node, Shape, Storage, Value, elements
from opgraph.record.kinds import Run
from opgraph.record.profile import KVCache, ProfileRecord
from opgraph.record.units import item_size

LARGEST = 512
"""The largest batch that is looked at."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step for a batch of sequences: its predicted seconds (the time to the first token of a prefill,
    or per output token of a decoding step), tokens a second over the whole batch, bytes of cache, bytes
    needed altogether (weights, and the peak with the cache), and whether that fits on the device."""

    batch: int
    seconds: float
    tokens_per_second: float
    cache: int
    needed: int
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self)


def steps(profile: ProfileRecord, device: Device, run: Run = Run.EAGER) -> tuple[Step, ...]:
    """Steps for batches of once, twice, four times … the batch that was traced, up to the first that does
    not fit on the device.

    Raises `RenderError` for a profile of another mode than prefill or decode.
    """
    cache = profile.cache
    if cache is None or profile.mode not in ("prefill", "decode"):
        raise RenderError("only a prefill or a decoding step has these figures",
                          hint="profile with --mode prefill or --mode decode")  # fmt: skip
    each = _prompt(profile.graph, cache) if profile.mode == "prefill" else 1
    found: list[Step] = []
    times = 1
    while cache.sequences * times <= LARGEST or not found:
        graph = at_batch(profile.graph, times)
        if run is Run.ENGINE:
            graph = engine(graph)
        seconds = predict(graph, device, run).seconds
        need = fit(graph, device)
        batch = cache.sequences * times
        rate = batch * each / seconds if seconds else 0.0
        found.append(Step(batch, seconds, rate, cache.bytes * times, need.needed, need.fits))
        if not need.fits:
            break
        times *= 2
    return tuple(found)


def _prompt(graph: Graph, cache: KVCache) -> int:
    """Tokens of each prompt: those of `input_ids`, which an encoder reads where there is one (the cache has
    the decoder's alone), and else those in the cache."""
    inputs = {v.name: v.shape for v in map(graph.value.__getitem__, graph.inputs)}
    crossed = any(p.kind == "cross" for p in cache.parts)
    shape = inputs.get("input_ids", ()) if crossed or not cache.tokens else ()
    return shape[-1] if shape and isinstance(shape[-1], int) else cache.tokens or 1


def shared_reads(profile: ProfileRecord) -> int:
    """Bytes read once for the whole batch: the weights, as far as the step uses them."""
    once = cost_of(profile.graph.nodes).read
    twice = cost_of(at_batch(profile.graph, 2).nodes).read
    return max(0, 2 * once - twice)


# The same graph for another batch, on paper: what every sequence needs is multiplied, and what all of
# them share (weights, and what is made from weights alone) is not.


_LOOKUPS = ("aten.embedding", "aten.index_select", "aten.index", "aten.gather")
"""Operators that read a few rows of a table: more of them for more sequences."""

GROUPED = "grouped_mm"
"""What is in the names of the products of a mixture of experts."""


def at_batch(graph: Graph, times: int) -> Graph:
    """The graph of a run with so many times the batch."""
    if times == 1:
        return graph
    shared = _shared(graph)
    nodes = tuple(_node(graph, n, shared, times) for n in graph.nodes)
    values = tuple(v if v.id in shared else _value(v, times) for v in graph.values)
    return replace(
        graph,
        nodes=nodes,
        values=values,
        storages=tuple(_storage(graph, s, shared, times) for s in graph.storages),
    )


def _shared(graph: Graph) -> set[int]:
    """Values that are the same for every sequence."""
    found = {v.id for v in graph.values if v.kind in ("parameter", "buffer", "constant")}
    for node in graph.nodes:
        if node.kind != "input" and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


def _node(graph: Graph, node: Node, shared: set[int], times: int) -> Node:
    if node.kind == "input" or not node.kernels or shared.issuperset(node.inputs):
        return node
    value = graph.value
    ours = [value[v] for v in node.inputs if v in shared]
    theirs = {value[v].shape for v in node.inputs if v not in shared}
    kernels = tuple(_kernel(k, ours, theirs, times) for k in node.kernels)
    return replace(node, kernels=kernels)


def _kernel(kernel: Kernel, ours: list[Value], theirs: set[Shape], times: int) -> Kernel:
    """`ours` are the values of the node that all sequences share, `theirs` the shapes of the others."""
    still = [_weight(shape, ours, theirs) for shape in kernel.shapes]
    kept = 0 if kernel.op in _LOOKUPS else sum(_bytes(v) for v in still if v is not None)
    kept = min(kept, kernel.read)
    read = kept + (kernel.read - kept) * times
    if GROUPED in kernel.op and len(kernel.shapes) >= 2 and still[1] is not None:
        read = _grouped(kernel, _bytes(still[1]), times)
    return replace(
        kernel,
        flops=kernel.flops * times,
        other_flops=kernel.other_flops * times,
        read=read,
        written=kernel.written * times,
        shapes=tuple(
            shape if value is not None else _longer(shape, times)
            for shape, value in zip(kernel.shapes, still, strict=True)
        ),
        out_shapes=tuple(_longer(shape, times) for shape in kernel.out_shapes),
    )


def _weight(shape: Shape, ours: list[Value], theirs: set[Shape]) -> Value | None:
    """The shared value that an operand of a kernel is: turned, perhaps, on its way there."""
    if shape in theirs:
        return None
    sizes = sorted(map(str, shape))
    return next((v for v in ours if sorted(map(str, v.shape)) == sizes), None)


def _grouped(kernel: Kernel, weights: int, times: int) -> int:
    """The bytes read by the experts of a mixture: those that have a row."""
    rows, experts = kernel.shapes[0][0], kernel.shapes[1][0]
    if not isinstance(rows, int) or not isinstance(experts, int):
        return kernel.read * times
    before = weights * min(rows, experts) // experts
    after = weights * min(rows * times, experts) // experts
    return (kernel.read - before) * times + after


def _bytes(value: Value) -> int:
    if value.kind == "parameter":
        return value.bytes
    return elements(value.shape) * item_size(value.dtype)


def _longer(shape: Shape, times: int) -> Shape:
    first = shape[0] if shape else None
    return (first * times, *shape[1:]) if isinstance(first, int) else shape


def _value(value: Value, times: int) -> Value:
    return replace(value, shape=_longer(value.shape, times), bytes=value.bytes * times)


def _storage(graph: Graph, storage: Storage, shared: set[int], times: int) -> Storage:
    if storage.node is not None:
        node = graph.node(storage.node)
        if node.kind != "input" and shared.issuperset(node.inputs):
            return storage
    return replace(storage, bytes=storage.bytes * times)
