"""A user's own code: `model.py:build` or `package.module:Class`, called with the arguments asked for."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError
from opgraph.sources.base import BuildOptions, Model

if TYPE_CHECKING:
    from torch import nn


# Values that a person types (`--model-arg k=v`), as Python values.

_WORDS = {"true": True, "false": False, "none": None}


def parse_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, true/false/none, tuples and quoted texts become what they say; the rest stays as it
    is, as does what is not a text."""
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


_FILE = re.compile(r"(?P<place>.+\.py):(?P<name>[\w.]+)")
_PACKAGE = re.compile(r"(?P<place>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")


class CodeSource:
    """A module object, a class of one, or a function that returns one, by where it stands."""

    name = "code"

    def claims(self, spec: str) -> bool:
        if _FILE.fullmatch(spec):
            return True
        found = _PACKAGE.fullmatch(spec)
        return found is not None and _importable(found["place"].partition(".")[0])

    def names(self) -> Mapping[str, str]:
        return {}

    def build(self, spec: str, options: BuildOptions) -> Model:
        from torch import nn

        from opgraph.sources.building import assemble, first_line
        from opgraph.sources.objects import from_module

        found = _FILE.fullmatch(spec) or _PACKAGE.fullmatch(spec)
        if found is None:
            raise SourceError(
                f"{spec} is not code", hint="write model.py:build, or package.module:Class"
            )
        try:
            place = _load(found["place"])
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(
                f"{found['place']} cannot be imported: {first_line(error)}"
            ) from error
        made = _inside(place, found["name"], found["place"])
        arguments = parse_arguments(options.arguments)
        if isinstance(made, nn.Module):
            model = from_module(made)
            return replace(model, info=replace(model.info, name=spec, source=self.name))
        if not callable(made):
            raise SourceError(f"{spec} is {type(made).__name__}, not a module or what makes one")

        def construct() -> nn.Module:
            module = made(**arguments)
            if not isinstance(module, nn.Module):
                raise SourceError(f"{spec} returned {type(module).__name__}, not a torch.nn.Module")
            return module

        return assemble(construct, name=spec, source=self.name, dtype=options.dtype)


def _importable(package: str) -> bool:
    with _here():
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            return False


def _load(place: str) -> Any:
    if not place.endswith(".py"):
        with _here():
            return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise SourceError(f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    with _here(path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _here(folder: Path | None = None) -> Iterator[None]:
    """The folder of the code (or the current one) is looked in for what it imports."""
    entry = str(folder or Path.cwd())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def _inside(place: Any, name: str, where: str) -> Any:
    for part in name.split("."):
        if not hasattr(place, part):
            import difflib

            names = [n for n in vars(place) if not n.startswith("_")]
            close = difflib.get_close_matches(part, names, 3)
            raise SourceError(
                f"{where} has no {part}",
                hint=f"it has {', '.join(close or names[:8])}" if names else None,
            )
        place = getattr(place, part)
    return place
