"""Compiled runs predicted and measured: timm's `-dynamo` file for the RTX 4090 beside its eager one, on
models drawn by chance. Nothing is fitted on either.

    python benchmarks/compiled.py run --sources DIR --models 60 -o rows.jsonl      (hours of CPU; goes on)
    python benchmarks/compiled.py score rows.jsonl
    python benchmarks/compiled.py share [--mode train] -o share.jsonl              (an hour of CPU; goes on)

DIR has `results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv` and the same without `-dynamo`, of
huggingface/pytorch-image-models (Apache-2.0). A row is a model at an image size; each file has a batch of
its own (1,370 of 1,442 rows differ: 256 compiled, 1,024 eager in most), and is predicted at that. What
TorchInductor schedules is asked for in mixed precision, as timm ran it.

`share` says of how many models of CI's sample (tests/data/sample.txt) TorchInductor's kernels are found.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import signal
import statistics
import time
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

FILES = {
    "compiled": "benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv",
    "eager": "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv",
}
DEVICE = "rtx-4090"
SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "sample.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.add_argument("--sources", type=Path, required=True)
    run.add_argument("--models", type=int, default=60)
    run.add_argument("--seed", type=int, default=22)
    run.add_argument("-o", "--output", type=Path, required=True)
    run.set_defaults(do=lambda a: draw(a.sources, a.models, a.seed, a.output))
    judge = commands.add_parser("score")
    judge.add_argument("rows", type=Path)
    judge.set_defaults(do=lambda a: score(a.rows))
    each = commands.add_parser("share")
    each.add_argument("--mode", choices=("infer", "train"), default="infer")
    each.add_argument("--target", default="cuda:9.0")
    each.add_argument(
        "--limit", type=float, default=300, help="seconds of CPU that a model may take"
    )
    each.add_argument("-o", "--output", type=Path, required=True)
    each.set_defaults(do=lambda a: share(a.mode, a.target, a.limit, a.output))
    args = parser.parse_args()
    args.do(args)


def share(mode: str, target: str, limit: float, output: Path) -> None:
    """Compile CI's sample, those that are in the output already left out, and print how many could be, and
    why the others could not."""
    for slow in ("torch._inductor.compile_fx", "opgraph.tracing.replay.inductor"):
        import_module(slow)  # once, for all processes
    names = SAMPLE.read_text(encoding="utf-8").split()
    done = {r["model"] for r in map(json.loads, output.open())} if output.exists() else set()
    for name in names:
        if name in done:
            continue
        with get_context("fork").Pool(1) as pool:
            found = pool.apply(compiles, (name, mode, target, limit))
        with output.open("a") as file:
            file.write(json.dumps({"model": name, **found}) + "\n")
    rows = [r for r in map(json.loads, output.open()) if r["model"] in names]
    good = [r for r in rows if "failed" not in r]
    took = sorted(r["cpu"] for r in good)
    print(f"{mode} on {target}: {len(good)} of {len(rows)} ({len(good) / len(rows):.1%}), "
          f"{sum(bool(r['breaks']) for r in good)} with graph breaks; "
          f"median {statistics.median(took):.0f} s of CPU, most {took[-1]:.0f} s")  # fmt: skip
    for r in rows:
        if "failed" in r:
            print(f"{r['model']:40} {r['failed']:.200}")


def compiles(name: str, mode: str, target: str, limit: float) -> dict[str, object]:
    """What came of one model, in a process of its own."""
    import opgraph

    def ended(*_: object) -> None:
        raise TimeoutError(f"more than {limit:g} s of CPU")

    signal.signal(signal.SIGPROF, ended)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        found = opgraph.profile(name, mode=mode, target=target, inductor=True)
    except (opgraph.OpgraphError, TimeoutError) as error:
        return {"failed": str(error), "cpu": time.process_time() - start}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if found.graph.failed is not None:
        return {"failed": found.graph.failed.failure, "cpu": time.process_time() - start}
    return {"kernels": len(found.compiled.kernels), "breaks": len(found.graph.breaks),
            "cpu": time.process_time() - start}  # fmt: skip


def measured(sources: Path) -> list[dict[str, object]]:
    """The rows that both files have, in the order of the compiled one."""
    found: dict[str, dict[tuple[str, str], tuple[float, int]]] = {}
    for kind, name in FILES.items():
        with (sources / name).open(newline="") as file:
            found[kind] = {
                (r["model"], r["infer_img_size"]): (
                    1 / float(r["infer_samples_per_sec"]), int(r["infer_batch_size"])
                )
                for r in csv.DictReader(file)
            }  # fmt: skip
    return [
        {"model": model, "size": int(size), "batch": batch, "compiled": each,
         "eager": found["eager"][model, size][0], "eager_batch": found["eager"][model, size][1]}
        for (model, size), (each, batch) in found["compiled"].items()
        if (model, size) in found["eager"]
    ]  # fmt: skip


def draw(sources: Path, models: int, seed: int, output: Path) -> None:
    """Predict models drawn by chance, one row each, those that are in the output already left out."""
    rows = measured(sources)
    random.Random(seed).shuffle(rows)
    done = [json.loads(line) for line in output.open()] if output.exists() else []
    seen = {(r["model"], r["size"]) for r in done}
    for row in rows[:models]:
        if (row["model"], row["size"]) in seen:
            continue
        start = time.process_time()
        found = row | predicted(row) | {"cpu": time.process_time() - start}
        with output.open("a") as file:
            file.write(json.dumps(found) + "\n")


def predicted(row: dict[str, object]) -> dict[str, object]:
    """Predicted seconds of an image, compiled and eager; or why there are none. timm's own normalizations
    are in half precision, as the measurements were made (see `predict.fast_norms`)."""
    import timm
    from predict import fast_norms

    import opgraph
    from opgraph.analysis.cost.precision import autocast
    from opgraph.analysis.timing.prediction import predict
    from opgraph.hardware import device

    timm.layers.set_fast_norm()
    name, given = f"timm:{row['model']}", {"image_size": row["size"], "target": "cuda:8.9"}
    try:
        profile = opgraph.profile(name, batch_size=row["batch"], inductor=True,
                                  inductor_autocast="float16", **given)  # fmt: skip
        eager = opgraph.profile(name, batch_size=row["eager_batch"], **given)
    except opgraph.OpgraphError as error:
        return {"failed": str(error)}
    plain = predict(autocast(eager.graph, override=fast_norms), device(DEVICE))
    mine = profile.on(DEVICE, autocast="float16", run="compiled")
    return {
        "predicted": mine.seconds / row["batch"],
        "predicted_eager": plain.seconds / row["eager_batch"],
        "interval": [s / row["batch"] for s in mine.prediction.interval],
        "breaks": len(profile.graph.breaks),
    }


def score(path: Path) -> None:
    rows = [json.loads(line) for line in path.open()]
    good = [r for r in rows if "failed" not in r]
    for name, mine, theirs in (
        ("compiled", "predicted", "compiled"), ("eager", "predicted_eager", "eager"),
    ):  # fmt: skip
        ratios = [r[mine] / r[theirs] for r in good]
        errors = [abs(x - 1) for x in ratios]
        print(
            f"{name}: {len(good)} of {len(rows)} rows, "
            f"median error {statistics.median(errors):.1%}, mean {statistics.mean(errors):.1%}, "
            f"median ratio {statistics.median(ratios):.3f}"
        )
    gains = [(r["predicted_eager"] / r["predicted"], r["eager"] / r["compiled"]) for r in good]
    print(f"speed-up: Spearman {spearman(gains):.3f}, median error "
          f"{statistics.median(abs(a / b - 1) for a, b in gains):.1%}; measured "
          f"{min(b for _, b in gains):.2f} to {max(b for _, b in gains):.2f}")  # fmt: skip
    held = sum(r["interval"][0] <= r["compiled"] <= r["interval"][1] for r in good)
    print(f"interval holds {held} of {len(good)}")
    for r in sorted(good, key=lambda r: -abs(r["predicted"] / r["compiled"] - 1)):
        print(f"{r['model']:48} {r['size']:4} compiled {r['predicted'] / r['compiled']:.2f} "
              f"eager {r['predicted_eager'] / r['eager']:.2f} speed-up {r['eager'] / r['compiled']:.2f} "
              f"predicted {r['predicted_eager'] / r['predicted']:.2f} breaks {r['breaks']} "
              f"cpu {r['cpu']:.0f} s")  # fmt: skip
    for r in rows:
        if "failed" in r:
            print(f"{r['model']:48} failed: {r['failed']:.150}")


def spearman(pairs: list[tuple[float, float]]) -> float:
    """The correlation of ranks."""

    def ranks(values: list[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        found = [0.0] * len(values)
        for rank, i in enumerate(order):
            found[i] = float(rank)
        return found

    first, second = (ranks(list(v)) for v in zip(*pairs, strict=True))
    return statistics.correlation(first, second)


if __name__ == "__main__":
    main()
