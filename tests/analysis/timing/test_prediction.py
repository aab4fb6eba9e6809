"""Time on a device: the formula by hand, the work behind it, and what must hold of whole models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.analysis.timing.toys import product, toy
from torch import nn

import opgraph
from opgraph.analysis.cost.conventions import counted
from opgraph.analysis.cost.precision import autocast
from opgraph.analysis.cost.totals import Cost
from opgraph.analysis.fusion.partition import Subgraph, fused_subgraphs, singletons
from opgraph.analysis.memory import fit
from opgraph.analysis.timing.intervals import UNKNOWN, distance, interval
from opgraph.analysis.timing.kernels import FITTED, arithmetic, kernel_cost, panels, traffic_class
from opgraph.analysis.timing.prediction import predict, predict_parts
from opgraph.analysis.timing.roofline import roofline
from opgraph.analysis.timing.workload import (
    NOTHING,
    Contraction,
    Task,
    Work,
    contraction_of,
    workload,
)
from opgraph.hardware import device, devices
from opgraph.hardware.devices import FOLDER
from opgraph.record import units
from opgraph.record.errors import OpgraphError
from opgraph.record.graph import Collective, Kernel
from opgraph.record.kinds import Bound, CollectiveKind, Run


def test_float32_is_multiplied_as_torch_has_it() -> None:
    """Convolutions in TensorFloat-32, products not, unless torch is told otherwise."""
    images, cudnn, products = torch.zeros(8, 64, 56, 56), torch.backends.cudnn, torch.backends.cuda
    convolution, linear = nn.Conv2d(64, 64, 3, padding=1), nn.Linear(1024, 1024)

    def dtypes(name: str) -> tuple[str, str]:
        found = (
            opgraph.profile(convolution, images),
            opgraph.profile(linear, torch.zeros(512, 1024)),
        )
        first, second = (profile.on(name).main_dtype for profile in found)
        return first, second

    def seconds() -> float:
        return opgraph.profile(convolution, images).on("a100").prediction.device_seconds

    before = cudnn.conv.fp32_precision, products.matmul.fp32_precision
    try:
        quick = seconds()
        assert dtypes("a100") == ("tfloat32", "float32")
        assert (
            dtypes("v100-16gb") == dtypes("mi300x") == dtypes("epyc-9654") == ("float32", "float32")
        )
        products.matmul.fp32_precision = "tf32"
        assert dtypes("a100") == ("tfloat32", "tfloat32")
        cudnn.conv.fp32_precision = "ieee"
        assert dtypes("a100") == ("float32", "tfloat32")
        assert seconds() > 1.5 * quick
    finally:
        cudnn.conv.fp32_precision, products.matmul.fp32_precision = before
    assert dtypes("a100") == ("tfloat32", "float32")


IDEAL = replace(
    FITTED,
    compute=dict.fromkeys(FITTED.compute, 1.0),
    traffic=dict.fromkeys(FITTED.traffic, 1.0),
    ramp=0,
    feed=1e9,
    overlap=1e6,
    second_pass=0.0,
    conversion=0.0,
)


def test_a_large_product_is_bound_by_arithmetic():
    """2 * 1024^3 FLOPs at 1 TFLOP/s are 2.147 ms; 12 MiB at 100 GB/s are 0.126 ms; a launch is 1 µs."""
    found = predict(product(1024, 1024, 1024), toy(), reach=IDEAL)
    assert found.seconds == pytest.approx(2 * 1024**3 / 1e12 + 1e-6)
    assert set(found.bounds.values()) == {"compute"}
    assert (found.batch, found.throughput) == (1024, pytest.approx(1024 / found.seconds))


def test_a_product_with_a_vector_is_bound_by_memory():
    """One row is a tile of 16 rows, and 4 MiB of weights take longer to read."""
    found = predict(product(1, 1024, 1024), toy(**{"vector.float32": 1e14}), reach=IDEAL)
    assert found.seconds == pytest.approx(4 * (1024 + 1024**2 + 1024) / 1e11 + 1e-6)
    assert set(found.bounds.values()) == {"memory"}


def test_efficiencies_divide():
    half = replace(IDEAL, compute={**IDEAL.compute, "matmul": 0.5})
    fast, slow = (predict(product(1024, 1024, 1024), toy(), reach=e) for e in (IDEAL, half))
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
    found = predict(graph, toy(**{"memory.bandwidth": 1e18}), reach=IDEAL)
    forward, backward = (
        [k.seconds - 1e-6 for k in found.kernels if k.kernel == f"aten.convolution{name}"]
        for name in ("", "_backward")
    )
    assert backward == pytest.approx([2 * forward[1], forward[0]])


def test_a_product_takes_the_tile_and_the_waves_that_cost_least():
    """64 x 64 of 1,024 sums on 4 units of 250 GFLOP/s: four tiles of 16 x 64 are one
    wave, where one tile of 64 x 64 leaves three units idle."""
    found = predict(product(64, 64, 1024), toy(**{"execution.units": 4}), reach=IDEAL)
    assert found.seconds - 1e-6 == pytest.approx(2 * 64 * 64 * 1024 / 1e12)


def test_sums_are_split_where_a_result_has_too_few_tiles():
    """16 x 64 of 32,768 sums on 16 units: split in 16, each unit sums over 2,048."""
    machine = toy(**{"execution.units": 16, "memory.bandwidth": 1e15})
    found = predict(product(16, 64, 32768), machine, reach=IDEAL)
    assert found.seconds - 1e-6 == pytest.approx(2 * 16 * 64 * 32768 / 1e12)


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_few_rows_are_never_bound_by_arithmetic(rows, kind):
    """GPT-2's products of one row in float32 were 16 rows of a tile on an H100: bound by compute."""
    (work,) = workload(product(rows, 2304, 768))
    for machine in devices():
        if machine.kind == "gpu":
            cost = kernel_cost(replace(work.task, dtype=kind), 0, machine)
            assert cost.bound in ("memory", "launch"), machine.id


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "rtx-3090", "h100-sxm", "epyc-9654"])
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_a_few_rows_take_as_long_as_their_weights(name, rows):
    """They were padded to 128 rows, in every dtype, on every device. A CPU's library copies them into
    panels before it multiplies more than one row."""
    machine = device(name)
    (work,) = workload(product(rows, 8192, 8192))
    cost = kernel_cost(work.task, 0, machine)
    least = work.task.bytes / machine.sustained_bandwidth
    copied = machine.kind == "cpu" and rows > 1
    before = panels(work.task, machine) + cost.computing if copied else 0.0
    assert cost.bound == "memory"
    assert 0.99 * least < cost.seconds - before < 1.4 * least


@pytest.mark.parametrize(("window", "share"), [(3, 1.0), (1, 0.0)])
def test_a_contiguous_convolution_on_matrix_units_is_converted(window, share):
    """Its traffic is moved once more. With a window of one position it is a product, and needs no other
    layout."""
    layer, x = (
        nn.Conv2d(64, 64, window, padding=window // 2).half(),
        torch.zeros(64, 64, 56, 56).half(),
    )
    (work,) = (w for w in workload(opgraph.profile(layer, (x,)).graph) if w.task.kernel)
    plain, converting = (
        kernel_cost(work.task, 0, device("rtx-3090"), replace(FITTED, conversion=c)).seconds
        for c in (0.0, 1.0)
    )
    moved = work.task.bytes / device("rtx-3090").sustained_bandwidth / FITTED.traffic["convolution"]
    assert converting - plain == pytest.approx(share * moved)


def test_functions_take_more_than_sums_and_what_lies_in_another_order_too():
    x, y = torch.zeros(2**24), torch.zeros(4096, 4096)
    runs = [
        (nn.GELU, (x,)), (nn.SiLU, (x,)), (nn.ReLU, (x,)),
        (Sum, (y, y.t())), (Sum, (y, y)), (Sum, (y, y[:1])),
        (Whole, (y.t(),)), (Whole, (y[:1].expand(4096, 4096),)),
    ]  # fmt: skip
    kinds = [
        traffic_class(
            next(w.task for w in workload(opgraph.profile(m(), a).graph) if w.task.kernel)
        )
        for m, a in runs
    ]
    assert kinds == ["functions", "gates", "streaming", "strided", "streaming", "streaming",
                     "rearranging", "streaming"]  # fmt: skip


class Whole(nn.Module):
    def forward(self, x):
        return x.contiguous()


class Sum(nn.Module):
    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other


def test_a_run_takes_the_longer_of_two_queues():
    """A hundred small products: the host needs 10 µs each, the device little more than a microsecond."""
    slow = toy(**{"host.call": 1e-5, "memory.bandwidth": 1e13, "vector.float32": 1e14})
    layers = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(100)))
    graph = opgraph.profile(layers, torch.zeros(4, 64)).graph
    eager, recorded = (predict(graph, slow, run) for run in (Run.EAGER, Run.GRAPHS))
    assert (eager.limit, recorded.limit) == ("host", "device")
    assert eager.seconds == pytest.approx(100e-5, rel=1e-3)
    assert eager.device_seconds == pytest.approx(recorded.seconds)
    assert eager.idle == pytest.approx(1 - recorded.seconds / eager.seconds)
    assert set(eager.bounds.values()) == {Bound.LAUNCH}
    for found in (eager, recorded):
        assert sum(found.by_limit.values()) == pytest.approx(found.seconds)
        assert sum(found.by_node.values()) == pytest.approx(recorded.seconds)


def test_what_a_part_takes_is_the_device_s_whichever_queue_is_longer():
    """A head of 1,000 by 50,257 takes the device a while, though the host launches it in ten µs."""
    small = (
        nn.Sequential(nn.Linear(1000, 8, bias=False), nn.Linear(8, 1000, bias=False))
        for _ in range(50)
    )
    head = nn.Linear(1000, 50257, bias=False)
    graph = opgraph.profile(nn.Sequential(*small, head), torch.zeros(1, 1000)).graph
    found = predict(graph, device("h100-sxm"))
    last = graph.nodes[-2].id
    assert found.limit == "host"
    assert found.by_node[last] > 201e6 / 3.35e12
    assert found.by_node[last] == max(found.by_node.values())
    assert found.by_limit[last] == device("h100-sxm").host_call + device("h100-sxm").host_module
    # That takes longer than to launch it, and nothing else does.
    assert [n for n, bound in found.bounds.items() if bound is not Bound.LAUNCH] == [last]
    assert found.bounds[last] is Bound.MEMORY


def test_on_a_cpu_host_and_device_are_one():
    """Two operands are read, copied and read again before they are multiplied, and the result is written.
    A megabyte of cache has one of the two panels' bytes, at five times the memory's rate. Each of 1,024
    rows comes a microsecond late."""
    graph, figures, least = product(512, 512, 512), {"host.call": 1e-3}, 2 * 512**3 / 1e12 + 1e-3
    moved, cached = (2 + 4 + 1) * 2**20 / 1e11, 2 * 2**20 * (1 - 1 / 5) / 1e11
    for added, seconds in (
        ({}, least + moved),
        ({"memory.cache": 2**20, "memory.cache_bandwidth": 5e11}, least + moved - cached),
        ({"memory.row_latency": 1e-6}, least + moved - cached + 1024e-6),
    ):
        figures |= added
        found = predict(graph, replace(toy(**figures), kind="cpu"), reach=IDEAL)
        assert found.seconds == pytest.approx(seconds)
        assert found.limit == "device"


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
    beside = need.rounding + need.workspace
    tight = fit(graph, toy(**{"memory.capacity": 9 * 2**20 + beside}))
    assert (tight.fits, tight.devices) == (False, 4)
    assert fit(graph, toy(**{"memory.capacity": 7 * 2**20 + beside})).devices == 0


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("a100-sxm4-80gb", 8_519_680), ("rtx-4090", 8_519_680), ("h100-sxm", 32 << 20),
        ("b200", 32 << 20), ("rtx-5090", 32 << 20), ("mi300x", 128 << 20), ("epyc-9654", 0),
    ],
)  # fmt: skip
def test_each_thread_that_multiplies_has_a_workspace(name, each):
    """One for the forward, and one for the backward, which autograd runs in a thread of its own."""
    model, x = nn.Linear(8, 8), torch.ones(2, 8)
    trained = opgraph.profile(model, x, mode="train", loss="sum")
    assert fit(opgraph.profile(model, x).graph, device(name)).workspace == each
    assert fit(trained.graph, device(name)).workspace == 2 * each
    assert fit(opgraph.profile(nn.ReLU(), x).graph, device(name)).workspace == 0


NAMES = ("resnet18", "bert-base-uncased", "gpt2", "yolov8n")


@pytest.mark.parametrize("name", NAMES)
def test_whole_models(saved, name):
    graph = saved(name).graph
    slow, fast = (predict(graph, device(d), Run.GRAPHS) for d in ("t4", "h100-sxm"))
    assert 0 < fast.seconds <= slow.seconds
    assert sum(fast.by_node.values()) == pytest.approx(fast.seconds)
    for machine in (device("t4"), device("epyc-9654")):
        alone = predict(graph, machine)
        parts = predict_parts(workload(graph), singletons(graph), machine)
        each = {
            n.id: (p.seconds, p.bound) for n, p in zip(graph.nodes, parts, strict=True) if p.seconds
        }
        assert {n: (alone.by_node[n], alone.bounds[n]) for n in alone.bounds} == each
        groups = fused_subgraphs(graph)
        for group, fused in zip(
            groups, predict_parts(workload(graph), groups, machine), strict=True
        ):
            apart = sum(alone.by_node.get(n, 0.0) for n in group.nodes)
            assert fused.seconds <= apart * (1 + 1e-9)
            if group.kernels == 1:
                assert fused.seconds == apart
    points = roofline(graph, fused_subgraphs(graph), device("t4"))
    assert all(p.attainable <= device("t4").matrix_peak(p.dtype) for p in points)
    assert all(p.predicted > 0 for p in points)
    assert sum(p.seconds for p in points) < slow.seconds


@pytest.mark.parametrize("name", NAMES)
def test_work_is_what_the_kernels_are(saved, name):
    graph = saved(name).graph
    works = workload(graph)
    counts = counted(saved(name), {"attention": "causal"})
    for each in (
        graph,
        autocast(graph),
        counts.graph,
    ):  # time does not hang on how FLOPs are counted
        done = sum(w.task.flops for w in workload(each))
        assert done == pytest.approx(counts.totals.flops, rel=1e-9)
    assert all(w.task.bytes or w.task.flops or w.task is NOTHING for w in works)


@pytest.mark.slow
@pytest.mark.live
def test_causal_attention_passes_over_what_its_mask_leaves_out() -> None:
    """100 x 101 / 2 of 100 x 100 pairs, forward and backward. On an H100 kernels of the generation before
    reach 0.629 of its matrix units, and cuDNN's all of them."""
    x = torch.zeros(1, 4, 100, 32, dtype=torch.float16)

    def work(target: str) -> list[Task]:
        found = opgraph.profile(Causal().half(), x, mode="train", loss="sum", target=target)
        tasks = (w.task for w in workload(found.graph))
        return [t for t in tasks if t.category == "attention"]

    forward, backward = work("cuda:8.0")
    assert forward.flops == 2 * 2 * 4 * 32 * 5050
    assert backward.flops == pytest.approx(2.5 * forward.flops)
    fast, slow = (
        arithmetic(t, replace(device("h100-sxm"), capability=c))[0]
        for t, c in ((forward, "8.0"), (forward, "9.0"))
    )
    assert fast == pytest.approx(0.53 * slow)
    assert arithmetic(work("cuda:9.0")[0], device("h100-sxm"))[0] == pytest.approx(fast)


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_what_is_exchanged_is_not_fused() -> None:
    """A gather and the view of its result are one subgraph, which takes what the gather takes."""
    gather = Collective(CollectiveKind.ALL_GATHER, 2**30, 4)
    task = Task("c10d", "collective", "", 0, 0, 2**30, (2**28,), collective=gather)
    parts = [Subgraph(1, "movement", "", (1, 2), Cost(), 1, 2**28, 2**30)]
    h100 = device("h100-sxm")
    (found,) = predict_parts([Work(1, task, (None,)), Work(2, NOTHING)], parts, h100)
    assert found.seconds == kernel_cost(task, 0, h100).seconds


def test_the_host_s_time_is_where_its_calls_are(saved):
    """Both products of GPT-2's attention are one call each, whatever views stand before them."""
    graph = saved("gpt2").graph
    found, host = predict(graph, device("h100-sxm")), device("h100-sxm")
    assert found.limit == "host"
    at = {n.scope: found.by_limit[n.id] for n in graph.nodes if n.op == "addmm"}
    assert at["h.3.attn.c_attn"] == at["h.3.attn.c_proj"] == host.host_call
    views = [
        n for n in graph.nodes if n.kind == "call" and all(k.cost == "zero" for k in n.kernels)
    ]
    assert views
    assert all(found.by_limit[n.id] >= host.host_call for n in views)
    assert not any(found.by_node.get(n.id) for n in views)
    assert sum(found.by_limit.values()) == pytest.approx(found.seconds)


def test_the_views_of_a_backward_are_not_called():
    """Autograd hands on gradients as `detach` in C++; the products beside them are calls."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    graph = opgraph.profile(model, torch.zeros(2, 4), mode="train", loss="sum").graph
    backward = [n for n in graph.nodes if n.phase == "backward" and n.kernels]
    found = predict(graph, device("h100-sxm"))
    assert found.limit == "host"
    idle = {n.op for n in backward if not found.by_limit.get(n.id)}
    assert idle == {n.op for n in backward if all(k.category == "view" for k in n.kernels)}
    assert {"detach", "transpose"} < idle


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


def test_an_interval_is_wide_where_nothing_was_measured(saved):
    """An RTX 3090 was measured, an RTX 5090 only devices like it, a TPU nothing like it."""
    graph = saved("resnet18").graph
    widths = []
    for name in ("rtx-3090", "rtx-5090", "tpu-v5e"):
        found = predict(graph, device(name), Run.GRAPHS)
        low, high = found.interval
        assert low < found.seconds < high
        assert found.written.startswith(f"{units.seconds(found.seconds)} (")
        widths.append(high / low)
    assert widths[0] < 2
    assert widths == sorted(widths)
    assert widths[2] == pytest.approx(UNKNOWN**2)


@pytest.mark.parametrize(("name", "far"), [("h100-sxm", "measured"), ("h100-sxm-96gb", "left out")])
def test_a_figure_that_was_derived_is_no_measurement(name, far):
    """What products sustain under a lower limit of power follows from the 700 W part; nobody looked."""
    assert device(name).figure("sustained.matrix")
    assert distance(device(name), "product") == far


def test_what_was_not_measured_eagerly_has_a_wider_interval():
    """Prefills through engines take up to 1.6 times the predicted time; no compiled run was fitted to."""

    def ratios(run: Run) -> tuple[float, float]:
        squares = {"compute matmul": 0.8, "one task": 0.1}
        return interval("product", squares, "measured", run=run)

    eager, engine, compiled = map(ratios, (Run.EAGER, Run.ENGINE, Run.COMPILED))
    assert engine[0] <= eager[0]
    assert engine[1] > 1.3 > eager[1]
    assert compiled == pytest.approx((eager[0] / 2**0.5, eager[1] * 2**0.5))


def test_what_is_missing_of_a_device_widens_its_interval(tmp_path):
    text = (FOLDER / "l4.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("launch_overhead")]
    path = tmp_path / "l4.toml"
    path.write_text("\n".join(['missing = ["execution.launch_overhead"]', *lines]))
    graph = product(1024, 1024, 1024)
    whole, part = predict(graph, device("l4"), Run.GRAPHS), predict(graph, device(path), Run.GRAPHS)
    assert part.seconds == pytest.approx(whole.seconds, rel=0.2)
    assert part.ratios[1] == pytest.approx(whole.ratios[1] * 2**0.5)
    path.write_text("\n".join(lines))
    with pytest.raises(OpgraphError, match=r"'execution.launch_overhead' is missing"):
        device(path)
