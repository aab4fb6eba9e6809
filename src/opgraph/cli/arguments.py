"""The arguments that every command with a model takes, and from them to a `Profile`."""

from __future__ import annotations

import argparse
import ast
import copy
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.conventions import CONVENTIONS, counted
from opgraph.cli.kinds import image_size, listed, parse_shape, positive, shape, single
from opgraph.cli.output import progress
from opgraph.options import MODES, NAMES, Options
from opgraph.record.errors import InputError, OpgraphError, RenderError
from opgraph.record.loading import is_saved_profile, load
from opgraph.record.profile import Profile

if TYPE_CHECKING:
    from opgraph.inputs.base import TensorSpec

TRACERS = ("auto", "eager", "fx", "dynamo", "export", "hybrid")


def add_model_arguments(
    parser: argparse.ArgumentParser,
    *,
    positional: bool = True,
    optional: bool = False,
    several: bool = False,
    saved: bool = True,
) -> None:
    """The model (which may be `optional`), how to build it, its inputs, and the tracer; without
    `positional`, the options alone. With `several`, sizes and dtypes are lists, separated by commas; a
    `saved` profile does, too, where nothing has to be traced."""
    kind = listed if several else single
    if positional:
        parser.add_argument(
            "model",
            metavar="MODEL",
            nargs="?" if optional else None,
            help="a name (resnet18, bert-base-uncased, yolov8n.pt)"
            + (" or a saved profile (.json)" if saved else ""),
        )
    build = parser.add_argument_group("model")
    build.add_argument("--head", help="head of a transformers model: base, causal-lm, masked-lm, …")
    build.add_argument("--dtype", type=kind(str), help="float32, bfloat16 or float16")
    build.add_argument(
        "--model-arg",
        metavar="K=V",
        action="append",
        default=[],
        help="an argument for a constructor of your own; may be repeated",
    )
    build.add_argument(
        "--trust", action="store_true", help="let a model file or repository run code of its own"
    )
    add_size_arguments(parser, several=several)
    run = parser.add_argument_group("how it runs")
    run.add_argument(
        "--mode",
        default="infer",
        metavar="MODE",
        help="; ".join(f"{mode}: {meaning}" for mode, meaning in MODES.items()),
    )
    run.add_argument(
        "--context-len",
        type=kind(positive),
        metavar=f"N{',N,…' if several else ''}",
        help="tokens of the prompt (prefill) or in the cache (decode)",
    )
    run.add_argument(
        "--checkpointing",
        action="store_true",
        help="train: repeated blocks keep their inputs alone, and run again in the backward",
    )
    run.add_argument(
        "--count",
        metavar="K=V",
        action="append",
        default=[],
        help="FLOPs by another convention: "
        + ", ".join(f"{name}={values[1]}" for name, values in CONVENTIONS.items()),
    )
    run.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="adamw")
    trace = parser.add_argument_group("tracing")
    trace.add_argument("--tracer", default="auto", metavar="T", help=f"one of {', '.join(TRACERS)}")
    trace.add_argument(
        "--fragment",
        default="all",
        metavar="K",
        help="one fragment of a broken graph: its number, or largest",
    )
    trace.add_argument("--fullgraph", action="store_true", help="a graph break is an error")
    trace.add_argument(
        "--concrete-args",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an argument of forward that fx takes as it is, as in use_cache=False; may be repeated",
    )
    trace.add_argument(
        "--warm-up", action="store_true", help="run the model once before tracing it"
    )


def add_size_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """The sizes of the example inputs; with `several`, lists of them."""
    kind = listed if several else single
    sizes = parser.add_argument_group("inputs")
    more = ",N,…" if several else ""
    sizes.add_argument("--batch-size", type=kind(positive), metavar=f"N{more}")
    sizes.add_argument("--seq-len", type=kind(positive), metavar=f"N{more}", help="tokens")
    sizes.add_argument(
        "--decoder-seq-len",
        type=kind(positive),
        metavar=f"N{more}",
        help="tokens of the decoder of an encoder-decoder",
    )
    sizes.add_argument(
        "--image-size", type=kind(image_size), metavar=f"N{more}" if several else "N or HxW"
    )
    sizes.add_argument(
        "--input-shape",
        type=shape,
        metavar="1x3x224x224",
        help="shape of the first input, batch included",
    )
    sizes.add_argument(
        "--input",
        metavar="NAME=SHAPE[:DTYPE]",
        action="append",
        default=[],
        help="any single argument, as in --input mask=1x77:int64; may be repeated",
    )


def profile_from(args: argparse.Namespace, *, for_several: bool = False) -> Profile:
    """The profile that the arguments ask for: loaded, or traced now. What the model itself prints goes to
    stderr, so that results stay alone on stdout.

    Raises `InputError` for a saved profile with options that only tracing can meet, unless they are
    `for_several` models, of which it is one.
    """
    from opgraph.analysis.cost.fragments import select_fragment

    if is_saved_profile(args.model):
        if not for_several:
            _refuse_tracing(args)
        saved = load(args.model)
        if args.mode not in ("infer", saved.mode):
            raise InputError(f"this profile was saved in the mode {saved.mode}",
                             hint=f"name the model to trace it with --mode {args.mode}")  # fmt: skip
        part = replace(saved, graph=select_fragment(saved.graph, args.fragment))
        return counted(part, dict(_pairs(args.count)))
    from opgraph.api.pipeline import profile

    with progress() as tell, redirect_stdout(sys.stderr):
        tell(f"tracing {args.model} …")
        return profile(args.model, **options_from(args))


def _refuse_tracing(args: argparse.Namespace) -> None:
    """A saved profile is as it was traced: what cannot be had from it is not passed over in silence."""
    usual = Options()
    for name in NAMES:
        value = getattr(args, name, None)
        if (
            name not in ("fragment", "count", "inductor")
            and value
            and value != getattr(usual, name)
        ):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} is for tracing, and {args.model} is a saved profile",
                hint="name the model instead",
            )


def options_from(args: argparse.Namespace) -> dict[str, Any]:
    """The options for `profile` (see `opgraph.options.Options`) that the arguments ask for."""
    given = {name: getattr(args, name) for name in NAMES if hasattr(args, name)}
    given["input_overrides"] = _overrides(args.input)
    if "concrete_args" in given:
        given["concrete_args"] = {k: _literal(v) for k, v in _pairs(args.concrete_args)}
        given["model_args"] = dict(_pairs(args.model_arg))
        given["count"] = dict(_pairs(args.count))
    return given


def profile_of(spec: str, args: argparse.Namespace) -> Profile:
    """The profile of a model that is named with options of its own ('gpt2 --dtype bfloat16'), on top of
    those that are for all.

    Raises `InputError` for a saved profile that is itself named with options that only tracing can meet.
    """
    parser = _SpecParser(prog=spec, add_help=False)
    add_model_arguments(parser)
    words = _words(spec)
    try:
        own = parser.parse_args(words)
        if is_saved_profile(own.model):
            _refuse_tracing(own)
        given = parser.parse_args(words, namespace=copy.deepcopy(args))
        return profile_from(given, for_several=True)
    except OpgraphError as error:
        error.args = (f"{spec}: {error}" if spec not in str(error) else str(error),)
        raise


def _words(spec: str) -> list[str]:
    """A path with spaces that exists is one word; else as a shell splits it."""
    try:
        return [spec] if Path(spec).exists() else shlex.split(spec)
    except (OSError, ValueError):
        return [spec]


class _SpecParser(argparse.ArgumentParser):
    """A parser of a model with its options, whose complaints name that model."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise RenderError(f"{self.prog}: {message}")


def _literal(text: str) -> Any:
    """A value as Python writes it; what is none is a text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _pairs(items: list[str]) -> list[tuple[str, str]]:
    pairs = []
    for item in items:
        key, sign, value = item.partition("=")
        if not sign or not key:
            raise InputError(f"{item!r} is not of the form NAME=VALUE")
        pairs.append((key, value))
    return pairs


def _overrides(items: list[str]) -> dict[str, TensorSpec]:
    from opgraph.inputs.base import TensorSpec

    found: dict[str, Any] = {}
    for name, text in _pairs(items):
        sizes, _, dtype = text.partition(":")
        try:
            found[name] = TensorSpec(parse_shape(sizes), dtype or None)
        except ValueError:
            raise InputError(
                f"{text!r} is not a shape", hint=f"write it like {name}=2x77:int64"
            ) from None
    return found
