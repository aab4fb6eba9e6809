"""All is brought back in steps, each by itself; what could not be is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opgraph.record.errors import first_line
from opgraph.record.remarks import Remark


class Left(Exception):
    """What a forward did that cannot be taken back, in words."""


class Undone(Left):
    """What a forward asked for and is not done, in words: it is in no total."""


class Gone(list[Any]):
    """What there was in the place of what is there again."""


Step = tuple[Iterable[Any], Callable[[Any], Any]]
"""Some things, and how each of them is brought back."""


def all_back(*steps: Step, gone: list[Any] | None = None) -> list[Remark]:
    """Bring back each of the things in these steps by itself, whatever another raises; those that raise
    once more at the end, when what they go by is as it was. What is to be said of those that could not be.
    What was in the place of something is added to what is `gone`, so that it ends when all is back.
    """
    left, failed = [], []
    held = [] if gone is None else gone
    for items, back in steps:
        for item in list(items):
            error = _raised(back, item, held)
            if isinstance(error, Left):
                left.append(error)
            elif error is not None:
                failed.append((back, item))
    again = [_raised(back, item, held) for back, item in failed]
    return [_unrestored(error) for error in (*left, *again) if error is not None]


def _raised(back: Callable[[Any], Any], item: Any, gone: list[Any]) -> BaseException | None:
    try:
        if type(found := back(item)) is Gone:
            gone += found
    except BaseException as error:  # noqa: BLE001  (the others are to be brought back all the same)
        return error
    return None


def _unrestored(error: BaseException) -> Remark:
    if isinstance(error, Undone):
        return Remark("not-counted", str(error))
    if isinstance(error, Left):
        return Remark("state", f"{error}: that cannot be taken back")
    return Remark("state", f"not all is as it was before the run: {first_line(error)}")
