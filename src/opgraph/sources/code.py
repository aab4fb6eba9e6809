"""A user's own models: code (`model.py:build` or `package.module:Class`), called with the arguments asked
for, and a module that the caller already has, taken as it is, out of the wrappers that hide it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError, beside, did_you_mean
from opgraph.sources.base import BuildOptions, Model, without_arguments

if TYPE_CHECKING:
    from torch import nn


_FILE = re.compile(r"(?P<home>.+\.py):(?P<name>[\w.]+)")
_PACKAGE = re.compile(r"(?P<home>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")


class CodeSource:
    """A module object, a class of one, or a function that returns one, by where it stands."""

    name = "code"

    def claims(self, spec: str) -> bool:
        if _FILE.fullmatch(spec):
            return True
        found = _PACKAGE.fullmatch(spec)
        return found is not None and _importable(found["home"].partition(".")[0])

    def names(self) -> Mapping[str, str]:
        return {}

    def build(self, spec: str, options: BuildOptions) -> Model:
        from torch import nn

        from opgraph.sources.building import assemble
        from opgraph.sources.locations import raised_at
        from opgraph.sources.pipelines import Pipelined, is_schedule

        found = _FILE.fullmatch(spec) or _PACKAGE.fullmatch(spec)
        if found is None:
            raise SourceError(
                f"{spec} is not code", hint="write model.py:build, or package.module:Class"
            )
        try:
            home = _load(found["home"])
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{found['home']} cannot be imported{raised_at(error)}") from error
        made = _inside(home, found["name"], found["home"])
        if is_schedule(made):
            made = Pipelined(made)
        if isinstance(made, nn.Module):
            without_arguments(options, f"{spec}, a module that is built already,")
            model = from_module(made)
            return replace(model, info=replace(model.info, name=spec, source=self.name))
        if not callable(made):
            raise SourceError(f"{spec} is {type(made).__name__}, not a module or what makes one")

        def construct() -> nn.Module:
            module = made(**options.arguments)
            if is_schedule(module):
                return Pipelined(module)
            if not isinstance(module, nn.Module):
                parts = module if isinstance(module, (tuple, list)) else ()
                at = next((i for i, part in enumerate(parts) if isinstance(part, nn.Module)), None)
                raise SourceError(
                    f"{spec} returned {type(module).__name__}, not a torch.nn.Module",
                    hint=None
                    if at is None
                    else f"write a function that returns {found['name']}()[{at}]",
                )
            return module

        return assemble(construct, name=spec, source=self.name, dtype=options.dtype)


def _importable(package: str) -> bool:
    with here():
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            return False


def _load(home: str) -> Any:
    if not home.endswith(".py"):
        with here():
            return importlib.import_module(home)
    path = Path(home).resolve()
    if not path.is_file():
        raise SourceError(f"there is no file {home}", hint=beside(home))
    name = path.stem if _is_free(path.stem) else f"{path.stem}_py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{home} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    _make_way(path.parent)
    before, sys.modules[name] = sys.modules.get(name), module
    try:
        with here(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # as Python does with what it cannot import
        if before is not None:
            sys.modules[name] = before
        raise
    if before is not None:
        _ASIDE.setdefault(name, before)
    return module


_ASIDE: dict[str, Any] = {}
"""Modules of a person's own in whose place there are others of their names."""


@contextmanager
def modules_apart() -> Iterator[None]:
    """Within, a file that is loaded imports what is in its folder, whatever else was imported by that name.
    That is there again afterwards; what is new stays."""
    outer = dict(_ASIDE)
    _ASIDE.clear()
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] in _ASIDE] if _ASIDE else ():
            del sys.modules[name]
        sys.modules.update(_ASIDE)
        _ASIDE.clear()
        _ASIDE.update(outer)


def _make_way(folder: Path) -> None:
    """Put modules of a person's own aside that have the name of one in a folder, and are others."""
    here = {p.stem for p in folder.iterdir() if p.suffix == ".py" or p.is_dir()}
    own = [name for name, module in list(sys.modules.items()) if _is_own(name, module)]
    for name in own:
        inside = Path(_where(sys.modules[name])).resolve().is_relative_to(folder)
        if name.partition(".")[0] in here and not inside:
            _ASIDE.setdefault(name, sys.modules.pop(name))


def _is_own(name: str, module: Any) -> bool:
    """Whether a module is none of Python's, of an installed package, or of opgraph."""
    where = _where(module)
    return (
        bool(where)
        and name.partition(".")[0] not in ("opgraph", "__main__")
        and not ("-packages" in where or Path(where).is_relative_to(_STANDARD))
    )


def _where(module: Any) -> str:
    """The file of a module, or the folder of a package that has none; empty where it is made otherwise."""
    found = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return found if isinstance(found, str) else ""


_STANDARD = Path(os.__file__).parent


def _is_free(stem: str) -> bool:
    """Whether no module of Python's or of an installed package has a name: a file by it would be theirs."""
    if stem in sys.stdlib_module_names:
        return False
    found = sys.modules.get(stem)
    if found is not None:
        return _is_own(stem, found)
    try:
        spec = importlib.util.find_spec(stem)
    except (ImportError, ValueError):
        return True
    return spec is None or "-packages" not in (spec.origin or "")


@contextmanager
def here(folder: Path | None = None) -> Iterator[None]:
    """The folder of the code (or the current one) is looked in for what it imports."""
    entry = str(folder or Path.cwd())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def _inside(home: Any, name: str, where: str) -> Any:
    for part in name.split("."):
        if not hasattr(home, part):
            names = [n for n in vars(home) if not n.startswith("_")]
            own = getattr(home, "__name__", None)  # what it defines before what it imports
            names.sort(key=lambda n: getattr(getattr(home, n), "__module__", None) != own)
            hint = did_you_mean(part, names) or (
                f"it has {', '.join(names[:8])}" if names else None
            )
            raise SourceError(f"{where} has no {part}", hint=hint)
        home = getattr(home, part)
    return home


def from_module(module: nn.Module) -> Model:
    """The module itself, or the stages of a schedule: neither copied nor changed. Raises `SourceError` for
    what is neither."""
    from opgraph.record.profile import ModelInfo
    from opgraph.sources.pipelines import Pipelined, is_schedule

    if is_schedule(module):
        module = Pipelined(module)
    _ensure_module(module)
    inner, notes = _unwrap(module)
    cls = type(inner)
    if isinstance(inner, Pipelined):
        notes += (inner.says,)
        cls = type(inner.parts[0].submod)

    return Model(
        module=inner,
        info=ModelInfo(cls.__name__, "object", f"{cls.__module__}.{cls.__qualname__}", notes),
        config=getattr(inner, "config", None),
        hints={},
        materialize=None,
    )


def _ensure_module(thing: Any) -> None:
    from torch import nn

    if isinstance(thing, nn.Module):
        return
    if isinstance(thing, type):
        name = thing.__name__
        raise SourceError(f"{name} is a class, and no model yet", hint=f"make one of it: {name}()")
    raise SourceError(
        f"{thing!r:.80} is of the type {type(thing).__name__}, and no model",
        hint="a model is a torch.nn.Module, or the name of one",
    )


def _unwrap(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    from torch import nn

    from opgraph.sources.ranks import current

    notes: tuple[str, ...] = ()
    while True:
        if type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            notes += ("out of torch.compile",)
            module = module._orig_mod
        elif isinstance(module, nn.DataParallel) or (
            isinstance(module, nn.parallel.DistributedDataParallel) and current() is None
        ):
            notes += (f"out of {type(module).__name__}",)
            module = module.module
        elif _has_adapters(module):
            notes += ("with its adapters in place",)
            module = module.get_base_model()
        else:
            return module, notes


def _has_adapters(module: nn.Module) -> bool:
    """Whether it is peft's wrapper around a model whose layers it has replaced (LoRA and kin). Wrappers
    that put a prompt before the input do work of their own, and stay."""
    wrapped = type(module).__module__.startswith("peft.")
    return wrapped and not getattr(module.active_peft_config, "is_prompt_learning", False)
