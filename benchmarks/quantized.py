"""Products with weights in fewer bits, predicted and measured: `python benchmarks/quantized.py DIR`.

`DIR` holds ai-dynamo/aiconfigurator (Apache-2.0), which measured linear layers of engines on GPUs. Every
layer is a graph of one product; `--weights` and `--activations` are applied to it as to any model's, and it
is predicted on the device, with its weights still in the cache as far as that holds them: they were
multiplied with again and again. Nothing is fitted to these. The table is that of docs/quantized.md.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from statistics import median, quantiles

from predict import show

from opgraph.analysis.cost.quantization import in_fewer_bits
from opgraph.analysis.timing.prediction import predict_work
from opgraph.analysis.timing.workload import Work, workload
from opgraph.hardware import device
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Scope, Storage, Value
from opgraph.record.profile import Attempt, ModelInfo, ProfileRecord, Tracing
from opgraph.record.quantization import Scheme

SAMPLE = 1000
"""Layers of each file and kind, evenly over all."""
LARGE = 2**24
"""Weights of a large layer: those of models of 7 G parameters and more have 16 Mi and more."""

KINDS = {
    "bfloat16": None,
    "fp8": Scheme("fp8", activations="fp8"),
    "fp8_block": Scheme("fp8", 128, 128, "fp8"),
    "sq": Scheme("int8", activations="int8"),
    "int8_wo": Scheme("int8"),
    "int4_wo": Scheme("int4"),
    "nvfp4": Scheme("nvfp4", activations="fp4"),
}
"""What AIConfigurator calls a kind, and the scheme that it is."""

FILES = (
    ("a100-sxm4-80gb", "a100_sxm", "trtllm/1.0.0"), ("h100-sxm", "h100_sxm", "vllm/0.24.0"),
    ("h200", "h200_sxm", "vllm/0.24.0"), ("h200", "h200_sxm", "trtllm/1.2.0rc5"),
    ("l40s", "l40s", "vllm/0.24.0"), ("l40s", "l40s", "trtllm/1.0.0"), ("b200", "b200_sxm", "vllm/0.24.0"),
)  # fmt: skip
"""Devices, and where their products are: the newest vLLM, and the TensorRT-LLM that has weights alone."""
PATH = "aic-core/src/aiconfigurator_core/systems/data/{}/gemm/{}/gemm_perf.parquet"


def layer(m: int, n: int, k: int) -> ProfileRecord:
    """A linear layer in bfloat16."""
    kernel = Kernel("aten.mm", "matmul", "bfloat16", 2 * m * n * k, 0, 2 * (m * k + n * k), 2 * m * n,
                    shapes=((m, k), (k, n)), out_shapes=((m, n),))  # fmt: skip
    values = (
        Value(0, (m, k), "bfloat16", 2 * m * k, "input", "x", storage=0),
        Value(1, (n, k), "bfloat16", 2 * n * k, "parameter", "weight"),
        Value(2, (m, n), "bfloat16", 2 * m * n, storage=1),
    )
    node = Node(1, "call", "linear", "linear", inputs=(0, 1), outputs=(2,), parameters=("weight",),
                kernels=(kernel,))  # fmt: skip
    weight = Parameter("weight", (n, k), "bfloat16", n * k, 2 * n * k, "")
    storages = (Storage(2 * m * k, 0, None), Storage(2 * m * n, 0, None, 1))
    scopes = (Scope("", "Linear"),)
    graph = Graph((node,), values, scopes, (weight,), storages, inputs=(0,), outputs=(2,))
    return ProfileRecord(graph, ModelInfo("linear"), Tracing((Attempt("eager", "fake"),)))


def seconds(m: int, n: int, k: int, scheme: Scheme | None, name: str) -> float:
    """The predicted time of a layer on a device, run again and again."""
    on = device(name)
    works = workload(in_fewer_bits(layer(m, n, k), scheme, None, on).graph)
    whole = sum(w.task.bytes for w in works)
    again = [Work(w.node, w.task, tuple(whole for _ in w.task.sizes), calls=0) for w in works]
    return predict_work(again, on).seconds


def measured(
    sources: Path, folder: str, engine: str, kind: str
) -> Iterator[tuple[int, int, int, float]]:
    """The sizes and seconds of a sample of layers."""
    import pandas as pd

    frame = pd.read_parquet(
        io.BytesIO(show(sources / "aiconfigurator", PATH.format(folder, engine)))
    )
    frame = (
        frame[frame.gemm_dtype == kind].groupby(["m", "n", "k"], as_index=False).latency.median()
    )
    for row in frame.iloc[:: max(1, len(frame) // SAMPLE)].itertuples():
        yield int(row.m), int(row.n), int(row.k), row.latency * 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    sources = parser.parse_args().sources
    write = sys.stdout.write
    write("| device, engine | kind | large layers | error | ratio | nine of ten | small layers | error "
          "| ratio | nine of ten |\n")  # fmt: skip
    write("|---" * 10 + "|\n")
    for name, folder, engine in FILES:
        for kind, scheme in KINDS.items():
            ratios: dict[bool, list[float]] = {True: [], False: []}
            for m, n, k, taken in measured(sources, folder, engine, kind):
                ratios[n * k >= LARGE].append(seconds(m, n, k, scheme, name) / taken)
            if ratios[True]:
                said = " | ".join(map(score, ratios.values()))
                write(f"| {name}, {engine} | {kind} | {said} |\n")


def score(ratios: list[float]) -> str:
    """How many, the median error, the median ratio, and the factor in which nine of ten are."""
    error = median(abs(r - 1) for r in ratios)
    factor = exp(quantiles((abs(log(r)) for r in ratios), n=10)[-1])
    return f"{len(ratios):,} | {error:.0%} | {median(ratios):.2f} | {factor:.1f}"


if __name__ == "__main__":
    main()
