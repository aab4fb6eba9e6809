"""Work that a forward hands to other threads. Torch's modes and the stack of module calls are those of one
thread, so whatever a run starts or submits to a pool takes them along."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from opgraph.record.turns import helping, holder, replaced
from opgraph.tracing.state.others import serves
from opgraph.tracing.state.process import on_in_thread, put_on_in_thread

_PATIENCE = 2.0
"""Seconds that a run waits, after the model has returned, for threads that are still at work."""


class HandedOver:
    """What is handed to threads within `following`: `left` is how much was not done when the model had
    returned and a while had passed.

    `follow` gives, in the thread that hands over, the context in which the other one works; `forgiven` says
    which errors of a thread's own need not be shown.
    """

    def __init__(
        self,
        follow: Callable[[], AbstractContextManager[None]],
        forgiven: Callable[[BaseException], bool],
    ) -> None:
        self.left = 0
        self._follow = follow
        self._forgiven = forgiven
        self._ours = {threading.get_ident()}
        self._for = holder()
        self._threads: list[threading.Thread] = []
        self._futures: list[Future[Any]] = []
        self._states: dict[threading.Thread, tuple[Context, list[Any]]] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within, threads that this one starts follow it, and so do calls that it submits; theirs, too."""
        start, submit = threading.Thread.start, ThreadPoolExecutor.submit

        def started(other: threading.Thread) -> None:
            if threading.get_ident() in self._ours and not serves(other):
                vars(other)["run"] = self._carried(self._quiet(other))
                self._threads.append(other)
            start(other)

        def submitted(
            pool: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **kwargs: Any
        ) -> Future[Any]:
            if threading.get_ident() not in self._ours:
                return submit(pool, call, *args, **kwargs)
            carried = partial(self._apart, self._carried(call))
            self._futures.append(submit(pool, carried, *args, **kwargs))
            return self._futures[-1]

        try:
            with (
                replaced(threading.Thread, "start", started),
                replaced(ThreadPoolExecutor, "submit", submitted),
            ):
                yield
                self._await()
        finally:
            for each in (self._threads, self._futures, self._states):
                each.clear()

    def _await(self) -> None:
        for other in self._threads:
            other.join(_PATIENCE)
        undone = wait(self._futures, _PATIENCE).not_done if self._futures else ()
        self.left = sum(t.is_alive() for t in self._threads) + len(undone)

    def _carried(self, call: Callable[..., Any]) -> Callable[..., Any]:
        context = self._follow()

        def run(*args: Any, **kwargs: Any) -> Any:
            me = threading.get_ident()
            if me in self._ours:
                return call(*args, **kwargs)
            self._ours.add(me)
            try:
                with helping(self._for), context:
                    return call(*args, **kwargs)
            finally:
                self._ours.discard(me)

        return run

    def _apart(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A call in a thread of a pool, which lives on: what a run sets there for all that computes in it
        later, and in context variables, is so for the run's own calls alone."""
        if threading.get_ident() in self._ours:
            return call(*args, **kwargs)
        me, before = threading.current_thread(), on_in_thread()
        context, on = self._states.get(me) or (copy_context(), before)
        put_on_in_thread(on)
        try:
            return context.run(call, *args, **kwargs)
        finally:
            self._states[me] = context, on_in_thread()
            put_on_in_thread(before)

    def _quiet(self, other: threading.Thread) -> Callable[[], None]:
        run = other.run

        def called() -> None:
            vars(other).pop("run", None)
            try:
                run()
            except BaseException as error:
                if not self._forgiven(error):
                    raise

        return called
