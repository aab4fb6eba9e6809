"""`opgraph compare A B [C …]`: what changed, with gates for continuous integration."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.cli.arguments import (
    add_model,
    add_options,
    costed_from,
    profile_of,
    refuse_untraced,
    show_view,
    suffixes,
    view_from,
)  # fmt: skip
from opgraph.cli.output import insist, say, say_remarks, status_of
from opgraph.options import OPTIONS, Stage
from opgraph.record.errors import RenderError
from opgraph.record.kinds import Run
from opgraph.record.loading import is_saved_profile
from opgraph.record.quantization import kept_in
from opgraph.record.units import shape as shape_text
from opgraph.views import choices, heeded

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord

EXAMPLES = """examples:
  opgraph compare resnet18 resnet50
  opgraph compare bert-base-uncased 'bert-base-uncased --seq-len 512' --by op
  opgraph compare gpt2 'gpt2 --dtype bfloat16' 'gpt2 --batch-size 8'
  opgraph compare resnet50 --run eager --run compiled --hardware h100-sxm
  opgraph compare Llama-3.1-8B --weights none --weights int4 --hardware rtx-4090
  opgraph compare main.json branch.json --fail-if 'flops > +2%' --fail-if 'coverage < 100%'
  opgraph compare main.json branch.json --markdown > comment.md"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "specs",
        metavar="MODEL",
        nargs="+",
        help="two or more: a name, or a saved profile (.json); options of its own go with it in "
        "quotes: 'bert-base-uncased --seq-len 512'",
    )
    add_model(parser, positional=False)
    showing = heeded("comparison", Stage.VIEW)
    add_options(parser, "hardware", "runs", "schemes", "caches", "group_size", "activations",
                *showing, "fail_if", "json", "markdown", "format", "output",
                words={"output": suffixes("comparison"), **choices("comparison")})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.analysis.compare.comparison import compared, parse_gate
    from opgraph.hardware import device

    view = view_from(args, result="comparison", usual="comparison")
    if "depth" in args.given and args.by != "module":
        raise RenderError(f"--depth has no effect with --by {args.by}", hint="it is of modules")
    ways = {"run": args.runs, "weights": args.schemes, "kv_cache": args.caches}
    several = [name for name, values in ways.items() if len(values) > 1]
    if len(args.specs) < 2 and not several:
        raise RenderError("there is nothing to compare with",
                          hint="opgraph compare A B, or A --run eager --run compiled, or "
                          "A --weights none --weights int4")  # fmt: skip
    if several and (len(several) > 1 or len(args.specs) > 1):
        name = OPTIONS[several[0]].flag
        raise RenderError(f"{name} more than once is for ways to run or keep one model, and nothing else",
                          hint="opgraph compare A --run eager --run compiled")  # fmt: skip
    chosen = None if args.hardware is None else device(args.hardware)
    if args.runs and chosen is None and all(Run(r) in (Run.EAGER, Run.GRAPHS) for r in args.runs):
        raise RenderError("--run eager and graphs differ in time alone, which takes a device",
                          hint="it goes with --hardware")  # fmt: skip
    for gate in args.fail_if:
        parse_gate(gate, chosen)  # a gate that cannot be read should not wait for the tracing
    refuse_untraced(args, args.specs)
    shared = {n: values[0] if len(values) == 1 else None for n, values in ways.items()}
    shared["run"] = next((r for r in args.runs if Run(r).compiled), shared["run"])  # for the trace
    args = _asking(args, **shared)
    if several:
        name = several[0]
        profile = profile_of(args.specs[0], args)
        models = [costed_from(_asking(args, **{name: each}), profile) for each in ways[name]]
        labels: list[str] | None = [
            f"{m.profile.model.name}, {_said(m, name)}"
            if name != "run"
            else f"{args.specs[0]} {each}"
            for m, each in zip(models, ways[name], strict=True)
        ]
    else:
        models = [costed_from(args, profile_of(spec, args)) for spec in args.specs]
        labels = _labels(args.specs, models)
    comparison = compared(models, labels, args.fail_if)
    show_view(args, view, comparison)
    sizes = [{v.name: v.shape for v in map(m.graph.value.get, m.graph.inputs) if v} for m in models]
    for tensor, shape in sizes[0].items() if args.fail_if else ():
        for spec, other in zip(args.specs[1:], sizes[1:], strict=False):
            if other.get(tensor, shape) != shape:
                say(f"note: the gates hold {spec} on {tensor} {shape_text(other[tensor])} to "
                    f"{args.specs[0]} on {tensor} {shape_text(shape)}")  # fmt: skip
    say_remarks(remark for model in models for remark in model.remarks)
    for broken in comparison.broken:
        from opgraph.views.text.compare import verdict

        insist(f"gate broken: {broken.gate.text} ({verdict(comparison, broken)})")
    return 1 if comparison.broken else max(status_of(m, shown=True) for m in models)


def _asking(args: argparse.Namespace, **asked: str | None) -> argparse.Namespace:
    """The arguments with what is asked; to weights as they are nothing else of weights is said."""
    plain = {"group_size": None, "activations": None} if asked.get("weights") == "none" else {}
    return argparse.Namespace(**{**vars(args), **plain, **asked})


def _said(model: CostedRecord, what: str) -> str:
    """What a model is kept in."""
    from opgraph.views.terminal import safe

    if what == "kv_cache":
        return safe(f"cache in {model.profile.convention.get(what, 'what it computes in')}")
    plain = max(model.graph.parameters, key=lambda p: p.bytes).dtype
    return safe(kept_in(model.profile.convention)) or f"weights in {plain}"


def _labels(specs: list[str], models: list[CostedRecord]) -> list[str] | None:
    """What was typed, where names alone would not tell the profiles apart, and how each is run where they
    differ in that."""
    if len({m.profile.model.name for m in models}) == len(models):
        return None
    files = [Path(s).name if is_saved_profile(s) else s for s in specs]
    specs = files if len(set(files)) == len(files) else specs  # without their folders
    runs = [m.profile.run.value for m in models]
    return [f"{s} {r}" for s, r in zip(specs, runs, strict=True)] if len(set(runs)) > 1 else specs
