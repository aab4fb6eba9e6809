"""transformers models: published ones by the catalogue's configurations, and the default configuration
of any model type (`hf-type:NAME`). Never any weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from opgraph.errors import SourceError, UnknownModel
from opgraph.sources import catalogue, installed
from opgraph.sources.base import BuildOptions, Model

if TYPE_CHECKING:
    from torch import nn

LIBRARY = "transformers"
BASE = "base"


class HuggingFaceSource:
    """Published models by their hub names."""

    name = "hf"

    def claims(self, spec: str) -> bool:
        return catalogue.lookup(spec, LIBRARY) is not None

    def names(self) -> Iterable[str]:
        return catalogue.names(LIBRARY)

    def build(self, spec: str, options: BuildOptions) -> Model:
        installed.require("transformers", "transformers")
        entry = catalogue.lookup(spec, LIBRARY)
        if entry is None:
            raise UnknownModel(f"{spec} is not in the catalogue")
        config = default_config(entry.model_type, **entry.arguments())
        return from_config(
            config,
            name=entry.name,
            source=self.name,
            head=options.head or entry.head,
            dtype=options.dtype or entry.dtype,
            untied=entry.untied,
            notes=(f"configuration from {entry.source}",),
        )


class ModelTypeSource:
    """The default configuration of a transformers model type."""

    name = "hf-type"

    def claims(self, spec: str) -> bool:  # noqa: ARG002 - types are asked for with the prefix alone
        return False

    def names(self) -> Iterable[str]:
        return installed.registered(
            "transformers", "models/auto", r'[({ ]"([\w-]+)"[,:] "\w+Config"'
        )

    def build(self, spec: str, options: BuildOptions) -> Model:
        installed.require("transformers", "transformers")
        return from_config(
            default_config(spec),
            name=spec,
            source=self.name,
            head=options.head,
            dtype=options.dtype,
            notes=("the model type's default configuration",),
        )


def default_config(model_type: str, **changes: Any) -> Any:
    """The model type's configuration, with some values changed. Raises `SourceError`."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from opgraph.sources.building import first_line

    try:
        cls = CONFIG_MAPPING[model_type]
    except KeyError:
        raise UnknownModel(
            f"the installed transformers has no model type {model_type}",
            hint="pip install -U transformers may bring it",
        ) from None
    try:
        return cls(**changes)
    except Exception as error:
        reason = first_line(error)
        raise SourceError(f"the configuration of {model_type} cannot be made: {reason}") from error


def from_config(
    config: Any,
    *,
    name: str,
    source: str,
    head: str | None,
    dtype: str | None,
    untied: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Model:
    """A model with that configuration and head; without a head, the base model, or what the type has.

    The parameters named in `untied` are given tensors of their own, should the library have tied them.
    """
    from opgraph.sources.building import assemble, dtype_of

    auto = _auto_class(config, head)

    def construct() -> nn.Module:
        # A configuration is written to while a model is built, so each build gets its own.
        module: nn.Module = auto.from_config(_copy(config), dtype=dtype_of(dtype))
        for path in untied:
            _untie(module, path)
        return module

    return assemble(construct, name=name, source=source, config=config, notes=notes)


def _copy(config: Any) -> Any:
    from copy import deepcopy

    return deepcopy(config)


def _untie(module: nn.Module, path: str) -> None:
    """Give the parameter at `path` a tensor of its own; a head that lacks it is left as it is."""
    from torch import nn

    owner, _, name = path.rpartition(".")
    try:
        parent, shared = module.get_submodule(owner), module.get_parameter(path)
    except AttributeError:
        return
    setattr(parent, name, nn.Parameter(shared.detach().clone()))


def heads() -> dict[str, Any]:
    """The auto classes by the name of their head: base, masked-lm, causal-lm, seq2seq-lm …"""
    from transformers.models.auto import modeling_auto

    found = {BASE: modeling_auto.AutoModel}
    for name, value in vars(modeling_auto).items():
        if name.startswith("AutoModelFor") and isinstance(value, type):
            found[_head_name(name.removeprefix("AutoModelFor"))] = value
    return found


def _head_name(words: str) -> str:
    """CausalLM -> causal-lm, ImageClassification -> image-classification, Seq2SeqLM -> seq2seq-lm."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", words).lower()


def _auto_class(config: Any, head: str | None) -> Any:
    known = heads()
    kind = type(config)
    having = [name for name, auto in known.items() if kind in auto._model_mapping]
    if head is None and having:
        return known[having[0]]
    if head in having:
        return known[head]
    model_type = config.model_type
    if head is None:
        raise SourceError(f"{model_type} is a configuration that no model takes")
    if head not in known:
        raise SourceError(f"{head} is not a head", hint=f"{model_type} has {', '.join(having)}")
    raise SourceError(f"{model_type} has no head {head}", hint=f"it has {', '.join(having)}")
