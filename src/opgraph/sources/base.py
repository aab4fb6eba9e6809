"""What a model source is: something that turns the name a person types into a module, without
allocating its weights. Each source is one file beside this one and one entry in the registry."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from opgraph.options import Options
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


_WORDS = {"true": True, "false": False, "none": None}


def parse_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a person types them (`--model-arg k=v`), as Python values: numbers, true/false/none,
    tuples and quoted texts become what they say; the rest stays as it is, as does what is not a text."""
    return {name: _value(text) for name, text in arguments.items()}


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
