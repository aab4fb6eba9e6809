"""Signals wait while what a forward may change is noted or brought back."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import CodeType, MethodType
from typing import Any, ClassVar, NoReturn
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import torch

SIGNALS = tuple(signal.valid_signals())
_get, _put = _signal.getsignal, _signal.signal
"""By these there is something in the place of a person's own handlers, whoever asks for these by name."""


class Signalled(BaseException):
    """Carries what a handler of a person's has raised through code that is not theirs: no `except
    Exception` on its way takes it. Where that code ends, the error itself is raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def add_note(self, note: str) -> None:
        self.error.add_note(note)


def _nothing(_: int) -> AbstractContextManager[None]:
    return nullcontext()


class Signals:
    """From its making until its `end`, what signals do in Python, an interrupt by the person above all,
    waits, but while the model itself runs, or opgraph does, which is while it is `let` through. Where
    Python would drop what a handler raises, it waits for `deliver`."""

    _around: ClassVar[list[Signals]] = []
    """Those that have begun and not ended, of the thread that handles signals."""
    _carried: ClassVar[list[BaseException]] = []
    """What a handler has raised that is on its way, or was, if somebody took that."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Any]] = []
        self._let = False
        self.aside = False  # whether what runs is no part of the forward
        self._plain = False  # what is let through is raised as it is
        self.raised: BaseException | None = None  # by one of them
        self.tell()
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            found = {n: _get(n) for n in SIGNALS}
            self._handlers = {n: handler for n, handler in found.items() if callable(handler)}
        self._actions = {number: _action(number) for number in self._handlers}
        if self._handlers:
            self._around.append(self)
            _signal.getsignal, _signal.signal = handler_of, handle_by
        try:
            for number in self._handlers:
                _put(number, self._heard)
        except BaseException:  # one came before its turn
            self.end()
            raise

    def tell(self, around: Callable[[int], AbstractContextManager[None]] = _nothing) -> None:
        """From now on the handler of a signal runs within what is `around` it."""
        self._around_handler = around

    @contextmanager
    def kept_waiting(self, *, but: bool = False) -> Iterator[bool]:
        """Within, they wait, `but` where they are let through again. Whether they were until now."""
        let, self._let = self._let, but
        try:
            yield let
        finally:
            self._let = let

    def _heard(self, number: int, frame: Any) -> None:
        self.waiting.append((number, frame))
        if self._let and not _is_dropped(frame):
            self.deliver()

    def deliver(self) -> None:
        """Handle all that wait, and raise what a handler has raised: of several, with the others in its
        context, the last one's, as in Python: in the thread that handles signals."""
        if threading.current_thread() is threading.main_thread():
            self._deliver(plain=self._plain)

    def _deliver(self, *, plain: bool) -> None:
        while self.waiting:
            number, frame = self.waiting.pop(0)
            if _is_dropped(frame):
                frame = sys._getframe(1)
            try:
                self._handle(number, frame)
            except BaseException as error:  # noqa: BLE001  (it is raised below)
                own = self.raised = _itself(error)
                self._carried.clear()
                self._deliver(plain=plain)
                _again(own) if plain else self._carry(own)

    def _handle(self, number: int, frame: Any) -> None:
        """Call a handler. Further signals wait while what is around that begins and ends."""
        with (
            self.kept_waiting() as let,
            self._around_handler(number),
            self.kept_waiting(but=let),
        ):
            self._handlers[number](number, frame)

    def _carry(self, error: BaseException) -> NoReturn:
        if isinstance(error, KeyboardInterrupt):  # which nobody takes by chance
            _again(error)
        self._carried[:] = (error,)
        raise Signalled(error) from error

    @contextmanager
    def let(self, *, plain: bool = True) -> Iterator[None]:
        """Within, they are let through, as they are where a model runs: it may expect what its own handler
        raises. Elsewhere, as behind that, nobody takes what one raises."""
        before, self._let, self._plain = (self._let, self._plain), True, plain
        try:
            self.deliver()
            yield
        except BaseException as error:
            if self.raised is not None and any(e is self.raised for e in _led_to(error)):
                self._carry(self.raised)
            raise
        finally:
            self._let, self._plain = before

    def end(self) -> None:
        """They do what they did before, and what waited is done. What a handler has raised in all this time
        is raised, whoever took it."""
        for number, handler in self._handlers.items():
            if _get(number) == self._heard:  # the model may have put another in its place
                _put(number, handler)
                if self._actions.get(number) is not None:
                    _sigaction(number, self._actions[number], None)
        if self in self._around:
            self._around.remove(self)
        if not self._around:
            _signal.getsignal, _signal.signal = _get, _put
        plain = not self._around or self._around[-1]._plain
        self._deliver(plain=plain)
        if self._handlers and plain and self._carried:
            _again(self._carried.pop())


def handler_of(number: int) -> Any:
    """What handles a signal, as who asks is told: a person's own handler, for he may call it ever after."""
    return _persons(number, _get(number))


def handle_by(number: int, handler: Any) -> Any:
    """Set what does, and say what did. One that was there before the run, and is put back, waits as before,
    and so does one that is set aside of the forward, and stays."""
    before, around = handler_of(number), Signals._around
    if around and around[-1].aside and threading.current_thread() is threading.main_thread():
        _adopt(number, handler)
    elif (
        around and number in around[-1]._handlers and handler is _persons(number, around[-1]._heard)
    ):
        _put(number, around[-1]._heard)
    else:
        _put(number, handler)
    return before


def _adopt(number: int, handler: Any) -> None:
    waits: Any = handler
    for each in Signals._around:
        if callable(handler):
            each._handlers[number], waits = waits, each._heard
        else:
            each._handlers.pop(number, None)
    _put(number, waits)


def _persons(number: int, handler: Any) -> Any:
    while type(handler) is MethodType and type(handler.__self__) is Signals:
        handler = handler.__self__._handlers.get(number)
    return handler


def _led_to(error: BaseException) -> list[BaseException]:
    """An error with those that it was made of, or came of."""
    found = [error]
    for each in found:
        for before in (each.__cause__, each.__context__):
            if before is not None and all(before is not other for other in found):
                found.append(before)
    return found


def _itself(error: BaseException) -> BaseException:
    return error.error if isinstance(error, Signalled) else error


def _again(error: BaseException) -> NoReturn:
    """Raise an error in the context that it has."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


@contextmanager
def held() -> Iterator[Signals]:
    """Within, signals wait, unless they are `let` through."""
    signals = Signals()
    try:
        yield signals
    finally:
        signals.end()


def at_work() -> AbstractContextManager[None]:
    """Within, opgraph itself works for long while a model runs, and takes what is raised: but for what a
    handler of signals raises."""
    around = Signals._around[-1:] if threading.current_thread() is threading.main_thread() else []
    return around[0].let(plain=False) if around and around[0]._let else nullcontext()


ASKED = frozenset({torch.ops.prim.device.default, torch.ops.prim.layout.default})
"""What torch asks of a fake tensor, as an operator: autograd does so where no error may leave its C++ code,
and would end the process."""
_ANSWER = frozenset({"__torch_dispatch__", "find_torch_dispatch_rule"})
"""Functions of Python's that torch calls for an operator."""
DROPPED: set[CodeType] = {
    code
    for cls in (WeakKeyDictionary, WeakSet, WeakValueDictionary)
    for code in vars(cls)["__init__"].__code__.co_consts
    if type(code) is CodeType
}
"""The code in which what is raised is dropped, as by Python where it calls that because something is freed,
or would leave a half of what goes together: signals wait for as long."""


def _is_dropped(frame: Any) -> bool:
    while frame is not None and frame.f_code not in DROPPED and not _answers(frame):
        frame = frame.f_back
    return frame is not None


def _answers(frame: Any) -> bool:
    """Whether a function says what torch asked."""
    if frame.f_code.co_name not in _ANSWER:
        return False
    return any(value is asked for value in frame.f_locals.values() for asked in ASKED)


_sigaction: Any = None
"""What says and sets what the system does at a signal: beside Python's handler there may be one made in C,
and whether calls are interrupted."""
with suppress(OSError, AttributeError, TypeError):  # Windows
    _sigaction = ctypes.CDLL(None).sigaction


def _action(number: int) -> bytes | None:
    """What that is; it may be padded with whatever there was."""
    if _sigaction is None:
        return None
    found = ctypes.create_string_buffer(_MOST_OF_AN_ACTION)
    _sigaction(number, None, found)
    return found.raw


_MOST_OF_AN_ACTION = 256
"""Bytes: 152 by glibc, fewer elsewhere."""
