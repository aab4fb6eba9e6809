"""Predicted against measured time: every oracle row, what the figures of the model are fitted to, and the
residuals behind the intervals.

    git clone https://github.com/huggingface/pytorch-image-models
    git clone https://github.com/sitar-lab/NeuSight
    git clone https://github.com/ai-dynamo/aiconfigurator
    python benchmarks/predict.py trace --sources DIR   # trace every model (hours of one core; resumable)
    python benchmarks/predict.py fit --sources DIR     # fit shares and sustained figures, print them;
                                                       # --only 'traffic gates': only that one
    python benchmarks/predict.py score --sources DIR   # every row, what it is judged on left out;
                                                       # writes the residuals of the intervals

`DIR` holds the three repositories. A model of the CSV that no source knows (Qwen1.5-32B) is found by its
`config.json` in a folder of that name, where the program is started. Nothing that is measured is read but
the files that are named here.
timm's newest file was measured with fused inference forms of the models (`reparameterize_model`) and the
others without: their parameter counts show it. All have timm's fast norms, which compute timm's own
normalizations in half precision. A model whose parameter count is not the file's is another model by now,
and is left out. Training ran on torch 1.12, which had no fused attention, and is traced without it.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import pickle
import random
import signal
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opgraph.analysis.cost.precision import autocast
from opgraph.analysis.timing.fitting import MeasuredKernel, fit_sustained, sustaining
from opgraph.analysis.timing.intervals import COVERAGE, FILE, difficulty, spread
from opgraph.analysis.timing.kernels import (
    FITTED,
    Reach,
    arithmetic,
    converts,
    kernel_cost,
    serial,
    traffic_class,
)
from opgraph.analysis.timing.prediction import device_costs, predict_work
from opgraph.analysis.timing.workload import Contraction, Task, Work, workload
from opgraph.hardware import Device, device
from opgraph.hardware.devices import Figure
from opgraph.record import units
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.record.kinds import Run
from opgraph.views.picture.roofline import LogPlane
from opgraph.views.picture.scene import Group, Line, Rect, Scene, Shape, Text
from opgraph.views.picture.svg import to_png, to_svg

CACHE = Path(__file__).parent / ".cache" / "predict"
FAST_NORMS = ("timm/layers/norm.py", "timm/layers/fast_norm.py", "timm/layers/norm_act.py")
FOLDS = 5
FEW = 100
"""Cases below which each name is a fold of its own, and the binomial distribution says how many an interval
may hold."""
TIMEOUT = 900

TIMM = "pytorch-image-models"
FILES = {
    ("rtx-4090", "nchw"): "infer-amp-nchw-pt291-cu128-4090",
    ("rtx-3090", "nchw"): "infer-amp-nchw-pt240-cu124-rtx3090",
    ("rtx-4090", "nhwc"): "infer-amp-nhwc-pt240-cu124-rtx4090",
    ("rtx-3090", "nhwc"): "infer-amp-nhwc-pt240-cu124-rtx3090",
    ("rtx-3090", "train"): "train-amp-nchw-pt112-cu113-rtx3090",
}
"""timm's results by device and kind: contiguous, channels-last, training."""

FUSED = ("rtx-4090", "nchw")
"""The file that was measured with the fused forms of models that have one."""

PRODUCTS = {"a100-sxm4-80gb": "a100_sxm", "h100-sxm": "h100_sxm", "l40s": "l40s"}
"""AIConfigurator's products in bfloat16, run by vLLM 0.14.0."""

OPERATORS = {
    "v100-pcie-16gb": "Tesla V100-PCIE-32GB", "a100-pcie-40gb": "NVIDIA A100-PCIE-40GB",
    "p100-pcie-16gb": "Tesla P100-PCIE-16GB", "t4": "Tesla T4",
}  # fmt: skip
"""NeuSight's measured operators in float32."""


@dataclass(frozen=True)
class Case:
    """Something that was measured: on which device, what it is (models of one architecture share `name`),
    the seconds, and the work with how often each is done."""

    device: str
    name: str
    seconds: float
    work: tuple[tuple[Work, int], ...]
    batch: int = 1
    family: str = ""


def predicted(case: Case, machine: Device, reach: Reach = FITTED) -> tuple[float, str]:
    """Seconds, and the kind of run."""
    works, times = zip(*case.work, strict=True)
    found = predict_work(works, machine, reach=reach, times=times)
    return found.seconds, found.work


Squares = Mapping[str, float]


def hard(case: Case, machine: Device, run: Run = Run.EAGER) -> tuple[str, Squares]:
    """The kind of run, and what says how hard it is to predict."""
    works, times = zip(*case.work, strict=True)
    waits = run is Run.EAGER and predict_work(works, machine, times=times).limit == "host"
    return difficulty(works, device_costs(works, machine), times, machine, host=waits)


# What was measured.


def show(repository: Path, path: str) -> bytes:
    """A file of a clone, which may be bare."""
    command = ["git", "-C", str(repository), "show", f"HEAD:{path}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def table(repository: Path, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(show(repository, path).decode())))


@dataclass(frozen=True)
class Row:
    """A row of a file of timm's."""

    kind: str
    name: str
    size: int
    batch: int
    seconds: float
    parameters: float
    fused: bool

    @property
    def stem(self) -> str:
        return f"{self.kind}~{self.name}@{self.size}x{self.batch}"

    @property
    def whole(self) -> str:
        """The stem of a model that has a fused form, in its other one."""
        return f"whole-{self.stem}"


def rows(sources: Path, machine: str, kind: str) -> Iterator[Row]:
    phase = "train" if kind == "train" else "infer"
    for r in table(sources / TIMM, f"results/benchmark-{FILES[machine, kind]}.csv"):
        if r[f"{phase}_img_size"] and r[f"{phase}_samples_per_sec"]:
            batch = int(r[f"{phase}_batch_size"])
            yield Row(kind, r["model"].partition(".")[0], int(r[f"{phase}_img_size"]), batch,
                      batch / float(r[f"{phase}_samples_per_sec"]), float(r["param_count"]),
                      (machine, kind) == FUSED)  # fmt: skip


def timm_cases(sources: Path, folder: Path, machine: str, kind: str) -> list[Case]:
    """The rows whose model is traced at that batch and is still the model that was measured."""
    found = []
    for row in dict.fromkeys(rows(sources, machine, kind)):
        path = folder / f"{row.whole}.works"
        if row.fused or not path.exists():
            path = folder / f"{row.stem}.works"
        if not path.exists():
            continue
        count, family, works = pickle.loads(zlib.decompress(path.read_bytes()))
        if abs(count - row.parameters) <= 0.01 + 0.01 * row.parameters:
            found.append(Case(machine, row.name, row.seconds, tuple(works), row.batch, family))
    return found


def model_cases(folder: Path) -> list[Case]:
    """Whole language models that were traced by `trace`: the device and the seconds are in their files."""
    return [pickle.loads(zlib.decompress(p.read_bytes())) for p in sorted(folder.glob("*.case"))]


def product(dtype: str, b: int, m: int, n: int, k: int) -> tuple[tuple[Work, int], ...]:
    size = 2 if dtype == "bfloat16" else 4
    task = Task("aten.mm", "matmul", dtype, 2 * b * m * n * k, 0, size * b * m * n,
                (size * b * m * k, size * b * k * n), Contraction(b, m, n, k))  # fmt: skip
    whole = task.bytes
    return ((Work(1, task, (whole, whole), calls=0), 1),)


def product_cases(sources: Path, machine: str) -> list[Case]:
    """Products as vLLM runs them, the same operands again and again; no host time is in these."""
    import pandas as pd

    path = "aic-core/src/aiconfigurator_core/systems/data/{}/gemm/vllm/0.14.0/gemm_perf.parquet"
    data = show(sources / "aiconfigurator", path.format(PRODUCTS[machine]))
    frame = pd.read_parquet(io.BytesIO(data))
    frame = frame[frame.gemm_dtype == "bfloat16"].groupby(["m", "n", "k"], as_index=False)
    return [
        Case(machine, f"{r.n} x {r.k}", r.latency * 1e-3, product("bfloat16", 1, r.m, r.n, r.k))
        for r in frame.latency.median().itertuples()
    ]


COLUMNS = 16384
"""No layer but a vocabulary's has more; on the P100 such products run at less than half of the speed."""


def operator_cases(sources: Path, machine: str) -> list[Case]:
    """NeuSight's products in float32 of over 5 ms (shorter ones are timed with some 40 µs of their launch)
    whose rows are loaded 16 bytes at a time, and which have no more than `COLUMNS`, as those of models."""
    found = []
    for op in ("linear", "bmm"):
        path = f"scripts/asplos/data/dataset/train/collect/{op}/p2.1.0/{OPERATORS[machine]}.csv"
        for r in table(sources / "NeuSight", path):
            sizes = [int(r[c]) for c in "BMNK"]
            odd = any(n % 4 for n in sizes[2:]) or sizes[2] > COLUMNS
            if float(r["Latency"]) > 5 and not odd:
                found.append(
                    Case(machine, op, float(r["Latency"]) * 1e-3, product("float32", *sizes))
                )
    return random.Random(0).sample(found, min(1500, len(found)))


# Tracing.


def fast_norms(node: Node, kernel: Kernel) -> str | None:
    """timm's own normalizations in half precision, as the measurements were made."""
    own = (node.file or "").endswith(FAST_NORMS)
    return "lower" if own and kernel.category == "normalization" else None


def counted(graph: Graph) -> list[tuple[Work, int]]:
    return list(Counter(work._replace(node=0) for work in workload(graph)).items())


def trace(sources: Path, folder: Path) -> None:
    """Trace all models of timm's files on fake tensors, each architecture in a process of its own, so that
    none can take the run down or fill its memory; what is there already is kept, failures too."""
    import timm
    import torch

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, dict[str, Row]] = {}
    known = set(timm.list_models())
    for machine, kind in FILES:
        for row in rows(sources, machine, kind):
            if row.name in known:
                wanted.setdefault(row.name, {})[row.stem] = row
    order = sorted(wanted)  # in no order, so that what is done when it is stopped is a fair sample
    random.Random(0).shuffle(order)
    for number, name in enumerate(order, start=1):
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            signal.alarm(TIMEOUT)
            try:
                for row in wanted[name].values():
                    _trace(row, folder)
            finally:
                os._exit(0)
        print(f"{number} of {len(order)}: {name}", flush=True)


def _trace(row: Row, folder: Path) -> None:
    import timm
    import torch
    from timm.utils import reparameterize_model

    from opgraph.api.pipeline import profile_model
    from opgraph.inputs.base import Example
    from opgraph.options import Options
    from opgraph.sources.building import assemble

    trains = row.kind == "train"
    whole = not (row.fused or trains) and _has_a_fused_form(row.name)
    stem = row.whole if whole else row.stem
    path, failed = folder / f"{stem}.works", folder / f"{stem}.txt"
    if path.exists() or failed.exists():
        return
    timm.layers.set_fused_attn(not trains)
    layout = torch.channels_last if row.kind == "nhwc" else torch.contiguous_format

    def make() -> torch.nn.Module:
        model = timm.create_model(row.name)
        model = model.train() if trains else model.eval()
        model = model if trains or whole else reparameterize_model(model)
        return model.to(memory_format=layout)

    try:
        image = torch.empty(row.batch, 3, row.size, row.size, device="meta", memory_format=layout)
        options = Options(mode="train", optimizer="sgd") if trains else None
        graph = profile_model(
            assemble(make, name=row.name, source="timm"), Example((image,)), options
        ).graph
        if graph.failed is not None:
            raise RuntimeError(graph.failed.error)
    except Exception as error:  # noqa: BLE001  (one model that fails costs one row)
        failed.write_text(f"{type(error).__name__}: {error}".splitlines()[0][:200])
        return
    count = sum(p.numel for p in graph.parameters if p.kind == "parameter") / 1e6
    lower = autocast(graph, override=None if trains else fast_norms)
    found = (count, graph.scope[""].cls, counted(lower))
    path.write_bytes(zlib.compress(pickle.dumps(found), 1))


def _has_a_fused_form(name: str) -> bool:
    """Whether a model has modules that `reparameterize_model` fuses."""
    import timm
    import torch

    try:
        with torch.device("meta"):
            model = timm.create_model(name)
    except (RuntimeError, NotImplementedError):
        model = timm.create_model(name)
    ways = ("fuse", "reparameterize", "switch_to_deploy")
    return any(hasattr(module, way) for module in model.modules() for way in ways)


MODELS = {
    "bert_large": ("bert", "BertForSequenceClassification"), "gpt2_large": ("gpt2", "GPT2LMHeadModel"),
    "gpt3_xl": ("gpt2", "GPT2LMHeadModel"), "gpt3_27": ("gpt2", "GPT2LMHeadModel"),
    "opt_13": ("opt", "OPTForCausalLM"),
}  # fmt: skip
"""NeuSight's models, whose configurations are in its repository, their types, and the classes that it runs
for inference (neusight/Tracing/trace.py, which passes over the one that a configuration names)."""


def trace_models(sources: Path, folder: Path) -> None:
    """NeuSight's whole models in inference, with attention as the several kernels that it was then."""
    import tempfile

    import opgraph

    for machine, name in OPERATORS.items():
        place = f"scripts/asplos/label/{name.replace(' ', '_')}"
        for model, (kind, cls) in MODELS.items():
            for length, batch in ((512, 8), (512, 16), (1024, 4), (1024, 8), (2048, 2), (2048, 8)):
                try:
                    data = show(sources / "NeuSight", f"{place}/{model}-inf-{length}-{batch}.json")
                except subprocess.CalledProcessError:
                    continue
                measured = json.loads(data)["e2e_latency"] * 1e-3
                configuration = json.loads(
                    show(sources / "NeuSight", f"scripts/asplos/data/DLmodel_configs/{model}.json")
                )
                with tempfile.TemporaryDirectory() as place_of_model:
                    configuration |= {"model_type": kind, "architectures": [cls]}
                    configuration["attn_implementation"] = "eager"
                    (Path(place_of_model) / "config.json").write_text(json.dumps(configuration))
                    graph = opgraph.profile(place_of_model, batch_size=batch, seq_len=length).graph
                case = Case(machine, f"{model} {batch} x {length}", measured, tuple(counted(graph)),
                            batch, f"NeuSight's models, {machine}")  # fmt: skip
                path = folder / f"{machine}~{model}~{length}x{batch}.case"
                path.write_bytes(zlib.compress(pickle.dumps(case), 1))


def trace_language(measured: Path, folder: Path) -> None:
    """The language models that transformers ran eagerly, of a CSV with a line for each: their `model`,
    `dtype`, `device`, `kind` (prefill or decode), `context` and `seconds`."""
    from unittest.mock import patch

    from transformers.models.qwen2_moe import modeling_qwen2_moe as qwen

    with (
        patch.object(qwen, "Qwen2MoeExperts", experts_in_turn()),
        patch.object(qwen.Qwen2MoePreTrainedModel, "_init_weights"),
    ):
        _trace_language(measured, folder)


def experts_in_turn() -> type:
    """A mixture's experts as transformers ran them until version 5, when the rows were measured: every one
    after the other, each a module, with the tokens that chose it. Here they are chosen equally often."""
    import torch
    from torch import Tensor, nn
    from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeMLP

    class Experts(nn.Module):
        def __init__(self, config: object) -> None:
            super().__init__()
            count, width = config.num_experts, config.moe_intermediate_size
            self.each = nn.ModuleList(Qwen2MoeMLP(config, width) for _ in range(count))

        def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
            places = torch.arange(chosen.numel()).reshape(chosen.shape) % len(self.each)
            mask = nn.functional.one_hot(places, len(self.each)).permute(2, 1, 0)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.each):
                slots, tokens = torch.where(mask[i])
                some = expert(x[tokens]) * weights[tokens, slots, None]
                out.index_add_(0, tokens, some.to(x.dtype))
            return out

    return Experts


def _trace_language(measured: Path, folder: Path) -> None:
    import opgraph

    for r in csv.DictReader(measured.open(encoding="utf-8")):
        if r["runtime"] != "transformers, eager":
            continue
        graph = opgraph.profile(
            r["model"], mode=r["kind"], seq_len=int(r["context"]), dtype=r["dtype"]
        ).graph
        name, machine = r["model"].replace("/", "~"), r["device"]
        case = Case(machine, name, float(r["seconds"]), tuple(counted(graph)), 1,
                    f"transformers eager, {machine}, {r['dtype']}")  # fmt: skip
        path = folder / f"llm~{name}~{r['dtype']}~{r['kind']}.case"
        path.write_bytes(zlib.compress(pickle.dumps(case), 1))


# Fitting: the shares that all devices have, from timm's files, and what each device sustains.


class Kernels:
    """The kernels of many cases on one device as arrays, as if its peaks and bandwidth were sustained."""

    def __init__(self, cases: list[Case], reach: Reach = FITTED) -> None:
        self.cases, self.overlap = cases, reach.overlap
        self.measured = np.array([c.seconds for c in cases])
        ideal = replace(
            reach,
            compute=dict.fromkeys(reach.compute, 1.0),
            traffic=dict.fromkeys(reach.traffic, 1.0),
        )
        full = {"matrix": 1.0, "vector": 1.0, "bandwidth": 1.0}
        machine = sustaining(device(cases[0].device), full)
        self.computes, self.moves = list(reach.compute), list(reach.traffic)
        known: dict[Task, tuple[float, ...]] = {}
        columns: list[tuple[float, ...]] = []
        kept = machine.cache * reach.kept
        for number, case in enumerate(cases):
            for work, times in case.work:
                task = work.task
                row = known.get(task)
                if row is None:
                    row = known[task] = (
                        *arithmetic(task, machine, ideal), self._kind(task), task.bytes / machine.bandwidth,
                        self.moves.index(traffic_class(task)), converts(task, machine), serial(task),
                        machine.launch_overhead,
                        task.written / 2 / machine.units / machine.clock
                        if traffic_class(task) == "layer_norm" else 0.0,
                        task.kernel.endswith("convolution_backward")
                        and task.category != "depthwise_convolution",
                    )  # fmt: skip
                columns.append((number, times, *row, work.near(kept) / machine.bandwidth))
        data = np.array(columns, float).T
        self.case, self.kind, self.move = (data[i].astype(int) for i in (0, 4, 6))
        self.times, self.computing, self.waiting, self.moving = data[[1, 2, 3, 5]]
        self.converts, self.serial, self.gap, self.norm, self.gradient, self.near = data[7:]

    def _kind(self, task: Task) -> int:
        if not task.flops:
            return len(self.computes)
        kind = "matmul" if task.category == "recurrent" else task.category
        sizes = task.contraction
        if (
            kind == "depthwise_convolution"
            and sizes
            and sizes.window > 25
            and task.layout != "channels-last"
        ):
            kind = "large_window"
        return self.computes.index(kind) if kind in self.computes else len(self.computes)

    def seconds(self, p: dict[str, float]) -> np.ndarray:
        """The formula of `opgraph.analysis.timing.kernels`, for all cases at once."""
        name = self.cases[0].device
        peak, wide = p.get(f"{name} matrix", 1.0), p.get(f"{name} bandwidth", 1.0)
        share = np.array([p[f"compute {c}"] for c in self.computes] + [1.0])[self.kind]
        share = share * np.where(self.gradient, p["compute gradient"], 1.0)
        matrix = self.kind < len(self.computes)
        computing = self.computing / share / np.where(matrix, peak, 1.0)
        computing = np.where(self.norm > 0, np.maximum(computing, self.norm / p["rows"]), computing)
        moving = (
            (self.moving - self.near)
            / wide
            / np.array([p[f"traffic {c}"] for c in self.moves])[self.move]
        )
        moving = np.maximum(moving, self.serial)
        q, units = self.overlap, computing + self.waiting
        longer = np.maximum(np.maximum(units, moving), 1e-12)
        both = longer * ((units / longer) ** q + (moving / longer) ** q) ** (1 / q)
        both = both + self.converts * moving * p["conversion"] + self.gap
        return np.bincount(self.case, both * self.times, len(self.cases))


def shipped() -> dict[str, float]:
    found = {
        **{f"compute {k}": v for k, v in FITTED.compute.items()},
        **{f"traffic {k}": v for k, v in FITTED.traffic.items()},
        "conversion": FITTED.conversion,
        "rows": FITTED.rows,
    }
    for name in ("rtx-4090", "rtx-3090"):
        machine = device(name)
        found[f"{name} matrix"] = machine.sustained_matrix
        found[f"{name} bandwidth"] = machine.sustained_bandwidth / machine.bandwidth
    return found


FIXED = {"compute matmul", "traffic streaming", "traffic matmul", "traffic layer_norm"}
"""Shares that others are relative to, or that products alone say."""

ABOVE_ONE = ("conversion", "rows", "matrix")
"""What may be above one: GeForce cards run at a higher clock than that of their data sheet."""


def search(
    loss: Callable[[dict[str, float]], float],
    start: dict[str, float],
    keys: Iterable[str],
    rounds: int = 12,
) -> dict[str, float]:
    """A pattern search; shares stay below one."""
    best, at = loss(start), dict(start)
    steps = dict.fromkeys(keys, 0.15)
    for _ in range(rounds):
        for key, step in steps.items():
            for sign in (1, -1):
                value = at[key] * float(np.exp(sign * step))
                value = min(value, 1.25) if key.endswith("matrix") else value
                value = value if key.endswith(ABOVE_ONE) else min(1.0, value)
                tried = {**at, key: value}
                if (found := loss(tried)) < best - 1e-7:
                    best, at = found, tried
                    steps[key] *= 1.3
                    break
            else:
                steps[key] /= 2
        if max(steps.values()) < 0.006:
            break
    return at


def fit(
    tables: list[tuple[Kernels, np.ndarray]],
    start: dict[str, float],
    rounds: int = 12,
    only: str | None = None,
) -> dict[str, float]:
    """Shares and sustained figures (or one) by the mean absolute logarithm of predicted by measured,
    an error counting no more than a factor of e, each table alike."""
    names = {c.device for t, _ in tables for c in t.cases}

    def loss(p: dict[str, float]) -> float:
        errors = (np.abs(np.log(t.seconds(p) / t.measured))[chosen] for t, chosen in tables)
        return float(np.mean([np.minimum(e, 1).mean() for e in errors]))

    keys = [
        k for k in start if k not in FIXED and (not k.startswith("rtx") or k.split()[0] in names)
    ]
    return search(loss, start, keys if only is None else [only], rounds)


def fit_of(cases: list[Case], machine: Device, keys: tuple[str, ...]) -> dict[str, float]:
    """What a device sustains, and its gap between kernels, from products."""
    return fit_sustained(
        machine, [MeasuredKernel(c.work[0][0].task, c.seconds) for c in cases], keys
    )


def one(case: Case, machine: Device) -> float:
    ((work, _),) = case.work
    return kernel_cost(work.task, work.near(machine.cache * FITTED.kept), machine).seconds


# The rows of the table.


@dataclass
class Scored:
    """A row of the table: predictions of what was left out, beside the measured. `kinds` and `squares` say
    how hard each is."""

    label: str
    goal: str
    predicted: np.ndarray
    measured: np.ndarray
    kinds: list[str]
    squares: list[Squares]
    names: list[str]

    @property
    def far(self) -> str:
        return "left out" if "left out" in self.label else "measured"

    def line(self, low: np.ndarray | None = None, high: np.ndarray | None = None) -> str:
        error = np.abs(self.predicted / self.measured - 1)
        bias = np.median(self.predicted / self.measured - 1)
        text = (f"{self.label:62s} n {len(error):5d}  goal {self.goal:16s} median {np.median(error):6.1%}  "
                f"mean {error.mean():6.1%}  bias {bias:+6.1%}")  # fmt: skip
        if low is not None and high is not None:
            inside = (self.measured >= self.predicted * low) & (
                self.measured <= self.predicted * high
            )
            width = float(np.median(high - low))
            times = width / np.median(error)
            text += f"  interval holds {inside.mean():4.0%}, width {width:.0%}"
            if len(error) < FEW:
                from scipy.stats import binom

                least, most = (int(binom.ppf(q, len(error), COVERAGE)) for q in (0.025, 0.975))
                text += f", {inside.sum()} of {len(error)}: chance alone gives {least} to {most}"
            text += f" ({times:.1f} times the median error)"
        return text

    @property
    def residuals(self) -> np.ndarray:
        """The logarithms of measured by predicted."""
        return np.log(self.measured / self.predicted)


def folds_of(names: list[str]) -> np.ndarray:
    """The fold of each: by architecture, or each name alone where there are few."""
    distinct = sorted(set(names))
    np.random.default_rng(0).shuffle(distinct)
    fold = {name: i % FOLDS if len(names) >= FEW else i for i, name in enumerate(distinct)}
    return np.array([fold[name] for name in names])


def timm_rows(sources: Path, folder: Path) -> Iterator[Scored]:
    tables = {key: Kernels(cases) for key in FILES if (cases := timm_cases(sources, folder, *key))}
    goals = {"nchw": "<= 5 % median", "nhwc": "<= 8 % median", "train": "<= 10 % median"}
    # Without the host: that of these machines is not known, and their batches are large.
    known = {k: [hard(c, device(c.device), Run.GRAPHS) for c in t.cases] for k, t in tables.items()}
    kinds = {k: [kind for kind, _ in rows] for k, rows in known.items()}
    squares = {k: [each for _, each in rows] for k, rows in known.items()}
    names = [c.name for t in tables.values() for c in t.cases]
    fold = dict(
        zip(names, folds_of(names), strict=True)
    )  # of all files: left out of one is left out of all
    folds = {k: np.array([fold[c.name] for c in t.cases]) for k, t in tables.items()}
    found = {k: np.zeros(len(t.cases)) for k, t in tables.items()}
    inference = [k for k in tables if k[1] != "train"]
    for held in set(fold.values()):
        p = fit([(tables[k], folds[k] != held) for k in inference], shipped(), 6)
        for k, t in tables.items():
            found[k][folds[k] == held] = t.seconds(p)[folds[k] == held]
    for k, t in tables.items():
        label = f"timm {k[1]}, {k[0]}: folds by architecture"
        yield Scored(label, goals[k[1]], found[k], t.measured, kinds[k], squares[k],
                     [c.name for c in t.cases])  # fmt: skip
    for left in ("rtx-4090", "rtx-3090"):
        others = [
            (tables[k], np.ones(len(tables[k].cases), bool)) for k in inference if k[0] != left
        ]
        p = fit(others, {k: v for k, v in shipped().items() if not k.startswith(left)}, 10)
        other = "rtx-3090" if left == "rtx-4090" else "rtx-4090"
        p |= {f"{left} {what}": p[f"{other} {what}"] for what in ("matrix", "bandwidth")}
        for k in inference:
            if k[0] == left:
                t = tables[k]
                goal = "<= 9 % median" if k[1] == "nchw" else ""
                yield Scored(f"timm {k[1]}, {left}: device left out", goal, t.seconds(p), t.measured,
                             kinds[k], squares[k], [c.name for c in t.cases])  # fmt: skip


def product_rows(sources: Path) -> Iterator[Scored]:
    """Two thirds of the (n, k) are fitted to, the others judged on; a device left out takes the mean of the
    sustained figures of the others."""
    fitted: dict[str, dict[str, float]] = {}
    keys = ("matrix", "bandwidth", "gap")
    for name in PRODUCTS:
        cases, machine = product_cases(sources, name), device(name)
        pairs = sorted({c.name for c in cases})
        random.Random(0).shuffle(pairs)
        seen = set(pairs[: len(pairs) * 2 // 3])
        some = [c for c in cases if c.name in seen][::6]
        fitted[name] = fit_of(some, machine, keys)
        print(f"  {name}: {', '.join(f'{k} {v:.3g}' for k, v in fitted[name].items())}")
        judged = [c for c in cases if c.name not in seen]
        if name != "l40s":
            yield _products(
                f"products in bfloat16, {name}: unseen shapes",
                "<= 12 % mean",
                judged,
                machine,
                fitted[name],
            )
    mean = {k: float(np.mean([fitted[n][k] for n in fitted if n != "l40s"])) for k in keys}
    cases = product_cases(sources, "l40s")
    yield _products(
        "products in bfloat16, l40s: device left out", "<= 25 % mean", cases, device("l40s"), mean
    )


def _products(
    label: str, goal: str, cases: list[Case], machine: Device, p: dict[str, float]
) -> Scored:
    tried = sustaining(machine, p)
    seconds = np.array([one(c, tried) for c in cases])
    squares = [hard(c, tried, Run.GRAPHS)[1] for c in cases]
    return Scored(label, goal, seconds, np.array([c.seconds for c in cases]), ["one product"] * len(cases),
                  squares, [c.name for c in cases])  # fmt: skip


def model_rows(folder: Path) -> Iterator[Scored]:
    """Whole models with what ships: they take no part in a fit, but for the two figures of the host, from
    which each of the eager models of an A100 is left out in turn."""
    groups: dict[str, list[Case]] = {}
    for case in model_cases(folder):
        groups.setdefault(case.family, []).append(case)
    for family, cases in sorted(groups.items()):
        found, known = [], []
        for case in cases:
            machine = device(case.device)
            if "eager" in family:
                others = [c for f, some in groups.items() if "eager" in f for c in some]
                machine = host_of([c for c in others if c.name != case.name], machine)
            found.append(predicted(case, machine)[0])
            known.append(hard(case, machine))
        goal = "<= 15 % median" if "eager" in family else "<= 8 % mean"
        yield Scored(family, goal, np.array(found), np.array([c.seconds for c in cases]),
                     [kind for kind, _ in known], [each for _, each in known],
                     [c.name for c in cases])  # fmt: skip


def host_of(cases: list[Case], machine: Device) -> Device:
    """The host's time of a call of an operator and of a module, from cases in which it is the limit."""
    limited = [c for c in cases if predicted(c, machine)[1] == "host"]
    counts = np.array([[sum(w.calls * n for w, n in c.work), sum(w.modules * n for w, n in c.work)]
                       for c in limited])  # fmt: skip
    measured = np.array([c.seconds for c in limited])

    def loss(p: dict[str, float]) -> float:
        return float(np.abs(np.log(counts @ np.array([p["call"], p["module"]]) / measured)).mean())

    tried = [
        {"call": c, "module": m}
        for c in np.linspace(7e-6, 14e-6, 29)
        for m in np.linspace(4e-6, 24e-6, 21)
    ]
    best = min(tried, key=loss)
    figures = {f"host.{k}": Figure(float(v), "fit") for k, v in best.items()}
    return replace(machine, figures={**machine.figures, **figures})


@dataclass(frozen=True)
class Pool:
    """The residuals of all rows: where each is from, how hard it is, and its weight (all rows alike)."""

    far: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    residual: np.ndarray
    squares: np.ndarray
    weight: np.ndarray
    limits: tuple[str, ...]

    @classmethod
    def of(cls, found: list[Scored]) -> Pool:
        limits = sorted({limit for row in found for each in row.squares for limit in each})
        rows = [
            (row.far, kind, name, residual, [each.get(limit, 0.0) for limit in limits], 1 / len(row.names))
            for row in found
            for kind, name, residual, each in zip(
                row.kinds, row.names, row.residuals, row.squares, strict=True
            )
        ]  # fmt: skip
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        return cls(*columns, tuple(limits))

    def spreads(self, chosen: np.ndarray) -> dict[str, float]:
        """The spread of each limit, none below zero, by squared residuals of which none counts for more
        than that of a factor of 1.8."""
        from scipy.optimize import nnls

        weight = np.sqrt(self.weight[chosen])
        squared = np.minimum(np.abs(self.residual[chosen]), 0.6) ** 2
        parts = np.column_stack([np.ones(chosen.sum()), self.squares[chosen]])
        found, _ = nnls(parts * weight[:, None], squared * weight)
        found[0] = max(found[0], 0.03**2)
        named = zip(("base", *self.limits), np.sqrt(found), strict=True)
        return {limit: round(float(value), 3) for limit, value in named if value > 0}

    def quantiles(
        self, chosen: np.ndarray, spreads: dict[str, float]
    ) -> dict[str, dict[str, list[float]]]:
        """By distance and kind, the quantiles of residuals in spreads, and how many there are."""
        values = np.array([spreads.get(limit, 0.0) ** 2 for limit in self.limits])
        scaled = self.residual / np.sqrt(spreads["base"] ** 2 + self.squares @ values)
        found: dict[str, dict[str, list[float]]] = {}
        for far in ("left out", "measured"):
            found[far] = {}
            for kind in sorted(set(self.kind)):
                here = chosen & (self.far == far) & (self.kind == kind)
                if here.sum() >= FEWEST:
                    low, high = ends(scaled[here])
                    found[far][kind] = [round(low, 3), round(high, 3), int(here.sum())]
        return found


ENGINES = ("llama.cpp", "torch.compile with CUDA graphs")
"""What ran the language models of the CSV as an engine does."""


def engine_residuals(measured: Path, spreads: dict[str, float]) -> list[float]:
    """The residuals, in spreads, of what engines ran on one device; every row is printed."""
    import opgraph

    found = []
    for r in csv.DictReader(measured.open(encoding="utf-8")):
        if r["runtime"] not in ENGINES or r["tensor_parallel"] != "1":
            continue
        ran = opgraph.profile(
            r["model"], mode=r["kind"], seq_len=int(r["context"]), dtype=r["dtype"]
        ).on(r["device"], run="engine")
        if ran.device is None or ran.seconds is None or not ran.fits:
            continue
        costs = device_costs(ran.work, ran.device)
        squares = difficulty(ran.work, costs, [1] * len(costs), ran.device, host=False)[1]
        ratio = float(r["seconds"]) / ran.seconds
        what = f"{r['model']}, {r['kind']} after {r['context']}, {r['device']}"
        print(f"  {what}: predicted / measured {1 / ratio:.2f}")
        found.append(float(np.log(ratio)) / spread(squares, spreads))
    return found


FEWEST = 8
"""Residuals below which there is no interval of a kind."""

ENOUGH = 19
"""Residuals from which the smallest and the largest hold nine of ten of the next ones."""


def ends(scaled: np.ndarray) -> tuple[float, float]:
    """The residuals between which the next one of their kind is with a probability of 0.9: quantiles as in
    conformal prediction, or Student's interval for the next of a few that are taken to be normal."""
    count, out = len(scaled), (1 - COVERAGE) / 2
    if count < ENOUGH:
        from scipy.stats import t

        half = t.ppf(1 - out, count - 1) * scaled.std(ddof=1) * np.sqrt(1 + 1 / count)
        return float(scaled.mean() - half), float(scaled.mean() + half)
    ordered, tail = np.sort(scaled), int(out * (count + 1) + 1e-9)
    return float(ordered[max(tail - 1, 0)]), float(ordered[min(count - tail, count - 1)])


def with_intervals(found: list[Scored], measured: Path | None = None) -> dict[str, object]:
    """Print every row with the interval that the residuals of all other architectures give it (in a row of
    few, of all other models), and return spreads and quantiles of all, and of what was `measured` through
    engines those of their residuals."""
    pool = Pool.of(found)
    for row in sorted(found, key=lambda r: -np.median(np.abs(r.predicted / r.measured - 1))):
        low, high = np.zeros(len(row.names)), np.full(len(row.names), np.inf)
        folds = folds_of(row.names)
        for held in set(folds):
            mine = {n for n, f in zip(row.names, folds, strict=True) if f == held}
            rest = ~np.isin(pool.name, list(mine))
            spreads = pool.spreads(rest)
            known = pool.quantiles(rest, spreads)
            for i in np.flatnonzero(folds == held):
                kind = row.kinds[i]
                some = [known[d][kind] for d in ("measured", row.far) if kind in known[d]]
                if kind in known[row.far]:
                    wide = spread(row.squares[i], spreads)
                    low[i] = np.exp(wide * min(r[0] for r in some))
                    high[i] = np.exp(wide * max(r[1] for r in some))
        print(row.line(low, high), flush=True)
    everything = np.ones(len(pool.residual), bool)
    spreads = pool.spreads(everything)
    before = json.loads(FILE.read_text())  # what benchmarks/collectives.py found stays
    spreads = {**spreads, "exchange": before["spread"]["exchange"]}
    quantiles = pool.quantiles(everything, spreads)
    engine = before.get("engine")
    if measured is not None:
        scaled = np.array(engine_residuals(measured, spreads))
        engine = [*(round(end, 3) for end in ends(scaled)), len(scaled)]
    return {
        "spread": spreads,
        "quantiles": quantiles,
        "exchange": before["exchange"],
        "engine": engine,
    }


def picture(found: list[Scored], path: Path) -> None:
    """Predicted against measured seconds of every row, on logarithmic axes."""
    x = np.concatenate([r.measured for r in found])
    y = np.concatenate([r.predicted for r in found])
    low, high = np.log10(min(x.min(), y.min()) / 1.3), np.log10(max(x.max(), y.max()) * 1.3)
    plane = LogPlane((80.0, 60.0, 640.0, 620.0), (low, high), (low, high))
    title = f"Predicted against measured time: {len(x):,} cases that were left out"
    shapes: list[Shape] = [
        Rect(0.0, 0.0, 680.0, 690.0, "paper"),
        Text(80.0, 32.0, title, 17, bold=True),
        *plane.frame("measured", "predicted", units.seconds, units.seconds),
    ]
    a, b = 10.0**low, 10.0**high
    for factor, dash in ((1.0, ()), (1.25, (5.0, 4.0)), (0.8, (5.0, 4.0))):
        first, last = max(a, a / factor), min(b, b / factor)
        line = (plane.at(first, first * factor), plane.at(last, last * factor))
        shapes.append(Line(line, "muted", 1.0, dash=dash))
    for row in found:
        some = zip(row.names, row.measured, row.predicted, strict=True)
        for name, px, py in list(some)[:: max(1, len(row.names) // 250)]:
            cx, cy = plane.at(px, py)
            dot = Rect(cx - 2.5, cy - 2.5, 5.0, 5.0, "blue", "paper", 2.5, 0.6)
            said = (
                f"{row.label}, {name}: {units.seconds(px)} measured, {units.seconds(py)} predicted"
            )
            shapes.append(Group((dot,), "box", tooltip=said))
    shapes.append(
        Text(640.0, 682.0, "dashed: a quarter too fast, and too slow", 12, "soft", anchor="end")
    )
    scene = Scene(680.0, 690.0, tuple(shapes), title)
    path.write_text(to_svg(scene, fonts=False), encoding="utf-8")
    path.with_suffix(".png").write_bytes(to_png(scene, "light", 144))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["trace", "fit", "score"])
    parser.add_argument("--sources", type=Path, required=True, help="where the repositories are")
    parser.add_argument("--measured", type=Path, help="language models that were measured (.csv)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where traced work is kept")
    parser.add_argument("--only", choices=sorted(shipped()), help="one figure that is fitted")
    parser.add_argument(
        "-o", "--output", type=Path, help="plot predicted against measured (.svg, .png)"
    )
    args = parser.parse_args()
    if args.what == "trace":
        trace(args.sources, args.cache)
        trace_models(args.sources, args.cache)
        if args.measured is not None:
            trace_language(args.measured, args.cache)
    elif args.what == "fit":
        cases = [c for k in FILES if (c := timm_cases(args.sources, args.cache, *k))]
        tables = [(Kernels(c), np.ones(len(c), bool)) for c in cases]
        found = fit(tables, shipped(), only=args.only)
        print("\n".join(f"  {k}: {v:.3g}" for k, v in found.items()))
        if args.only is not None:
            return
        for name in OPERATORS:
            cases = operator_cases(args.sources, name)
            print(name, fit_of(cases, device(name), ("vector",)))
    else:
        rows = [
            *product_rows(args.sources),
            *model_rows(args.cache),
            *timm_rows(args.sources, args.cache),
        ]
        FILE.write_text(json.dumps(with_intervals(rows, args.measured), indent=1) + "\n")
        if args.output is not None:
            picture(rows, args.output)


if __name__ == "__main__":
    main()
