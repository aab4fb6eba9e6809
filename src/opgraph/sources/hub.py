"""Where a configuration can come from besides the catalogue: a folder, the user's hub cache, the hub. Only
`config.json` is ever read; no weights, and no code unless it is trusted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from opgraph.record.errors import SourceError, UnknownModel, UntrustedFile
from opgraph.sources.nearest import suggestion

CONFIG = "config.json"
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
        raise SourceError(f"the folder {name} has no {CONFIG}")
    return _cached(name) or _downloaded(name)


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, CONFIG)
    except HFValidationError:
        raise UnknownModel(
            f"{name} is not a name that a hub could have", hint=suggestion(name)
        ) from None
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
        raise UnknownModel(
            f"{name} is not in the catalogue, and no hub can be reached", hint=suggestion(name)
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise UnknownModel(f"the hub has no {CONFIG} for {name}", hint=suggestion(name)) from error


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


def _check_layers(stated: dict[str, Any], file: Path) -> None:
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


def read_configuration(file: Path, *, trust: bool) -> Any:
    """The configuration object of a `config.json`. Raises `SourceError`, and `UntrustedFile` where only
    the repository's own code could make it."""
    from transformers import AutoConfig

    from opgraph.sources.building import first_line

    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{file} cannot be read: {first_line(error)}") from error
    if not isinstance(stated, dict):
        raise SourceError(f"{file} is not a configuration")
    _check_layers(stated, file)
    try:
        return AutoConfig.from_pretrained(file.parent, trust_remote_code=trust)
    except Exception as error:
        if "auto_map" in stated and not trust:
            raise UntrustedFile(
                f"{file} needs its repository's own code",
                hint="if you trust where it comes from, add --trust",
            ) from error
        kind = stated.get("model_type", "no model type")
        raise SourceError(f"{file} ({kind}) cannot be read: {first_line(error)}") from error
