"""What a model source is: something that turns the name a person types into a module, without
allocating its weights. Each source is one file beside this one and one entry in the registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from opgraph.options import Options
from opgraph.record.errors import SourceError, did_you_mean

if TYPE_CHECKING:
    from opgraph.record.profile import ModelInfo


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How the person wants the model built.

    `head` chooses the auto class of a transformers model, `dtype` the dtype of its floating-point
    parameters ("float32", "bfloat16", "float16"), `arguments` go to a user's own constructor, `trust`
    allows a file or a hub repository to run its own code.
    """

    head: str | None = None
    dtype: str | None = None
    trust: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options) -> BuildOptions:
        """What of a person's options a source has to know."""
        return cls(options.head, options.dtype, options.trust, options.model_args)


@dataclass(frozen=True, slots=True)
class Model:
    """A module that can be traced, with what its library knows about it.

    `module` has its parameters on the meta device wherever that was possible. `materialize` gives the
    same model with real (random) weights, for the models whose data decides their path. `config` is the
    library's own configuration object. `hints` are facts that inputs are made from, such as
    `input_size` (channels, height, width).
    """

    module: Any
    info: ModelInfo
    config: Any = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    materialize: Callable[[], Any] | None = None


class Source(Protocol):
    """A place where models come from."""

    name: str
    """The prefix in `name:spec`, and what the output says."""

    def claims(self, spec: str) -> bool:
        """Whether this source has a model of that name. Cheap: no plain name imports torch."""

    def names(self) -> Mapping[str, str]:
        """All names that can be given, each with its family, for listings and suggestions. Cheap, too."""

    def build(self, spec: str, options: BuildOptions) -> Model:
        """Build the model. Raises `SourceError` or one of its kinds."""


def check_arguments(asked: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise `SourceError`, with the nearest names, for an argument (`--model-arg`) that is not known."""
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known) or f"it takes {', '.join(sorted(known)[:12])}"
            raise SourceError(f"{what} takes no {name}", hint=hint)


def without_arguments(options: BuildOptions, what: str, *, dtype: bool = False) -> None:
    """Raise `SourceError` for arguments of a constructor, and unless it has a choice of `dtype` for that,
    too, where there is nothing that would take them."""
    if options.arguments:
        given = ", ".join(options.arguments)
        raise SourceError(f"{what} takes no arguments, and {given} was given",
                          hint="--model-arg is for what is built by name")  # fmt: skip
    if options.dtype is not None and not dtype:
        raise SourceError(f"{what} has the dtype of its own parameters, not {options.dtype}",
                          hint=f"give it another: module.to(torch.{options.dtype})")  # fmt: skip
