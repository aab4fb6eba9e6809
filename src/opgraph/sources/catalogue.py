"""The built-in catalogue: configurations of well-known models, as their publishers' `config.json` files
state them, so that their names resolve without a network. One TOML file a family in `catalogue/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "catalogue"
_COMPLETIONS = Path(__file__).parent / "completions.toml"


@dataclass(frozen=True, slots=True)
class Entry:
    """A published model: where its configuration stands, what class runs it, how many parameters it has.

    `model_type` is transformers' (for diffusers, `cls` names the class); `head` the published one;
    `config` holds only what differs from the type's default configuration. TOML has no null: `unset`
    names the keys whose value is None though the default has one. `untied` names the parameters that
    the checkpoint holds apart though the library would tie them; `quantization` is the
    `quantization_config` of the configuration, `licence` that of the weights. An alias is another name of
    the repository, or a repository with the same graph.
    """

    name: str
    family: str
    source: str
    library: str
    parameters: int
    model_type: str = ""
    cls: str = ""
    head: str = "base"
    dtype: str | None = None
    aliases: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    untied: tuple[str, ...] = ()
    quantization: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""

    def arguments(self) -> dict[str, Any]:
        """What the library's constructor is given: a copy, for libraries write into their arguments."""
        return {**deepcopy(dict(self.config)), **dict.fromkeys(self.unset)}


@cache
def entries() -> dict[str, Entry]:
    """All entries by name."""
    found: dict[str, Entry] = {}
    for file in sorted(FOLDER.glob("*.toml")):
        for name, fields in tomllib.loads(file.read_text(encoding="utf-8")).items():
            for many in ("aliases", "unset", "untied"):
                fields[many] = tuple(fields.get(many, ()))
            fields["cls"] = fields.pop("class", "")
            found[name] = Entry(name=name, family=file.stem, **fields)
    return found


@cache
def _by_any_name() -> dict[str, Entry]:
    """Entries by name, by alias, and by either in lower case; the exact spelling comes first."""
    exact = {n: e for e in entries().values() for n in (*e.aliases, e.name)}
    return {**{n.lower(): e for n, e in exact.items()}, **exact}


def lookup(name: str, library: str) -> Entry | None:
    """The entry of this name or alias for a library, or None."""
    known = _by_any_name()
    entry = known.get(name) or known.get(name.lower())
    return entry if entry is not None and entry.library == library else None


def page(name: str) -> str | None:
    """Where the configuration of a published model stands."""
    entry = entries().get(name)
    return None if entry is None else entry.source


def names(library: str) -> dict[str, str]:
    """The names for a library, without their aliases, with the family of each."""
    return {e.name: e.family for e in entries().values() if e.library == library}


@cache
def _completions() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_COMPLETIONS.read_text(encoding="utf-8"))


def completion(model_type: str) -> dict[str, Any]:
    """The settings without which a model type's default configuration makes no model that runs; for most
    there are none."""
    return deepcopy(_completions().get(model_type, {}))
