"""The roofline model: how fast a piece of work could go on a device at best, and what holds it back.

Attainable FLOP/s = min(peak, intensity x bandwidth) (Williams, Waterman and Patterson: "Roofline: an
insightful visual performance model for multicore architectures", CACM 52(4), 2009). This is the roof
itself; `prediction` says how near to it kernels come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.timing.kernels import KernelCost
from opgraph.analysis.timing.prediction import predict_parts
from opgraph.analysis.timing.workload import Work, workload
from opgraph.hardware import Device
from opgraph.record.graph import Graph
from opgraph.record.kinds import Bound, Run


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """A subgraph under a device's roof: its FLOPs and the bytes that it moves, the attainable FLOP/s and
    the least seconds it takes, the peak that is its roof and whose it is (of the matrix or the vector
    units, in a dtype), the seconds that are predicted for it, and what most of these go to."""

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
    bound: Bound

    @property
    def achieved(self) -> float:
        """The FLOP/s of the predicted time."""
        return self.flops / self.predicted if self.predicted else 0.0


def roofline(
    graph: Graph, parts: Sequence[Subgraph], device: Device, run: Run = Run.EAGER,
    work: Sequence[Work] | None = None,
) -> tuple[RooflinePoint, ...]:  # fmt: skip
    """Every subgraph that moves data, against the device's roof.

    `work` is that of the graph, where it is known.
    """
    times = predict_parts(work or workload(graph), parts, device, run)
    found = (_point(graph, p, device, t) for p, t in zip(parts, times, strict=True))
    return tuple(point for point in found if point is not None)


def _point(graph: Graph, part: Subgraph, device: Device, time: KernelCost) -> RooflinePoint | None:
    intensity = part.arithmetic_intensity
    if intensity is None:
        return None
    nodes = [graph.node(i) for i in part.nodes]
    kernels = [k for n in nodes for k in n.kernels if k.bytes]
    products = [k for k in kernels if k.flops]
    main = max(products or kernels, key=lambda k: (k.flops, k.bytes))
    on_matrix_units = bool(products) and main.category != "depthwise_convolution"
    dtype = device.multiplies(main.multiplied) if on_matrix_units else main.dtype
    peak = device.matrix_peak(dtype) if on_matrix_units else device.vector_peak(dtype)
    flops = part.cost.flops + part.cost.other_flops
    attainable = min(peak, intensity * device.bandwidth)
    moving, computing = part.fused_bytes / device.bandwidth, flops / peak
    return RooflinePoint(
        subgraph=part.id,
        label=next((n.name for n in nodes if main in n.kernels), nodes[0].name),
        rule=part.rule,
        dtype=dtype,
        unit="matrix" if on_matrix_units else "vector",
        peak=peak,
        flops=flops,
        bytes=part.fused_bytes,
        intensity=intensity,
        attainable=attainable,
        seconds=max(moving, computing),
        predicted=time.seconds,
        bound=time.bound,
    )
