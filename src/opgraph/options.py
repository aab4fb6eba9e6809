"""`Options`: everything a person may ask of a profile, in one record. The Python interface and the command
line both fill it, and each stage of the pipeline takes its part of it: a new option is one field here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import index
from typing import Any, TypeGuard, TypeVar

from opgraph.inputs.base import InputRequest, TensorSpec
from opgraph.record.errors import InputError
from opgraph.sources.base import BuildOptions

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `opgraph.profile` takes by keyword, and the command line by option.

    The model: `head` chooses the class of a transformers model ("base", "causal-lm" …), `dtype` that of
    its floating-point parameters, `model_args` go to a constructor of your own, and `trust` lets a model
    file run code of its own.

    Its inputs: `batch_size`, `seq_len`, `decoder_seq_len` and `image_size` are sizes that its
    configuration decides otherwise; `input_shape` is that of the first input, and `input_overrides` are
    single arguments by name.

    How it runs: `mode` is one of `MODES`. "infer" is one forward. "train" is a step of training: forward,
    backward through autograd and a step of the `optimizer` ("sgd", "adam", "adamw"), and nodes say which
    `phase` they belong to; with `checkpointing`, repeated blocks keep their inputs alone and run again in
    the backward. "prefill" reads a prompt of `context_len` tokens into an empty cache, and
    "decode" makes one more token with `context_len` of them in the cache.

    How it is counted: `count` are conventions other than opgraph's own (see
    `opgraph.analysis.cost.conventions`), as in `{"attention": "causal"}`.

    How it is traced: `tracer` is "auto", "eager", "fx", "dynamo", "export" or "hybrid". Where Dynamo
    breaks the graph, `fragment` chooses a part of it: a number, "largest", or "all"; with `fullgraph` a
    break is an error. `concrete_args` are arguments of forward that symbolic tracing takes as they are.
    `warm_up` runs the model once before tracing it. With `inductor`, the graph is Dynamo's, and the groups
    of nodes that TorchInductor would run as one kernel are kept in the profile.

    Raises `InputError` for a size that no input can have.
    """

    head: str | None = None
    dtype: str | None = None
    model_args: Mapping[str, Any] | None = None
    trust: bool = False

    batch_size: int | None = None
    seq_len: int | None = None
    decoder_seq_len: int | None = None
    image_size: int | tuple[int, int] | None = None
    input_shape: Sequence[int] | None = None
    input_overrides: Mapping[str, TensorSpec] | None = None

    mode: str = "infer"
    context_len: int | None = None
    optimizer: str = "adamw"
    checkpointing: bool = False

    count: Mapping[str, str] | None = None

    tracer: str = "auto"
    fragment: int | str = "all"
    fullgraph: bool = False
    concrete_args: Mapping[str, Any] | None = None
    warm_up: bool = False
    inductor: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "seq_len", "decoder_seq_len", "context_len"):
            size = getattr(self, name)
            if size is not None and not _is_size(size):
                raise InputError(f"{name} is {size!r}, not a whole number of at least 1")
        side = self.image_size
        if not (side is None or _is_size(side) or (_is_shape(side) and len(side) == 2)):
            raise InputError(f"image_size is {side!r}", hint="write 224, or (480, 640)")
        if self.input_shape is not None and not _is_shape(self.input_shape):
            raise InputError(
                f"input_shape is {self.input_shape!r}", hint="write it like (1, 3, 224, 224)"
            )

    @property
    def build(self) -> BuildOptions:
        """What a model source has to know."""
        arguments = dict(self.model_args or {})
        return BuildOptions(self.head, self.dtype, self.trust, arguments)

    @property
    def request(self) -> InputRequest:
        """What the input rules have to know."""
        side = self.image_size
        return InputRequest(
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            decoder_seq_len=self.decoder_seq_len,
            image_size=(side, side) if isinstance(side, int) else side,
            input_shape=None if self.input_shape is None else tuple(self.input_shape),
            dtype=self.dtype,
            overrides=dict(self.input_overrides or {}),
        )

    @property
    def sized(self) -> bool:
        """Whether a size of the inputs was asked for."""
        return any(getattr(self, name) for name in SIZES)


def _is_size(value: Any) -> TypeGuard[int]:
    try:
        return not isinstance(value, bool) and index(value) >= 1
    except TypeError:
        return False


def _is_shape(value: Any) -> TypeGuard[Sequence[int]]:
    return isinstance(value, Sequence) and bool(value) and all(map(_is_size, value))


MODES = {
    "infer": "one forward",
    "train": "a step of training: forward, backward, optimizer",
    "prefill": "a prompt is read into an empty cache",
    "decode": "one more token, with a cache of those before",
}
"""The ways of running a model."""

GENERATING = ("prefill", "decode")

SIZES = ("batch_size", "seq_len", "decoder_seq_len", "image_size", "input_shape", "input_overrides",
         "context_len")  # fmt: skip
"""The options that say how large the inputs are."""

NAMES = tuple(f.name for f in fields(Options))


def named_options(function: F) -> F:
    """Let help and completion show the options by name where a function takes them as `**options`."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    taken = {p.name for p in own}
    options = inspect.signature(Options).parameters.values()
    named = [*own, *(p for p in options if p.name not in taken)]
    function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return function
