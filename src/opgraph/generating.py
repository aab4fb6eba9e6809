"""Models that generate, on the way from a name to a trace: which head of a model does, and how long its
inputs are for a prompt or a cache of a given length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opgraph.analysis.conventions import checked_conventions
from opgraph.errors import InputError, SourceError
from opgraph.inputs.base import InputRequest
from opgraph.options import GENERATING, MODES, Options
from opgraph.sources import resolve
from opgraph.sources.base import Model

HEADS = ("causal-lm", "seq2seq-lm", "image-text-to-text", "speech-seq2-seq", "multimodal-lm")
"""The heads of transformers models that generate, in the order in which they are tried."""


def checked(options: Options) -> Options:
    """The options, if the mode exists and the others go with it. Raises `InputError`."""
    if options.mode not in MODES:
        raise InputError(f"there is no mode {options.mode!r}", hint=f"one of {', '.join(MODES)}")
    checked_conventions(options.count or {})
    if options.checkpointing and options.mode != "train":
        raise InputError("activations are checkpointed in training alone", hint="add --mode train")
    if options.context_len is not None and options.mode not in GENERATING:
        raise InputError(
            f"a context length means nothing to the mode {options.mode}",
            hint="it goes with --mode prefill or --mode decode",
        )
    if options.fullgraph and not options.inductor and options.tracer not in ("dynamo", "hybrid"):
        raise InputError(
            f"the tracer {options.tracer} breaks no graph",
            hint="--fullgraph goes with --tracer dynamo",
        )
    return options


def with_generating_head(spec: Any, built: Model, options: Options) -> Model:
    """The same model with a head that generates, where it has none yet, `spec` is a name, and no head was
    asked for.

    Raises `InputError` when there is none.
    """
    from opgraph.tracing.generation import generates, no_cache

    if generates(built.module):
        return built
    for head in HEADS if isinstance(spec, str) and options.head is None else ():
        try:
            other = resolve(spec, replace(options, head=head).build)
        except SourceError:
            continue
        if generates(other.module):
            return other
    raise no_cache(built.info.name)


def request_for(model: Model, options: Options) -> InputRequest:
    """The sizes of the inputs: the context is the decoder's own where there is an encoder, too; there a
    prompt has one token, the one that the decoder starts with, unless it is given. A decoding step goes on
    with one token more."""
    from opgraph.tracing.generation import encoder_decoder

    request = options.request
    if options.mode == "decode":
        request = replace(request, new_tokens=1)
    length = options.context_len
    if encoder_decoder(model.module):
        if length is None and options.mode == "prefill":
            length = request.decoder_seq_len or 1
        option = "decoder_seq_len"
    else:
        option = "seq_len"
    if length is None:
        return request
    given = getattr(request, option)
    if given not in (None, length):
        raise InputError(f"the context has {length} tokens, and {option} says {given}",
                         hint="give one of them")  # fmt: skip
    return replace(request, **{option: length})  # type: ignore[arg-type]
