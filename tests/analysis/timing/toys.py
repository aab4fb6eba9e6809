"""A device and a product whose figures are easy to work out by hand."""

from __future__ import annotations

from opgraph.hardware import Device, Figure
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Scope, Storage, Value


def toy(**changes: float) -> Device:
    """1 TFLOP/s and 100 GB/s: a ridge of 10 FLOPs a byte. A launch takes a microsecond."""
    figures = {
        "vector.float32": 1e12, "memory.bandwidth": 1e11, "memory.capacity": 16e9,
        "execution.launch_overhead": 1e-6, "sustained.matrix": 1.0, "sustained.vector": 1.0,
        "sustained.bandwidth": 1.0, "host.call": 1e-9, "host.module": 1e-9, **changes,
    }  # fmt: skip
    return Device(
        "toy", "Toy", "me", "gpu", "none", (), {k: Figure(v, "") for k, v in figures.items()}
    )


def product(m: int, n: int, k: int) -> Graph:
    """y = x @ w."""
    kernel = Kernel(
        "aten.mm", "matmul", "float32", flops=2 * m * n * k, read=4 * (m * k + k * n),
        written=4 * m * n, shapes=((m, k), (k, n)), out_shapes=((m, n),),
    )  # fmt: skip
    values = (
        Value(0, (m, k), "float32", 4 * m * k, "input", "x", storage=0),
        Value(1, (k, n), "float32", 4 * k * n, "parameter", "w"),
        Value(2, (m, n), "float32", 4 * m * n, storage=1),
    )
    nodes = (
        Node(1, "input", "input", "x", outputs=(0,)),
        Node(2, "call", "mm", "mm", inputs=(0, 1), outputs=(2,), kernels=(kernel,)),
    )
    weight = Parameter("w", (k, n), "float32", k * n, 4 * k * n, "")
    storages = (Storage(4 * m * k, 0, None, 1), Storage(4 * m * n, 0, None, 2))
    return Graph(nodes, values, (Scope("", "M"),), (weight,), storages, (0,), (2,))
