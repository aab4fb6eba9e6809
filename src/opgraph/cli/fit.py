"""`opgraph fit MODEL --hardware X`: the largest batch, length and context that fit there."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from opgraph.cli.arguments import add_model, add_options, form_of, options_from
from opgraph.cli.output import progress, say_remarks, tell, width
from opgraph.options import QUANTIZED
from opgraph.record import units
from opgraph.record.errors import InputError

if TYPE_CHECKING:
    from opgraph.api.fitting import Fitting

EXAMPLES = """examples:
  opgraph fit gpt2 --hardware rtx-4090 --mode train --seq-len 1024
  opgraph fit meta-llama/Llama-3.1-8B --hardware h100-sxm --dtype bf16 --mode decode
  opgraph fit meta-llama/Llama-3.1-8B --hardware rtx-4060 --dtype bf16 --mode decode --weights int4"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False)
    add_options(parser, "hardware", *QUANTIZED, "json", "format")


def run(args: argparse.Namespace) -> int:
    form = form_of(args)
    if args.hardware is None:
        raise InputError("fit into what?", hint="--hardware h100-sxm (opgraph hardware lists them)")
    from opgraph.api.fitting import fitting

    kept = {name: getattr(args, name) for name in QUANTIZED}
    with progress() as said:
        found = fitting(args.model, hardware=args.hardware, progress=said, **options_from(args),
                        **kept)  # fmt: skip
    tell(form, lambda: _text(found, kept), lambda: found.to_dict()["largest"], found.to_dict)
    say_remarks(found.remarks)
    return 0 if found.fits else 1


def _text(found: Fitting, kept: Mapping[str, Any]) -> str:
    asked = "".join(f", {n.replace('_', ' ')} {v}" for n, v in kept.items() if v is not None)
    rows = [
        f"{found.model} on {found.device} ({units.size(found.capacity)}), mode {found.mode}{asked}",
        f"as asked      {units.size(found.needed)} needed: {'fits' if found.fits else 'does not fit'}",
    ]
    for each in found.largest:
        more = f"{each.value + 1:,} needs "
        what = (
            more + units.size(each.next_needed)
            if each.next_needed is not None
            else f"{each.value + 1:,}: {each.reason}"
        )
        name = each.size.replace("_", " ")
        beyond = f"; the model has positions for {each.positions:,}" if each.positions else ""
        rows.append(f"{name:<12}  {each.value:,} ({units.size(each.needed)}); {what}{beyond}")
    least = found.smallest
    if least is None:
        rows.append("smallest      no device of this kind holds what was asked")
    else:
        under = f"; {least.smaller} would need {units.size(least.smaller_needs or 0)}"
        rows.append(
            f"smallest      {least.device} ({units.size(least.needed)} of {units.size(least.capacity)})"
            f"{under if least.smaller else ''}"
        )
    if found.layout is not None:
        tensor, pipeline = found.layout.tensor, found.layout.pipeline
        rows.append(
            f"fewest        {tensor * pipeline} of {found.device}: "
            f"--tensor-parallel {tensor} --pipeline-parallel {pipeline}"
        )
    elif found.mode == "train" and not found.fits:
        rows.append("fewest        opgraph plan looks for layouts of a step of training")
    return "".join(fill(row, width(), subsequent_indent=" " * 14) + "\n" for row in rows)
