"""What a survey goes over: the cases of a plan, one after the other, in groups that never change.

A case is a model with the options of its profile. The cases of a plan are worked out as they are
needed, so a plan of a million of them is as small as one of ten. A group holds cases of one source, is
worked on by one worker, and is written at once; what it is called follows from its cases alone, so a
survey that goes on knows what is done by looking at which files are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from typing import Any

from opgraph.options import OPTIONS, QUANTIZED, Options, options_of

GROUP = 16
"""Cases of a group at most: what is done again when a worker dies, and what a driver holds of one."""

AXES = (*(n for n, o in options_of(Options).items() if o.axis), "mode", "target")
"""The options that a survey goes over: those of a sweep, the mode and the target."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model as it is typed, its source ("" where none has it), and the options of its profile."""

    spec: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def traced(self) -> dict[str, Any]:
        """Those of its options by which it is traced."""
        return {n: v for n, v in self.options.items() if n not in QUANTIZED}

    @property
    def kept(self) -> dict[str, Any]:
        """Those that say what it is kept in, on paper."""
        return {n: v for n, v in self.options.items() if n in QUANTIZED}

    @property
    def key(self) -> str:
        """What tells it from all others, the same in every run: 16 hexadecimal digits. How much memory it
        may take is no part of it."""
        options = {n: v for n, v in self.options.items() if n != "memory_limit"}
        return _digest([self.spec, options])


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of one source that are worked on and written together."""

    source: str
    cases: tuple[Case, ...]

    @property
    def key(self) -> str:
        return _digest([case.key for case in self.cases])


@dataclass(frozen=True, slots=True)
class Plan:
    """Models with their sources (`models`, in order), the values of each option that is gone over (`axes`),
    and the `options` that all cases share. Where they `derive`, batches between two that were traced are
    worked out from these."""

    models: Mapping[str, str]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    derive: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that was saved as this data: its cases have the same keys, and values that JSON does not
        have are texts in it."""
        axes = {k: tuple(v) for k, v in data["axes"].items()}
        return cls(dict(data["models"]), axes, data["options"], data.get("derive", False))

    def __len__(self) -> int:
        """How many cases it has."""
        count = len(self.models)
        for values in self.axes.values():
            count *= len(values)
        return count

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The options of every case of one model."""
        for values in product(*self.axes.values()):
            chosen = {**self.options, **dict(zip(self.axes, values, strict=True))}
            yield {n: v for n, v in chosen.items() if v != OPTIONS[n].default}

    def groups(self) -> Iterator[Group]:
        """All cases, source by source: a worker imports a library once."""
        sources = dict.fromkeys(self.models.values())
        for source in sources:
            found: list[Case] = []
            for spec in (s for s, of in self.models.items() if of == source):
                for options in self.combinations():
                    found.append(Case(spec, source, options))
                    if len(found) == GROUP:
                        yield Group(source, tuple(found))
                        found = []
            if found:
                yield Group(source, tuple(found))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data. The models are in their order, which groups depend on."""
        data = {
            "group": GROUP,
            "models": list(self.models.items()),
            "axes": {k: list(v) for k, v in self.axes.items()},
            "options": dict(self.options),
            **({"derive": True} if self.derive else {}),
        }
        found: dict[str, Any] = json.loads(_text(data))
        return found


def _text(data: object) -> str:
    return json.dumps(data, sort_keys=True, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def _digest(data: object) -> str:
    return sha256(_text(data).encode("utf-8", "surrogatepass")).hexdigest()[:16]
