"""What is given to a model is asked what it is, and taken apart, before anything runs: where code of
somebody's own does that (how pytree takes a class apart, a property), that is guarded as a run is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opgraph.record.identity import identity
from opgraph.tracing.state.guard import guarded


@contextmanager
def asking(*items: Any) -> Iterator[None]:
    """Within, these may be asked what they are, and all is as before."""
    if _are_plain(items):
        yield
        return
    with guarded(items):
        yield


def _are_plain(items: tuple[Any, ...]) -> bool:
    """Whether only code of Python's, torch's and NumPy's says what these are."""
    seen: set[int] = set()
    ahead: list[Any] = [*items]
    while ahead:
        item = ahead.pop()
        kind = type(item)
        if kind.__module__.partition(".")[0] not in _KNOWN:
            return False
        if kind in _HOLDERS and identity(item) not in seen:
            seen.add(identity(item))
            ahead += item.values() if kind is dict else item
    return True


_KNOWN = frozenset({"builtins", "torch", "numpy"})
_HOLDERS = (dict, list, tuple)
