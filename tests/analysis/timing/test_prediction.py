"""Time on a device: the formula by hand, the work behind it, and what must hold of whole models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.cost.precision import autocast
from opgraph.analysis.fusion.partition import fused_subgraphs
from opgraph.analysis.memory import fit
from opgraph.analysis.timing.prediction import FITTED, Efficiencies, predict
from opgraph.analysis.timing.roofline import roofline
from opgraph.analysis.timing.workload import Contraction, contraction_of, workload
from opgraph.hardware import device
from opgraph.hardware.devices import Device, Figure
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Scope, Storage, Value
from opgraph.record.kinds import Bound

IDEAL = Efficiencies(
    compute=dict.fromkeys(FITTED.compute, 1.0),
    traffic=dict.fromkeys(FITTED.traffic, 1.0),
    cached=1.0,
)


def toy(**changes: float) -> Device:
    """1 TFLOP/s and 100 GB/s: a ridge of 10 FLOPs a byte. A launch takes a microsecond."""
    figures = {
        "vector.float32": 1e12, "memory.bandwidth": 1e11, "memory.capacity": 16e9,
        "execution.launch_overhead": 1e-6, **changes,
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


def test_a_large_product_is_bound_by_arithmetic():
    """2 * 1024^3 FLOPs at 1 TFLOP/s are 2.147 ms; 12 MiB at 100 GB/s are 0.126 ms; a launch is 1 µs."""
    found = predict(product(1024, 1024, 1024), toy(), IDEAL)
    assert found.seconds == pytest.approx(2 * 1024**3 / 1e12 + 1e-6)
    assert set(found.bounds.values()) == {"compute"}
    assert (found.batch, found.throughput) == (1024, pytest.approx(1024 / found.seconds))


def test_a_product_with_a_vector_is_bound_by_memory():
    """One row is padded to a tile of 128, and still 4 MiB of weights take longer to read."""
    found = predict(product(1, 1024, 1024), toy(**{"vector.float32": 1e14}), IDEAL)
    assert found.seconds == pytest.approx(4 * (1024 + 1024**2 + 1024) / 1e11 + 1e-6)
    assert set(found.bounds.values()) == {"memory"}


def test_efficiencies_divide():
    half = replace(IDEAL, compute={**IDEAL.compute, "matmul": 0.5})
    fast, slow = (predict(product(1024, 1024, 1024), toy(), e) for e in (IDEAL, half))
    assert slow.seconds - 1e-6 == pytest.approx(2 * (fast.seconds - 1e-6))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel("aten.addmm", "matmul", flops=2 * 8 * 4 * 16, shapes=((4,), (8, 16), (16, 4)),
                out_shapes=((8, 4),)), Contraction(1, 8, 4, 16)),
        (Kernel("aten.bmm", "matmul", flops=2 * 3 * 8 * 4 * 16, shapes=((3, 8, 16), (3, 16, 4)),
                out_shapes=((3, 8, 4),)), Contraction(3, 8, 4, 16)),
        # 2 images of 3 channels, 8 filters of 3 x 3: m = 2 * 10 * 10, k = 3 * 9.
        (Kernel("aten.convolution", "convolution", flops=2 * 200 * 8 * 27,
                shapes=((2, 3, 12, 12), (8, 3, 3, 3)), out_shapes=((2, 8, 10, 10),)),
         Contraction(1, 200, 8, 27, 9)),
        (Kernel("aten.convolution", "depthwise_convolution", flops=2 * 200 * 6 * 9,
                shapes=((2, 6, 12, 12), (6, 1, 3, 3)), out_shapes=((2, 6, 10, 10),)),
         Contraction(6, 200, 1, 9, 9)),
        (Kernel("aten._scaled_dot_product_flash_attention", "attention", flops=1,
                shapes=((2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)), out_shapes=((2, 4, 7, 16),)),
         Contraction(8, 7, 9, 16)),
    ],
    ids=["addmm", "bmm", "convolution", "depthwise", "attention"],
)  # fmt: skip
def test_contractions_by_their_sizes(kernel, expected):
    assert contraction_of(kernel) == expected


X, WEIGHT = (2, 6, 12, 12), (8, 3, 3, 3)


@pytest.mark.parametrize(
    ("made", "products"),
    [((X, WEIGHT), 2), ((X, WEIGHT, (8,)), 2), ((WEIGHT, (8,)), 1), ((X,), 1)],
)
def test_gradients_of_a_convolution_have_its_sizes(made, products):
    """Two groups, each with 4 of 8 filters of 3 x 3 over 3 of 6 channels. The operands are the gradient of
    the result, the input and the weight."""
    once = 2 * 2 * 200 * 4 * 27
    kernel = Kernel(
        "aten.convolution_backward", "grouped_convolution", flops=products * once,
        shapes=((2, 8, 10, 10), X, WEIGHT), out_shapes=made,
    )  # fmt: skip
    assert contraction_of(kernel) == Contraction(2, 200, 4, 27, 9)
    assert contraction_of(replace(kernel, out_shapes=((8,),))) is None


def test_a_transposed_convolution_sums_over_the_channels_of_its_input():
    """128 channels of 16 x 16 to 64 of 32 x 32, by a window of 2 x 2 with a stride of 2."""
    kernel = Kernel(
        "aten.convolution", "convolution", flops=2 * 256 * 128 * 64 * 4,
        shapes=((1, 128, 16, 16), (128, 64, 2, 2)), out_shapes=((1, 64, 32, 32),),
    )  # fmt: skip
    assert contraction_of(kernel) == Contraction(1, 256, 64, 128 * 4, 4)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_the_gradients_of_a_convolution_take_as_long_as_two_forwards(kind):
    """With every size a multiple of a tile's, and a device whose memory is as fast as can be."""
    layers = nn.Sequential(kind(64, 128, 3), kind(128, 64, 3))
    graph = opgraph.profile(layers, torch.zeros(2, 64, 12, 12), mode="train").graph
    found = predict(graph, toy(**{"memory.bandwidth": 1e18}), IDEAL)
    forward, backward = (
        [k.seconds - 1e-6 for k in found.kernels if k.kernel == f"aten.convolution{name}"]
        for name in ("", "_backward")
    )
    assert backward == pytest.approx([2 * forward[1], forward[0]])


def test_padding_to_tiles():
    assert Contraction(1, 100, 64, 32).padding(128, 64, 32) == 1.28
    assert Contraction(1, 128, 64, 27, window=9).padding(128, 64, 8) == pytest.approx(8 / 3)


def test_the_roofline_of_a_product():
    """1024^3: 2^31 FLOPs over 12 MiB are 170.7 FLOPs a byte, far right of a ridge of 10."""
    graph = product(1024, 1024, 1024)
    (point,) = roofline(graph, fused_subgraphs(graph), toy())
    assert point.intensity == pytest.approx(2**31 / (12 * 2**20))
    assert (point.attainable, point.bound) == (1e12, Bound.COMPUTE)
    graph = product(1, 1024, 1024)
    (point,) = roofline(graph, fused_subgraphs(graph), toy())
    assert point.attainable == pytest.approx(point.intensity * 1e11)
    assert point.intensity < 10


def test_what_fits():
    graph = product(1024, 1024, 1024)
    need = fit(graph, toy())
    assert (need.weights, need.peak, need.fits) == (4 * 2**20, 8 * 2**20, True)
    tight = fit(graph, toy(**{"memory.capacity": 9 * 2**20}))
    assert (tight.fits, tight.devices) == (False, 4)
    assert fit(graph, toy(**{"memory.capacity": 7 * 2**20})).devices == 0


NAMES = ("resnet18", "bert-base-uncased", "gpt2", "yolov8n")


@pytest.mark.parametrize("name", NAMES)
def test_whole_models(saved, name):
    graph = saved(name).graph
    slow, fast = predict(graph, device("t4")), predict(graph, device("h100-sxm"))
    assert 0 < fast.seconds <= slow.seconds
    assert sum(fast.by_node.values()) == pytest.approx(fast.seconds)
    points = roofline(graph, fused_subgraphs(graph), device("t4"))
    assert all(p.attainable <= device("t4").matrix_peak(p.dtype) for p in points)
    assert all(p.predicted > 0 for p in points)
    assert sum(p.seconds for p in points) < slow.seconds


@pytest.mark.parametrize("name", NAMES)
def test_work_is_what_the_kernels_are(saved, name):
    graph = saved(name).graph
    works = workload(graph)
    assert sum(w.flops for w in works) == saved(name).totals.flops
    assert sum(w.flops for w in workload(autocast(graph))) == saved(name).totals.flops
    assert all(w.bytes or w.flops for w in works)


class Pooled(nn.Module):
    """Something of each image of a list, as detectors take them; or of each level of a batch."""

    def forward(self, images):
        return [image.mean((-1, -2)) for image in images]


@pytest.mark.parametrize(
    ("shapes", "batch"),
    [
        ([(3, 32, 48)], 1),
        ([(3, 32, 48), (3, 40, 40)], 2),
        ([(8, 3, 32, 32), (8, 3, 16, 16)], 8),
        ([(8, 32, 64)], 8),
    ],
)
def test_images_in_a_list_are_the_batch(shapes, batch):
    found = opgraph.profile(Pooled(), ([torch.zeros(shape) for shape in shapes],))
    again = opgraph.Profile.from_dict(found.to_dict())
    predicted = predict(again.graph, toy())
    assert predicted.batch == batch
    assert predicted.throughput == pytest.approx(batch / predicted.seconds)
