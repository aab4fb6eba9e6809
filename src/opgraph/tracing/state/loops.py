"""What a forward gives to a loop of asyncio to run later: it would run when the forward is over, on tensors
that have no values. It is called off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from typing import Any

from opgraph.record.identity import identity
from opgraph.record.remarks import is_apart
from opgraph.tracing.state.holding import loaded
from opgraph.tracing.state.steps import Left, Undone


def around() -> Iterator[Any]:
    """The loop that runs in this thread, and what makes loops, if there are any: code needs no name for
    them."""
    events = loaded("asyncio.events")
    if events is not None:
        found = events._get_running_loop(), getattr(events, "_event_loop_policy", None)
        yield from (each for each in found if each is not None)


class Waiting:
    """What waits in a loop as a run begins."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._handles, self._tasks = loop, _handles(loop), _tasks(loop)

    def back(self, alone: Callable[[], bool]) -> None:
        """Call off what the run has put there since."""
        loop, events = self._loop, loaded("asyncio.events")
        running = events._get_running_loop()
        new, gone = _beside(_handles(loop), self._handles), _beside(self._handles, _handles(loop))
        given = [handle for handle in new if _is_given(handle)]
        if loop.is_running() and running is not loop:  # another thread goes through them
            if given:
                raise Left(f"forward gave something to a loop of another thread ({_name(loop)})")
            return
        tasks = _beside(_tasks(loop), self._tasks)
        events._set_running_loop(loop)
        try:
            for task in tasks:
                _call_off(loop, task)
        finally:
            events._set_running_loop(running)
        for handle in _beside(_handles(loop), self._handles):
            if _is_given(handle) and not _is_of_task(handle):  # by which one that has begun is told
                handle.cancel()
        if tasks or given:
            raise Undone(
                "what forward gave a loop of asyncio to run later is not run, and in no total"
            )
        if (gone or not all(is_apart(h._context) for h in new)) and alone():
            raise Left(f"forward changed what waits in a loop of asyncio ({_name(loop)})")


def _is_given(handle: Any) -> bool:
    """Whether a run put it there, and not a future that tells another of its result."""
    tells = getattr(handle._callback, "__module__", None) == "asyncio.futures"
    return is_apart(handle._context) and not tells


def _handles(loop: Any) -> list[Any]:
    """What a loop of Python's runs next, or at a time."""
    found = (*getattr(loop, "_ready", ()), *getattr(loop, "_scheduled", ()))
    kind = loaded("asyncio.events").Handle
    return [handle for handle in found if isinstance(handle, kind) and not handle.cancelled()]


def _tasks(loop: Any) -> list[Any]:
    return list(loaded("asyncio.tasks").all_tasks(loop))


def _call_off(loop: Any, task: Any) -> None:
    """End a task: at once, with what it holds, if it has not begun, for no code of it runs then."""
    tasks = loaded("asyncio.tasks")
    task.cancel()
    steps = [h for h in _handles(loop) if getattr(h._callback, "__self__", None) is task]
    made = task.get_coro()
    if not steps or not iscoroutine(made) or getcoroutinestate(made) != CORO_CREATED:
        return
    current = tasks.current_task(loop)
    if current is not None:
        tasks._leave_task(loop, current)
    try:
        steps[0]._run()
        steps[0].cancel()
    finally:
        if current is not None:
            tasks._enter_task(loop, current)


def _is_of_task(handle: Any) -> bool:
    owner = getattr(handle._callback, "__self__", None)
    return isinstance(owner, loaded("asyncio.tasks").Task) and not owner.done()


def _beside(some: list[Any], others: list[Any]) -> list[Any]:
    """Those that are not among others."""
    known = set(map(identity, others))
    return [each for each in some if identity(each) not in known]


def _name(loop: Any) -> str:
    return type(loop).__qualname__
