"""Try everything that can be named, and write docs/coverage.md from what came of it.

    python benchmarks/zoo.py
    python benchmarks/zoo.py --report -o infer     from a survey of more than that, as the atlas is made of

None takes longer than `--timeout` or more than `--memory`. An interrupted run goes on in the folder of
`-o`, which is a dataset of `opgraph survey`. `--source` restricts it; `--report` only writes the page.
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
from statistics import median
from types import SimpleNamespace

from opgraph.sources.registry import find, libraries, listed, sources
from opgraph.surveying import Atlas, survey

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
SLOWEST = 20
LIBRARIES = ("torch", *dict.fromkeys(library.package for library in libraries().values()))
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


Trial = SimpleNamespace
"""A row of the table of cases, by the names of its columns."""


def trials_of(*folders: Path) -> list[Trial]:
    """The cases of surveys at the models' usual sizes, inference, of all that is to be tried."""
    tried = frozenset(zoo(None))
    rows = Atlas(*folders).sql(
        "select * from cases where mode = 'infer' and batch_size is null and seq_len is null "
        "and image_size is null and options is null"
    )
    found = sorted(rows.records(), key=lambda row: str(row["spec"]))
    return [Trial(**row) for row in found if row["spec"] in tried]


def page(trials: Iterable[Trial], seconds: float | None) -> str:
    """The coverage page: how many of each source, and why not the others."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.source, []).append(trial)
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    known = [trial for group in groups.values() for trial in group]
    spent = sum(t.cpu or t.seconds or 0 for t in known) / 60
    took = f" In all {spent:.0f} minutes of one core's work"
    took += f", {seconds / 60:.0f} on the clock." if seconds else ", in several sittings."
    parts = [
        "# Coverage\n",
        "Made by `python benchmarks/zoo.py`: every name is built without weights, given example inputs, "
        f"and traced by a survey, on {platform.machine()} with {versions}.{took} "
        "Where fewer were tried than are named, the run was cut short.\n",
        "Of Ultralytics each file of the package counts once, at its smallest scale; of transformers' "
        "model types (`hf-type`) those with a base model, each in its default configuration. Some of "
        "those upstream leaves open: they are *completed* by the few settings without which no model "
        "can be made of them, which the output names.\n",
        "| source | named | tried | traced | fake tensors | real inputs | real tensors | completed "
        "| in part | all kernels costed | median CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    there = Counter(find(spec)[0].name for spec in zoo(None))
    parts += [*(_row(s, there[s], groups.get(s, [])) for s in sources() if there[s]), ""]
    parts += [*_slowest(known), ""]
    for source in sources():
        failed = [t for t in groups.get(source, ()) if not t.ok]
        if failed:
            parts += [f"## What was not traced: {source}\n", *_reasons(failed), ""]
        noted = [
            (t, n)
            for t in groups.get(source, ())
            if t.ok
            for n in notes(t)
            if n.startswith("without ")
        ]
        if noted:
            parts += [
                f"## Traced in part: {source}\n",
                "Inputs that the default configuration leaves no way to use are left out.\n",
                "| name | left out |",
                "|---|---|",
                *(f"| `{t.spec}` | {_cell(n)} |" for t, n in noted),
                "",
            ]
    return "\n".join(parts).rstrip() + "\n"


def notes(trial: Trial) -> list[str]:
    """The remarks on a case."""
    return (trial.remarks or "").split("; ")


def _row(source: str, there: int, trials: list[Trial]) -> str:
    good = [t for t in trials if t.ok]
    tensors = Counter(t.tensors for t in good)
    times = [t.cpu or t.seconds or 0 for t in trials]
    kinds = " | ".join(str(tensors[k]) for k in ("fake", "fake weights", "real"))
    completed = sum(any(n.startswith("completed") for n in notes(t)) for t in good)
    partly = sum(any(n.startswith("without ") for n in notes(t)) for t in good)
    costed = sum(t.coverage == 1 for t in good)
    return (
        f"| {source} | {there} | {len(trials)} | {len(good)} | {kinds} | {completed} | {partly} "
        f"| {costed} | {median(times) if times else 0:.1f} |"
    )


def _slowest(trials: list[Trial]) -> Iterable[str]:
    yield "The slowest:\n"
    yield "| name | CPU s | nodes | MiB of the process, which had others before | |"
    yield "|---|---:|---:|---:|---|"
    for t in sorted(trials, key=lambda t: -(t.cpu or t.seconds or 0))[:SLOWEST]:
        outcome = "traced" if t.ok else "not traced"
        figures = (
            f"{t.cpu or t.seconds or 0:.0f} | {t.nodes or 0:,} | {(t.memory or 0) / 2**20:,.0f}"
        )
        yield f"| `{t.spec}` | {figures} | {outcome} |"


def _reasons(failed: list[Trial]) -> Iterable[str]:
    stages = {
        "build": "The library does not build it: its constructor raises, or wants what is not installed",
        "inputs": "No rule makes its inputs: give them with --input, or in Python",
        "trace": "Its own forward raises, on inputs that the rules made",
        "process": "It takes longer, or more memory, than a trial is allowed",
    }
    for stage, title in stages.items():
        rows = [t for t in failed if t.stage == stage]
        if rows:
            yield f"{title} ({len(rows)}):\n"
            yield "| name | why |"
            yield "|---|---|"
            yield from (f"| `{t.spec}` | {_cell(t.reason or '')} |" for t in rows)
            yield ""


def _cell(text: str) -> str:
    text = re.sub(r"(/[\w.-]+)+/site-packages", "…/site-packages", text)
    return text.replace("|", "\\|").replace("<", "&lt;")[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=180.0)
    parser.add_argument("--memory", type=float, default=8.0, metavar="GiB")
    parser.add_argument("-o", "--output", type=Path, default=Path("zoo"), metavar="FOLDER")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    fresh, start = not args.output.exists(), time.monotonic()
    if not args.report:
        survey(
            zoo(args.source), args.output, jobs=args.jobs, timeout=args.timeout,
            memory_limit=args.memory, progress=lambda at: print(at, file=sys.stderr),
        )  # fmt: skip
    took = time.monotonic() - start if fresh and not args.report else None
    PAGE.write_text(page(trials_of(args.output), took), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
