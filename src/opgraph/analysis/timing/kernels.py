"""What one kernel takes of a device: the seconds that its arithmetic and its traffic need, by what such a
kernel reaches there.

    seconds = ((arithmetic + waiting)^q + traffic^q)^(1/q) + conversion + gap
    seconds = arithmetic + traffic + packing            of what a CPU's library copies before it multiplies

*Arithmetic* is at the device's sustained peak for the dtype. A product runs over tiles, in waves over the
units of the device; the tile, and into how many parts its sums are split, are those that take least, as a
library would choose. Few rows are not padded to those of a matrix instruction: kernels for them multiply in
the other units, so that a product of one row is bound by its bytes in any dtype. A CPU has no tiles.
*Waiting* is until the units have drawn a tile's operands at the cache's bandwidth, where that takes longer,
and have added up partial sums.
*Traffic* is at the sustained bandwidth of the memory, or at the cache's for what that still holds; from
a CPU's memory each row of a product's operands comes after a latency.
*Conversion* is what a contiguous convolution on matrix units moves once more, into channels-last and back;
*packing* what a CPU's library copies once more into panels: it reads all of it before it multiplies, so
that none of this hides behind the arithmetic.

The shares go by the class of work and never by model; docs/prediction-accuracy.md says on what they were
fitted, and how well they hold on what they were not fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from opgraph.analysis.timing.collectives import collective_seconds
from opgraph.analysis.timing.workload import Contraction, Task
from opgraph.hardware import Device
from opgraph.record.graph import Collective
from opgraph.record.kinds import TRANSFERS, Bound, CollectiveKind
from opgraph.record.profile import GENERATED
from opgraph.record.units import element_size, item_size

LARGE_WINDOW = 25
"""Positions of a depthwise window above which libraries have no kernel of their own for it, unless the
data is channels-last."""

THREAD = 25e6
"""Bytes a second that one thread moves where an operator has one thread for each position of the result
and walks through all batches and channels with it (PyTorch's linear interpolation of contiguous data)."""

TILES = ((128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (16, 64), (64, 16))
"""Rows and columns of the result that a unit makes at a time; the tiles of cuBLAS and CUTLASS kernels."""

FEW = tuple(tile for few in (1, 2, 4, 8) for tile in ((few, 64), (64, few)))
"""Those of kernels for vectors, and for few rows or columns, which need no matrix instruction."""

SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts the sums of a product are split, so that more units have work."""

FUNCTION = 3
"""FLOPs an element from which element-wise work is a function (a sigmoid, GELU or hardswish), and no sum or
product. That such kernels of PyTorch's reach less of the bandwidth says nothing of generated loops: what
these compute is the sum of many operators, and one with a SiLU in it moves as many bytes a second as one
without (3.05 and 2.86 TB/s on an MI300X, in docs/fusion.md)."""

GATES = frozenset(f"aten.{op}{way}" for op in ("sigmoid", "silu", "hardsigmoid", "hardswish")
                  for way in ("", "_"))  # fmt: skip
"""Functions that are done with an exponential and a quotient, or with less, in one short chain."""

BROADCAST = 4
"""An operand that many times smaller than another is spread over it, and costs nothing to read."""

STEP = 32
"""What a unit sums over at a time."""

OLDER = {"9.0": 0.53}
"""What attention reaches that is written with matrix instructions of the generation before, of what it
reaches otherwise: FlashAttention-2 has 35 % of an H100's peak (Shah and others, "FlashAttention-3", arXiv
2407.08608, abstract), where this model has 0.75 of the sustained 0.88 for attention."""

_OLDER = frozenset(
    f"aten._scaled_dot_product_{kind}_attention{direction}"
    for kind in ("flash", "efficient") for direction in ("", "_backward")
)  # fmt: skip
"""Kernels of PyTorch's that are written with these; cuDNN's are not."""

CHANNELS = 8
"""Channels that a convolution on matrix units is padded to: 16 bytes of half precision."""

_TILED = {"matmul": "matmul", "recurrent": "matmul", "convolution": "convolution",
          "grouped_convolution": "grouped_convolution"}  # fmt: skip

_NORMALIZATIONS = {
    "aten.native_layer_norm": "layer_norm", "aten.rms_norm": "layer_norm",
    "aten._fused_rms_norm": "layer_norm", "aten.native_group_norm": "group_norm",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reach:
    """What kernels reach of a device.

    `compute` and `traffic` are shares of its sustained peak and bandwidth by class of work, none above
    one. `ramp` are the sums that a tile loses at its start and end, `feed` the bytes that the cache gives
    the units for each FLOP of their float32 peak, and `kept` the share of the cache that still holds what
    was touched so long ago. `overlap` is q, `second_pass` the seconds of adding up split sums, `conversion`
    the part of a contiguous convolution's traffic that is moved again, and `rows` the elements that a unit
    normalizes in a cycle of its clock.
    """

    compute: Mapping[str, float]
    traffic: Mapping[str, float]
    ramp: float
    feed: float
    kept: float
    overlap: float
    second_pass: float
    conversion: float
    rows: float


FITTED = Reach(
    compute={
        "matmul": 1.0,
        "convolution": 0.95,
        "grouped_convolution": 0.53,
        "depthwise_convolution": 0.061,
        "large_window": 0.024,
        "gradient": 0.75,
        "attention": 0.75,
    },
    traffic={
        "streaming": 1.0,
        "matmul": 0.85,
        "layer_norm": 1.0,
        "functions": 0.63,
        "gates": 0.96,
        "strided": 0.78,
        "group_norm": 0.60,
        "group_norm_last": 0.18,
        "softmax": 1.0,
        "reduction": 0.78,
        "rearranging": 0.52,
        "convolution": 0.58,
        "convolution_last": 0.83,
    },
    ramp=48,
    feed=0.22,
    kept=0.16,
    overlap=4.0,
    second_pass=2.7e-6,
    conversion=1.04,
    rows=0.82,
)
"""Fitted by benchmarks/predict.py (`gates` alone, later than the others); the same for all devices."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Seconds of one kernel on a device, what takes longest of them there, and those of its arithmetic, of
    its units' waiting for the cache, and of what it converts and packs."""

    seconds: float
    bound: Bound
    computing: float = 0.0
    waiting: float = 0.0
    copying: float = 0.0

    def started(self, seconds: float) -> KernelCost:
        """The same behind what starts it, which bounds it where it takes longer than all that it does: the
        gap before a kernel, or the call of an operator where host and device are one."""
        bound = Bound.LAUNCH if seconds > self.seconds else self.bound
        return replace(self, seconds=self.seconds + seconds, bound=bound)


def kernel_cost(task: Task, near: float, device: Device, reach: Reach = FITTED) -> KernelCost:
    """The seconds of a task of which the cache still holds `near` bytes. What is exchanged takes those of
    the link, and none where there is no link; what runs on the host is bound by its memory; a part of a
    kernel takes its share of what the whole takes."""
    if task.collective is not None and task.flops:
        return by_pieces(task, task.collective, device, reach)
    if task.collective is not None:
        linked = device.link_bandwidth is not None or task.collective.kind in TRANSFERS
        taken = collective_seconds(task.collective, device) if linked else 0.0
        return KernelCost(taken, Bound.EXPOSED)
    if task.on_host and device.kind != "cpu":
        moving = task.bytes / device.host_memory
        return KernelCost(moving, Bound.MEMORY).started(device.host_call)
    if task.share < 1:
        scale = 1 / task.share
        whole = replace(
            task, share=1.0, flops=int(task.flops * scale), written=int(task.written * scale),
            other_flops=int(task.other_flops * scale), sizes=tuple(int(s * scale) for s in task.sizes),
        )  # fmt: skip
        cost = kernel_cost(whole, near * scale, device, reach)
        own, copying = arithmetic(task, device, reach), cost.copying * task.share
        return KernelCost(cost.seconds * task.share, cost.bound, *own, copying)
    moving = traffic(task, task.bytes - near, near, device, reach)
    copying = moving * reach.conversion if converts(task, device) else 0.0
    if packs(task, device):
        copying = panels(task, device, reach)
    gap, hides = (
        (0.0 if device.kind == "cpu" else device.launch_overhead),
        overlap(task, device, reach),
    )
    return composed(*arithmetic(task, device, reach), moving, copying, hides).started(gap)


def by_pieces(task: Task, each: Collective, device: Device, reach: Reach) -> KernelCost:
    """A product whose operand is gathered, or whose result is scattered, piece by piece: one for each rank
    of the group, in two streams by turns, so that the copy of a piece runs beside the product of another.
    Products follow one another, and so do copies; those of a stream wait for each other. What is gathered
    is copied to where others read it first; what is scattered is added up last.
    Source: `_pipelined_all_gather_and_consume` and `_pipelined_produce_and_all2all`, and the streams drawn
    there, in torch/distributed/_symmetric_memory/__init__.py."""
    ranks, sizes, gap = max(1, each.ranks), task.contraction, device.launch_overhead
    gathers = each.kind is CollectiveKind.ALL_GATHER
    operands = (task.sizes[0] // ranks, *task.sizes[1:])
    piece = replace(
        task, collective=None, flops=task.flops // ranks, sizes=operands, written=task.written // ranks,
        contraction=None if sizes is None else replace(sizes, m=max(1, sizes.m // ranks)),
    )  # fmt: skip
    product = kernel_cost(piece, 0, device, reach)
    if ranks == 1 or device.link_bandwidth is None:
        return replace(product, seconds=product.seconds * ranks)
    share, barrier = each.bytes / ranks, gap + device.link_latency
    copy = gap + share / device.link_reached + (0 if gathers else 2 * barrier)
    own = gap + (2 * share if gathers else each.bytes + share) / device.sustained_bandwidth
    units = link = 0.0
    free = [0.0, 0.0]
    if gathers:
        units = free[0] = product.seconds
    for step in range(1, ranks):
        stream = step % 2
        if not gathers:
            units = free[stream] = max(units, free[stream]) + product.seconds
        link = free[stream] = max(link, free[stream]) + copy
        if gathers:
            units = free[stream] = max(units, link) + product.seconds
    if not gathers:
        units += product.seconds
    seconds = max(units, link) + own + 2 * barrier
    bound = Bound.EXPOSED if seconds > 2 * product.seconds * ranks else product.bound
    return replace(product, seconds=seconds, bound=bound)


def composed(
    computing: float, waiting: float, moving: float, copying: float, hides: float
) -> KernelCost:
    """A kernel of this arithmetic and traffic, whichever kernels they were of before it was fused, without
    what starts it; one hides behind the other by the power of `overlap`. Traffic bounds it where units wait
    for the cache longer than they compute, too."""
    units = computing + waiting
    longer = max(units, moving)
    both = (units / longer) ** hides + (moving / longer) ** hides if longer else 0.0
    bound = Bound.COMPUTE if computing > max(waiting, moving) else Bound.MEMORY
    return KernelCost(longer * both ** (1 / hides) + copying, bound, computing, waiting, copying)


def overlap(task: Task, device: Device, reach: Reach = FITTED) -> float:
    """How far arithmetic hides behind traffic: not at all where a library packs before it multiplies."""
    return 1.0 if packs(task, device) else reach.overlap


def traffic(task: Task, far: float, near: float, device: Device, reach: Reach = FITTED) -> float:
    """The seconds in which a kernel of a task's class moves so many bytes from the memory, and those that
    the cache still holds."""
    kind = traffic_class(task)
    share = (device.sustained_product if kind == "matmul" else None) or reach.traffic[kind]
    rate = device.sustained_bandwidth * share
    moving = far / rate + near / max(rate, cache_bandwidth(device, reach))
    if device.kind == "gpu":
        return max(moving, serial(task))
    if kind == "matmul" and task.contraction is not None and far:
        rows = task.contraction.batch * (task.contraction.m + task.contraction.n)
        moving += rows * device.row_latency * far / (far + near)
    return moving


def arithmetic(task: Task, device: Device, reach: Reach = FITTED) -> tuple[float, float]:
    """The seconds that a task's arithmetic takes, and those that its units wait for the cache."""
    if not task.flops:
        seconds = task.other_flops / (device.vector_peak("float32") * device.sustained_elementwise)
        if device.kind == "gpu" and traffic_class(task) == "layer_norm":
            elements = task.written / item_size(task.dtype)
            seconds = max(seconds, elements / (device.units * device.clock * reach.rows))
        return seconds, 0.0
    kind, dtype, sizes = task.category, device.multiplies(task.products), task.contraction
    if kind == "depthwise_convolution":
        large = sizes is not None and sizes.window > LARGE_WINDOW and task.layout != "channels-last"
        share = reach.compute["large_window" if large else kind]
        return task.flops / (device.vector_peak(dtype) * device.sustained_vector * share), 0.0
    peak = device.matrix_peak(dtype) * (
        device.sustained_matrix if device.has_matrix(dtype) else device.sustained_vector
    )
    kind = _TILED.get(kind, kind)
    share = reach.compute.get(kind, 1.0)
    if task.kernel in _OLDER:
        share *= OLDER.get(device.capability, 1.0)
    if kind.endswith("convolution") and task.kernel.endswith("_backward"):
        share *= reach.compute["gradient"]
    if sizes is None or kind not in _TILED or device.kind == "cpu":
        return task.flops / (peak * share), 0.0
    others = min(map(device.vector_peak, (dtype, "float32"))) * device.sustained_vector
    size, peaks = element_size(task.dtype), (peak * share, others * share)
    return tiled(sizes, task.flops, size, peaks, device, reach, task.packed)


def tiled(
    sizes: Contraction, flops: int, size: float, peaks: tuple[float, float], device: Device, reach: Reach,
    packed: float = 1.0,
) -> tuple[float, float]:  # fmt: skip
    """The seconds of a product's arithmetic and waiting over tiles, in waves, with the tile and the split
    that take least. `size` is that of an element in bytes, of which one of the second operand takes the
    part `packed`; `peaks` are what the units reach together, with matrix instructions where there are any,
    and without."""
    batch, m, n, units = sizes.batch, sizes.m, sizes.n, device.units
    channels = sizes.k / sizes.window
    k = sizes.k if sizes.window == 1 else ceil(channels / CHANNELS) * CHANNELS * sizes.window
    times = max(1, round(flops / (2 * batch * m * n * sizes.k)))
    near = cache_bandwidth(device, reach)
    steps = ceil(k / STEP)
    least, best = float("inf"), (0.0, 0.0)
    few = [(tile, peaks[1]) for tile in FEW if min(m, n) <= min(tile)]
    for (rows, columns), peak in [*((tile, peaks[0]) for tile in TILES), *few]:
        tiles = batch * ceil(m / rows) * ceil(n / columns)
        for split in SPLITS:
            if split > steps:
                break
            waves = ceil(tiles * split / units) * units
            depth = ceil(steps / split) * STEP
            computing = waves * 2 * rows * columns * (depth + reach.ramp) / peak
            drawing = waves * (rows + columns * packed) * depth * size / near
            waiting = max(0.0, drawing - computing)
            if split > 1:
                waiting += 8 * batch * m * n * split / near + reach.second_pass
            if computing + waiting < least:
                least, best = computing + waiting, (computing, waiting)
    return best[0] * times, best[1] * times


def cache_bandwidth(device: Device, reach: Reach) -> float:
    """Bytes a second that the cache gives all units together: it grows with their number and their clock,
    as their arithmetic does."""
    return device.cache_bandwidth or reach.feed * device.vector_peak("float32")


def packs(task: Task, device: Device) -> bool:
    """Whether a CPU's library copies the operands of a contraction into panels before it multiplies them:
    they are written and read once more. A product with a vector reads them as they are."""
    sizes = task.contraction
    return device.kind == "cpu" and sizes is not None and min(sizes.m, sizes.n) > 1


def panels(task: Task, device: Device, reach: Reach = FITTED) -> float:
    """Seconds of writing packed operands and reading them once more, as far as the cache goes there."""
    near, far = cache_bandwidth(device, reach), device.sustained_bandwidth
    held = min(task.read, device.cache)
    return 2 * (held / max(near, far) + (task.read - held) / far)


def converts(task: Task, device: Device) -> bool:
    """Whether a convolution runs on matrix units, which take channels-last, and its data is not. One whose
    window is a single position is a product of what lies there, and needs no other layout."""
    return (
        task.category in ("convolution", "grouped_convolution")
        and task.layout != "channels-last"
        and (task.contraction is None or task.contraction.window > 1)
        and device.kind == "gpu"
        and device.has_matrix(device.multiplies(task.products))
    )


def serial(task: Task) -> float:
    """The least seconds on a GPU where an operator has too few threads, else 0."""
    if task.category == "interpolation" and task.layout == "contiguous" and "linear" in task.kernel:
        return task.bytes / (max(1, task.positions) * THREAD)
    return 0.0


def traffic_class(task: Task) -> str:
    """The class of work whose share of the bandwidth a kernel reaches."""
    last = "_last" if task.layout == "channels-last" else ""
    if task.category in ("convolution", "grouped_convolution"):
        return f"convolution{last}"
    if task.category in ("matmul", "recurrent"):
        return "matmul"
    if task.kernel in _NORMALIZATIONS:
        kind = _NORMALIZATIONS[task.kernel]
        return kind + last if kind == "group_norm" else kind
    if task.category == "softmax":
        return "softmax"
    if task.category in ("reduction", "pooling", "indexing", "interpolation"):
        return "reduction"
    if task.category == "elementwise":
        generated = task.kernel.startswith(GENERATED)
        if (
            not generated
            and task.other_flops >= FUNCTION * task.written / item_size(task.dtype) > 0
        ):
            return "gates" if task.kernel in GATES else "functions"
        if task.layout == "mixed" and BROADCAST * min(task.sizes) >= max(task.sizes):
            return "strided"
    spread = BROADCAST * task.read <= task.written  # an expanded tensor, to make it whole
    return "rearranging" if task.kernel == "aten.clone" and not spread else "streaming"
