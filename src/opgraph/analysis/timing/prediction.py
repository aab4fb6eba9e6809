"""Predicted time on a device: kernel by kernel, the longer of its arithmetic and its traffic.

    seconds = max(compute / efficiency, traffic / efficiency) + launch overhead

Compute is the FLOPs, rounded up to the tiles of the matrix units, at the data sheet's peak for the dtype;
traffic is the bytes, less what the cache still holds, at the data sheet's bandwidth. The efficiencies are
few, go by the class of work and never by model, and were fitted once to public measurements
(docs/prediction.md says on which, and how well they hold on models they were not fitted to).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.timing.workload import Work, workload
from opgraph.hardware import Device
from opgraph.record.graph import Graph
from opgraph.record.kinds import Bound

LARGE_WINDOW = 25
"""Positions of a depthwise window above which libraries have no kernel of their own for it, unless the
data is channels-last."""

THREAD = 25e6
"""Bytes a second that one thread moves where an operator has one thread for each position of the result
and walks through all batches and channels with it (PyTorch's linear interpolation of contiguous data)."""

CACHE = 0.7
"""The share of a cache that still holds what was touched so long ago."""

_TILES = {"matmul": (128, 128, 32), "recurrent": (128, 128, 32), "convolution": (1, 64, 8),
          "grouped_convolution": (1, 8, 8)}  # fmt: skip
"""Multiples of m, n and k that a kernel works on: those of half-precision matrix units."""

_CHANNELS = (1, 3, 4)
"""Channels of an image: grey, in colour, and with transparency or depth."""

_NORMALIZATIONS = {
    "aten.native_layer_norm": "layer_norm", "aten.rms_norm": "layer_norm",
    "aten._fused_rms_norm": "layer_norm", "aten.native_group_norm": "group_norm",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Efficiencies:
    """Shares of a device's peak and bandwidth that classes of work reach. `cached` is the share of the
    time that reads cost where the cache still holds the data. None is above one: nothing is predicted to
    be faster than the data sheet."""

    compute: Mapping[str, float]
    traffic: Mapping[str, float]
    cached: float


FITTED = Efficiencies(
    compute={
        "matmul": 1.0,
        "convolution": 0.66,
        "grouped_convolution": 0.42,
        "depthwise_convolution": 0.077,
        "large_window": 0.028,
        "attention": 1.0,
        "other": 1.0,
    },
    traffic={
        "streaming": 1.0,
        "layer_norm": 0.39,
        "group_norm": 0.69,
        "softmax": 0.84,
        "reduction": 0.65,
        "rearranging": 0.43,
        "convolution": 0.5,
    },
    cached=0.98,
)
"""Fitted by benchmarks/predict.py; the generic ones for all devices."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """FLOPs, the class of work whose share of the peak they reach, and whose peak that is: of the matrix
    or the vector units, in a dtype."""

    flops: float
    kind: str
    unit: Literal["matrix", "vector"]
    dtype: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What a kernel asks of a device, in seconds at its full peak and bandwidth: arithmetic and its
    class, traffic and its class, the part of the traffic that the cache may spare, and the least time
    that too few threads can take."""

    compute: float
    compute_class: str
    traffic: float
    near: float
    traffic_class: str
    serial: float = 0.0


DEVICE_BOUNDS = (Bound.COMPUTE, Bound.MEMORY, Bound.LAUNCH)
"""What a kernel can wait for on a device."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel's predicted seconds, what bounds it, and the node that runs it."""

    node: int
    kernel: str
    seconds: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class PartTime:
    """A subgraph's predicted seconds, and what bounds it."""

    seconds: float
    bound: Bound


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a whole graph: `seconds` for one run, `batch` items in it."""

    device: str
    kernels: tuple[KernelTime, ...]
    batch: int = 1
    by_node: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels)

    @cached_property
    def bounds(self) -> Mapping[int, Bound]:
        """What each node waits for, by its id: that of its kernels in which most of its time goes."""
        longest: dict[int, KernelTime] = {}
        for kernel in self.kernels:
            before = longest.get(kernel.node)
            if before is None or kernel.seconds > before.seconds:
                longest[kernel.node] = kernel
        return {node: kernel.bound for node, kernel in longest.items()}

    @property
    def throughput(self) -> float:
        """Items of the batch a second."""
        return self.batch / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "device": self.device,
            "seconds": self.seconds,
            "batch": self.batch,
            "throughput": self.throughput,
            "by_node": {str(k): v for k, v in self.by_node.items()},
        }


def predict(graph: Graph, device: Device, efficiencies: Efficiencies = FITTED) -> Prediction:
    """The time of one run of a graph on a device, in the dtypes the graph has.

    For mixed precision, predict `autocast(graph)`. The batch is taken to be the first size of the first
    input, or the number of images where they come in a list.
    """
    return predict_work(workload(graph), device, efficiencies, batch=_batch(graph))


def predict_work(
    works: Iterable[Work], device: Device, efficiencies: Efficiencies = FITTED, *, batch: int = 1
) -> Prediction:
    """The time of some work on a device."""
    kernels = tuple(_time(work, demand(work, device), device, efficiencies) for work in works)
    by_node: dict[int, float] = {}
    for kernel in kernels:
        by_node[kernel.node] = by_node.get(kernel.node, 0.0) + kernel.seconds
    return Prediction(device.id, kernels, batch, by_node)


def _batch(graph: Graph) -> int:
    """Items in a run: images [channels, height, width] in a list have no dimension for them."""
    inputs = [graph.value[i] for i in graph.inputs]
    if not inputs:
        return 1
    shape = inputs[0].shape
    argument, _, position = (inputs[0].name or "").rpartition(".")
    if position == "0" and len(shape) == 3 and shape[0] in _CHANNELS:
        return sum((v.name or "").rpartition(".")[0] == argument for v in inputs)
    return shape[0] if shape and isinstance(shape[0], int) and shape[0] > 0 else 1


def predict_parts(
    work_of_nodes: Iterable[Work],
    parts: Sequence[Subgraph],
    device: Device,
    efficiencies: Efficiencies = FITTED,
) -> tuple[PartTime, ...]:
    """The time of each subgraph of nodes with this work, run as one kernel: all its arithmetic, the traffic
    that is left when it is fused, and one launch. A subgraph of one node takes what its kernels take.

    No measurement stands behind the fused times, unlike those of `predict`: they are what the same
    formula gives for less traffic and fewer launches.
    """
    by_node: dict[int, list[Work]] = {}
    for work in work_of_nodes:
        by_node.setdefault(work.node, []).append(work)
    found = []
    for part in parts:
        works = [work for node in part.nodes for work in by_node.get(node, ())]
        asked = demands(works, device)
        apart = [_time(w, d, device, efficiencies) for w, d in zip(works, asked, strict=True)]
        time = PartTime(
            sum(k.seconds for k in apart),
            max(apart, key=lambda k: k.seconds).bound if apart else Bound.MEMORY,
        )
        if len(part.nodes) > 1 and works:
            main = max(works, key=lambda w: (w.flops, w.bytes))
            moving = part.fused_bytes / device.bandwidth / efficiencies.traffic[traffic_class(main)]
            sums = sum(d.compute / efficiencies.compute.get(d.compute_class, 1.0) for d in asked)
            whole = max(sums, moving) + device.launch_overhead
            if whole < time.seconds:
                time = PartTime(whole, _bound(sums, moving, device.launch_overhead))
        found.append(time)
    return tuple(found)


def demand(work: Work, device: Device) -> Demand:
    """What one kernel asks of a device."""
    sums = arithmetic(work)
    peak = device.matrix_peak if sums.unit == "matrix" else device.vector_peak
    return Demand(
        compute=sums.flops / peak(sums.dtype),
        compute_class=sums.kind,
        traffic=work.bytes / device.bandwidth,
        near=work.near(device.cache * CACHE) / device.bandwidth,
        traffic_class=traffic_class(work),
        serial=serial(work) if device.kind == "gpu" else 0.0,
    )


def arithmetic(work: Work) -> Arithmetic:
    """The arithmetic of a kernel, with the padding of tiles."""
    if not work.flops:
        return Arithmetic(float(work.other_flops), "other", "vector", "float32")
    if work.category == "depthwise_convolution":
        window = work.contraction.window if work.contraction else 1
        large = window > LARGE_WINDOW and work.layout != "channels-last"
        kind = "large_window" if large else "depthwise_convolution"
        return Arithmetic(float(work.flops), kind, "vector", work.dtype)
    tiles = _TILES.get(work.category)
    padded = work.flops * (work.contraction.padding(*tiles) if work.contraction and tiles else 1.0)
    kind = "matmul" if work.category == "recurrent" else work.category
    return Arithmetic(padded, kind, "matrix", work.dtype)


def serial(work: Work) -> float:
    """The least seconds on a GPU where an operator has too few threads, else 0."""
    if work.category == "interpolation" and work.layout == "contiguous" and "linear" in work.kernel:
        return work.bytes / (max(1, work.positions) * THREAD)
    return 0.0


def traffic_class(work: Work) -> str:
    """The class of work whose share of the bandwidth a kernel reaches."""
    if work.category in ("convolution", "grouped_convolution"):
        return "convolution"
    if work.kernel in _NORMALIZATIONS:
        return _NORMALIZATIONS[work.kernel]
    if work.category == "softmax":
        return "softmax"
    if work.category in ("reduction", "pooling", "indexing", "interpolation"):
        return "reduction"
    return "rearranging" if work.kernel == "aten.clone" else "streaming"


def _time(work: Work, demand: Demand, device: Device, efficiencies: Efficiencies) -> KernelTime:
    compute = demand.compute / efficiencies.compute.get(demand.compute_class, 1.0)
    paid = demand.traffic - demand.near * (1 - efficiencies.cached)
    traffic = max(paid / efficiencies.traffic[demand.traffic_class], demand.serial)
    overhead = device.launch_overhead
    bound = _bound(compute, traffic, overhead)
    return KernelTime(work.node, work.kernel, max(compute, traffic) + overhead, bound)


def _bound(compute: float, traffic: float, overhead: float) -> Bound:
    """What takes longest: arithmetic, memory, or the launch itself."""
    if max(compute, traffic) < overhead:
        return Bound.LAUNCH
    return Bound.COMPUTE if compute > traffic else Bound.MEMORY


def demands(works: Sequence[Work], device: Device) -> tuple[Demand, ...]:
    """What all kernels of a workload ask of a device."""
    return tuple(demand(work, device) for work in works)
