"""Where a run exchanges something with other ranks for real, those meet before: what one rank sends alone
meets what the others exchange next, and they would compute with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

PATIENCE = timedelta(minutes=1)
"""For how long other processes are waited for."""
_LOOK = 0.005
"""Seconds between two looks at whether all are there."""
_GRACE = 0.5
"""Seconds after which it shows that the last one came as the wait ended."""


@contextmanager
def waits_once() -> Iterator[None]:
    """Within, ranks that did not come to one attempt are not waited for in the next."""
    token = _in_vain.set({})
    try:
        yield
    finally:
        _in_vain.reset(token)


_in_vain: ContextVar[dict[str, str]] = ContextVar("waited for in vain")


def met(group: Any) -> str | None:
    """Wait until every rank of a process group is here, by the store that the group has; for a minute, or
    half as long as the group itself waits if that is less. What is to be said where some do not come."""
    known = _in_vain.get({})
    name = str(group.group_name)
    if name not in known and (lacking := _waited(group)) is not None:
        known[name] = lacking
    return known.get(name)


def _waited(group: Any) -> str | None:
    """Each that comes counts itself; the last one says that all are there, and that the next meeting is
    another. Who has waited in vain takes itself out again, so that a later meeting finds none of this."""
    from torch.distributed.distributed_c10d import _get_process_group_store

    size = group.size()
    try:
        store = _get_process_group_store(group)
    except (KeyError, ValueError):  # of a group that was made by hand
        return None
    if size < 2:
        return None
    number = store.add("opgraph/meetings", 0)
    here, there = f"opgraph/{number}/here", f"opgraph/{number}/there"
    if store.add(here, 1) == size:
        store.add("opgraph/meetings", 1)
        store.set(there, b"1")
        return None
    patience = min(PATIENCE, _timeout(group) / 2).total_seconds()
    end = monotonic() + patience
    came = None
    try:
        while not store.check([there]):
            if came is None and monotonic() > end:
                came, end = store.add(here, -1) + 1, end + _GRACE
            elif monotonic() > end:
                return (
                    f"the forward exchanges tensors with other ranks, and of the {size} of their group "
                    f"{came} came to it within {patience:.0f} seconds: do this on every rank"
                )
            sleep(_LOOK)
    except BaseException:  # an interrupt
        if came is None:
            store.add(here, -1)
        raise
    return None


def _timeout(group: Any) -> timedelta:
    """How long a group waits for an exchange to end."""
    found = [2 * PATIENCE]
    for device in group._device_types:
        with suppress(AttributeError, RuntimeError):  # a back end that does not say it
            found.append(group._get_backend(device).options._timeout)
    return min(found)
