"""Whether the tracers agree, model by model: writes docs/agreement.md, with FLOPs, parameters and bytes of
a plain run, and what each tracer has instead, or why it cannot. With names of models it prints their lines.

    python benchmarks/tracers.py resnet18 gpt2
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from opgraph import OpgraphError
from opgraph.analysis.check.agreement import Agreement, Trial
from opgraph.checking import check

PAGE = Path(__file__).parent.parent / "docs" / "agreement.md"

MODELS = (
    "resnet18", "mobilenet_v2", "vit_b_16", "bert-base-uncased", "gpt2", "t5-small", "yolov8n",
    "yolo11n", "facebook/detr-resnet-50", "answerdotai/ModernBERT-base", "distilbert-base-uncased",
    "facebook/wav2vec2-base", "openai/whisper-tiny", "openai/clip-vit-base-patch32",
    "meta-llama/Llama-3.2-1B",
)  # fmt: skip

HEAD = """\
| model | FLOPs | parameters | bytes | fx | dynamo | export |
|---|---:|---:|---:|---|---|---|"""


def page(found: list[Agreement]) -> str:
    """The page."""
    versions = ", ".join(f"{n} {version(n)}" for n in ("torch", "transformers"))
    agreeing = sum(f.agree for f in found)
    return "\n".join(
        [
            "# Do the tracers agree?\n",
            f"Made by `python benchmarks/tracers.py` with {versions}: on {agreeing} of {len(found)} "
            "models, all tracers that get through have the same FLOPs, parameters and bytes, to the "
            "digit.\n",
            "**=** the same as a plain run, to the digit; **= told** the same as a plain run in which the "
            "model hears that it is compiled or exported, which it asks (see [Tracers](tracers.md)), and "
            "how many bytes more that moves; the number of fragments, where there are several.\n",
            HEAD,
            *map(row, found),
        ]
    ) + "\n"  # fmt: skip


def row(found: Agreement) -> str:
    """The line of a model."""
    plain = found.reference
    figures = ["", "", ""]
    if plain is not None and plain.profile is not None:
        totals = plain.profile.totals
        figures = [f"{n:,}" for n in (totals.flops, totals.parameters, totals.bytes)]
    cells = [_cell(found, trial) for trial in found.trials if trial is not plain]
    return f"| `{found.model}` | {' | '.join([*figures, *cells])} |"


def _cell(found: Agreement, trial: Trial) -> str:
    if not trial.whole or trial.profile is None:
        return "no: " + (trial.error or "").partition("tensors: ")[2].replace("|", "\\|").replace(
            "<", "&lt;"
        )
    parts = []
    breaks = len(trial.profile.graph.breaks)
    if found.matches(trial):
        parts.append("**=**")
    elif found.reference is not None and found.reference.profile is not None:
        mine, plain = trial.profile.totals, found.reference.profile.totals
        parts.append("**= told**" if found.told(trial) else "**differs**")
        parts.append(f"{100 * (mine.bytes / plain.bytes - 1):+.2g} % bytes")
    if breaks:
        parts.append(f"{breaks + 1} fragments")
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("models", nargs="*", help="default: fifteen, to the page")
    args = parser.parse_args()
    found, wrong = [], []
    for name in args.models or MODELS:
        try:
            found.append(check(name, counters=False))
        except OpgraphError as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong.append(name)
            continue
        print(row(found[-1]), flush=True)
        if not found[-1].agree:
            wrong.append(name)
    if not args.models:
        PAGE.write_text(page(found), encoding="utf-8")
    print(f"{len(wrong)} do not agree", *wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
