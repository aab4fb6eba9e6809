"""opgraph beside a GPU: what steps of models take there, their kernels by class of work, their memory, how
they are run, and which kernel attention takes. Nothing is fitted on any of it.

    python -m benchmarks.gpu record FOLDER     # on a machine with the GPU, in about 15 minutes
    python -m benchmarks.gpu score [FOLDER]    # anywhere; without a folder what is kept in the repository,
                                                # and writes the tables of docs/h100.md between their marks

`--hardware` says which of opgraph's devices that GPU is, if not h100-sxm.

`record` writes into the folder what `opgraph measure` saves of each case, and `recorded.json`, which is all
that `score` reads: every model is traced anew there, by the torch that is installed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.compiled import spearman

import opgraph
from opgraph.analysis.measured.times import main_category
from opgraph.analysis.timing.fitting import fit_sustained, measured_of
from opgraph.hardware import calibrate, device
from opgraph.hardware.devices import parse
from opgraph.record import units
from opgraph.record.run import quantile
from opgraph.tracing.target.attention import Attention, attention_kernel

DEVICE = "h100-sxm"
"""What the GPU is predicted as, unless `--hardware` says another."""
KEPT = Path(__file__).with_name("gpu_h100.json")
PAGE = Path(__file__).parents[1] / "docs" / "h100.md"
BEGIN, END = "<!-- cuda: made by benchmarks/gpu.py -->\n", "<!-- end -->"
LIMITS = {"measured": 480, "memory": 90, "modes": 240, "attention": 45, "calibrated": 120}
"""The stages, and the seconds that each may take."""

HALF, BRAIN = {"dtype": "float16"}, {"dtype": "bfloat16"}
VISION = ("resnet50", "vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_t", "densenet121",
          "mobilenet_v3_large", "timm:regnety_032", "vgg16", "timm:mixer_b16_224",
          "timm:eva02_small_patch14_336")  # fmt: skip
LLAMA, QWEN = "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B"

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{m}/64": (m, {**HALF, "batch_size": 64}) for m in VISION},
    **{f"{m}/1": (m, {**HALF, "batch_size": 1}) for m in VISION[:6]},
    "resnet50/64/nhwc": (
        "resnet50", {**HALF, "batch_size": 64, "memory_format": "channels_last"}),
    "resnet50/64/f32": ("resnet50", {"batch_size": 64}),
    "vit_b_16/64/f32": ("vit_b_16", {"batch_size": 64}),
    "bert/32x128": ("bert-base-uncased", {**BRAIN, "batch_size": 32, "seq_len": 128}),
    "gpt2/8x1024": ("gpt2", {**HALF, "batch_size": 8, "seq_len": 1024}),
    "gpt2/decode1": ("gpt2", {**HALF, "mode": "decode", "batch_size": 1, "context_len": 512}),
    "llama1b/prefill": (LLAMA, {**BRAIN, "mode": "prefill", "batch_size": 1, "context_len": 2048}),
    "qwen05/decode8": (QWEN, {**BRAIN, "mode": "decode", "batch_size": 8, "context_len": 1024}),
    "gpt2/train/8x1024": ("gpt2", {"mode": "train", "batch_size": 8, "seq_len": 1024}),
    "gpt2/train/8x1024/bf16": (
        "gpt2", {"mode": "train", "batch_size": 8, "seq_len": 1024, **BRAIN}),
    "resnet50/train/64": ("resnet50", {"mode": "train", "batch_size": 64}),
    "resnet50/train/64/bf16/nhwc": (
        "resnet50", {"mode": "train", "batch_size": 64, **BRAIN, "memory_format": "channels_last"}),
    "vit_b_16/train/64/bf16": ("vit_b_16", {"mode": "train", "batch_size": 64, **BRAIN}),
    "bert-large/train/4x512": ("bert-large-uncased", {
        "mode": "train", "batch_size": 4, "seq_len": 512, "head": "masked-lm"}),
    "llama1b/train/1x2048": (LLAMA, {
        "mode": "train", "batch_size": 1, "seq_len": 2048, **BRAIN, "optimizer": "adamw-fused"}),
}  # fmt: skip


# Models by hand: steps of training whose memory is read off, and what is run in three ways.


def gpt2(**sizes: Any) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False, **sizes))


def bert_large(*, checkpointing: bool = False) -> torch.nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
             "intermediate_size": 4096}  # fmt: skip
    model = BertForMaskedLM(BertConfig(**sizes))
    if checkpointing:
        model.gradient_checkpointing_enable()
    return model


def vision(name: str) -> torch.nn.Module:
    import torchvision

    return torchvision.models.get_model(name)


def words(batch: int, length: int, vocabulary: int = 30_522) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, vocabulary, (batch, length))
    return {"input_ids": ids, "labels": ids.clone()}


def images(batch: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 224, 224, dtype=dtype),)


STEPS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], Any], str]] = {
    "gpt2/8x1024": (gpt2, partial(words, 8, 1024), "adamw"),
    "gpt2/8x1024/nodropout": (
        partial(gpt2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), partial(words, 8, 1024), "adamw"),
    "bert-large/4x512": (bert_large, partial(words, 4, 512), "adamw"),
    "bert-large/1x512": (bert_large, partial(words, 1, 512), "adamw"),
    "bert-large/1x512/checkpointing": (
        partial(bert_large, checkpointing=True), partial(words, 1, 512), "adamw"),
    **{f"{name}/64": (partial(vision, name), partial(images, 64), "adamw")
       for name in ("resnet50", "vit_b_16", "densenet121", "swin_t")},
    "gpt2/1x128/foreach=True": (gpt2, partial(words, 1, 128), "adamw-foreach"),
    "gpt2/1x128/foreach=False": (gpt2, partial(words, 1, 128), "adamw-loop"),
    "gpt2/1x128/fused": (gpt2, partial(words, 1, 128), "adamw-fused"),
}  # fmt: skip
"""A model, its inputs, and the optimizer, by the name of a step."""


class First(torch.nn.Module):
    """A language model without its cache, and with the first of its results alone."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        import transformers

        config = getattr(transformers, f"{kind}Config")()
        self.model = getattr(transformers, f"{kind}Model")(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False)[0]


class Bert(First):
    """All results of BERT, which has no cache."""

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(ids)


def of_timm(name: str) -> torch.nn.Module:
    import timm

    return timm.create_model(name)


def tokens(batch: int, length: int) -> tuple[torch.Tensor]:
    return (torch.randint(0, 30_000, (batch, length)),)


F16, BF16 = torch.float16, torch.bfloat16
MODES: dict[str, tuple[Callable[[], torch.nn.Module], torch.dtype, Callable[[], Any]]] = {
    "resnet50/64": (partial(vision, "resnet50"), F16, partial(images, 64, F16)),
    "vit_b_16/64": (partial(of_timm, "vit_base_patch16_224"), F16, partial(images, 64, F16)),
    "gpt2/8x1024": (partial(First, "GPT2"), F16, partial(tokens, 8, 1024)),
    "bert/32x128": (partial(Bert, "Bert"), BF16, partial(tokens, 32, 128)),
    "convnext_tiny/64": (partial(of_timm, "convnext_tiny"), F16, partial(images, 64, F16)),
    "efficientnet_b0/64": (partial(of_timm, "efficientnet_b0"), F16, partial(images, 64, F16)),
    "regnety_032/64": (partial(of_timm, "regnety_032"), F16, partial(images, 64, F16)),
    "mixer_b16_224/64": (partial(of_timm, "mixer_b16_224"), F16, partial(images, 64, F16)),
    "resnet50/1": (partial(vision, "resnet50"), F16, partial(images, 1, F16)),
    "densenet121/64": (partial(of_timm, "densenet121"), F16, partial(images, 64, F16)),
}


# What is recorded on a machine with a GPU: each stage in a process of its own, bounded in time, which
# writes a file as it goes.


def record(folder: Path) -> None:
    """Run all stages, and keep what they found in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    for stage, limit in LIMITS.items():
        command = [
            sys.executable,
            "-m",
            "benchmarks.gpu",
            "--hardware",
            DEVICE,
            "stage",
            stage,
            str(folder),
        ]
        try:
            subprocess.run(command, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f"{stage}: ended after {limit} s, what it had is kept", flush=True)
    found: dict[str, Any] = {"machine": {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }}  # fmt: skip
    for stage in LIMITS:
        path = folder / f"{stage}.json"
        found[stage] = json.loads(path.read_text("utf-8")) if path.exists() else []
    (folder / "recorded.json").write_text(lines_of(found), "utf-8")


def lines_of(found: Mapping[str, Any]) -> str:
    """JSON with a row on each line."""

    def shown(value: Any) -> str:
        if not isinstance(value, list):
            return json.dumps(value, separators=(",", ":"))
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
        return f"[\n{rows}\n]"

    return "{" + ",\n".join(f"{json.dumps(k)}:{shown(v)}" for k, v in found.items()) + "}\n"


def measured(folder: Path) -> Iterator[dict[str, Any]]:
    """Steps of models as `opgraph.measure` has them."""
    (folder / "runs").mkdir(exist_ok=True)
    for key, (name, options) in CASES.items():
        gc.collect()
        torch.cuda.empty_cache()
        path = folder / "runs" / f"{key.replace('/', '_')}.json"
        opgraph.measure(name, device="cuda", hardware=DEVICE, **options).save(path)
        yield {"key": key, "name": name, "options": options, **of_run(path)}


def of_run(path: Path) -> dict[str, Any]:
    """What is kept of a run: quartiles of its steps, and the seconds of its kernels by class of work."""
    found = opgraph.load(path).on(DEVICE).ran
    run = found.run
    ours = [event for event in run.events if run.works(event)]
    return {
        "seconds": [quantile(run.repeats, q) for q in (0.25, 0.5, 0.75)],
        "fastest": min(run.repeats), "slowest": max(run.repeats),
        "classes": by_class(found.costed.graph, found.by_node), "nowhere": run.work * (1 - run.attributed),
        "kernels": sum(event.count for event in ours) / run.steps, "peak": run.peak_memory,
    }  # fmt: skip


def by_class(graph: Any, seconds: Mapping[int, float]) -> dict[str, float]:
    """Seconds of nodes by class of work."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if taken := seconds.get(node.id):
            found[main_category(node)] += taken
    return dict(found)


def memory() -> Iterator[dict[str, Any]]:
    """The memory of steps of training in a plain loop, without a profiler."""

    def used() -> int:
        free, whole = torch.cuda.mem_get_info()
        return whole - free

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    yield {"key": "context", "bytes": used() - torch.cuda.memory_reserved()}
    for key, (build, inputs, optimizer) in STEPS.items():
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        base = torch.cuda.memory_allocated()
        model = build().cuda().train()
        how = {"foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}
        kind = how.get(optimizer.partition("-")[2], {})
        update = torch.optim.AdamW(model.parameters(), lr=1e-5, **kind)
        given = inputs()
        if isinstance(given, dict):
            given = {name: each.cuda() for name, each in given.items()}
        else:
            given = tuple(each.cuda() for each in given)
            labels = torch.randint(0, 1000, (len(given[0]),), device="cuda")
        for number in range(6):
            if number == 2:
                torch.cuda.reset_peak_memory_stats()
            if isinstance(given, dict):
                found = model(**given)  # and all of it is there during the backward
                loss = found.loss
            else:
                loss = torch.nn.functional.cross_entropy(model(*given), labels)
            loss.backward()
            update.step()
            update.zero_grad()
            torch.cuda.synchronize()
            found = loss = None
        yield {"key": key, "peak": torch.cuda.max_memory_allocated() - base,
               "reserved": torch.cuda.max_memory_reserved(), "process": used()}  # fmt: skip
        del model, update, given


def modes() -> Iterator[dict[str, Any]]:
    """Seconds of modules run eagerly, as a CUDA graph and compiled, and how many kernels there are."""
    from torch.profiler import ProfilerActivity, profile

    def seconds(run: Callable[[], object]) -> float:
        for _ in range(5):
            run()
        found, end = list[float](), time.perf_counter() + 0.6
        while time.perf_counter() < end or len(found) < 10:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            torch.cuda.synchronize()
            found.append(time.perf_counter() - begin)
        return statistics.median(found)

    def kernels(run: Callable[[], object]) -> tuple[int, float]:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
        ran = [e.device_time for e in seen.events() if str(e.device_type).endswith("CUDA")]
        return len(ran), sum(ran) / 1e6

    for key, (build, dtype, inputs) in MODES.items():
        module = build().eval().to("cuda", dtype)
        given = tuple(each.cuda() for each in inputs())
        with torch.inference_mode():
            run = partial(module, *given)
            row = {"key": key, "eager": seconds(run)}
            row["kernels"], row["kernel_seconds"] = kernels(run)
            aside = torch.cuda.Stream()
            with torch.cuda.stream(aside):
                for _ in range(3):
                    run()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = run()
            row["graphs"] = seconds(graph.replay)
            row["graph_kernels"], row["graph_kernel_seconds"] = kernels(graph.replay)
            del graph, kept
            torch._dynamo.reset()
            again = partial(torch.compile(module), *given)
            row["compiled"] = seconds(again)
            row["compiled_kernels"], row["compiled_kernel_seconds"] = kernels(again)
        yield row
        del module, run, again
        torch.cuda.empty_cache()


MASKS = ("none", "causal", "bool", "float", "float+grad")
HEADS = ((32, 32), (64, 64), (72, 72), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256),
         (264, 264), (60, 60))  # fmt: skip
SIZES = ((1, 1), (1, 300), (128, 128), (100, 300))
RAN = {f"aten::_scaled_dot_product_{name}": kernel for name, kernel in (
    ("flash_attention", "flash"), ("efficient_attention", "efficient"),
    ("cudnn_attention", "cudnn"), ("attention_math", "math"))}  # fmt: skip


def attention(calls: int = 1500) -> Iterator[list[Any]]:
    """Calls of attention drawn by chance, and the kernel that torch took."""
    from torch.profiler import ProfilerActivity, profile

    every = itertools.product(("float32", "float16", "bfloat16"), HEADS, MASKS, (0.0, 0.1, 0.125), (1, 4),
                              SIZES, (False, True))  # fmt: skip
    for dtype, (head, value), mask, dropout, group, (queries, keys), gradient in (
        random.Random(1).sample(list(every), calls)
    ):  # fmt: skip
        made = partial(
            torch.randn, device="cuda", dtype=getattr(torch, dtype), requires_grad=gradient
        )
        q = made(2, 8, queries, head)
        k, v = (made(2, 8 // group, keys, size) for size in (head, value))
        given = None
        if mask == "bool":
            given = torch.rand(2, 1, queries, keys, device="cuda") > 0.1
        elif mask.startswith("float"):
            given = made(2, 1, queries, keys).requires_grad_(gradient and mask == "float+grad")
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, given, dropout, mask == "causal", enable_gqa=group > 1
            )
        ran = next((RAN[event.name] for event in seen.events() if event.name in RAN), "")
        yield [dtype, head, value, mask, dropout, group, queries, keys, gradient, ran]


def calibrated() -> Iterator[dict[str, Any]]:
    """What `opgraph hardware --calibrate` measures: a device file, and kernels."""
    text, kernels = calibrate.calibrate(partial(print, flush=True))
    yield {"file": text}
    yield from kernels


STAGES: dict[str, Callable[[Path], Iterator[Any]]] = {
    "measured": measured, "memory": lambda _: memory(), "modes": lambda _: modes(),
    "attention": lambda _: attention(), "calibrated": lambda _: calibrated(),
}  # fmt: skip


def stage(name: str, folder: Path) -> None:
    """Run one stage; what it has is written after each row."""
    rows = list[Any]()
    for row in STAGES[name](folder):
        rows.append(row)
        print(json.dumps(row)[:200], flush=True)
        part = folder / f"{name}.part"  # a stage may be ended while it writes
        part.write_text(json.dumps(rows), "utf-8")
        part.replace(folder / f"{name}.json")


# What is said of it, by models that are traced anew.


def score(path: Path) -> Iterator[str]:
    """The lines of the page."""
    found = json.loads(path.read_text("utf-8"))
    machine = found["machine"]
    yield (f"{machine['device']}, torch {machine['torch']}; predicted for `{DEVICE}`, traced with torch "
           f"{torch.__version__}.\n")  # fmt: skip
    for stage, lines in (("measured", of_cases), ("memory", of_memory), ("modes", of_modes),
                         ("attention", of_attention), ("calibrated", of_calibration)):  # fmt: skip
        if found[stage]:
            yield from lines(found[stage])
        else:
            yield f"Nothing was recorded of the stage {stage}.\n"


def table(*headers: str) -> str:
    return f"| {' | '.join(headers)} |\n|---|{'---:|' * (len(headers) - 1)}"


def off(ratio: float) -> float:
    return abs(math.log(ratio))


def of_cases(rows: list[dict[str, Any]]) -> Iterator[str]:
    lines, ratios, held = list[tuple[float, str]](), dict[str, list[float]](), Counter[str]()
    classes: dict[tuple[str, str], list[tuple[float, float]]] = {}
    swings = []
    for row in rows:
        mine = opgraph.profile(row["name"], target=device(DEVICE).target, **row["options"]).on(
            DEVICE
        )
        told, (low, middle, high) = mine.prediction, row["seconds"]
        kernels = sum(row["classes"].values()) + row["nowhere"]
        step, ours = told.seconds / middle, told.device_seconds / kernels
        inside = told.interval[0] <= middle <= told.interval[1]
        limit = "device" if kernels > 0.8 * middle else "host"
        for kind in (limit, "all"):
            ratios.setdefault(f"steps, {kind}", []).append(step)
            ratios.setdefault(f"kernels, {kind}", []).append(ours)
            held[kind] += inside
        swings.append(row["slowest"] / row["fastest"])
        lines.append((off(ours), (
            f"| {row['key']} | {units.seconds(kernels)} | {units.seconds(told.device_seconds)} | "
            f"{ours:.2f} | {units.seconds(middle)} ± {units.percent((high - low) / 2 / middle)} | "
            f"{units.seconds(told.seconds)} | {step:.2f} | {'yes' if inside else 'no'} | {limit} |"
        )))  # fmt: skip
        predicted = by_class(mine.graph, told.by_node)
        phase = "training" if row["options"].get("mode") == "train" else "inference"
        for kind in {*predicted, *row["classes"]}:
            pair = row["classes"].get(kind, 0.0), predicted.get(kind, 0.0)
            classes.setdefault((kind, phase), []).append(pair)
        classes.setdefault(("no node", phase), []).append((row["nowhere"], 0.0))
        print(lines[-1][1], flush=True)
    yield "### Time\n"
    for name, each in sorted(ratios.items()):
        errors = [abs(r - 1) for r in each]
        what, kind = name.split(", ")
        where = "" if kind == "all" else f" where the {kind} was the limit"
        yield (f"- {what}{where}: {len(each)} cases, median error "
               f"{units.percent(statistics.median(errors))}, median ratio {statistics.median(each):.2f}"
               + f", interval holds {held[kind]}" * name.startswith("steps"))  # fmt: skip
    yield (f"- the slowest of a case's steps took {statistics.median(swings):.2f} times the fastest in the "
           f"median, {max(swings):.1f} times at most\n")  # fmt: skip
    yield table("case", "kernels, measured", "predicted", "ratio", "step, measured", "predicted", "ratio",
                "interval holds", "limit, measured")  # fmt: skip
    yield from (line for _, line in sorted(lines, reverse=True))
    yield "\n### By class of work\n"
    yield table("kernels of", "mode", "cases", "measured", "predicted", "ratio")
    sums = {k: (sum(m for m, _ in v), sum(p for _, p in v), sum(m > 0 for m, _ in v))
            for k, v in classes.items()}  # fmt: skip
    for (kind, phase), (there, here, count) in sorted(
        sums.items(), key=lambda i: -abs(i[1][1] - i[1][0])
    ):
        if there or here:
            ratio = f"{here / there:.2f}" if there else "–"
            shown = f"{count} | {units.seconds(there)} | {units.seconds(here)} | {ratio}"
            yield f"| {kind} | {phase} | {shown} |"
    yield ""


def of_memory(rows: list[dict[str, Any]]) -> Iterator[str]:
    kept = list[Any]()

    def keeping(found: Any) -> torch.Tensor:
        kept.append(found)  # as the loop did
        return found.loss

    yield "### Memory\n"
    yield table("step", "peak, measured", "predicted", "ratio", "reserved, measured", "predicted", "ratio",
                "process, beyond", "device file")  # fmt: skip
    lines, ratios = list[tuple[float, str]](), list[tuple[float, float]]()
    for row in rows:
        if row["key"] not in STEPS:
            continue
        build, inputs, optimizer = STEPS[row["key"]]
        with torch.device("meta"):
            model = build()
        given = inputs()
        mine = opgraph.profile(
            model, given, mode="train", optimizer=optimizer, target=device(DEVICE).target,
            loss=keeping if isinstance(given, dict) else "auto",
        ).on(DEVICE)  # fmt: skip
        kept.clear()
        fits = mine.fit
        peak = fits.needed - fits.context - fits.workspace * row.get("warm", False)
        reserved = (fits.reserved or 0) + fits.workspace
        ratios.append((peak / row["peak"], reserved / row["reserved"]))
        lines.append((off(ratios[-1][0]), (
            f"| {row['key']} | {units.size(row['peak'])} | {units.size(peak)} | {ratios[-1][0]:.3f} | "
            f"{units.size(row['reserved'])} | {units.size(reserved)} | {ratios[-1][1]:.3f} | "
            f"{units.size(row['process'] - row['reserved'])} | {units.size(fits.context)} |"
        )))  # fmt: skip
        print(lines[-1][1], flush=True)
    yield from (line for _, line in sorted(lines, reverse=True))
    errors = ([abs(r - 1) for r in each] for each in zip(*ratios, strict=True))
    first, second = (units.percent(statistics.median(each)) for each in errors)
    context = next(row["bytes"] for row in rows if row["key"] == "context")
    yield (f"\nMedian error {first} of the peak and {second} of what is reserved. A process took "
           f"{units.size(context)} when there was one tensor.\n")  # fmt: skip


def of_modes(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "### Graphs and the compiler\n"
    yield table("module", "eager", "predicted", "graphs", "predicted", "speed-up", "predicted", "compiled",
                "predicted", "speed-up", "predicted", "kernels compiled", "scheduled")  # fmt: skip
    gains: dict[str, list[tuple[float, float]]] = {"graphs": [], "compiled": []}
    for row in rows:
        build, dtype, inputs = MODES[row["key"]]
        module, given, target = build().eval().to(dtype), inputs(), device(DEVICE).target
        plain = opgraph.profile(module, given, target=target)
        eager, graphs = (
            plain.on(DEVICE, run=run).prediction.seconds for run in ("eager", "graphs")
        )
        said = [row["eager"], eager, row["graphs"], graphs]
        cells = [*map(units.seconds, said), *gain(gains["graphs"], *said)]
        if "compiled" in row:
            inductor = opgraph.profile(module, given, target=target, inductor=True)
            compiled = inductor.on(DEVICE, run="compiled")
            said = [row["eager"], eager, row["compiled"], compiled.prediction.seconds]
            cells += [*map(units.seconds, said[2:]), *gain(gains["compiled"], *said),
                      str(row["compiled_kernels"]), str(len(compiled.work))]  # fmt: skip
        else:
            cells += ["–"] * 6
        yield f"| {row['key']} | {' | '.join(cells)} |"
        print(row["key"], cells, flush=True)
    yield ""
    for whose, key in (("a plain run's", "kernel_seconds"), ("its own", "graph_kernel_seconds")):
        waits = [(row["graphs"] / row[key], row["key"]) for row in rows if key in row]
        if waits:
            usual = statistics.median(wait for wait, _ in waits)
            yield (f"A graph takes {usual:.2f} times the sum of {whose} kernels in the median, and "
                   f"{max(waits)[0]:.1f} times at most ({max(waits)[1]}).\n")  # fmt: skip
    for kind, pairs in gains.items():
        error = statistics.median(abs(b / a - 1) for a, b in pairs)
        yield (f"Speed-up of {kind}: {len(pairs)} modules, median error {units.percent(error)}, Spearman's "
               f"correlation {spearman(pairs):.2f}.\n")  # fmt: skip


def gain(pairs: list[tuple[float, float]], *seconds: float) -> tuple[str, str]:
    """What is gained, measured and predicted, of two runs of which each has both."""
    before, told, after, told_after = seconds
    pairs.append((before / after, told / told_after))
    return f"{pairs[-1][0]:.2f}", f"{pairs[-1][1]:.2f}"


OLD = {
    "the efficient kernel took no grouped queries":
        lambda call: replace(call, off=call.off | {"efficient"}) if call.grouped else call,
    "cuDNN took any dropout": lambda call: replace(call, dropout=math.ceil(call.dropout)),
    "cuDNN took heads above 128 with gradients": lambda call: replace(call, gradient=False),
}  # fmt: skip
"""What was otherwise in torch 2.11, as calls for which the table of torch 2.15 says what 2.11 does."""


def of_attention(rows: list[list[Any]]) -> Iterator[str]:
    counts = [0] * (len(OLD) + 1)
    for dtype, head, value, mask, dropout, group, queries, keys, gradient, ran in rows:
        call = Attention(
            dtype=dtype, queries=queries, keys=keys, head_size=head, key_size=head, value_size=value,
            batch=2, heads=8, key_heads=8 // group, value_heads=8 // group,
            mask=mask in MASKS[2:], mask_gradient=mask == "float+grad" and gradient, dropout=dropout,
            causal=mask == "causal", grouped=group > 1, gradient=gradient,
        )  # fmt: skip
        calls = itertools.accumulate(OLD.values(), lambda one, old: old(one), initial=call)
        for i, each in enumerate(calls):
            counts[i] += attention_kernel(each, device(DEVICE).target) == ran
    yield "### Attention\n"
    yield table("rules", f"of {len(rows)} calls, the kernel that ran")
    for name, count in zip(
        ("as in torch 2.15", *(f"… and {old}" for old in OLD)), counts, strict=True
    ):
        yield f"| {name} | {count} |"
    yield ""


def of_calibration(rows: list[dict[str, Any]]) -> Iterator[str]:
    text, kernels = rows[0]["file"], rows[1:]
    here = parse(tomllib.loads(text), "this")
    keys = ("bandwidth", "matrix", "product", "elementwise")
    large = [row for row in kernels if row["op"] == "product" and row["m"] > 128]
    yield "### Calibration\n"
    yield table("fitted to", *keys)
    for name, chosen in (
        ("small kernels alone", [row for row in kernels if row not in large]),
        (f"with {units.plural(len(large), 'large product')}", kernels),
    ):
        found = fit_sustained(here, list(map(measured_of, chosen)), keys)
        yield f"| {name} | {' | '.join(units.percent(found[key]) for key in keys)} |"
    yield ""


def main() -> None:
    global DEVICE
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--hardware", default=DEVICE)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("record")
    make.add_argument("folder", type=Path)
    make.set_defaults(do=lambda a: record(a.folder))
    one = commands.add_parser("stage")
    one.add_argument("name", choices=STAGES)
    one.add_argument("folder", type=Path)
    one.set_defaults(do=lambda a: stage(a.name, a.folder))
    judge = commands.add_parser("score")
    judge.add_argument("folder", type=Path, nargs="?")
    judge.set_defaults(do=lambda a: shown(a.folder))
    asked = parser.parse_args()
    DEVICE = asked.hardware
    asked.do(asked)


def shown(folder: Path | None) -> None:
    """Print the tables; those of what is kept are written to the page."""
    text = "\n".join(score(KEPT if folder is None else folder / "recorded.json")).rstrip() + "\n"
    print(text)
    if folder is None:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
