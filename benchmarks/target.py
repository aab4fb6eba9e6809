"""Time of a trace for `cuda` over that of one for `cpu`, in processor time, in pairs, one after the other.

python benchmarks/target.py --write      all of it, into docs/tracers.md
python benchmarks/target.py gpt2         one model, printed
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import opgraph
from opgraph.api.pipeline import resolved
from opgraph.options import Options

PAGE = Path(__file__).parent.parent / "docs" / "tracers.md"
BEGIN, END = "<!-- target: made by benchmarks/target.py -->\n", "<!-- target end -->\n"
MODELS = ("resnet18", "vit_b_16", "bert-base-uncased", "gpt2", "t5-small")
GOAL = 1.3


def pairs(name: str, mode: str, rounds: int) -> list[tuple[float, float]]:
    """Seconds of processor time for `cpu` and for `cuda`, in turns, after one of each unmeasured."""
    model = resolved(name, Options(mode=mode))
    found = []
    for number in range(rounds + 1):
        taken = {}
        for target in ("cpu", "cuda") if number % 2 else ("cuda", "cpu"):
            gc.collect()
            begin = time.process_time()
            opgraph.profile(model, mode=mode, target=target)
            taken[target] = time.process_time() - begin
        if number:
            found.append((taken["cpu"], taken["cuda"]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = [
        "`python benchmarks/target.py`: seconds of processor time of a whole `profile` of a model that is "
        f"built, median of {asked.rounds} pairs, torch {version('torch')}. The goal is {GOAL} at most.\n",
        "| model | mode | `cpu` | `cuda` | ratio (least to most) |", "|---|---|---:|---:|---|",
    ]  # fmt: skip
    missed = False
    for name in asked.models:
        for mode in ("infer", "train"):
            found = pairs(name, mode, asked.rounds)
            cpu, cuda = (median(side) for side in zip(*found, strict=True))
            ratios = sorted(b / a for a, b in found)
            missed |= median(ratios) > GOAL
            spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            lines.append(f"| `{name}` | {mode} | {cpu:.2f} s | {cuda:.2f} s | {spread} |")
            print(lines[-1], flush=True)
    if asked.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
