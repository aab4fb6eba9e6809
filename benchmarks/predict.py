"""Predicted against measured: fits the efficiencies of `opgraph.analysis.timing.prediction` and says how
well they hold.

    python benchmarks/predict.py trace   # trace every model of the file (most of an hour; resumable)
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

from opgraph.analysis.cost.precision import autocast
from opgraph.analysis.timing.prediction import FITTED, demands
from opgraph.analysis.timing.workload import workload
from opgraph.hardware import device
from opgraph.record import units
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.views.picture.roofline import LogPlane
from opgraph.views.picture.scene import Group, Line, Rect, Scene, Shape, Text
from opgraph.views.picture.svg import to_png, to_svg

DATA = Path(__file__).parent / "data" / "timm-rtx4090-amp-nchw.csv"
CACHE = Path(__file__).parent / ".cache" / "predict"
FAST_NORMS = ("timm/layers/norm.py", "timm/layers/fast_norm.py", "timm/layers/norm_act.py")
FOLDS = 5
TIMEOUT = 900
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

    from opgraph.api.pipeline import profile_model
    from opgraph.inputs.base import Example
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
    """All demands of all models as arrays; `family` are the models' classes, `times` says how often a
    model has the same kernel."""

    measured: list[Measured]
    family: list[str]
    model: np.ndarray
    numbers: np.ndarray
    classes: list[str]
    compute_class: np.ndarray
    traffic_class: np.ndarray
    times: np.ndarray

    @property
    def seconds_measured(self) -> np.ndarray:
        return np.array([m.seconds for m in self.measured])

    def seconds(self, shares: dict[str, float]) -> np.ndarray:
        """The formula of `opgraph.analysis.timing.prediction`, for all models at once."""
        compute, traffic, near, serial = self.numbers
        share = np.array([shares[c] for c in self.classes])
        paid = (traffic - near * (1 - shares["cached"])) / share[self.traffic_class]
        kernel = np.maximum(compute / share[self.compute_class], np.maximum(paid, serial))
        total = (kernel + shares[OVERHEAD]) * self.times
        return np.bincount(self.model, total, len(self.measured))


def table(data: Path, cache: Path) -> Table:
    """The demands of every traced model of the file that is still the model that was measured."""
    target = device("rtx-4090")
    classes = [k for k in shipped() if k not in ("cached", OVERHEAD)]
    number = {c: i for i, c in enumerate(classes)}
    kept: list[Measured] = []
    family: list[str] = []
    columns: list[np.ndarray] = []
    missing, other = [], []
    for row in dict.fromkeys(rows(data)):
        if not row.traced(cache).exists():
            missing.append(row)
            continue
        graph: Graph = pickle.loads(zlib.decompress(row.traced(cache).read_bytes()))
        count = sum(p.numel for p in graph.parameters if p.kind == "parameter") / 1e6
        if abs(count - row.parameters) > 0.01 + 0.01 * row.parameters:
            other.append(f"{row.name} ({count:.2f}M parameters, measured {row.parameters}M)")
            continue
        works = workload(autocast(graph, override=fast_norms))
        found = [
            (len(kept), d.compute, d.traffic, d.near, d.serial,
             number[f"compute {d.compute_class}"], number[f"traffic {d.traffic_class}"])
            for d in demands(works, target)
        ]  # fmt: skip
        once, times = np.unique(np.array(found), axis=0, return_counts=True)
        columns.append(np.column_stack([once, times]).T)
        kept.append(row)
        family.append(graph.scope[""].cls)
    failed = [r for r in missing if r.failed(cache).exists()]
    print(
        f"{len(kept)} rows; {len(missing) - len(failed)} not traced (not in this timm, or not yet)"
    )
    print(f"left out, another model by now: {', '.join(other) or 'none'}")
    for row in failed:
        print(f"left out: {row.name} at {row.size}: {row.failed(cache).read_text()}")
    joined = np.concatenate(columns, axis=1)
    return Table(
        kept, family, joined[0].astype(int), joined[1:5], classes,
        joined[5].astype(int), joined[6].astype(int), joined[7],
    )  # fmt: skip


def shipped() -> dict[str, float]:
    return {
        **{f"compute {k}": v for k, v in FITTED.compute.items()},
        **{f"traffic {k}": v for k, v in FITTED.traffic.items()},
        "cached": FITTED.cached,
        OVERHEAD: device("rtx-4090").launch_overhead,
    }


def fit(data: Table, chosen: np.ndarray, rounds: int = 25) -> dict[str, float]:
    """Efficiencies by a pattern search: the mean absolute logarithm of predicted by measured, an error
    counting no more than a factor of e. None may exceed one: nothing is faster than the data sheet."""
    part = _part(data, chosen)
    measured = part.seconds_measured

    def loss(shares: dict[str, float]) -> float:
        error = np.abs(np.log(part.seconds(shares) / measured))
        return float(np.minimum(error, 1).mean())

    shares = shipped()
    best = loss(shares)
    steps = {k: 0.15 for k in shares if k not in ("compute other", OVERHEAD)}
    for _ in range(rounds):
        for key, step in steps.items():
            for sign in (1, -1):
                tried = {**shares, key: min(1.0, shares[key] * np.exp(sign * step))}
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


def _part(data: Table, chosen: np.ndarray) -> Table:
    """The rows that are chosen."""
    place = np.cumsum(chosen) - 1
    mine = chosen[data.model]
    return Table(
        [m for m, c in zip(data.measured, chosen, strict=True) if c],
        [f for f, c in zip(data.family, chosen, strict=True) if c],
        place[data.model[mine]], data.numbers[:, mine], data.classes,
        data.compute_class[mine], data.traffic_class[mine], data.times[mine],
    )  # fmt: skip


def cross_validated(data: Table, groups: list[str]) -> np.ndarray:
    """Every row predicted by a fit to the other folds; rows of one group are in one fold."""
    names = sorted(set(groups))
    np.random.default_rng(0).shuffle(names)
    fold = {name: i % FOLDS for i, name in enumerate(names)}
    folds = np.array([fold[g] for g in groups])
    predicted = np.zeros(len(folds))
    for held in range(FOLDS):
        predicted[folds == held] = data.seconds(fit(data, folds != held))[folds == held]
    return predicted


def rank(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


def report(data: Table, predicted: np.ndarray, label: str) -> None:
    measured = data.seconds_measured
    batch = np.array([m.batch for m in data.measured])
    error = np.abs(predicted / measured - 1)
    spearman = np.corrcoef(rank(batch / predicted), rank(batch / measured))[0, 1]
    print(
        f"{label}: {len(measured)} rows, median error {np.median(error):.2%}, "
        f"mean {error.mean():.2%}, 90 % within {np.quantile(error, 0.9):.2%}, "
        f"Spearman {spearman:.4f}",
        flush=True,
    )


def picture(data: Table, predicted: np.ndarray, path: Path) -> None:
    """Predicted against measured images a second, on logarithmic axes."""
    batch = np.array([m.batch for m in data.measured])
    x, y = batch / data.seconds_measured, batch / predicted
    low, high = np.log10(min(x.min(), y.min()) / 1.3), np.log10(max(x.max(), y.max()) * 1.3)
    plane = LogPlane((80.0, 60.0, 640.0, 620.0), (low, high), (low, high))

    def shown(value: float) -> str:
        return units.count(value, "\N{NO-BREAK SPACE}").strip()

    shapes: list[Shape] = [
        Rect(0.0, 0.0, 680.0, 690.0, "paper"),
        Text(
            80.0,
            32.0,
            f"Predicted against measured: {len(x)} models of timm, RTX 4090",
            17,
            bold=True,
        ),
        *plane.frame("images a second, measured", "images a second, predicted", shown, shown),
    ]
    a, b = 10.0**low, 10.0**high
    for factor, dash in ((1.0, ()), (1.25, (5.0, 4.0)), (0.8, (5.0, 4.0))):
        first, last = max(a, a / factor), min(b, b / factor)
        line = (plane.at(first, first * factor), plane.at(last, last * factor))
        shapes.append(Line(line, "muted", 1.0, dash=dash))
    for m, family, px, py in zip(data.measured, data.family, x, y, strict=True):
        cx, cy = plane.at(px, py)
        dot = Rect(cx - 2.5, cy - 2.5, 5.0, 5.0, "c2", "paper", 2.5, 0.6)
        said = f"{m.name} at {m.size} ({family}): {px:,.0f} measured, {py:,.0f} predicted"
        shapes.append(Group((dot,), "box", tooltip=said))
    shapes.append(
        Text(640.0, 682.0, "dashed: a quarter too fast, and too slow", 12, "soft", anchor="end")
    )
    scene = Scene(680.0, 690.0, tuple(shapes), "Predicted against measured images a second")
    path.write_text(to_svg(scene, fonts=False), encoding="utf-8")
    path.with_suffix(".png").write_bytes(to_png(scene, "light", 144))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["trace", "fit", "score"])
    parser.add_argument("--data", type=Path, default=DATA, help="the measurements")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the traces are kept")
    parser.add_argument("--worst", type=int, default=0, help="list the worst predictions")
    parser.add_argument(
        "-o", "--output", type=Path, help="plot predicted against measured (.svg, and .png)"
    )
    args = parser.parse_args()
    if args.what == "trace":
        trace(args.data, args.cache)
        return
    data = table(args.data, args.cache)
    predicted = data.seconds(shipped())
    report(data, predicted, "shipped efficiencies")
    if args.what == "fit":
        by_family = cross_validated(data, data.family)
        report(
            data, by_family, f"cross-validated in {FOLDS} folds, whole classes of models left out"
        )
        predicted = cross_validated(data, [m.name for m in data.measured])
        report(data, predicted, f"cross-validated in {FOLDS} folds by architecture")
        final = fit(data, np.ones(len(data.measured), bool))
        report(data, data.seconds(final), "fitted to all")
        print("\n".join(f"  {k}: {v:.3g}" for k, v in final.items()))
    if args.output is not None:
        picture(data, predicted, args.output)
    measured = data.seconds_measured
    for i in np.argsort(-np.abs(np.log(predicted / measured)))[: args.worst]:
        row = data.measured[i]
        print(
            f"  {row.name} at {row.size} ({data.family[i]}): {predicted[i] / measured[i] - 1:+.0%}"
        )


if __name__ == "__main__":
    main()
