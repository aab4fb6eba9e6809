"""transformers models: published ones by the catalogue's configurations, and the default configuration
of any model type (`hf-type:NAME`). Never any weights."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError, UnknownModel, UntrustedFile, first_line, one_of
from opgraph.record.remarks import Remark
from opgraph.sources import catalogue, known
from opgraph.sources.base import BuildOptions, Model, check_arguments
from opgraph.sources.files import CONFIG
from opgraph.sources.libraries import Library, registered

if TYPE_CHECKING:
    from torch import nn

TRANSFORMERS = Library(
    "transformers",
    "transformers",
    ("transformers.modeling_utils", "transformers.models.auto.modeling_auto"),
    (5, 21),
    heads=True,
)
BASE = "base"


class HuggingFaceSource:
    """Published models by their hub names: the catalogue first, then a local folder with a
    `config.json`, the user's hub cache, and the hub itself, which is asked for `config.json` alone."""

    name = "hf"
    library = TRANSFORMERS

    def claims(self, spec: str) -> bool:
        if catalogue.lookup(spec, TRANSFORMERS.package) is not None:
            return True
        return isfile(f"{spec}/{CONFIG}")  # noqa: PTH113 - asked of each of thousands of names

    def names(self) -> Mapping[str, str]:
        return catalogue.names(TRANSFORMERS.package)

    def build(self, spec: str, options: BuildOptions) -> Model:
        entry = catalogue.lookup(spec, TRANSFORMERS.package)
        if entry is not None:
            return _quantized(
                from_config(
                    default_config(entry.model_type, entry.arguments(), options.arguments),
                    name=entry.name,
                    source=self.name,
                    head=options.head or entry.head,
                    dtype=options.dtype or entry.dtype,
                    untied=entry.untied,
                    notes=(f"configuration from {entry.source}", *_changed(options.arguments)),
                ),
                entry.quantization,
            )
        file = configuration_file(spec)
        config = read_configuration(file, options.arguments, trust=options.trust)
        return _quantized(
            from_config(
                config,
                name=spec,
                source=self.name,
                head=options.head or _published_head(config),
                dtype=options.dtype,
                notes=(f"configuration from {file}", *_changed(options.arguments)),
                trust=options.trust,
            ),
            getattr(config, "quantization_config", None),
        )


def _quantized(model: Model, published: Any) -> Model:
    """The model with what its weights are published in, or a note where that is not known here."""
    from opgraph.record.quantization import published_scheme

    if not isinstance(published, Mapping) or not published:
        return model
    info, scheme = model.info, published_scheme(published)
    if scheme is None:
        method = f"{published.get('quant_method', 'no known method')!s:.40}"
        text = f"its quantization_config ({method}) is not heeded: weights are as they compute"
        return replace(model, info=info.noting(Remark("published-weights", text)))
    return replace(model, info=replace(info, weights=scheme))


def _published_head(config: Any) -> str | None:
    """The class that the configuration names, as it is written there."""
    architectures = getattr(config, "architectures", None)
    return str(architectures[0]) if isinstance(architectures, list) and architectures else None


class ModelTypeSource:
    """The default configuration of a transformers model type."""

    name = "hf-type"
    library = TRANSFORMERS

    def claims(self, spec: str) -> bool:  # noqa: ARG002 - types are asked for with the prefix alone
        return False

    def names(self) -> Mapping[str, str]:
        """The types that a model takes; others are configurations of their parts."""
        found = self._found(r'"\w+Config"').keys() & self._found(r'[("]', "modeling_auto.py").keys()
        return {
            name: re.split(r"[-_\d]", name)[0] or name
            for name in sorted(found or known.names(self.name))
        }

    def _found(self, what: str, file: str = "*.py") -> Mapping[str, str]:
        return registered(self.library, "models/auto", rf'[({{ ]"([\w.-]+)"[,:]\s*{what}', file)

    def build(self, spec: str, options: BuildOptions) -> Model:
        if spec not in self._found(r'"\w+Config"'):
            raise UnknownModel(f"{self.name} has no model type {spec}")
        asked = options.arguments
        filled = {k: v for k, v in catalogue.completion(spec).items() if k not in asked}
        config = default_config(spec, filled, asked)
        if "text_config" not in asked:
            filled |= _holding_all_tokens(config)
        return from_config(
            config,
            name=spec,
            source=self.name,
            head=options.head,
            dtype=options.dtype,
            notes=("the model type's default configuration", *_completed(filled)),
        )


_PLACEHOLDER = re.compile(r"(image|video|audio)_token_(id|index)")


def _holding_all_tokens(config: Any) -> dict[str, Any]:
    """What was added to the vocabulary of a default configuration so that it holds the placeholders of
    images and sound."""
    try:
        text = config.get_text_config()
    except ValueError:  # it has several
        return {}
    ids = [v for k, v in vars(config).items() if _PLACEHOLDER.fullmatch(k) and isinstance(v, int)]
    needed = max(ids, default=-1) + 1
    if text is config or not 0 < getattr(text, "vocab_size", 0) < needed:
        return {}
    text.vocab_size = needed
    return {"text_config.vocab_size": needed}


def _completed(settings: Mapping[str, Any]) -> Iterator[str]:
    """A note on what was added to a default configuration."""
    if settings:
        given = ", ".join(f"{name}={value}" for name, value in settings.items())
        yield Remark("completed", f"completed with {given:.200}")


def _changed(asked: Mapping[str, Any]) -> Iterator[str]:
    """A note on what a person changed of a published configuration."""
    if asked:
        yield "with " + ", ".join(f"{name}={value}" for name, value in asked.items())[:200]


def default_config(
    model_type: str, settings: Mapping[str, Any], asked: Mapping[str, Any] | None = None
) -> Any:
    """The model type's configuration with these settings, on top of which a person may have `asked` for
    others. Of a part that is a configuration itself, what is not asked for stays.

    Raises `SourceError`.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from opgraph.sources.building import undisturbed

    try:
        cls = CONFIG_MAPPING[model_type]
    except KeyError:
        raise UnknownModel(
            f"the installed transformers has no model type {model_type}",
            hint="pip install -U transformers may bring it",
        ) from None
    try:
        with undisturbed():
            return cls(**{**settings, **_asked(cls, cls, settings, asked or {})})
    except SourceError:
        raise
    except Exception as error:
        reason = first_line(error)
        raise SourceError(f"the configuration of {model_type} cannot be made: {reason}") from error


_READ = r'config\.(\w+)|getattr\(\w*config, "(\w+)"'
"""How a model reads its configuration."""


def _asked(
    cls: Any, usual: Callable[[], Any], settings: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a person asks for, by the names that the configuration's class has for them."""
    if not asked:
        return {}
    renamed: Mapping[str, str] = cls.attribute_map
    known = {*inspect.signature(cls.__init__).parameters, *renamed} - {"self", "kwargs"}
    with suppress(Exception):  # of some types there is no configuration by default
        known |= vars(usual()).keys()
    # A model may also read what its configuration class does not declare (qwen3_moe's head_dim).
    for file in Path(inspect.getfile(cls)).parent.glob("modeling_*.py"):
        read = re.findall(_READ, file.read_text(encoding="utf-8"))
        known |= {name for pair in read for name in pair if name}
    check_arguments(asked, {n for n in known if not n.startswith("_")}, cls.model_type)
    changes = {renamed.get(name, name): value for name, value in asked.items()}
    return {
        name: {**settings[name], **value}
        if isinstance(value, Mapping) and isinstance(settings.get(name), Mapping)
        else value
        for name, value in changes.items()
    }


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
            note = f"with the head {taken}: the base model has nothing to run"
            notes += (Remark("other-head", note),)
        info = replace(model.info, notes=notes)
        return replace(model, info=info, hints=input_hints(model))
    raise failure or SourceError(f"nothing says how to build {name}")


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
    """The auto classes by the name of their head: base, masked-lm, causal-lm, seq2seq-lm, …, backbone."""
    from transformers.models.auto import modeling_auto

    found = {BASE: modeling_auto.AutoModel}
    for name, value in vars(modeling_auto).items():
        if name.startswith("AutoModelFor") and isinstance(value, type):
            found[_head_name(name.removeprefix("AutoModelFor"))] = value
    return {**found, "backbone": modeling_auto.AutoBackbone}


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
    what = "is not a head" if head not in known else f"is no head of {model_type}"
    raise SourceError(f"{head} {what}", hint=f"{model_type} has {one_of(head, having)}")


# Where a configuration comes from besides the catalogue: a folder, the user's hub cache, the hub. Only
# `config.json` is ever read; no weights, and no code unless it is trusted.

MOST_LAYERS = 20_000
"""Of each kind that a configuration can have; the deepest published models have a few hundred."""
_LAYERS = re.compile(
    r"(^|_)(layers?|depths?|blocks?|stages?|experts?|repeats?)($|_(?!dim|size|width|id|ids|index|indices|token))"
)
REACHED_WITHIN = 5.0
"""Seconds to wait for a hub."""


def configuration_file(name: str) -> Path:
    """The `config.json` of a folder or a hub repository.

    Raises `UnknownModel` when there is none, or when no hub can be reached.
    """
    folder = Path(name)
    if (folder / CONFIG).is_file():
        return folder / CONFIG
    if folder.is_dir():
        raise SourceError(
            f"the folder {name} has no {CONFIG}",
            hint=f"`save_pretrained` writes one; another file is named itself: {name.rstrip('/')}/model.pt",
        )
    return _cached(name) or _downloaded(name)


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, CONFIG)
    except HFValidationError:
        raise UnknownModel(f"{name} is not a name that a hub could have") from None
    return Path(found) if isinstance(found, str) else None


def _downloaded(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        if not _reachable():
            raise LocalEntryNotFoundError("no answer")
        return Path(hf_hub_download(name, CONFIG, etag_timeout=REACHED_WITHIN))
    except GatedRepoError as error:
        raise SourceError(
            f"{name} is gated on the hub", hint="log in with `hf auth login`"
        ) from error
    except LocalEntryNotFoundError as error:
        raise UnknownModel(f"{name} is not in the catalogue, and no hub can be reached") from error
    except (HfHubHTTPError, OSError) as error:
        raise UnknownModel(f"the hub has no {CONFIG} for {name}") from error


def _reachable() -> bool:
    """Whether the hub answers at all; the library's own requests try for half a minute to find out."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=REACHED_WITHIN)
    except Exception:  # noqa: BLE001 - which HTTP library it uses differs from version to version
        return False
    return True


def _refuse_too_many_layers(stated: dict[str, Any], file: Path) -> None:
    """Raise `SourceError` for more layers than could ever be built."""
    stack: list[tuple[str, Any]] = [("", stated)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack += value.items()
        elif isinstance(value, list):
            stack += ((key, item) for item in value)
        elif isinstance(value, (int, float)) and value > MOST_LAYERS and _LAYERS.search(key):
            raise SourceError(f"{file}: {key} is {value}, more than can be built")


def read_configuration(file: Path, asked: Mapping[str, Any], *, trust: bool) -> Any:
    """The configuration object of a `config.json`, with the values `asked` for. Raises `SourceError`, and
    `UntrustedFile` where only the repository's own code could make it."""
    from transformers import AutoConfig

    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{file} cannot be read: {first_line(error)}") from error
    if not isinstance(stated, dict):
        raise SourceError(f"{file} is not a configuration")
    _refuse_too_many_layers(stated, file)
    try:
        found = AutoConfig.from_pretrained(file.parent, trust_remote_code=trust)
        changes = _asked(type(found), lambda: found, stated, asked)
        if not changes:
            return found
        return AutoConfig.from_pretrained(file.parent, trust_remote_code=trust, **changes)
    except SourceError:
        raise
    except Exception as error:
        if "auto_map" in stated and not trust:
            raise UntrustedFile(
                f"{file} needs its repository's own code",
                hint="if you trust where it comes from, add --trust",
            ) from error
        kind = stated.get("model_type", "no model type")
        raise SourceError(f"{file} ({kind}) cannot be read: {first_line(error)}") from error


# What the preprocessing of a model type makes of images and sound by default: sizes that the model's
# configuration does not hold.


def input_hints(model: Model) -> dict[str, Any]:
    """`image_size` as the model type's image processor has it, and `feature_size` and `sampling_rate` as
    its feature extractor has them; only those that the model's inputs need."""
    takes = inspect.signature(model.module.forward).parameters
    found: dict[str, Any] = {}
    if "pixel_values" in takes and not _own_image_size(model.config):
        found["image_size"] = _image_size(model.config.model_type)
    if any(name in takes for name in ("input_features", "input_values", "audio_mel")):
        found.update(_sound(model.config.model_type))
    return {name: value for name, value in found.items() if value}


def _own_image_size(config: Any) -> bool:
    parts = (config, getattr(config, "vision_config", None))
    return any(getattr(part, "image_size", None) for part in parts)


def _image_size(model_type: str) -> Any:
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    names = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type) or {}
    cls = _class(names.get("pil") or names.get("torchvision"))
    crop = getattr(cls, "crop_size", None) if getattr(cls, "do_center_crop", False) else None
    return crop or getattr(cls, "size", None)


def _sound(model_type: str) -> Mapping[str, Any]:
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

    for name in _shorter(model_type):
        cls = _class(FEATURE_EXTRACTOR_MAPPING_NAMES.get(name))
        if cls is not None:
            defaults = inspect.signature(cls.__init__).parameters
            wanted = ("feature_size", "sampling_rate")
            return {n: defaults[n].default for n in wanted if n in defaults}
    return {}


def _shorter(model_type: str) -> Iterator[str]:
    """A model type and what it is a part of: `gemma4_audio`, `gemma4`."""
    while model_type:
        yield model_type
        model_type = model_type.rpartition("_")[0]


def _class(name: str | None) -> Any:
    """A class of transformers by name; None where what it needs is not installed."""
    import transformers

    try:
        return getattr(transformers, name) if name else None
    except (ImportError, AttributeError):
        return None
