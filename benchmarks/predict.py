"""Predicted against measured: fits the efficiencies of `opgraph.analysis.prediction` and says how well
they hold.

    python benchmarks/predict.py trace   # trace every model of the file (an hour or two; resumable)
    python benchmarks/predict.py fit     # fit, cross-validate, print the figures
    python benchmarks/predict.py score   # the figures of the efficiencies that opgraph ships

The measurements are timm's own published benchmark results for inference on an RTX 4090, with mixed
precision and contiguous (NCHW) data: benchmarks/data/timm-rtx4090-amp-nchw.csv. They were made with
fused inference forms of the models (`reparameterize_model`: the file's parameter counts show it) and with
timm's fast norms, which compute timm's own normalizations in half precision. A model whose parameter
count is not the file's is another model by now, and is left out; all that is left out is listed.
"""

from __future__ import annotations

import argparse
import csv
import os
import pickle
import random
import signal
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opgraph.analysis.precision import autocast
from opgraph.analysis.prediction import FITTED, Demand, demands
from opgraph.analysis.workload import workload
from opgraph.graph import Graph, Kernel, Node
from opgraph.hardware import device

DATA = Path(__file__).parent / "data" / "timm-rtx4090-amp-nchw.csv"
CACHE = Path(__file__).parent / ".cache" / "predict"
FAST_NORMS = ("timm/layers/norm.py", "timm/layers/fast_norm.py", "timm/layers/norm_act.py")
FOLDS = 5
TIMEOUT = 240
OVERHEAD = "overhead"


@dataclass(frozen=True)
class Measured:
    """One row of the file."""

    name: str
    size: int
    batch: int
    seconds: float
    parameters: float

    def traced(self, cache: Path) -> Path:
        """Where its graph is kept."""
        return cache / f"{self.name}@{self.size}x{self.batch}.pkl"

    def failed(self, cache: Path) -> Path:
        """Where the reason stands why there is none."""
        return self.traced(cache).with_suffix(".txt")


def rows(data: Path) -> list[Measured]:
    with data.open(encoding="utf-8") as file:
        return [
            Measured(
                r["model"].partition(".")[0],
                int(r["infer_img_size"]),
                int(r["infer_batch_size"]),
                float(r["infer_batch_size"]) / float(r["infer_samples_per_sec"]),
                float(r["param_count"]),
            )
            for r in csv.DictReader(file)
        ]


def trace(data: Path, cache: Path) -> None:
    """Trace all models of the file on fake tensors, each in a process of its own, so that none can take
    the run down or fill its memory; what is there already is kept, failures too."""
    import timm
    import timm.utils
    import torch

    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    known = set(timm.list_models())
    models: dict[str, list[Measured]] = {}
    for row in rows(data):
        done = row.traced(cache).exists() or row.failed(cache).exists()
        if row.name in known and not done and row not in models.get(row.name, ()):
            models.setdefault(row.name, []).append(row)
    # In no order, so that what is done when it is stopped is a fair sample.
    order = sorted(models.items())
    random.Random(0).shuffle(order)
    for number, (name, wanted) in enumerate(order, start=1):
        if child := os.fork():
            _, status = os.waitpid(child, 0)
        else:
            signal.alarm(TIMEOUT * len(wanted))
            try:
                _trace_all(name, wanted, cache)
            finally:
                os._exit(0)
        for row in wanted:
            if status and not row.traced(cache).exists():
                row.failed(cache).write_text(f"its process ended with status {status}")
        print(f"{number} of {len(models)}: {name}", flush=True)


def _trace_all(name: str, wanted: list[Measured], cache: Path) -> None:
    """One architecture at all its sizes."""
    import timm
    import torch
    from timm.utils import reparameterize_model

    from opgraph.inputs.base import Example
    from opgraph.pipeline import profile_model
    from opgraph.sources.building import assemble

    def make() -> torch.nn.Module:
        return reparameterize_model(timm.create_model(name).eval())

    built = None
    for row in wanted:
        try:
            built = built or assemble(make, name=name, source="timm")
            image = torch.empty(row.batch, 3, row.size, row.size, device="meta")
            graph = profile_model(built, Example((image,))).graph
            if graph.failed is not None:
                raise RuntimeError(graph.failed.error)
        except Exception as error:  # noqa: BLE001  (one model that fails costs one row)
            row.failed(cache).write_text(f"{type(error).__name__}: {error}".splitlines()[0][:200])
            continue
        row.traced(cache).write_bytes(zlib.compress(pickle.dumps(graph), 1))


def fast_norms(node: Node, kernel: Kernel) -> str | None:
    """timm's own normalizations in half precision, as the measurements were made."""
    own = (node.file or "").endswith(FAST_NORMS)
    return "lower" if own and kernel.category == "normalization" else None


@dataclass
class Table:
    """All demands of all models as arrays."""

    measured: list[Measured]
    model: np.ndarray
    numbers: np.ndarray
    classes: list[str]
    compute_class: np.ndarray
    traffic_class: np.ndarray

    def seconds(self, shares: dict[str, float]) -> np.ndarray:
        """The formula of `opgraph.analysis.prediction`, for all models at once."""
        compute, traffic, near, serial = self.numbers
        compute = compute / np.array([shares[c] for c in self.classes])[self.compute_class]
        share = np.array([shares[c] for c in self.classes])[self.traffic_class]
        paid = (traffic - near * (1 - shares["cached"])) / share
        kernel = np.maximum(compute, np.maximum(paid, serial)) + shares[OVERHEAD]
        return np.bincount(self.model, kernel, len(self.measured))


def table(data: Path, cache: Path) -> Table:
    """The demands of every traced model of the file that is still the model that was measured."""
    target = device("rtx-4090")
    kept: list[Measured] = []
    found: list[tuple[int, Demand]] = []
    for row in rows(data):
        if not row.traced(cache).exists():
            continue
        graph: Graph = pickle.loads(zlib.decompress(row.traced(cache).read_bytes()))
        count = sum(p.numel for p in graph.parameters if p.kind == "parameter") / 1e6
        if abs(count - row.parameters) > 0.01 + 0.01 * row.parameters:
            print(f"left out: {row.name} has {count:.2f}M parameters, measured {row.parameters}M")
            continue
        works = workload(autocast(graph, override=fast_norms))
        found += [(len(kept), d) for d in demands(works, target)]
        kept.append(row)
    classes = [k for k in shipped() if k not in ("cached", OVERHEAD)]
    number = {c: i for i, c in enumerate(classes)}
    return Table(
        kept,
        np.array([i for i, _ in found]),
        np.array([[d.compute, d.traffic, d.near, d.serial] for _, d in found]).T,
        classes,
        np.array([number[f"compute {d.compute_class}"] for _, d in found]),
        np.array([number[f"traffic {d.traffic_class}"] for _, d in found]),
    )


def shipped() -> dict[str, float]:
    return {
        **{f"compute {k}": v for k, v in FITTED.compute.items()},
        **{f"traffic {k}": v for k, v in FITTED.traffic.items()},
        "cached": FITTED.cached,
        OVERHEAD: device("rtx-4090").launch_overhead,
    }


def fit(data: Table, chosen: np.ndarray, rounds: int = 25) -> dict[str, float]:
    """Efficiencies by a pattern search: the mean absolute logarithm of predicted by measured, an error
    counting no more than a factor of e."""
    measured = np.array([m.seconds for m in data.measured])

    def loss(shares: dict[str, float]) -> float:
        error = np.abs(np.log(data.seconds(shares) / measured))[chosen]
        return float(np.minimum(error, 1).mean())

    shares = shipped()
    best = loss(shares)
    steps = {k: 0.15 for k in shares if k != "compute other"}
    for _ in range(rounds):
        for key, step in steps.items():
            for sign in (1, -1):
                tried = {**shares, key: shares[key] * np.exp(sign * step)}
                if key == "cached" or key.startswith("traffic"):
                    tried[key] = min(1.0, tried[key])
                value = loss(tried)
                if value < best - 1e-7:
                    best, shares = value, tried
                    steps[key] *= 1.3
                    break
            else:
                steps[key] /= 2
        if max(steps.values()) < 0.004:
            break
    return {k: float(v) for k, v in shares.items()}


def rank(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


def report(data: Table, predicted: np.ndarray, label: str) -> None:
    measured = np.array([m.seconds for m in data.measured])
    batch = np.array([m.batch for m in data.measured])
    error = np.abs(predicted / measured - 1)
    spearman = np.corrcoef(rank(batch / predicted), rank(batch / measured))[0, 1]
    print(
        f"{label}: {len(measured)} rows, median error {np.median(error):.2%}, "
        f"mean {error.mean():.2%}, 90 % within {np.quantile(error, 0.9):.2%}, "
        f"Spearman {spearman:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["trace", "fit", "score"])
    parser.add_argument("--data", type=Path, default=DATA, help="the measurements")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the traces are kept")
    parser.add_argument("--worst", type=int, default=0, help="list the worst predictions")
    args = parser.parse_args()
    if args.what == "trace":
        trace(args.data, args.cache)
        return
    data = table(args.data, args.cache)
    if args.what == "score":
        predicted = data.seconds(shipped())
        report(data, predicted, "shipped efficiencies")
    else:
        names = sorted({m.name for m in data.measured})
        np.random.default_rng(0).shuffle(names)
        fold = {name: i % FOLDS for i, name in enumerate(names)}
        folds = np.array([fold[m.name] for m in data.measured])
        predicted = np.zeros(len(folds))
        for held in range(FOLDS):
            shares = fit(data, folds != held)
            predicted[folds == held] = data.seconds(shares)[folds == held]
        report(data, predicted, f"cross-validated in {FOLDS} folds by architecture")
        final = fit(data, folds >= 0)
        report(data, data.seconds(final), "fitted to all")
        print("\n".join(f"  {k}: {v:.3g}" for k, v in final.items()))
    measured = np.array([m.seconds for m in data.measured])
    for i in np.argsort(-np.abs(np.log(predicted / measured)))[: args.worst]:
        row = data.measured[i]
        print(f"  {row.name} at {row.size}: {predicted[i] / measured[i] - 1:+.0%}")


if __name__ == "__main__":
    main()
