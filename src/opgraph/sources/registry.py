"""The registry of sources, and the resolution of what a person names to a `Model`.

A bare name goes to the first source that claims it, in the order of `_built_in`; `source:name` asks one
source. Other packages add theirs through the entry point group `opgraph.sources`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.record.errors import SourceError, UnknownModel
from opgraph.record.gc_pause import uncollected
from opgraph.sources import installed
from opgraph.sources.base import BuildOptions, Model, Source
from opgraph.sources.code import CodeSource
from opgraph.sources.files import FILES, FileSource
from opgraph.sources.lazy_imports import deferring
from opgraph.sources.libraries.diffusers import DiffusersSource
from opgraph.sources.libraries.timm import TimmSource
from opgraph.sources.libraries.torchvision import TorchvisionSource
from opgraph.sources.libraries.transformers import HuggingFaceSource, ModelTypeSource
from opgraph.sources.libraries.ultralytics import UltralyticsSource
from opgraph.sources.nearest import suggestion

if TYPE_CHECKING:
    from torch import nn

GROUP = "opgraph.sources"
HEADED = ("hf", "hf-type")
"""The sources whose models come with a choice of heads."""
_READABLE = (
    f"models are read from {', '.join(FILES)} files, from code (model.py:build), "
    "from folders with a config.json, and from saved profiles (.json)"
)


def _built_in() -> tuple[Source, ...]:
    return (
        FileSource(),
        TorchvisionSource(),
        HuggingFaceSource(),
        UltralyticsSource(),
        TimmSource(),
        DiffusersSource(),
        ModelTypeSource(),
        CodeSource(),
    )


@cache
def sources() -> dict[str, Source]:
    """All sources by name, in the order in which bare names are looked up."""
    found: dict[str, Source] = {source.name: source for source in _built_in()}
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        source = point.load()()
        found.setdefault(source.name, source)
    return found


def resolve(spec: str | nn.Module, options: BuildOptions | None = None) -> Model:
    """Build the model that `spec` names, or take the module that it is.

    Raises `UnknownModel` (with the nearest names), `MissingDependency`, or another `SourceError`.
    """
    options = options or BuildOptions()
    if not isinstance(spec, str):
        from opgraph.sources.objects import from_module

        _without_head(options, "a module that is built already")
        return from_module(spec)
    source, rest = find(spec)
    if source.name not in HEADED:
        _without_head(options, f"a model from {source.name}")
    with deferring(), uncollected():
        return source.build(rest, options)


def _without_head(options: BuildOptions, what: str) -> None:
    if options.head is not None:
        raise SourceError(
            f"{what} has no heads to choose from, and --head {options.head} was asked for",
            hint=f"heads are for the models of {' and '.join(HEADED)}",
        )


def find(spec: str) -> tuple[Source, str]:
    """The source for a name, and the name without the source's prefix.

    Raises `UnknownModel`, or another `SourceError` for a file that is not there or holds no model.
    """
    try:
        return _found(spec)
    except OSError as error:  # longer than the file system lets a name be
        raise UnknownModel(f"no source knows a model {spec:.60}…: {error.strerror}") from error


def _found(spec: str) -> tuple[Source, str]:
    if not spec.strip():
        raise UnknownModel("a model without a name", hint="`opgraph models` lists what there is")
    prefix, _, rest = spec.partition(":")
    if rest and prefix in sources():
        return sources()[prefix], rest
    source = claimant(spec)
    if source is not None:
        return source, spec
    if Path(spec).is_file():
        raise _no_model_in(spec)
    if _looks_like_a_repository(spec) or Path(spec).is_dir():
        return sources()["hf"], spec
    if Path(spec).suffix in FILES:
        bare = Path(spec).name == spec
        raise SourceError(f"there is no file {spec}", hint=installed.absent() if bare else None)
    raise UnknownModel(f"no source knows a model {spec}", hint=suggestion(spec))


def claimant(spec: str) -> Source | None:
    """The first source that claims a bare name."""
    return next((source for source in sources().values() if source.claims(spec)), None)


def _no_model_in(file: str) -> SourceError:
    """What to raise for a file that is there, and that no source can read."""
    hint = {
        ".py": f"name what makes the model in it: {file}:build",
        ".json": f"a saved profile is traced already: opgraph.load({file!r}) opens it",
    }.get(Path(file).suffix, _READABLE)
    return SourceError(f"{file} is no file that holds a model", hint=hint)


def _looks_like_a_repository(spec: str) -> bool:
    """`owner/name`, which only a hub can know."""
    owner, _, name = spec.partition("/")
    return bool(owner.strip(".") and name) and "/" not in name and ":" not in spec
