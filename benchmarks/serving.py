"""Published engine runs beside what `opgraph serve` simulates.

`python benchmarks/serving.py [-o FILE] [NAME …]`. The rows are those of `serving_published.csv`, which was
put down before any of them was predicted. Engines have the settings that their projects document as
defaults, scheduling takes no time, and nothing is fitted. Where lengths are those of ShareGPT, they are
drawn here with the published means, exponentially, up to 1,024 tokens each, where the benchmarks cut, too.
Prints a table in Markdown, the worst rows first; with names of models only their rows."""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from statistics import median

from opgraph.analysis.serving.curve import ServingPoint, serve_at
from opgraph.analysis.serving.simulation import Engine, Request, arrivals, pages_of
from opgraph.analysis.serving.steps import StepTimes, Traces, step_times
from opgraph.api.serving import traced
from opgraph.hardware import device
from opgraph.options import targeted
from opgraph.record.errors import OpgraphError

ROWS = Path(__file__).parent / "serving_published.csv"
LONGEST = 1024


@dataclass(frozen=True)
class Settings:
    """What an engine documents as its defaults: tokens in a step, sequences at a time, whether prompts are
    read beside sequences that decode, the share of memory that it takes, and up to how many tokens steps
    are recorded as graphs (0: those in which no prompt is read)."""

    tokens: int
    sequences: int
    beside: bool
    memory: float
    recorded: int = 0


SETTINGS = {
    "vllm-ci": Settings(8192, 256, beside=False, memory=0.9),  # v0.5: prompts first, alone
    "sglang-vllm-060 vllm": Settings(4096, 256, beside=False, memory=0.9),
    "sglang": Settings(8192, 4096, beside=False, memory=0.88),
    # v0.19, --gpu-memory-utilization 0.5; max_cudagraph_capture_size is min(2 max_num_seqs, 512) tokens
    "kvcached": Settings(8192, 1024, beside=True, memory=0.5, recorded=512),
    "trtllm": Settings(8192, 2048, beside=True, memory=0.95),
}


def settings(source: str, engine: str) -> Settings:
    """Those of a row."""
    name = f"{source} {engine}"
    return next(s for key, s in SETTINGS.items() if name.startswith(key))


@cache
def traces(model: str, target_of: str, weights: str, kv_cache: str) -> Traces:
    on = device(target_of)
    bits = {"weights": weights or "none"}
    if weights == "fp8":
        bits["activations"] = "fp8"
    if kv_cache:
        bits["kv_cache"] = kv_cache
    given = targeted({"dtype": "bfloat16"}, on.target)
    return traced(model, given, bits, on, lambda text: print(text, file=sys.stderr, flush=True))


_FAMILY = {"h200": "h100-sxm"}
"""Devices of one generation run the same kernels: one is traced for both."""


@cache
def times(model: str, on: str, devices: int, weights: str, kv_cache: str) -> StepTimes:
    found = traces(model, _FAMILY.get(on, on), weights, kv_cache)
    return step_times(found, device(on), devices)


def lengths(text: str, count: int, seed: str) -> list[int]:
    """Numbers of tokens: all alike, between two, or around a mean."""
    random = Random(seed)
    if text.startswith("~"):
        mean = int(text[1:])
        return [min(LONGEST, max(4, round(random.expovariate(1 / mean)))) for _ in range(count)]
    low, _, high = text.partition("-")
    return [random.randint(int(low), int(high or low)) for _ in range(count)]


@cache
def run(key: tuple[str, ...]) -> ServingPoint:
    source, engine, model, on, devices, weights, kv_cache, requests, rate, batch, given, out = key
    found = times(model, on, int(devices), weights, kv_cache)
    s = settings(source, engine)
    each, held = pages_of(found.cache, 16)
    room = found.device.capacity * s.memory - found.device.context - found.weights
    room -= found.activation * s.tokens
    count = int(batch or requests)
    when = arrivals(count, inf if batch or rate == "inf" else float(rate), Random("arrivals"))
    prompts, outputs = lengths(given, count, "in"), lengths(out, count, "out")
    one = Engine(int(room // each), held, found.limits, s.tokens, s.sequences, s.beside,
                 launch=found.launch, recorded=s.recorded, direct=found.direct,
                 once=found.once)  # fmt: skip
    asked = [Request(*r) for r in zip(when, prompts, outputs, strict=True)]
    return serve_at(float(rate or "inf"), asked, one, found, 0)


def predicted(point: ServingPoint, metric: str) -> float:
    """A figure of a run under its published name."""
    if metric == "latency_s":
        return point.seconds
    if metric.endswith("_ms"):
        which, what, _ = metric.split("_")
        names = {"ttft": "first_token", "tpot": "per_token", "itl": "between", "e2e": "latency"}
        spread = getattr(point, names[what])
        return 1e3 * (spread.mean if which == "mean" else spread.p50)
    return {"requests_per_second": point.requests_per_second,
            "output_tokens_per_second": point.output_tokens_per_second}[metric]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models whose rows are run; all if none is given")
    parser.add_argument("-o", "--output", help="also write the rows with their predictions (CSV)")
    args = parser.parse_args()
    rows = list(csv.DictReader(ROWS.read_text().splitlines()))
    scored, left = [], []
    columns = ("source", "engine", "model", "device", "devices", "weights", "kv_cache", "requests",
               "rate", "batch", "input", "output")  # fmt: skip
    for row in rows:
        if args.names and not any(n in row["model"] for n in args.names):
            continue
        if row["reason"]:
            left.append(row)
            continue
        try:
            value = predicted(run(tuple(row[c] for c in columns)), row["metric"])
        except OpgraphError as error:
            left.append({**row, "reason": str(error)})
            continue
        scored.append({**row, "predicted": value, "ratio": value / float(row["value"])})
        print(
            row["source"],
            row["model"],
            row["metric"],
            value,
            row["value"],
            file=sys.stderr,
            flush=True,
        )
    scored.sort(key=lambda r: -abs(r["ratio"] - 1))
    for name, part in groups(scored).items():
        errors = [abs(r["ratio"] - 1) for r in part]
        print(f"- {name}: {len(part)} rows, median error {median(errors):.1%}, "
              f"median ratio {median(r['ratio'] for r in part):.2f}")  # fmt: skip
    heads = ("source", "engine", "model", "on", "requests", "in/out", "metric", "published", "predicted",
             "ratio")  # fmt: skip
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * 7}{'---:|' * 3}")
    for r in scored:
        figures = f"{float(r['value']):,.5g} | {r['predicted']:,.5g} | {r['ratio']:.2f}"
        print(f"| {' | '.join(cells(r))} | {figures} |")
    print("\nNot predicted:\n")
    for reason in dict.fromkeys(r["reason"] for r in left):
        mine = [r for r in left if r["reason"] == reason]
        print(f"- {len(mine)} rows of {', '.join(sorted({r['source'] for r in mine}))}: {reason}")
    if args.output:
        with Path(args.output).open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0], "predicted", "ratio"])
            writer.writeheader()
            writer.writerows(scored)


def cells(r: dict[str, str]) -> list[str]:
    load = f"batch {r['batch']}" if r["batch"] else f"{r['requests']} at {r['rate']}/s"
    many = f"{r['devices']}x" if r["devices"] != "1" else ""
    bits = f" {r['weights']}" if r["weights"] else ""
    return [r["source"], r["engine"], r["model"].rpartition("/")[2] + bits, many + r["device"], load,
            f"{r['input']}/{r['output']}", r["metric"]]  # fmt: skip


def groups(scored: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    found = {"all": scored}
    for r in scored:
        kind = "throughput" if "per_second" in r["metric"] else r["metric"].removesuffix("_ms")
        found.setdefault(kind, []).append(r)
        found.setdefault(r["source"], []).append(r)
    return found


if __name__ == "__main__":
    main()
