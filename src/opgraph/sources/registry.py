"""The registry of sources: what can be named, which source has it, and the `Model` that it becomes.

A bare name goes to the first source that claims it, in the order of `_built_in`; `source:name` asks one
source. Other packages add theirs through the entry point group `opgraph.sources`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.record.errors import SourceError, UnknownModel, beside, one_of
from opgraph.record.remarks import no_effect
from opgraph.record.turns import turn, uncollected
from opgraph.record.versions import plug_ins, require_torch
from opgraph.sources import catalogue, known
from opgraph.sources.base import BuildOptions, Model, Source, without_arguments
from opgraph.sources.code import CodeSource, from_module
from opgraph.sources.files import FILES, FileSource
from opgraph.sources.libraries import Library, lazy_imports
from opgraph.sources.libraries.diffusers import DiffusersSource
from opgraph.sources.libraries.timm import TimmSource
from opgraph.sources.libraries.torchvision import TorchvisionSource
from opgraph.sources.libraries.transformers import HuggingFaceSource, ModelTypeSource
from opgraph.sources.libraries.ultralytics import UltralyticsSource

if TYPE_CHECKING:
    from torch import nn

GROUP = "opgraph.sources"
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
    for point in plug_ins(GROUP):
        source = point.load()()
        found.setdefault(source.name, source)
    return found


@cache
def libraries() -> dict[str, Library]:
    """The libraries behind the sources, by the names of the sources that have one."""
    found = {name: getattr(source, "library", None) for name, source in sources().items()}
    return {name: library for name, library in found.items() if library is not None}


@turn()
def resolve(spec: str | nn.Module, options: BuildOptions | None = None) -> Model:
    """Build the model that `spec` names, or take the module that it is.

    Raises `UnknownModel` (with the nearest names), `MissingDependency`, or another `SourceError`.
    """
    options = options or BuildOptions()
    if not isinstance(spec, str):
        require_torch()
        _without_head(options, "a module that is built already")
        without_arguments(options, "a module that is built already")
        return from_module(spec)
    source, rest = required(spec)
    library = libraries().get(source.name)
    if library is None or not library.heads:
        _without_head(options, f"a model from {source.name}")
    try:
        with lazy_imports(), uncollected(), nullcontext() if library is None else _quietly():
            model = source.build(rest, options)
    except UnknownModel as error:
        if error.hint is not None:
            raise
        hint = suggestion(rest, source if rest != spec else None)
        raise UnknownModel(str(error), hint=hint) from error.__cause__
    if not options.trust or _brings_code(source, rest):
        return model
    note = no_effect("trust", f"{model.info.name} brings no code of its own")
    return replace(model, info=model.info.noting(note))


def _quietly() -> AbstractContextManager[None]:
    # What a library imports says what it could not load for other machines.
    from opgraph.sources.building import quietly

    return quietly()


def required(spec: str) -> tuple[Source, str]:
    """The source of a name and the name there, once what tracing it takes is known to be installed.

    Raises `UnknownModel`, or `MissingDependency` with the extra that brings what is missing.
    """
    source, rest = find(spec)
    library = libraries().get(source.name)
    if library is not None:
        library.require()
    require_torch("torch" if library is None else library.extra)
    return source, rest


def _brings_code(source: Source, spec: str) -> bool:
    """Whether a model can have code that is run if it is trusted: one of a file, or of a repository."""
    if isinstance(source, HuggingFaceSource):
        return catalogue.lookup(spec, source.library.package) is None
    return source.name == "file" or not type(source).__module__.startswith("opgraph.")


def is_configured(source: str, name: str) -> bool:
    """Whether the versions of the libraries say all of a model: it is a library's own, or one of the
    catalogue, and not of a file, a hub, a plug-in or code."""
    known = sources().get(source)
    return source in libraries() and known is not None and not _brings_code(known, name)


def _without_head(options: BuildOptions, what: str) -> None:
    if options.head is not None:
        headed = (name for name, library in libraries().items() if library.heads)
        raise SourceError(
            f"{what} has no heads to choose from, and --head {options.head} was asked for",
            hint=f"heads are for the models of {' and '.join(headed)}",
        )


def find(spec: str) -> tuple[Source, str]:
    """The source for a name, and the name without the source's prefix.

    Raises `UnknownModel`, or another `SourceError` for a file that is not there or holds no model.
    """
    try:
        Path(spec).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a name that is no file's
        pass
    except OSError as error:  # longer than names of files can be, or not ours to see
        raise UnknownModel(f"no source knows a model {spec:.60}: {error.strerror}") from error
    if not spec.strip():
        raise UnknownModel("a model without a name", hint="`opgraph models` lists what there is")
    prefix, _, rest = spec.partition(":")
    if rest and prefix in sources():
        return sources()[prefix], rest
    source = _claimant(spec)
    if source is not None:
        return source, spec
    if Path(spec).is_file():
        raise _no_model_in(spec)
    if _looks_like_a_repository(spec) or Path(spec).is_dir():
        return sources()["hf"], spec
    if Path(spec).suffix in (*FILES, ".json", ".py", ".safetensors") or spec[:1] in "./~":
        raise SourceError(f"there is no file {spec}", hint=beside(spec))
    if "." in prefix and rest.isidentifier():
        raise UnknownModel(
            f"there is no module {prefix}, in this folder or installed",
            hint="a file is named by its path: folder/file.py:build",
        )
    raise UnknownModel(f"no source knows a model {spec}", hint=suggestion(spec))


def _claimant(spec: str) -> Source | None:
    """The first source that claims a bare name, of those whose library is installed if any of them does."""
    claiming = (source for source in sources().values() if source.claims(spec))
    first = next(claiming, None)
    if first is None or _is_there(first):
        return first
    return next(filter(_is_there, claiming), first)


def _is_there(source: Source) -> bool:
    library = libraries().get(source.name)
    return library is None or library.folder is not None


def _no_model_in(file: str) -> SourceError:
    """What to raise for a file that is there, and that no source can read."""
    made = _defined_in(file) if file.endswith(".py") else []
    some = f" (it has {', '.join(made[:8])})" if made else ""
    hint = {
        ".py": f"name what makes the model in it: {file}:{made[0] if made else 'build'}{some}",
        ".json": "a saved profile has costs and no model: give the model's name, or in Python "
        f"opgraph.load({file!r})",
    }.get(Path(file).suffix, _READABLE)
    return SourceError(f"{file} is no file that holds a model", hint=hint)


def _defined_in(file: str) -> list[str]:
    """The classes and functions that code defines, which is read and not run."""
    import ast

    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [each.name for each in body if isinstance(each, kinds) and each.name[0] != "_"]


def _looks_like_a_repository(spec: str) -> bool:
    """`owner/name`, which only a hub can know."""
    owner, _, name = spec.partition("/")
    return bool(owner.strip(".") and name) and "/" not in name and ":" not in spec


# All that can be named: the names that fit a pattern, and those nearest to one that nobody knows.


@dataclass(frozen=True, slots=True)
class Listing:
    """A name, where it is from, and its family there."""

    name: str
    source: str
    family: str

    @property
    def spec(self) -> str:
        """What to type for it: the bare name where that leads to this source, else with the source before
        it."""
        return _spec(self.name, self.source)

    @property
    def facts(self) -> known.Facts:
        """What is known of it."""
        return known.facts(self.source, self.name)

    def record(self) -> dict[str, str | int | None]:
        """Its row in a table."""
        facts = self.facts
        return {
            "name": self.name,
            "source": self.source,
            "family": self.family,
            "task": facts.task or None,
            "parameters": facts.parameters,
            "flops": facts.flops,
            "inputs": facts.inputs or None,
            "licence": facts.licence or None,
            "page": catalogue.page(self.name),
        }


def listed(patterns: Sequence[str] = (), source: str | None = None) -> list[Listing]:
    """The names that fit any of the patterns (all of them without one), by source.

    A pattern with `*` or `?` must fit the whole name, another one a part of it; `source:pattern` asks one
    source. Raises `SourceError` when there is no such source.
    """
    if source is not None and source not in sources():
        raise SourceError(f"there is no source {source}", hint=one_of(source, sources()))
    return [
        Listing(name, where, family)
        for where, one in sources().items()
        for name, family in sorted(one.names().items())
        if source in (None, where)
        and (not patterns or any(_fits(p, where, name) for p in patterns))
    ]


def is_pattern(text: str) -> bool:
    """Whether a text stands for many names."""
    return any(sign in text for sign in "*?[")


def _spec(name: str, where: str) -> str:
    found = _claimant(name)
    return name if found is not None and found.name == where else f"{where}:{name}"


def _fits(pattern: str, where: str, name: str) -> bool:
    prefix, colon, rest = pattern.partition(":")
    if colon and prefix in sources():
        if prefix != where:
            return False
        pattern = rest
    pattern, name = pattern.lower(), name.lower()
    return fnmatchcase(name, pattern) if is_pattern(pattern) else pattern in name


def suggestion(name: str, source: Source | None = None) -> str:
    """One line that helps on from a name that is not known, to any source or to this one."""
    near = _nearest(name.rpartition(":")[2], source)
    where = "" if source is None else f" --source {source.name}"
    return (
        f"did you mean {', '.join(near)}?" if near else f"`opgraph models{where}` lists the names"
    )


def _nearest(name: str, source: Source | None, count: int = 3) -> list[str]:
    """The known names most like this one, or else the shortest that hold it, over all sources or in one, as
    they are typed."""
    known: dict[str, tuple[str, str]] = {}
    for one in sources().values() if source is None else (source,):
        for n in one.names():
            known.setdefault(n.lower(), (n, one.name))
            known.setdefault(n.lower().rpartition("/")[2], (n, one.name))
    name = name.lower()
    near = difflib.get_close_matches(name, known, 2 * count, 0.6)
    near = near or sorted((n for n in known if name and name in n), key=lambda n: (len(n), n))
    close = [known[n] for n in near[: 2 * count]]
    typed = (_spec(n, where) if source is None else f"{where}:{n}" for n, where in close)
    return list(dict.fromkeys(typed))[:count]
