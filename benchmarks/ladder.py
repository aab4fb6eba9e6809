"""Trace a sample of models by the ladder (`--tracer hybrid`), and write docs/ladder.md: which rung got
through, and why those before it did not.

python benchmarks/ladder.py -o ladder
python benchmarks/ladder.py resnet18 gpt2
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

from opgraph.surveying import survey

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "tests" / "data" / "sample.txt"
PAGE = ROOT / "docs" / "ladder.md"


Trial = SimpleNamespace
"""A row of the table of cases, by the names of its columns."""


def page(trials: Sequence[Trial], wanted: int) -> str:
    """The page: how often each rung got through, and the models with what was in their way. So many were
    wanted; a run that was cut short has fewer."""
    good = [t for t in trials if t.ok]
    rungs = Counter((t.tracer, t.tensors) for t in good)
    versions = ", ".join(f"{n} {version(n)}" for n in ("torch", "transformers"))
    won = "; ".join(f"{n} by `{tracer}` on {on} tensors" for (tracer, on), n in rungs.most_common())
    return "\n".join(
        [
            "# The ladder on a sample of models\n",
            f"Made by `python benchmarks/ladder.py` with {versions}: of {wanted} models, {len(trials)} "
            f"were tried, and {len(good)} got through `--tracer hybrid`: {won}.\n",
            "| model | got through | nodes | what came before it |",
            "|---|---|---:|---|",
            *map(_row, trials),
        ]
    ) + "\n"  # fmt: skip


def _row(t: Trial) -> str:
    way = f"{t.tracer}, {t.tensors} tensors" if t.ok else f"**no**: {_cell(t.reason or '')}"
    before = "<br>".join(map(_cell, (t.failures or "").split("; ")))
    return f"| `{t.spec}` | {way} | {t.nodes or 0:,} | {before} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:160]


def tried(names: list[str], folder: Path, jobs: int) -> list[Trial]:
    """The cases in the order of the names."""
    found = survey(names, folder, jobs=jobs, timeout=1200, tracer="hybrid",
                   progress=lambda at: print(at, file=sys.stderr))  # fmt: skip
    rows = {row["spec"]: Trial(**row) for row in found.sql("select * from cases").records()}
    return [rows[n] for n in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("models", nargs="*", help="default: the sample that is tested, to the page")
    parser.add_argument("-o", "--output", type=Path, default=Path("ladder"), metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    names = args.models or SAMPLE.read_text(encoding="utf-8").split()
    trials = tried(names, args.output, args.jobs)
    text = page(trials, len(names))
    if args.models:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if all(t.ok for t in trials) else 1


if __name__ == "__main__":
    raise SystemExit(main())
