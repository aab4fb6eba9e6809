"""Measure a sample of models on this machine, and hold what `opgraph.measure` says to a plain timing loop:
the share of the time of operators that is on nodes, the sum of the nodes over the run, `measure` over the
loop, and whether the model is as it was. Writes the table in docs/measured.md between its marks.

    python benchmarks/measure.py            # the ten and the four of the page, one thread
    python benchmarks/measure.py resnet18 gpt2:train
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import opgraph
from opgraph.analysis.costed import CostedRecord
from opgraph.api.measuring import place
from opgraph.api.pipeline import prepared, profile_model
from opgraph.measuring import measured
from opgraph.measuring.running import device_name, waiting
from opgraph.measuring.steps import step_of
from opgraph.options import Options
from opgraph.record import units
from opgraph.record.run import RunRecord, median, spread
from opgraph.sources.base import Model
from opgraph.tracing.eager import materialized

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "measured.md"
BEGIN, END = "<!-- measure: made by benchmarks/measure.py -->\n", "<!-- end -->"
MODELS = (
    "mobilenet_v3_small", "efficientnet_b0", "alexnet", "bert-base-uncased", "gpt2", "t5-small",
    "yolov8n-cls", "timm:deit_tiny_patch16_224", "timm:mobilevit_xs", "timm:levit_128s",
    "mobilenet_v3_small:train", "timm:levit_128s:train", "timm:deit_tiny_patch16_224:train",
    "regnet_y_400mf:train",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model: seconds of the loop and of `measure`, their spreads, and the shares that must hold."""

    model: str
    loop: float
    loop_spread: float
    measured: float
    spread: float
    nodes: float
    on_nodes: float
    overhead: float
    untouched: bool


def loop(step: Any, device: torch.device, steps: int) -> list[float]:
    """Seconds of plain steps, one after the other."""
    wait, found = waiting(device), []
    for _ in range(2):
        step.ready(None)()  # warm, as `measure` begins
    for _ in range(steps):
        run = step.ready(None)
        wait()
        begin = time.perf_counter()
        run()
        wait()
        found.append(time.perf_counter() - begin)
    return found


def row(spec: str, device: torch.device, seconds: float) -> Row:
    """Measure one model between two halves of a plain loop, which a machine that is shared slows down
    alike."""
    name, train = spec.removesuffix(":train"), spec.endswith(":train")
    options: dict[str, Any] = {"mode": "train" if train else "infer"}
    if train:
        options["batch_size"] = 2  # batch normalization asks for it
    if name in ("bert-base-uncased", "gpt2"):
        options["seq_len"] = 64
    asked = Options(**options, target="cpu" if device.type == "cpu" else None)
    built, example = prepared(name, options=asked)
    module = materialized(built, 16.0)
    given = Model(module, built.info, built.config, built.hints)
    before = copy.deepcopy(module.state_dict())
    flags = [m.training for m in module.modules()]
    profile = profile_model(given, example, asked)
    step = step_of(given, example, asked, device)
    steps = max(1, min(50, round(seconds / max(median(loop(step, device, 3)), 1e-6) / _ROUNDS)))
    times: list[float] = []
    runs: list[RunRecord] = []
    for _ in range(_ROUNDS):  # in turns, so that a machine that others load slows down both alike
        times += loop(step, device, steps)
        runs.append(measured(profile, step, device, steps))
    repeats = [t for run in runs for t in run.repeats]
    opgraph.measure(given, example.args or None, dict(example.kwargs) or None, device=str(device),
                    steps=1, mode=asked.mode)  # fmt: skip
    after = module.state_dict()
    same = (
        all(torch.equal(after[k], v) for k, v in before.items()) and after.keys() == before.keys()
    )
    same &= flags == [m.training for m in module.modules()]
    same &= not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())

    def middle(of: Callable[[RunRecord], float]) -> float:
        return median([of(run) for run in runs])

    def nodes(run: RunRecord) -> float:
        found = CostedRecord(replace(profile, measured=run)).named_measurement()
        return sum(found.by_node.values()) / run.seconds

    return Row(spec, median(times), spread(times), median(repeats), spread(repeats),
               middle(lambda r: r.attributed), middle(nodes),
               middle(lambda r: r.overhead / r.seconds), same)  # fmt: skip


_ROUNDS = 10


HEAD = """| model | plain loop | `measure` | ratio | operators on nodes | nodes/run | profiler | as it was |
|---|---:|---:|---:|---:|---:|---:|---|
"""


def line(r: Row) -> str:
    """The row as the page shows it."""
    return (
        f"| {r.model} | {units.seconds(r.loop)} ± {units.percent(r.loop_spread)} "
        f"| {units.seconds(r.measured)} ± {units.percent(r.spread)} | {r.measured / r.loop:.3f} "
        f"| {units.percent(r.nodes)} | {r.on_nodes:.3f} | {units.percent(r.overhead)} "
        f"| {'yes' if r.untouched else 'no'} |"
    )


def write(rows: list[str], device: torch.device) -> None:
    """Put rows into the page; those of other models stay, where they are of the same device."""
    threads = f", {units.plural(torch.get_num_threads(), 'thread')}" if device.type == "cpu" else ""
    on = f"On {device_name(device)}{threads}, torch {torch.__version__}."
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    before, _, after = rest.partition(END)
    known = {
        r.split("|")[1].strip(): r for r in before.splitlines() if on in before and r.count("|") > 7
    }
    found = known | {r.split("|")[1].strip(): r for r in rows}
    ordered = [found[m] for m in MODELS if m in found]
    PAGE.write_text(
        f"{head}{BEGIN}{on}\n\n{HEAD}" + "\n".join(ordered) + f"\n{END}{after}", "utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "models", nargs="*", help="a name, or name:train; default: those of the page, written to it"
    )
    parser.add_argument("--on", help="the device; the accelerator if there is one")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the plain loop")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device, rows = place(args.on), list[str]()
    for spec in args.models or MODELS:
        rows.append(line(row(spec, device, args.seconds)))
        print(rows[-1], flush=True)
        write(rows, device)


if __name__ == "__main__":
    main()
