"""The models of the comparison as `models.toml` lists them, and building one with its inputs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Entry:
    """A model: `flops` where the right figure is not what torch's counter finds on a real forward, or
    `beside` what it does not count, and `why`; `parameters` where the module's own are not all."""

    name: str
    family: str
    options: dict[str, Any] = field(default_factory=dict)
    flops: int | None = None
    beside: int = 0
    parameters: int | None = None
    why: str = ""

    @property
    def local(self) -> str | None:
        """The builder's name, of a model in `local_models`."""
        place, _, name = self.name.partition(":")
        return name if place.endswith(".py") else None


def entries() -> list[Entry]:
    """All models, in the order of the file."""
    text = (HERE / "models.toml").read_text(encoding="utf-8")
    return [Entry(name, **row) for name, row in tomllib.loads(text).items()]


def prepared(entry: Entry, *, weights: bool) -> tuple[Any, Any]:
    """The model (as opgraph resolves it, with real weights from its plain constructor if asked for) and
    the arguments of one call, which are the same for everybody."""
    from opgraph.api import pipeline
    from opgraph.options import Options
    from opgraph.sources import building

    options = Options(**entry.options)
    spec, inputs = entry.name, None
    if entry.local is not None:
        import local_models

        spec, inputs = f"{HERE / entry.name}", local_models.INPUTS[entry.local]()
    lightest = building._lightest
    if weights:
        building._lightest = building._finish
    try:
        return pipeline.prepared(spec, inputs, None, options)
    finally:
        building._lightest = lightest
