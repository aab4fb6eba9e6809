"""From a constructor to a `Model`: weightless where the constructor allows it, for real where not, and
always with the caller's random state, warnings and default dtype left alone."""

from __future__ import annotations

import inspect
import logging
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import torch
from torch import nn

from opgraph.options import OPTIONS
from opgraph.record.errors import OpgraphError, SourceError, did_you_mean
from opgraph.record.profile import ModelInfo
from opgraph.sources.base import Model
from opgraph.sources.locations import raised_at
from opgraph.sources.weightless import settle, weightless

MOST_REAL = 4 * 2**30
"""Bytes of weights above which a model whose constructor fails without them is not tried with them."""


def dtype_of(name: str | None) -> torch.dtype | None:
    """The torch dtype of a name such as "bfloat16"; None for None. Raises `InputError`."""
    return None if name is None else getattr(torch, OPTIONS["dtype"].check(name))


def assemble(
    construct: Callable[[], nn.Module],
    *,
    name: str,
    source: str,
    dtype: str | None = None,
    config: Any = None,
    hints: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Model:
    """Run `construct` without allocating weights where that works, and wrap up the result.

    Raises `SourceError` with the constructor's own reason when it fails.
    """
    target = dtype_of(dtype)

    def real() -> nn.Module:
        return _finish(construct, target)

    try:
        module = _lightest(construct, target)
    except OpgraphError:
        raise
    except Exception as error:
        hint = _argument(error)
        raise SourceError(f"{name} cannot be built{raised_at(error)}", hint=hint) from error
    cls = type(module)
    info = ModelInfo(name, source, f"{cls.__module__}.{cls.__qualname__}", notes)
    return Model(module, info, config, dict(hints or {}), real)


_UNEXPECTED = re.compile(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")


_MISSING = re.compile(r"\(\) missing \d+ required [\w-]+ arguments?: (.*)")


def _argument(error: Exception) -> str | None:
    """How to give the arguments that a constructor misses, or what is near to one that it does not take, by
    the signature of that constructor, which is among the names where it was called."""
    if not isinstance(error, TypeError):
        return None
    missing = _MISSING.search(str(error))
    if missing is not None:
        return " ".join(f"--model-arg {name}=VALUE" for name in re.findall(r"'(\w+)'", missing[1]))
    said = _UNEXPECTED.search(str(error))
    if said is None:
        return None
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for value in (*frame.f_locals.values(), *frame.f_globals.values()):
            if callable(value) and getattr(value, "__name__", None) == said[1]:
                return did_you_mean(said[2], inspect.signature(value).parameters)
    return None


def _lightest(construct: Callable[[], nn.Module], dtype: torch.dtype | None) -> nn.Module:
    """Without weights; where the constructor runs a forward, with pretended ones; where it reads the
    weights' values, with real ones, if they are not too many. One that fails in the same words both ways,
    and not torch's, fails by itself."""
    said: set[str] = set()
    for pretend in (False, True):
        try:
            with weightless(pretend=pretend) as moved:
                module = _finish(construct, dtype)
        except OpgraphError:
            raise
        except Exception as error:
            words = repr(error)
            if moved.bytes > MOST_REAL or (words in said and not isinstance(error, RuntimeError)):
                raise
            said.add(words)
        else:
            settle(module)
            return module
    return _finish(construct, dtype)


def _finish(construct: Callable[[], nn.Module], dtype: torch.dtype | None) -> nn.Module:
    with undisturbed():
        module = construct().eval()
        return module.to(dtype) if dtype is not None else module


@contextmanager
def undisturbed(seed: int = 0) -> Iterator[None]:
    """A seeded random state and silence inside; outside, everything as it was."""
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numbers = numpy.random.get_state() if numpy else None
    default = torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]), quietly():
            torch.default_generator.manual_seed(seed)  # and not those of devices
            yield
    finally:
        random.setstate(python)
        if numpy:
            numpy.random.set_state(numbers)
        torch.set_default_dtype(default)


@contextmanager
def quietly() -> Iterator[None]:
    """Nothing is logged below an error, and no warning is shown."""
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
