"""Try everything that can be named, and write docs/coverage.md from what came of it.

    python benchmarks/zoo.py --jobs 2 --resume zoo.jsonl

An interrupted run goes on from the file. `--source` restricts it; `--report` only writes the page.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from opgraph.sources.listing import listed
from opgraph.sources.registry import find, sources
from opgraph.trials import Limits, Trial, load_trials, run, save_trial
from opgraph.views.models import line

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
LIBRARIES = ("torch", "torchvision", "transformers", "timm", "ultralytics", "diffusers")
# Only a model type with a base model of its own counts as one; the others are parts of those.
_MAPPING = "MODEL_MAPPING_NAMES"


def zoo(source: str | None) -> list[str]:
    """Everything to try: of Ultralytics the smallest scale of each file, of transformers' model types
    those with a base model."""
    found = list(listed((), source))
    scales = re.compile(r"^(yolo(?:e-)?v?\d+)[smblx](?=-|$)")
    return [
        f.spec
        for f in found
        if not (f.source == "ultralytics" and scales.match(f.name))
        and (f.source != "hf-type" or f.name in _model_types())
    ]


def _model_types() -> frozenset[str]:
    from transformers.models.auto import modeling_auto

    return frozenset(getattr(modeling_auto, _MAPPING))


def page(trials: Iterable[Trial], seconds: float | None) -> str:
    """The coverage page: how many of each source, and why not the others."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        prefix = trial.source or find(trial.name)[0].name
        groups.setdefault(prefix, []).append(trial)
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    took = f" in {seconds / 60:.0f} minutes" if seconds else ""
    parts = [
        "# Coverage\n",
        "Made by `python benchmarks/zoo.py`: every name is built without weights, given example inputs, "
        f"and traced, each in a process of its own{took}, on {platform.machine()} with {versions}. "
        "Where fewer were tried than are named, the run was cut short.\n",
        "| source | named | tried | traced | fake tensors | real inputs | real tensors | median s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    there = Counter(find(spec)[0].name for spec in zoo(None))
    parts += [*(_row(s, there[s], groups.get(s, [])) for s in sources() if there[s]), ""]
    for source in sources():
        failed = [t for t in groups.get(source, ()) if not t.ok]
        if failed:
            parts += [f"## What was not traced: {source}\n", *_reasons(failed), ""]
        noted = [
            (t, n)
            for t in groups.get(source, ())
            if t.ok
            for n in t.notes
            if n.startswith("without ")
        ]
        if noted:
            parts += [
                f"## Traced in part: {source}\n",
                "Inputs that the default configuration leaves no way to use are left out.\n",
                "| name | left out |",
                "|---|---|",
                *(f"| `{t.name}` | {_cell(n)} |" for t, n in noted),
                "",
            ]
    return "\n".join(parts).rstrip() + "\n"


def _row(source: str, there: int, trials: list[Trial]) -> str:
    good = [t for t in trials if t.ok]
    tensors = Counter(t.tensors for t in good)
    times = sorted(t.seconds for t in trials)
    median = times[len(times) // 2] if times else 0.0
    kinds = " | ".join(str(tensors[k]) for k in ("fake", "fake weights", "real"))
    return f"| {source} | {there} | {len(trials)} | {len(good)} | {kinds} | {median:.1f} |"


def _reasons(failed: list[Trial]) -> Iterable[str]:
    stages = {
        "build": "It cannot be built",
        "inputs": "No rule makes its inputs",
        "trace": "Its forward raises",
        "process": "It takes too long or too much memory",
    }
    for stage, title in stages.items():
        rows = [t for t in failed if t.stage == stage]
        if rows:
            yield f"{title} ({len(rows)}):\n"
            yield "| name | why |"
            yield "|---|---|"
            yield from (f"| `{t.name}` | {_cell(t.reason or '')} |" for t in rows)
            yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--memory", type=float, default=8.0, metavar="GiB")
    parser.add_argument("--resume", type=Path, default=Path("zoo.jsonl"), metavar="FILE")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    done = load_trials(args.resume)
    start = time.monotonic()
    if not args.report:
        names = zoo(args.source)
        waiting = [n for n in names if n not in done]
        limits = Limits(args.jobs, args.timeout, int(args.memory * 2**30))
        for number, trial in enumerate(run(waiting, limits, sources=frozenset(sources())), start=1):
            done[trial.name] = trial
            save_trial(args.resume, trial)
            print(line(trial, number, len(waiting)), file=sys.stderr)
    took = time.monotonic() - start if not args.report else None
    PAGE.write_text(page(done.values(), took), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
