"""TorchInductor's schedule for a GPU that is not there."""

from __future__ import annotations

import ast
import gc
import gzip
import json
import os
import re
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import fx, nn
from torch._inductor.scheduler import Scheduler
from torch.hub import tqdm
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import opgraph
from opgraph.analysis.costed import COMPILED
from opgraph.analysis.memory import live_bytes
from opgraph.cli import main
from opgraph.hardware import device
from opgraph.record.profile import GENERATED
from opgraph.tracing.replay import inductor
from opgraph.tracing.replay.inductor import on_cuda, patches, properties, schedule

TRACES = Path(__file__).parents[2] / "traces" / "data" / "tracelens"

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("usual_settings")]


class Block(nn.Module):
    """A pre-norm block of a transformer."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        )
        return x + self.down(functional.gelu(self.up(self.norm(x))))


@pytest.fixture(scope="module")
def block() -> opgraph.Profile:
    return opgraph.profile(
        Block().bfloat16(), torch.zeros(2, 128, 256, dtype=torch.bfloat16),
        inductor=True, target="cuda:9.0",
    )  # fmt: skip


def test_a_block_is_the_kernels_that_a_gpu_runs(block):
    """Layer norm is one kernel, the residual goes into the next one, GELU and the bias into one, and
    attention is the target's: nothing of S x S is written."""
    kernels = block.compiled.kernels
    libraries = [k.kernel.op for k in kernels if k.kernel.op.startswith("aten.")]
    assert libraries == [
        "aten.addmm",
        "aten._scaled_dot_product_cudnn_attention",
        *["aten.addmm"] * 3,
    ]
    assert sum(k.kernel.flops for k in kernels) == block.totals.flops
    names = [{block.graph.node(i).op for i in k.nodes} for k in kernels]
    assert any({"add", "layer_norm"} <= each for each in names)
    gc.collect()  # a process that compiles many models keeps none of their graphs
    assert not any(type(kept) is Scheduler for kept in gc.get_objects())
    assert len(kernels) <= 10 < len([n for n in block.graph.nodes if n.bytes]) + 1


class Gated(nn.Module):
    """The block that TraceLens compiled on an MI300X (its examples/repro_triton_trace.py)."""

    def __init__(self, width: int = 2048) -> None:
        super().__init__()
        self.norms = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(2))
        sizes = [(width, width)] * 4 + [(width, 4 * width)] * 2 + [(4 * width, width)]
        self.layers = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

        *qkv, out, gate, up, down = self.layers
        y = norm(x, self.norms[0])
        heads = (layer(y).view(*x.shape[:2], 16, -1).transpose(1, 2) for layer in qkv)
        y = functional.scaled_dot_product_attention(*heads)
        x = x + out(y.transpose(1, 2).reshape(x.shape))
        y = norm(x, self.norms[1])
        return x + down(functional.silu(gate(y)) * up(y))


def test_the_kernels_of_a_trace_are_found_again():
    """Generated ones by their names and the sizes of what they are given, products by their shapes, in the
    order in which they ran."""
    with torch.device("meta"):
        model, x = Gated().bfloat16(), torch.zeros(8, 4096, 2048, dtype=torch.bfloat16)
    target = device("mi300x").target
    found = opgraph.profile(model, x, inductor=True, target=target)
    mine = []
    for each in found.compiled.kernels:
        given = {**dict(each.reads), **dict(each.writes)}  # what is written in place is given once
        if each.kernel.op == "aten.mm":
            mine.append(("mm", [list(shape) for shape in each.kernel.shapes]))
        elif each.kernel.op.startswith(GENERATED):
            mine.append((each.kernel.op.removeprefix(GENERATED), sorted(given.values())))
    with gzip.open(TRACES / "block-compiled-mi300.json.gz") as file:
        events = json.load(file)["traceEvents"]
    theirs = []
    for event in sorted((e for e in events if e["cat"] == "cpu_op"), key=lambda e: e["ts"]):
        shapes = [shape for shape in event["args"].get("Input Dims", ()) if shape]
        if event["name"] == "aten::mm":
            theirs.append(("mm", shapes[:2]))
        elif name := re.fullmatch(r"triton_(\w+)_\d+", event["name"]):
            theirs.append((name[1], sorted(2 * prod(shape) for shape in shapes)))
    assert mine == theirs
    assert len(mine) == 11


def test_a_chain_reads_its_inputs_once_and_writes_its_result_once():
    class Chain(nn.Module):
        def forward(self, x, y):
            return functional.relu(x * 2 + y).sigmoid()

    size = 1 << 16
    found = opgraph.profile(Chain(), (torch.zeros(size), torch.zeros(size)), inductor=True)
    (kernel,) = found.compiled.kernels
    assert (kernel.kernel.read, kernel.kernel.written) == (2 * 4 * size, 4 * size)
    assert [found.graph.node(i).op for i in kernel.nodes] == ["mul", "add", "relu", "sigmoid"]
    assert found.on("h100-sxm", run="compiled").totals.bytes == 3 * 4 * size


def test_what_is_in_another_precision_is_compiled_so():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 64, bias=False)

        def forward(self, x):
            return self.fc(x)

    found = opgraph.profile(
        Product(), torch.zeros(8, 64), inductor=True, inductor_autocast="float16"
    )
    casts = [k for k in found.compiled.kernels if k.kernel.op.startswith(GENERATED)]
    (product,) = [k for k in found.compiled.kernels if k.kernel.op == "aten.mm"]
    assert product.kernel.dtype == "float16"
    assert sorted(k.kernel.read for k in casts) == [4 * 8 * 64, 4 * 64 * 64]
    with pytest.raises(opgraph.RenderError, match=r"mixed precision \(float16\)"):
        found.on("rtx-4090", run="compiled")
    assert found.on("rtx-4090", run="compiled", autocast="float16").seconds


def test_between_fragments_things_run_as_they_do_without_a_compiler():
    class Broken(nn.Module):
        def forward(self, x):
            x = x * 2 + 1
            torch._dynamo.graph_break()
            return x * 3 + 1

    found = opgraph.profile(Broken(), torch.zeros(1024), inductor=True)
    assert [k.fragment for k in found.compiled.kernels] == [1, 2]
    assert [w.modules for w in found.on("h100-sxm", run="compiled").work] == [1, 1]


def test_a_bias_that_is_added_apart_does_not_count_the_convolution_again():
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    found = opgraph.profile(model, torch.zeros(2, 16, 32, 32), inductor=True)
    mine = found.on("h100-sxm", run="compiled")
    assert mine.totals.flops == found.totals.flops
    assert mine.totals.cost.other_flops <= 2 * found.totals.cost.other_flops
    assert [n.op for n in mine.graph.nodes if n.flops] == ["conv2d"]


def test_a_step_of_decoding_is_compiled_with_its_cache():
    found = opgraph.profile("gpt2", mode="decode", context_len=16, model_args={"n_layer": 1},
                            dtype="bfloat16", inductor=True)  # fmt: skip
    mine = found.on("h100-sxm", run="compiled")
    assert found.mode == "decode"
    assert found.cache.tokens == 17
    assert mine.totals.flops == found.totals.flops
    assert mine.prediction.limit == "host"
    low, high = mine.prediction.interval
    assert high / low > 8  # of the host of a compiled run nothing was measured
    assert not mine.steps
    assert not any("started" in r for r in mine.remarks)
    assert mine.remarks[-1] == COMPILED


def test_what_python_makes_and_samplers_need_no_driver():
    """Numbers in Python, a tensor without a device, a list as an index, and a sampler that is cuDNN's in an
    eager run."""

    class Sampled(nn.Module):
        def forward(self, x):
            scale = torch.as_tensor([0.5, 0.5], device=x.device)[[1, 0]]
            line = torch.arange(8.0) / 8
            grid = torch.stack((line, line), -1)[None, :, None] * scale
            return functional.grid_sample(x, grid, align_corners=False)

    found = opgraph.profile(Sampled(), torch.zeros(1, 2, 8, 8), inductor=True)
    assert found.compiled.kernels


def test_two_ways_to_run_a_model_by_name_are_compared(capsys):
    asked = ["compare", "squeezenet1_1", "--run", "eager", "--run", "compiled", "--hardware", "l4"]
    assert main([*asked, "--format", "csv"]) == 0
    heads, *rows = (line.split(",") for line in capsys.readouterr().out.splitlines())
    assert heads[1:] == ["squeezenet1_1 eager", "squeezenet1_1 compiled"]
    eager, compiled = next(map(float, row[1:]) for row in rows if row[0] == "latency")
    assert compiled < eager


def test_it_is_refused_where_it_is_not_worked_out():
    with pytest.raises(opgraph.InputError, match="not worked out for mps"):
        opgraph.profile(nn.Linear(2, 2), torch.zeros(1, 2), inductor=True, target="mps")
    with pytest.raises(opgraph.InputError, match="mixed precision is that of cuda"):
        opgraph.profile(nn.Linear(2, 2), torch.zeros(1, 2), inductor=True, target="cpu",
                        inductor_autocast="float16")  # fmt: skip


CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.SiLU(),
    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 36, 8),
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "shape"),
    [(nn.Sequential(Block(64), Block(64)), (2, 32, 64)), (CONVOLUTIONS, (4, 3, 16, 16))],
    ids=["transformer", "convolutions"],
)
def test_what_lives_is_what_the_code_allocates_that_torch_writes(model, shape):
    """TorchInductor's own code for this machine, read line by line."""
    from torch._functorch import config as functorch  # these take seconds
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    code: list[str] = []

    def written(lowering: GraphLowering) -> None:
        code.extend(lowering.codegen()[0].value.partition("def call")[2].splitlines())
        raise ZeroDivisionError

    model.eval()
    torch._dynamo.reset()
    with (
        mock.patch.object(GraphLowering, "compile_to_module", written),
        config.patch({"cpp.simdlen": 1, "fx_graph_cache": False}), torch.no_grad(),
        functorch.patch(enable_autograd_cache=False),
        pytest.raises(Exception, match="ZeroDivisionError"),
    ):  # fmt: skip
        torch.compile(model)(torch.zeros(shape))
    alive: dict[str, int] = {}
    peak = 0
    for line in code:
        made = re.search(r"(buf\d+)(?: = empty_strided_cpu\(|, )(\(.*\)), torch.float32", line)
        if made is not None:
            size, stride = ast.literal_eval(made[2])
            alive[made[1]] = 4 * (1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)))
            peak = max(peak, sum(alive.values()))
        if same := re.search(r"(buf\d+) = (?:reinterpret_tensor.)?(buf\d+).*; del", line):
            alive[same[1]] = alive.pop(same[2])
        elif gone := re.search(r"^ +del (buf\d+)$", line):
            alive.pop(gone[1], None)
        if line.strip().startswith("return ("):
            break
    found = opgraph.profile(model, torch.zeros(shape), inductor=True, target="cpu")
    kernels = len(found.compiled.kernels)
    assert max(live_bytes(found.compiled.storages, kernels)) == peak
    mine = found.on("epyc-9654", run="compiled")
    assert mine.memory.peak == peak + 4 * prod(shape)
    assert mine.memory.peak < found.on("epyc-9654").memory.peak


MACHINE = properties("cuda:8.9")


def test_nothing_stays_patched():
    """Not listed as cases: what is patched is known once TorchInductor is imported, which takes seconds."""
    places = [(owner, name) for owner, name, _ in patches(MACHINE)]
    before = [vars(owner)[name] for owner, name in places]
    within = []

    def broken():
        with on_cuda(MACHINE):
            within.extend(vars(owner)[name] for owner, name in places)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert len(places) > 5
    for (owner, name), was, stood in zip(places, before, within, strict=True):
        assert stood is not was, name
        assert vars(owner)[name] is was, name


def test_nothing_that_is_patched_around_a_compilation_stays(monkeypatch):
    """Where the schedule of a backward raises, within all that is patched beside the names above."""
    from torch._dynamo.testing import EagerAndRecordGraphs
    from torch._functorch import config as functorch
    from torch._functorch import partitioners
    from torch._inductor import compile_fx, config, decomposition, graph, scheduler
    from torch._inductor.virtualized import V

    places = [
        (tqdm, "monitor_interval"), (scheduler.Scheduler, "codegen"), (compile_fx, "partition_fn"),
        (partitioners, "functionalize_rng_ops"), (decomposition, "is_gpu"),
        (graph, "get_donated_idxs"),
    ]  # fmt: skip

    def now() -> list[object]:
        known = [getattr(owner, name, None) for owner, name in places]
        cached = functorch.enable_autograd_cache, config.fx_graph_cache
        settings = (*cached, config.force_disable_caches, config.compile_threads)
        modes = torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()
        # What CUDA's autocast runs in float32 and a CPU's does not.
        autocast = torch._C._dispatch_has_kernel_for_dispatch_key("aten::sum", "AutocastCPU")
        return [*known, *settings, *modes, autocast, dict(os.environ)]

    def broken(*_: object) -> None:
        if V.graph.is_backward:
            within.extend(now())
            raise ZeroDivisionError

    within: list[Any] = []
    caught = EagerAndRecordGraphs()
    x = torch.ones(8, 8, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(lambda x: (x @ x).relu(), backend=caught)(x)
    monkeypatch.setattr(inductor, "_note", broken)
    before = now()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        schedule(caught.graphs[0], [x], MACHINE, "bfloat16", "cuda:8.9")
    assert now() == before
    alike = [was == stood for was, stood in zip(before, within, strict=True)]
    assert alike.count(True) == 1, alike  # autocast is off where parts are lowered
    assert not Path(within[-1]["TORCHINDUCTOR_CACHE_DIR"]).exists()


def test_nothing_that_was_remembered_stays():
    from torch._inductor import config, select_algorithm
    from torch._inductor.codecache import CacheBase
    from torch.utils._triton import has_triton

    def remembered() -> list[object]:
        known = CacheBase.get_system.cache_info(), select_algorithm._ALGORITHM_SELECTOR_CACHE
        return [torch.cuda.is_available(), has_triton(), config.shape_padding, *known]

    before = remembered()
    with on_cuda(MACHINE):
        assert torch.cuda.is_available()
        has_triton()
        select_algorithm.get_algorithm_selector_cache()
    assert remembered() == before


@pytest.mark.parametrize("target", ["cpu", "cuda:9.0"])
def test_the_graph_that_is_yet_to_be_run_is_left_as_it_was(target: str) -> None:
    """Also what is checkpointed within it, which is a graph of its own and names its device."""

    def block(x: torch.Tensor) -> torch.Tensor:
        return (x @ x + torch.ones(8, device=x.device)).sum(axis=1)

    def model(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False).relu()

    same: list[bool] = []

    def backend(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        parts = [m for m in gm.modules() if isinstance(m, fx.GraphModule)]
        before = [str(p.graph) for p in parts]
        machine = properties(target) if target != "cpu" else None
        assert schedule(gm, inputs, machine, None, target).kernels
        same.extend(a == str(p.graph) for a, p in zip(before, parts, strict=True))
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.ones(8, 8))
    assert same == [True, True]
