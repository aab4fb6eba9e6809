"""The roofline model: how fast a piece of work could go on a device at best, and what holds it back.

Attainable FLOP/s = min(peak, intensity x bandwidth) (Williams, Waterman and Patterson: "Roofline: an
insightful visual performance model for multicore architectures", CACM 52(4), 2009). This is the roof
itself; `prediction` says how near to it kernels come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opgraph.analysis.cost.bottleneck import BOTTLENECKS, Bottleneck, classify
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.timing.prediction import predict_parts
from opgraph.hardware import Device
from opgraph.record.graph import Graph


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """A subgraph under a device's roof: its FLOPs and the bytes that it moves, the attainable FLOP/s and
    the least seconds it takes, what bounds it, the peak that is its roof and whose it is (of the matrix
    or the vector units, in a dtype), and the seconds that are predicted for it."""

    subgraph: int
    label: str
    rule: str
    dtype: str
    unit: Literal["matrix", "vector"]
    peak: float
    flops: int
    bytes: int
    intensity: float
    attainable: float
    seconds: float
    predicted: float
    bound: Literal["compute", "memory"]
    bottleneck: Bottleneck

    @property
    def achieved(self) -> float:
        """The FLOP/s of the predicted time."""
        return self.flops / self.predicted if self.predicted else 0.0


@dataclass(frozen=True, slots=True)
class BoundShare:
    """How many subgraphs are bound so, and their share of the least time."""

    bottleneck: Bottleneck
    count: int
    seconds: float
    share: float


def roofline(graph: Graph, parts: Sequence[Subgraph], device: Device) -> tuple[RooflinePoint, ...]:
    """Every subgraph that moves data, against the device's roof."""
    times = predict_parts(graph, parts, device)
    found = (_point(graph, p, device, t) for p, t in zip(parts, times, strict=True))
    return tuple(point for point in found if point is not None)


def _point(graph: Graph, part: Subgraph, device: Device, predicted: float) -> RooflinePoint | None:
    intensity = part.arithmetic_intensity
    if intensity is None:
        return None
    nodes = [graph.node(i) for i in part.nodes]
    kernels = [k for n in nodes for k in n.kernels if k.bytes]
    products = [k for k in kernels if k.flops]
    main = max(products or kernels, key=lambda k: (k.flops, k.bytes))
    on_matrix_units = bool(products) and main.category != "depthwise_convolution"
    peak = device.matrix_peak(main.dtype) if on_matrix_units else device.vector_peak(main.dtype)
    flops = part.cost.flops + part.cost.other_flops
    attainable = min(peak, intensity * device.bandwidth)
    moving, computing = part.fused_bytes / device.bandwidth, flops / peak
    return RooflinePoint(
        subgraph=part.id,
        label=next((n.name for n in nodes if main in n.kernels), nodes[0].name),
        rule=part.rule,
        dtype=main.dtype,
        unit="matrix" if on_matrix_units else "vector",
        peak=peak,
        flops=flops,
        bytes=part.fused_bytes,
        intensity=intensity,
        attainable=attainable,
        seconds=max(moving, computing),
        predicted=predicted,
        bound="compute" if computing > moving else "memory",
        bottleneck=classify(intensity, peak / device.bandwidth) or "memory-bound",
    )


def shares(points: Sequence[RooflinePoint]) -> tuple[BoundShare, ...]:
    """The bottlenecks of all subgraphs, as counts and as shares of the least time."""
    total = sum(p.seconds for p in points)
    found = []
    for bottleneck in BOTTLENECKS:
        mine = [p for p in points if p.bottleneck == bottleneck]
        seconds = sum(p.seconds for p in mine)
        found.append(BoundShare(bottleneck, len(mine), seconds, seconds / total if total else 0.0))
    return tuple(found)
