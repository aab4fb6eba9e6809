"""What a person may ask of the example inputs, and what the input rules give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opgraph.options import Options, TensorSpec


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The sizes that a person asked for; None leaves the choice to the model's configuration.

    `input_shape` overrides the shape of the model's first (main) input, batch included; `overrides`
    gives single arguments by name. `new_tokens` are those that a model then goes on with, which need
    positions of their own; `optional` asks for the arguments too that are None unless they are given.
    """

    batch_size: int | None = None
    seq_len: int | None = None
    decoder_seq_len: int | None = None
    image_size: tuple[int, int] | None = None
    input_shape: tuple[int, ...] | None = None
    dtype: str | None = None
    overrides: Mapping[str, TensorSpec] = field(default_factory=dict)
    new_tokens: int = 0
    optional: bool = False

    @property
    def shapeless(self) -> InputRequest:
        """The same without the shapes of whole arguments."""
        return replace(self, input_shape=None, overrides={})

    @classmethod
    def of(cls, options: Options) -> InputRequest:
        """What of a person's options the input rules have to know."""
        side = options.image_size
        return cls(
            batch_size=options.batch_size,
            seq_len=options.seq_len,
            decoder_seq_len=options.decoder_seq_len,
            image_size=(side, side) if isinstance(side, int) else side,
            input_shape=options.input_shape,
            dtype=options.dtype,
            overrides=options.input_overrides,
        )


@dataclass(frozen=True, slots=True)
class OpenSize:
    """A size that inputs follow: the option that asks for it ("batch_size", "seq_len", "image_size"), its
    value, and the largest that the model's configuration allows (None: no limit is stated)."""

    option: str
    value: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """Arguments of one call of the model. Tensors are on the CPU (floating-point ones may be on meta).

    `notes` say what of the model's inputs was left out, and why; `guessed` are the arguments of which
    nothing but the model's layers says what they are, and `drawn` those that are random integers. `beside`
    is what else of the caller's own a run calls: the loss of a step of training.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    beside: tuple[Any, ...] = ()

    @property
    def given(self) -> tuple[Any, ...]:
        """All that is the caller's and that a run may change."""
        return *self.args, *self.kwargs.values(), *self.beside
