"""Kinds of arguments of the command line: from what a person types to a value, or to what is wrong."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def single(kind: Callable[[str], T]) -> Callable[[str], Any]:
    return kind


def listed(kind: Callable[[str], T]) -> Callable[[str], Any]:
    """A type of argument: values of one type, separated by commas."""

    def parse(text: str) -> list[T]:
        return [kind(part.strip()) for part in text.split(",")]

    parse.__name__ = f"list of {kind.__name__}"
    return parse


def positive(text: str) -> int:
    """A whole number of at least 1, as a type of argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text:.40} is not a whole number of at least 1")
    return number


def positive_amount(text: str) -> float:
    """Seconds or GiB, as a type of argument: a number above 0 that the system can be told."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST:  # nor is nan
        raise argparse.ArgumentTypeError(f"{text:.40} is not a number above 0, up to {_MOST:,}")
    return number


_MOST = 1_000_000
"""More seconds or GiB overflow the counters of the system."""


def parse_shape(text: str) -> tuple[int, ...]:
    """1x3x224x224, 1,3,224,224 or "1 3 224 224". Raises ValueError."""
    parts = [p for p in re.split(r"[x×,\s]+", text.strip().strip("()[]")) if p]
    sizes = tuple(map(int, parts))
    if not sizes or min(sizes) < 1:
        raise ValueError(f"{text!r} is not a shape")
    return sizes


def shape(text: str) -> tuple[int, ...]:
    try:
        return parse_shape(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape; write it like 1x3x224x224"
        ) from None


def image_size(text: str) -> tuple[int, int]:
    sizes = shape(text)
    if len(sizes) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not an image size; write 224 or 480x640")
    return sizes[0], sizes[-1]
