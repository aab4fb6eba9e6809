"""transformers models: published ones by the catalogue's configurations, and the default configuration
of any model type (`hf-type:NAME`). Never any weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError, UnknownModel
from opgraph.sources import catalogue, hub, installed
from opgraph.sources.base import BuildOptions, Model
from opgraph.sources.code import parse_arguments
from opgraph.sources.libraries import preprocessing
from opgraph.sources.nearest import unknown

if TYPE_CHECKING:
    from torch import nn

LIBRARY = "transformers"
CONFIG = "config.json"
BASE = "base"


class HuggingFaceSource:
    """Published models by their hub names: the catalogue first, then a local folder with a
    `config.json`, the user's hub cache, and the hub itself, which is asked for `config.json` alone."""

    name = "hf"

    def claims(self, spec: str) -> bool:
        return catalogue.lookup(spec, LIBRARY) is not None or (Path(spec) / CONFIG).is_file()

    def names(self) -> Mapping[str, str]:
        return catalogue.names(LIBRARY)

    def build(self, spec: str, options: BuildOptions) -> Model:
        installed.require("transformers")
        entry = catalogue.lookup(spec, LIBRARY)
        if entry is not None:
            return from_config(
                default_config(entry.model_type, **entry.arguments()),
                name=entry.name,
                source=self.name,
                head=options.head or entry.head,
                dtype=options.dtype or entry.dtype,
                untied=entry.untied,
                notes=(f"configuration from {entry.source}",),
            )
        file = hub.configuration_file(spec)
        config = hub.read_configuration(file, trust=options.trust)
        return from_config(
            config,
            name=spec,
            source=self.name,
            head=options.head or _published_head(config),
            dtype=options.dtype,
            notes=(f"configuration from {file}",),
            trust=options.trust,
        )


def _published_head(config: Any) -> str | None:
    """The class that the configuration names, as it is written there."""
    architectures = getattr(config, "architectures", None)
    return str(architectures[0]) if isinstance(architectures, list) and architectures else None


class ModelTypeSource:
    """The default configuration of a transformers model type."""

    name = "hf-type"

    def claims(self, spec: str) -> bool:  # noqa: ARG002 - types are asked for with the prefix alone
        return False

    def names(self) -> Mapping[str, str]:
        pattern = r'[({ ]"([\w.-]+)"[,:] "\w+Config"'
        found = installed.registered("transformers", "models/auto", pattern)
        return {name: re.split(r"[-_\d]", name)[0] or name for name in sorted(found)}

    def build(self, spec: str, options: BuildOptions) -> Model:
        installed.require("transformers")
        if spec not in self.names():
            raise unknown(spec, self)
        asked = parse_arguments(options.arguments)
        filled = {k: v for k, v in catalogue.completion(spec).items() if k not in asked}
        return from_config(
            default_config(spec, **{**filled, **asked}),
            name=spec,
            source=self.name,
            head=options.head,
            dtype=options.dtype,
            notes=("the model type's default configuration", *_completed(filled)),
        )


def _completed(settings: Mapping[str, Any]) -> Iterator[str]:
    """A note on what was added to a default configuration."""
    if settings:
        given = ", ".join(f"{name}={value}" for name, value in settings.items())
        yield f"completed with {given:.200}"


def default_config(model_type: str, **changes: Any) -> Any:
    """The model type's configuration, with some values changed. Raises `SourceError`."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from opgraph.sources.building import first_line, undisturbed

    try:
        cls = CONFIG_MAPPING[model_type]
    except KeyError:
        raise UnknownModel(
            f"the installed transformers has no model type {model_type}",
            hint="pip install -U transformers may bring it",
        ) from None
    try:
        with undisturbed():
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
    trust: bool = False,
) -> Model:
    """A model with that configuration and head; without a head, the base model, or what the type has.

    The parameters named in `untied` are given tensors of their own, should the library have tied them.
    """
    failure: SourceError | None = None
    for taken, make in _makers(config, head, trust).items():
        try:
            model = _built(make, config, name, source, dtype, untied)
        except SourceError as error:
            failure = failure or error
            continue
        if failure is not None:
            notes += (f"with the head {taken}: the base model has nothing to run",)
        info = replace(model.info, notes=notes)
        return replace(model, info=info, hints=preprocessing.hints(model))
    assert failure is not None
    raise failure


def _built(
    make: Callable[..., Any],
    config: Any,
    name: str,
    source: str,
    dtype: str | None,
    untied: tuple[str, ...],
) -> Model:
    from torch import nn

    from opgraph.sources.building import assemble, dtype_of

    def construct() -> nn.Module:
        # A configuration is written to while a model is built, so each build gets its own.
        own = deepcopy(config)
        own.architectures = own.architectures or []
        module: nn.Module = make(own, dtype=dtype_of(dtype))
        for path in untied:
            _untie(module, path)
        return module

    model = assemble(construct, name=name, source=source, config=config)
    if type(model.module).forward is nn.Module.forward:
        kind = type(model.module).__name__
        raise SourceError(f"{name}: {kind} has no forward, only parts that are run one by one")
    return model


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


def _makers(config: Any, head: str | None, trust: bool) -> dict[str, Callable[..., Any]]:
    """What builds a configuration with a head: an auto class, or the very class that `head` names. Without
    a head, all there are for it, the base model first."""
    import transformers

    known = heads()
    named = getattr(transformers, head, None) if head is not None and head not in known else None
    if head is not None and isinstance(named, type) and hasattr(named, "_from_config"):
        return {head: named._from_config}
    if trust and getattr(config, "auto_map", None):
        return {head or BASE: partial(known[head or BASE].from_config, trust_remote_code=True)}
    having = {
        n: auto.from_config for n, auto in known.items() if type(config) in auto._model_mapping
    }
    if head in having:
        return {head: having[head]}
    if head is None and having:
        return having
    model_type = config.model_type
    if head is None:
        raise SourceError(f"{model_type} is a configuration that no model takes")
    have = ", ".join(having)
    if head not in known:
        raise SourceError(f"{head} is not a head", hint=f"{model_type} has {have}")
    raise SourceError(f"{model_type} has no head {head}", hint=f"it has {have}")
