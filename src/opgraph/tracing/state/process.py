"""The state of the process that a forward can change: random numbers, settings of torch and numpy, the
environment."""

from __future__ import annotations

import _locale
import gc
import locale
import logging
import operator
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from copy import copy
from functools import partial
from itertools import chain
from multiprocessing.process import current_process
from operator import attrgetter
from types import NoneType
from typing import Any

import torch
from torch import _guards
from torch._C import DispatchKey
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._library.simple_registry import singleton
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch as dispatching

from opgraph.record.remarks import leave
from opgraph.record.turns import turn
from opgraph.tracing.state.holding import MISSING, loaded, same_entries, table_of
from opgraph.tracing.state.loops import around
from opgraph.tracing.state.others import undisturbed
from opgraph.tracing.state.packages import is_put
from opgraph.tracing.state.randoms import Drawn, draw_on, drawn, drawn_by_python
from opgraph.tracing.state.signals import SIGNALS, handle_by, handler_of, held
from opgraph.tracing.state.speaking import (
    context_back,
    logger_back,
    logger_says,
    text_back,
    text_says,
)
from opgraph.tracing.state.steps import Left, all_back
from opgraph.tracing.state.undoing import stays

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""How something is found out, and how it is set."""
Kept = tuple[Callable[[], Any], Callable[[Any], Any], Any]
"""The same, and what it was."""


class Settings:
    """All of it as it is now, but for what does not say: torch's older switches of precision, where one of
    the newer ones is set."""

    __slots__ = ("_before", "_gets", "_puts")

    def __init__(self) -> None:
        self._gets, self._puts = _settings()
        self._before: list[Any] = []
        with suppress(RuntimeError, AttributeError):
            self._before = [get() for get in self._gets]
            return
        found = []
        for get, put in zip(self._gets, self._puts, strict=True):
            with suppress(RuntimeError, AttributeError):
                found.append((get, put, get()))
        self._gets, self._puts, before = zip(*found, strict=True)
        self._before = list(before)

    def changed(self) -> list[Kept]:
        """What is to be set back: nothing, or all of it, unless it surely is as it was, for to set one may
        change another, but for what torch notes, which comes last. So the older switches of precision do
        with the newer ones, which come again."""
        kept = list(zip(self._gets, self._puts, self._before, strict=True))
        try:
            now, before = [get() for get in self._gets], self._before
            if now == before:
                return []
            if getattr(self._gets[-1], "func", None) is _notes and now[:-1] == before[:-1]:
                return kept[-1:]
        except BaseException:  # noqa: BLE001  (the model may have replaced what says so)
            pass
        return kept + kept[: len(_PRECISE)]

    def add(self, imported: Iterable[str]) -> None:
        """Those that modules have which were imported since are as they are now."""
        for get, put in _if_imported(imported):
            with suppress(RuntimeError, AttributeError):
                self._before.insert(-1, get())  # what torch notes is the last
                self._gets = (*self._gets[:-1], get, self._gets[-1])
                self._puts = (*self._puts[:-1], put, self._puts[-1])

    def now(self) -> list[Any]:
        """What each of them is, where it says so."""
        return [_said(get) for get in self._gets]

    def let_stay(self, then: list[Any]) -> None:
        """What was changed since `then` is so as if it had been before; of what consists of many things, as
        the environment does, those that were, and of the rest what nobody had changed by then."""
        new = range(len(then) - 1, len(self._before) - 1)  # see `add`
        self._before[new.start : new.stop] = [_said(self._gets[at]) for at in new]
        then = then[:-1] + [MISSING] * len(new) + then[-1:]
        for at, (get, was, before) in enumerate(zip(self._gets, then, self._before, strict=True)):
            now = _said(get)
            if now is was or now is MISSING or was is MISSING or _equal(now, was):
                continue
            if _equal(before, was):
                self._before[at] = now
            elif type(now) is Context:
                self._before[at] = before.copy()
                for variable, value in changed(was, now).items():
                    self._before[at].run(variable.set, value)
            elif type(now) is tuple and now and type(now[0]) is frozenset:  # names of loggers
                self._before[at] = (before[0] | (now[0] - was[0]), *before[1:])
            elif not type(before) is type(was) is type(now) is list:
                continue
            elif all(type(each) is tuple and len(each) == 2 for each in (*before, *was, *now)):
                entries = dict(before)  # the environment
                stays(entries, dict(was), dict(now))
                self._before[at] = list(entries.items())
            elif len(before) == len(was) == len(now):
                each_of = zip(before, was, now, strict=True)
                self._before[at] = [b if _equal(w, n) else n for b, w, n in each_of]
            else:
                self._before[at] = [
                    *(each for each in before if each in now or each not in was),
                    *(each for each in now if each not in was),
                ]


def changed(then: Context, now: Context) -> dict[ContextVar[Any], Any]:
    """The variables that are others, or new, with what they are."""
    return {v: value for v, value in now.items() if then.get(v, MISSING) is not value}


def _said(get: Callable[[], Any]) -> Any:
    with suppress(RuntimeError, AttributeError):
        return get()
    return MISSING


def set_back(kept: Kept) -> None:
    """Bring one of these back to what it was. Raises where that cannot be."""
    get, put, before = kept
    try:
        now = get()
    except RuntimeError:  # an older switch of precision, where the newer ones were set back already
        put(before)
        return
    if now is not before and not _equal(now, before):
        put(before)


@contextmanager
def put_back(*also: AbstractContextManager[Any]) -> Iterator[None]:
    """Within, settings, loggers and random numbers may change, and there are these contexts, too. A signal
    waits while they are made and left."""
    caught = warnings.catch_warnings()
    with turn(), caught, held() as signals:
        before, loggers = Settings(), _Loggers()
        AROUND.append((before, loggers, _Warnings(caught)))
        try:
            with ExitStack() as stack:
                for each in also:
                    stack.enter_context(each)
                with signals.let(plain=False):
                    yield
        finally:
            AROUND.pop()
            leave(all_back((before.changed(), set_back)))
            loggers.back()


AROUND: list[tuple[Settings, _Loggers, _Warnings]] = []
"""What is put back where that ends which runs are made within."""


def _settings() -> list[tuple[Any, ...]]:
    """How all of it is found out, and how it is set."""
    now = len(sys.modules), torch.cuda.is_initialized()
    if _SETTINGS[0] != now:
        _SETTINGS[:] = now, list(zip(*_FIXED, *_of_modules(), strict=True))
    return _SETTINGS[1]  # type: ignore[no-any-return]


_SETTINGS: list[Any] = [None, []]
"""All of them, as long as there are as many modules."""


def _of_modules() -> Iterator[Setting]:
    if torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all
        yield torch.cuda.get_sync_debug_mode, torch.cuda.set_sync_debug_mode
        for number in range(torch.cuda.device_count()):
            yield from _of_device(number)
        yield torch.cuda.current_device, torch.cuda.set_device  # to set a stream sets its device
        yield torch._C._cuda_isHistoryEnabled, _notes_memory
        if hasattr(torch._C, "_accelerator_getAllocatorSettings"):
            yield torch._C._accelerator_getAllocatorSettings, _allocates
    else:  # a seed that waits until a GPU is used
        queued = vars(torch.cuda._lazy_seed_tracker)
        yield partial(_copied, queued), queued.update
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        yield partial(drawn, numpy), partial(draw_on, numpy)
        yield numpy.get_printoptions, lambda value: numpy.set_printoptions(**value)
        if polynomials := sys.modules.get("numpy.polynomial._polybase"):
            base = polynomials.ABCPolyBase
            yield partial(getattr, base, "_use_unicode"), partial(setattr, base, "_use_unicode")
        errors = getattr(sys.modules.get("numpy._core.umath"), "_extobj_contextvar", None)
        if errors is not None:  # all of these three
            yield errors.get, errors.set
        else:
            yield numpy.geterr, lambda value: numpy.seterr(**value)
            yield numpy.geterrcall, numpy.seterrcall
            yield numpy.getbufsize, numpy.setbufsize
        core = sys.modules.get("numpy._core.multiarray") or sys.modules["numpy.core.multiarray"]
        yield from _alike(vars(core), _NAMED_ALIKE)
    yield from _if_imported(name for name, *_ in _IF_IMPORTED)
    noted: _Noted = []
    for name, *paths in _NOTED:
        for path in paths if (module := loaded(name)) is not None else ():
            with suppress(AttributeError):  # torch has it no more
                _ = attrgetter(path)(module)
                noted.append((module, path, attrgetter(path)))
    yield partial(_notes, noted), partial(_notes_back, noted)


def _if_imported(names: Iterable[str]) -> Iterator[Setting]:
    """What modules of these names have, as far as they are there."""
    wanted = {name: module for name in names if (module := loaded(name)) is not None}
    for name, get, put in _IF_IMPORTED:
        if name in wanted:
            yield partial(get, wanted[name]), partial(put, wanted[name])


def _of_device(number: int) -> Iterator[Setting]:
    """The current stream of a GPU that is in use, how much of its memory torch may take, and how many plans
    of Fourier transforms it keeps."""
    yield partial(torch.cuda.current_stream, number), torch.cuda.set_stream
    if hasattr(torch.cuda, "get_per_process_memory_fraction"):
        yield (
            partial(torch.cuda.get_per_process_memory_fraction, number),
            partial(torch.cuda.set_per_process_memory_fraction, device=number),
        )
    yield (
        partial(torch._cufft_get_plan_cache_max_size, number),
        partial(torch._cufft_set_plan_cache_max_size, number),
    )


def _notes_memory(on: bool) -> None:
    """Have torch's allocator note no more what becomes of memory, if it did not before."""
    if on:
        raise Left("forward ended the history of a GPU's memory, which is forgotten")
    torch.cuda.memory._record_memory_history(enabled=None)


def _allocates(_: str) -> None:
    raise Left("forward told torch's allocator otherwise how to keep memory")


def _copied(table: dict[str, Any]) -> dict[str, Any]:
    return {name: copy(value) for name, value in table.items()}


def _autocast(device: str) -> Iterator[Setting]:
    yield partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)
    yield partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)


_TYPES = ("cpu", "cuda", "xpu", "mps", "ipu", "xla", "hpu", "mtia", "maia", "privateuseone")
"""Devices that torch may know autocast of."""


def _switches() -> Iterator[Setting]:
    """The switches that torch's core names alike: what sets each and, without arguments, says it."""
    yield from _alike(vars(torch._C), _NAMED_ALIKE)
    for name in sorted(name for name in sys.modules if name.startswith("torch._C.")):
        yield from _alike(vars(sys.modules[name]), _NAMED_ALIKE_BELOW)


def _alike(core: Mapping[str, Any], named: tuple[_Named, ...]) -> Iterator[Setting]:
    for name, put in core.items():
        for how, ways in () if "_nvfuser_" in name else named:  # no more there, and says so
            found = how.fullmatch(name)
            if found is None:
                continue
            get = next((core[w] for way in ways if (w := found.expand(way)) in core), None)
            with suppress(TypeError, RuntimeError, AttributeError):  # of something, or not there
                get = get or _by_exchange(put)
                if get is None:
                    continue
                value = get()
                if value is None:
                    put(value)  # what cannot be set to none has none because it is not there
                if isinstance(value, tuple):
                    yield get, partial(_apart, put)
                elif isinstance(value, (bool, int, str, list, type(None))) or hasattr(
                    value, "name"
                ):
                    yield get, put
            break


def _by_exchange(put: Any) -> Callable[[], bool] | None:
    """What says whether something is on, where what sets that gives back whether it was."""
    words = (getattr(put, "__doc__", None) or "").partition("\n")[0]
    if not words.endswith("(arg0: bool) -> bool"):
        return None
    before: bool = put(True)  # noqa: FBT003
    return partial(_exchanged, put, before) if put(before) is True else None


def _exchanged(put: Callable[[Any], Any], other: Any) -> Any:
    """What is set, where only what sets it says what it was."""
    found = put(other)
    put(found)
    return found


def _apart(put: Callable[..., Any], values: tuple[Any, ...]) -> None:
    put(*values)


_Named = tuple[re.Pattern[str], tuple[str, ...]]
_NAMED_ALIKE: tuple[_Named, ...] = (
    (re.compile("_set_sdp_use_(.*)"), (r"_get_\1_sdp_enabled",)),
    (re.compile("_set_(.*)"), (r"_get_\1", r"_is_\1", r"_\1")),
    (re.compile("_(jit|debug)_((?:.*_)?)set_(.*)"), (r"_\1_\2get_\3", r"_\1_\2\3")),
    (re.compile("_jit_override_(.*)"), (r"_jit_\1",)),
    (re.compile("_debug_only_display_(.*)"), (r"_debug_only_are_\1_enabled",)),
    (re.compile("(_cuda_(?:tunableop_)?)set_(max_tuning.*|cudnn_benchmark_limit)"), (r"\1get_\2",)),
    (re.compile("(_cuda_.*_)enable"), (r"\1is_enabled",)),
)
"""Functions of torch's core that set something, and what those are called that say what it is."""
_NAMED_ALIKE_BELOW: tuple[_Named, ...] = (
    *_NAMED_ALIKE,
    (re.compile("set_(.*)"), (r"get_\1",)),
)
"""The same of the modules in it."""
_PRECISIONS = (("generic", "all"), *((b, o) for b in ("mkldnn", "cuda") for o in (
    "all", "conv", "rnn", "matmul")))  # fmt: skip
"""What has a precision of float32 of its own, by backend and operator."""


def _precision(which: tuple[str, str]) -> Setting:
    return partial(_own_precision, *which), partial(torch._C._set_fp32_precision_setter, *which)


def _own_precision(backend: str, part: str) -> str:
    """What it was set to itself: torch says that of what stands above it where it was not."""
    of, put = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    found: str = of(backend, part)
    above = (backend if part != "all" else "generic", "all")
    if found == "none" or backend == "generic" or of(*above) != found:
        return found
    before = _own_precision(*above)
    put(*above, "tf32" if found == "ieee" else "ieee")
    try:
        return found if of(backend, part) == found else "none"
    finally:
        put(*above, before)


_PRECISE = tuple(map(_precision, _PRECISIONS * hasattr(torch._C, "_get_fp32_precision_getter")))


def _frozen(before: bool) -> None:
    """Whether flags of torch's back ends may be set other than within a context."""
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = not before


def _unhooked(before: str | None) -> None:
    """Whether tensors that autograd saves may have hooks: the words that say why not."""
    if before is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(before)


def _renamed(_: str) -> None:
    raise Left("forward named torch's device for others anew")


def _nesting() -> int:
    """How many contexts of autocast are entered."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _left(before: int) -> None:
    while _nesting() > before:
        torch.autocast_decrement_nesting()
    while _nesting() < before:
        torch.autocast_increment_nesting()
    if not before:
        torch.clear_autocast_cache()  # as the outermost of the contexts would have


def _levels(before: int) -> None:
    while forward_ad._current_level > before:
        forward_ad.exit_dual_level()


def _transforms() -> int:
    """How deep functions are transformed: by vmap, grad, jvp."""
    return torch._C._functorch.maybe_current_level() or 0


def _untransformed(before: int) -> None:
    while _transforms() > before:
        torch._C._functorch.pop_dynamic_layer_stack()


def _profiles(_: bool) -> None:
    raise Left("forward started a profiler of torch, or ended one")


def _saved_hooks(before: Any) -> None:
    while _saved_tensors() not in (before, None):
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _saved_tensors() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(False)  # noqa: FBT003


@contextmanager
def uncheckpointed() -> Iterator[bool]:
    """Within, what autograd saves is not kept by a checkpoint that is around, which would compute again who
    has called this, or end it. Whether one is."""
    autograd, hooks = torch._C._autograd, []
    while (top := _saved_tensors()) is not None and top[0].__module__ == "torch.utils.checkpoint":
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield bool(hooks)
    finally:
        for each in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(*each)


_HOOKS = [
    table
    for of in (torch.nn.Module, torch.optim.Optimizer)
    for name, table in vars(sys.modules[of.__module__]).items()
    if name.startswith("_global_") and isinstance(table, dict)
]
"""The tables of hooks of all modules, and of all optimizers."""


def modes_around() -> list[Any]:
    """The modes that are on: they hear functions and operators."""
    return [
        *_get_current_function_mode_stack(),
        *dispatching._get_current_dispatch_mode_stack(),
    ]


def unnamed() -> Iterator[Any]:
    """What runs in a forward or a backward that no code of it has to name: hooks of everything, of
    Python's collector of garbage, modes that are on, the loop of asyncio that runs, what stands in the
    place of torch's functions or of standard output, handlers of loggers, the thread and the process where
    there is no other thread that keeps things in them, and the functions that operators are made of in
    Python, as far as torch keeps them."""
    yield from _HOOKS
    yield _saved_tensors()
    yield from gc.callbacks
    yield from modes_around()
    yield from around()
    yield from _put_in_torch()
    if undisturbed():
        loggers = (logging.root, *logging.root.manager.loggerDict.values())
        handlers = chain.from_iterable(vars(logger).get("handlers", ()) for logger in loggers)
        yield from (handler for handler in handlers if not _only_prints(handler))
        yield from (s for s in (sys.stdout, sys.stderr, sys.stdin) if is_put(s))
        yield threading.current_thread()
        yield current_process()
    made, entries = list(OPDEFS.data.values()), list(singleton._data.values())
    if _OF_OPERATORS[:2] != [made, entries] or _OF_OPERATORS[2] != _OF_OPERATORS[3]:
        fakes = [entry.fake_impl.kernels for entry in entries]
        _OF_OPERATORS[:] = made, entries, fakes, [each[:] for each in fakes], [
            *(each for each in OPDEFS.values() if not _is_torchs(each._init_fn)),
            *(k.func for kernels in fakes for k in kernels if not _is_torchs(k.func)),
        ]  # fmt: skip
    for each in _OF_OPERATORS[4]:
        if isinstance(each, CustomOpDef):
            yield from (v for name, v in vars(each).items() if name.endswith(("_fn", "_fns")))
        else:
            yield each


_OF_OPERATORS: list[list[Any]] = [[], [], [], [], []]
"""Operators that are made in Python, what torch keeps of others, the lists there of functions that say what
they give, and these as they were at the last look; and which of all are not torch's."""


def _put_in_torch() -> list[Any]:
    """What somebody put in the place of functions and classes of torch, which torch's own layers call, and
    a step of training."""
    there = [*chain.from_iterable(vars(owner).values() for owner in _CALLED)]
    if len(there) != len(_TORCHS):
        _TORCHS[:] = [MISSING] * len(there)
    if all(map(operator.is_, there, _TORCHS)):
        return []
    put = []
    for at, (value, known) in enumerate(zip(there, _TORCHS, strict=True)):
        if value is not known:
            mine = is_put(value)
            _TORCHS[at] = MISSING if mine else value
            put += [value] if mine else []
    return put


_CALLED: tuple[Any, ...] = (
    torch,
    torch.nn.functional,
    torch.nn,
    torch.nn.init,
    torch.nn.Module,
    torch.optim,
    torch.optim.Optimizer,
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.amp.GradScaler,
)
_TORCHS: list[Any] = []
"""What all of these had at the last look, without what was somebody's own."""


def _only_prints(handler: Any) -> bool:
    """Whether a handler of logs has nothing but a stream of the process, as torch's own have."""
    table = vars(handler)
    if table.get("filters"):
        return False
    if type(handler) is logging.StreamHandler:
        plain = type(table.get("formatter")) in (NoneType, logging.Formatter)
        return plain and any(table["stream"] is each for each in (sys.__stdout__, sys.__stderr__))
    return type(handler) is logging.NullHandler or _is_torchs(type(handler))


def _is_torchs(made: Any) -> bool:
    """Whether a function is of torch's own code."""
    return (getattr(made, "__module__", None) or "").partition(".")[0] == "torch"


_KEYS = (
    (torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_set_dispatch_key_included),
    (torch._C._dispatch_tls_local_exclude_set, torch._C._dispatch_tls_set_dispatch_key_excluded),
)


def _keys() -> tuple[Any, ...]:
    """Where operators of this thread go: to modes, to autograd, to functionalization. Inference mode that
    is left after what was entered later brings back what was then."""
    (include, _), (exclude, _) = _KEYS
    return include(), exclude()


def _keys_put(before: tuple[Any, ...]) -> None:
    for (get, put), wanted in zip(_KEYS, before, strict=True):
        for key in DispatchKey.__members__.values():
            if get().has(key) != wanted.has(key):
                put(key, wanted.has(key))


def _monitoring() -> list[tuple[int, str | None, int]]:
    """Who hears of what Python runs, by `sys.monitoring`, and of what."""
    of: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tools = ((number, of.get_tool(number)) for number in range(_TOOLS))
    return [(n, tool, 0 if tool is None else of.get_events(n)) for n, tool in tools]


def _monitoring_back(before: list[tuple[int, str | None, int]]) -> None:
    of: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    for number, tool, events in before:
        if of.get_tool(number) not in (tool, None):
            of.set_events(number, 0)
            of.free_tool_id(number)
        if tool is not None:
            if of.get_tool(number) is None:
                of.use_tool_id(number, tool)
            of.set_events(number, events)


_TOOLS = 6
"""As many as Python knows."""


def _attribute(holder: Any, name: str) -> Setting:
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


def _device_put(before: Any) -> None:
    torch.set_default_device(None if before is None else before.device)


def _environment(before: list[tuple[Any, Any]]) -> None:
    held = os.environ._data  # type: ignore[attr-defined]
    for name in held.keys() - dict(before).keys():
        del os.environ[os.environ.decodekey(name)]
    for name, value in before:
        os.environ[os.environ.decodekey(name)] = os.environ.decodevalue(value)
    if list(held.items()) != before:  # it is in another order
        held.clear()
        held.update(before)


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (it is quicker)
    except OSError:
        return None


def _back_to(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def set_function_modes(before: list[Any]) -> None:
    for _ in _get_current_function_mode_stack():
        _pop_mode()
    for mode in before:
        _push_mode(mode)


def set_dispatch_modes(before: list[Any]) -> None:
    for _ in dispatching._get_current_dispatch_mode_stack():
        dispatching._pop_mode()
    for mode in before:
        dispatching._push_mode(mode)


def _path(before: list[str]) -> None:
    sys.path[:] = before


def _handlers() -> list[Any]:
    return list(map(handler_of, SIGNALS))


def _handle(before: list[Any]) -> None:
    for number, handler in zip(SIGNALS, before, strict=True):
        if handler is not None and handler_of(number) is not handler:
            handle_by(number, handler)  # of the main thread, and nobody else can have changed it


def _umask() -> int:
    """The rights that new files lack, which only who sets them is told."""
    before = os.umask(0o077)
    os.umask(before)
    return before


def _timer(which: int, clock: Callable[[], float]) -> Setting:
    """A timer of the process, as the moment at which it ends: it may do so meanwhile."""

    def get() -> tuple[float, float] | None:
        left, every = signal.getitimer(which)
        return (_Moment(clock() + left), every) if left else None

    def put(before: tuple[float, float] | None) -> None:
        ends, every = before or (0.0, 0.0)
        left = ends - clock()
        if left <= 0 and every:
            left %= every
        signal.setitimer(which, max(left, 0.0), every)

    return get, put


class _Moment(float):
    """A time of a clock, which is another one's where they are less than ten milliseconds apart: it is
    worked out from how long there is to go."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 0.01

    __hash__ = None  # type: ignore[assignment]


def _limits() -> list[tuple[int, int]]:
    return list(map(resource.getrlimit, _LIMITS))


def _limit(before: list[tuple[int, int]]) -> None:
    for kind, pair in zip(_LIMITS, before, strict=True):
        if resource.getrlimit(kind) != pair:
            resource.setrlimit(kind, pair)


try:
    import resource
except ImportError:  # Windows
    _LIMITS: tuple[int, ...] = ()
else:
    _LIMITS = tuple({v for n, v in vars(resource).items() if n.startswith("RLIMIT_")})


def _context(decimal: Any) -> Any:
    """The context of numbers of this thread: which it is, and what it says."""
    now = decimal.getcontext()
    return now, now.__reduce__()[1]


def _context_back(decimal: Any, before: Any) -> None:
    decimal.setcontext(before[0])
    context_back(*before)


class _These:
    """Objects, which are as before if each is the same, whatever it says that it equals; and whether no
    other thread could have put them there."""

    __slots__ = ("_all", "undisturbed")

    def __init__(self, found: Iterable[Any]) -> None:
        self._all, self.undisturbed = tuple(found), undisturbed()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _These) and all(map(operator.is_, self._all, other._all))

    __hash__ = None  # type: ignore[assignment]


_STANDARD: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (sys, ("stdin", "stdout", "stderr", "displayhook", "excepthook", "unraisablehook",
           "breakpointhook")),
    (threading, ("excepthook",)),
)  # fmt: skip
"""What Python goes by the name of: the streams of the process, and what it calls to show something."""


def _named() -> _These:
    return _These(vars(of).get(name, _These) for of, names in _STANDARD for name in names)


def _named_back(before: _These) -> None:
    if not (
        before.undisturbed and undisturbed()
    ):  # another may have ended what it had put in their place
        raise Left(
            "forward put another standard stream or hook in the place of one, or another thread did"
        )
    names = ((vars(of), name) for of, names in _STANDARD for name in names)
    for (table, name), each in zip(names, before, strict=True):
        if each is _These:  # there was none
            table.pop(name, None)
        else:
            table[name] = each


def _printing() -> list[Any]:
    return [(stream, text_says(stream)) for stream in (sys.stdout, sys.stderr)]


def _printing_back(before: list[Any]) -> None:
    for stream, says in before:
        text_back(stream, says)


class _Warnings:
    """By what warnings go, which `catch_warnings` puts back."""

    def __init__(self, caught: Any) -> None:
        self._caught = caught

    @staticmethod
    def now() -> tuple[list[Any], list[Any]]:
        """By what they go now: filters, and what shows one."""
        return list(warnings.filters), [getattr(warnings, name, None) for name in _SHOWING]

    def let_stay(self, then: tuple[list[Any], list[Any]]) -> None:
        """What somebody added since `then` is so as if it had been before, and so is what shows them."""
        filters, showing = self.now()
        before = getattr(self._caught, "_filters", None)
        if type(before) is list:
            before[:0] = [each for each in filters if each not in then[0] and each not in before]
        for name, was, now in zip(_SHOWING, then[1], showing, strict=True):
            if now is not was and hasattr(self._caught, kept := f"_{name.lstrip('_')}"):
                setattr(self._caught, kept, now)


_SHOWING = "showwarning", "_showwarnmsg_impl"
"""The functions that do, by the names that `catch_warnings` keeps them under, too."""


class _Loggers:
    """What all loggers that have a name go by."""

    def __init__(self) -> None:
        table = logging.root.manager.loggerDict.values()
        self._all = [each for each in table if isinstance(each, logging.Logger)]
        self._said = self._say()

    def _say(self) -> tuple[list[Any], list[Any]]:
        """What `logger_says` of each, but for what all have in common, which is among the settings."""
        held = map(_HAS, self._all)  # most have nothing
        return list(map(_SAYS, self._all)), [(h[:], f[:]) if h or f else None for h, f in held]

    def now(self) -> tuple[list[Any], list[Any]]:
        """What they go by now."""
        return self._say()

    def let_stay(self, then: tuple[list[Any], list[Any]]) -> None:
        """What was changed since `then` is so as if it had been before."""
        for before, was, now in zip(self._said, then, self._say(), strict=True):
            before[:] = [b if w == n else n for b, w, n in zip(before, was, now, strict=True)]

    def back(self) -> None:
        """Let them go by it again."""
        if self._say() != self._said:
            for logger, said, held in zip(self._all, *self._said, strict=True):
                logger_back(logger, (*said, logger.manager.disable, *(held or ([], []))))


_SAYS, _HAS = attrgetter("level", "disabled", "propagate"), attrgetter("handlers", "filters")


def _loggers(logging: Any) -> tuple[frozenset[str], int]:
    table = logging.root.manager.loggerDict
    now = len(table), next(reversed(table), None)  # whoever makes one puts it behind the others
    if _NAMES[0] != now:
        _NAMES[:] = now, frozenset(table)
    return _NAMES[1], len(sys.modules)


_NAMES: list[Any] = [None, frozenset()]
"""The names of all loggers, as long as there are as many, and the last is the same."""


def _loggers_back(logging: Any, before: tuple[frozenset[str], int]) -> None:
    """Forget the loggers that nobody has but logging itself; those that an import made are kept by it."""
    table, left = logging.root.manager.loggerDict, []
    for name in sorted(table.keys() - before[0], reverse=True):
        maps = [t.loggerMap for t in table.values() if isinstance(t, logging.PlaceHolder)]
        above = [m for m in maps if table[name] in m]
        if not isinstance(table[name], logging.PlaceHolder):
            if sys.getrefcount(table[name]) > _HELD + len(above):
                left.append(name)
                continue
        elif table[name].loggerMap:
            continue
        for each in above:
            del each[table[name]]
        del table[name]
    if left and len(sys.modules) == before[1]:
        raise Left(f"forward made the logger {left[-1]}")


_HELD = sys.getrefcount([object()][0]) + 1
"""How often what only a dictionary has is referred to while that is counted."""


def _loop(events: Any) -> Any:
    """The policy of asyncio, where it keeps the loop of this thread, and that."""
    policy = events._event_loop_policy
    kept = getattr(policy, "_local", None)
    return policy, kept, dict(vars(kept)) if kept is not None else None


def _loop_back(events: Any, before: Any) -> None:
    events._event_loop_policy, kept, said = before
    if kept is not None:
        vars(kept).clear()
        vars(kept).update(said)


def _configured_back(of: Any, before: Context) -> None:
    """Bring back what was set in modules of settings, which are variables of the context: those of Dynamo,
    of TorchInductor, of how torch saves."""
    now = copy_context()
    changed = {v for v in {*now, *before} if now.get(v, before) is not before.get(v, before)}
    if not any(v.name.replace(".", "").isidentifier() for v in changed):  # as settings are called
        return
    for module in list(sys.modules.values()):
        if type(module).__base__ is not of.ConfigModule and type(module) is not of.ConfigModule:
            continue
        for name, entry in module._config.items():
            if entry.user_override in changed:
                entry.user_override.set(before.run(entry.user_override.get))
                module._hash_dirty_var.set(True)
                module._mark_get_dict_dirty(name)


def _heard_by(profiler: Any) -> None:
    """Let Python tell a profiler what it runs: one that is made in C goes on itself."""
    begin = getattr(profiler, "enable", None)
    sys.setprofile(profiler) if callable(profiler) or begin is None else begin()


def _traces(tracemalloc: Any, frames: int) -> None:
    """Let as many frames of each block of memory be noted as were, or none."""
    tracemalloc.stop()
    if frames:
        tracemalloc.start(frames)
        raise Left("forward stopped tracemalloc, which has forgotten what it had noted")


def _drawn(numba: Any) -> list[tuple[Any, Any]]:
    """Where each of the generators is of code that Numba compiled, in this thread, and its state."""
    places = numba.rnd_get_np_state_ptr(), numba.rnd_get_py_state_ptr()
    return [(place, numba.rnd_get_state(place)) for place in places]


def _drawn_back(numba: Any, before: list[tuple[Any, Any]]) -> None:
    for place, state in before:
        if numba.rnd_get_state(place) != state:
            numba.rnd_set_state(place, state)


class _Computed:
    """The weights that `parametrize.cached()` keeps: as before if each is the same, whatever is in it."""

    __slots__ = ("_of", "_table")

    def __init__(self, parametrize: Any) -> None:
        self._table = parametrize._cache
        self._of = list(self._table.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Computed) and other._table is self._table and self._is_as(other)

    __hash__ = None  # type: ignore[assignment]

    def _is_as(self, other: _Computed) -> bool:
        def same(one: tuple[Any, Any], another: tuple[Any, Any]) -> bool:
            return one[0] == another[0] and one[1] is another[1]

        return len(self._of) == len(other._of) and all(map(same, self._of, other._of))

    def back(self, parametrize: Any) -> None:
        parametrize._cache = self._table
        self._table.clear()
        self._table.update(self._of)


def cast_anew() -> None:
    """Let autocast that is on around a run forget the weights that it has cast: those of the weights
    themselves, which a run would be spared to cast, and afterwards those of the run."""
    if _nesting():
        torch.clear_autocast_cache()


def compute_anew() -> None:
    """Let what a context keeps of weights (`torch.nn.utils.parametrize.cached`, autocast) be computed by a
    run that begins now: what is there is of the weights themselves, and a backward would go on into what
    made it. As a setting (`_Computed`) the former is there again afterwards."""
    cast_anew()
    made: Any = sys.modules.get("torch.nn.utils.parametrize")
    if made is not None and made._cache:
        made._cache = {}


def _log_back(processes: Any, before: tuple[Any, bool]) -> None:
    """Let `multiprocessing` have the logger that it had, or none, and write to standard errors or not."""
    processes._logger, processes._log_to_stderr = before


def _patched_back(mock: Any, before: list[Any]) -> None:
    """Let `stopall` find those patches that it would have found, and those since that are still there."""
    found = mock._patch._active_patches
    there = [p for p in before if p in found or _is_patched(p)]
    found[:] = [*there, *(p for p in found if p not in before and _is_patched(p))]


def _is_patched(patch: Any) -> bool:
    """Whether a patch is on: an attribute, or a dictionary, is not as it was before."""
    says = vars(patch)
    if says.keys() >= {"target", "temp_original", "is_local"}:
        there = (table_of(says["target"]) or {}).get(says["attribute"], MISSING)
        return there is not (says["temp_original"] if says["is_local"] else MISSING)
    before, now = says.get("_original"), says.get("in_dict")
    if type(before) is type(now) is dict:
        return not same_entries(now, before)
    return before is not None


def _files_in_memory(fsspec: Any) -> tuple[Any, ...]:
    """The files of fsspec's file system in memory, how large they are, and when they were written to."""
    cls = fsspec.MemoryFileSystem
    files = [(n, f, f.getbuffer().nbytes, f.modified) for n, f in cls.store.items()]
    return files, list(cls.pseudo_dirs)


def _files_in_memory_back(fsspec: Any, before: tuple[Any, ...]) -> None:
    (files, folders), cls = before, fsspec.MemoryFileSystem
    now = {id(f): (f.getbuffer().nbytes, f.modified) for f in cls.store.values()}
    cls.store.clear()
    cls.store.update((name, file) for name, file, *_ in files)
    cls.pseudo_dirs[:] = folders
    for name, file, *was in files:
        if now.get(id(file), tuple(was)) != tuple(was):
            raise Left(f"forward wrote to the file memory:/{name}")


def _hook_of_guards(_: Any) -> Any:
    """What is called when guards of compiled code were checked, which only what sets it says."""
    hook = _set_hook_of_guards(None)
    _set_hook_of_guards(hook)
    return hook


def _hook_of_guards_back(_: Any, before: Any) -> None:
    _set_hook_of_guards(before)


_set_hook_of_guards: Any = torch._C._dynamo.eval_frame.set_guard_complete_hook


_IF_IMPORTED: tuple[tuple[str, Callable[[Any], Any], Callable[[Any, Any], Any]], ...] = (
    ("multiprocessing.util", attrgetter("_logger", "_log_to_stderr"), _log_back),
    ("logging", lambda m: logger_says(m.root), lambda m, before: logger_back(m.root, before)),
    ("logging", _loggers, _loggers_back),
    ("decimal", _context, _context_back),
    ("torch.utils._config_module", lambda _: copy_context(), _configured_back),
    ("asyncio.events", _loop, _loop_back),
    ("_csv", lambda c: c.field_size_limit(), lambda c, before: c.field_size_limit(before)),
    ("socket", lambda s: s.getdefaulttimeout(), lambda s, before: s.setdefaulttimeout(before)),
    ("multiprocessing.context", lambda m: m._default_context._actual_context,
     lambda m, before: setattr(m._default_context, "_actual_context", before)),
    ("multiprocessing.spawn", attrgetter("_python_exe"), lambda m, exe: setattr(m, "_python_exe", exe)),
    ("torch._dynamo.eval_frame", lambda e: e._stance, lambda e, before: e._set_stance(before)),
    ("torch._dynamo.eval_frame", _hook_of_guards, _hook_of_guards_back),
    ("torch._dynamo.backends.registry", attrgetter("_default_backend"),
     lambda r, before: setattr(r, "_default_backend", before)),
    ("torch.nn.utils.parametrize", _Computed, lambda p, before: before.back(p)),
    ("faulthandler", lambda f: f.is_enabled(), lambda f, on: f.enable() if on else f.disable()),
    ("unittest.mock", lambda m: m._patch._active_patches.copy(), _patched_back),
    ("ctypes", lambda c: c.get_errno(), lambda c, before: c.set_errno(before)),
    ("cv2", lambda c: c.getNumThreads(), lambda c, before: c.setNumThreads(before)),
    ("cv2", lambda c: c.useOptimized(), lambda c, on: c.setUseOptimized(on)),
    ("cv2", lambda c: c.utils.logging.getLogLevel(),
     lambda c, level: c.utils.logging.setLogLevel(level)),
    ("pyarrow.lib", lambda p: (p.cpu_count(), p.io_thread_count()),
     lambda p, before: (p.set_cpu_count(before[0]), p.set_io_thread_count(before[1]))),
    ("fsspec.implementations.memory", _files_in_memory, _files_in_memory_back),
    ("numba._helperlib", _drawn, _drawn_back),
    ("tracemalloc", lambda t: t.is_tracing() and t.get_traceback_limit(), _traces),
)  # fmt: skip
"""More of the process, by the module that has it: what it is, and how it is set."""
_NOTED = (
    ("torch._dynamo.convert_frame", "FRAME_COUNTER", "FRAME_COMPILE_COUNTER"),
    ("torch._dynamo.eval_frame", "dynamo_tls.traced_frame_infos"),
    ("torch._dynamo.utils", "counters", "curr_frame", "op_count", "graph_break_reasons", "warn_once_cache",
     "graph_break_dup_warning_checker.set", "compilation_time_metrics", "cumulative_time_spent_ns",
     "_compilation_metrics"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode.cache_hits", "FakeTensorMode.cache_misses",
     "FakeTensorMode.cache_bypasses"),
    ("torch.distributed._meta_registrations", "used_ids"),
    ("torch.fx.graph_module", "_loader.next_id", "_loader.eval_cache"),
    ("torch.utils._stats", "simple_call_counter"),
    ("torch._inductor.cudagraph_trees", "MarkStepBox.mark_step_counter"),
)  # fmt: skip
"""What torch notes for the process as it traces and compiles: how often and how long, which reasons there
were, the text of its graphs. By module, and by name there."""
_Noted = list[tuple[Any, str, Callable[[Any], Any]]]


def _notes(noted: _Noted) -> list[Any]:
    return [_note(of(module)) for module, _, of in noted]


def _note(found: Any) -> Any:
    if isinstance(found, int):
        return found
    if isinstance(found, dict):
        return {k: v.copy() if hasattr(v, "copy") else v for k, v in found.items()}
    return list(found)


def _notes_back(noted: _Noted, before: list[Any]) -> None:
    for (module, path, of), each in zip(noted, before, strict=True):
        if not _equal(_note(of(module)), each):
            _note_back(module, path, of(module), each)


def _note_back(module: Any, path: str, found: Any, before: Any) -> None:
    if isinstance(found, int):
        *above, name = path.split(".")
        setattr(attrgetter(above[0])(module) if above else module, name, before)
        return
    lines = sys.modules["linecache"].cache
    for text in (lines.keys() & found.keys()) - set(before) if path == "_loader.eval_cache" else ():
        del lines[text]  # Python would show the graph's lines by it
    found.clear()
    (found.extend if hasattr(found, "extend") else found.update)(before)


def _traced() -> dict[str, Any]:
    """What torch traces and compiles at the moment, in this thread."""
    return dict(vars(_guards._TLS))


def _traced_back(before: dict[str, Any]) -> None:
    now = vars(_guards._TLS)
    now.clear()
    now.update(before)


_SMALLEST = [sys.float_info.min]


def _flushes() -> bool:
    """Whether numbers smaller than the normal ones become 0, which torch does not say."""
    return _SMALLEST[0] / 2 == 0


def _safe() -> tuple[set[Any], int]:
    return set(torch.serialization.get_safe_globals()), len(sys.modules)


def _safe_back(before: tuple[set[Any], int]) -> None:
    """Forget which classes are safe to load, but for those that modules say as they are imported."""
    if len(sys.modules) == before[1]:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(list(before[0]))


def _tuned_in() -> Iterator[Setting]:
    """The file of what torch tunes on a GPU."""
    if hasattr(torch._C, "_cuda_tunableop_get_filename"):
        yield torch.cuda.tunable.get_filename, torch.cuda.tunable.set_filename


_OF_THREADS: tuple[Setting, ...] = (
    (_flushes, torch.set_flush_denormal),
    (_nesting, _left),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    *(each for device in _TYPES if torch.amp.is_autocast_available(device)
      for each in _autocast(device)),
)  # fmt: skip
"""What is on while torch computes, in each thread for itself."""


def on_in_thread() -> list[Any]:
    """What is on in this thread while torch computes."""
    return [get() for get, _ in _OF_THREADS]


def put_on_in_thread(before: list[Any]) -> None:
    """Set it."""
    for (get, put), was in zip(_OF_THREADS, before, strict=True):
        if get() != was:
            put(was)


_FIXED: tuple[Setting, ...] = (
    *_PRECISE,
    *_switches(),
    (_keys, _keys_put),
    (_get_current_function_mode_stack, set_function_modes),
    (dispatching._get_current_dispatch_mode_stack, set_dispatch_modes),
    *_OF_THREADS,
    (drawn_by_python, random.setstate),
    (Drawn, lambda before: torch.set_rng_state(before.state)),
    (torch.get_default_dtype, torch.set_default_dtype),
    (lambda: getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), _device_put),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    *_tuned_in(),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.autograd.set_detect_anomaly(*before),
    ),
    (partial(_exchanged, torch._C._jit_set_fusion_strategy, []), torch._C._jit_set_fusion_strategy),
    (torch.backends.flags_frozen, _frozen),
    (torch._C._autograd._saved_tensors_hooks_get_disabled_error_message, _unhooked),
    (torch._C._get_privateuse1_backend_name, _renamed),
    (torch._C._autograd._profiler_enabled, _profiles),
    (_transforms, _untransformed),
    (_traced, _traced_back),
    *((sys.getdlopenflags, sys.setdlopenflags) for _ in range(hasattr(sys, "setdlopenflags"))),
    (lambda: dict(vars(torch._tensor_str.PRINT_OPTS)), vars(torch._tensor_str.PRINT_OPTS).update),
    (lambda: list(os.environ._data.items()), _environment),  # type: ignore[attr-defined]
    (_folder, _back_to),
    (lambda: list(sys.path), _path),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, _heard_by),
    *((_monitoring, _monitoring_back) for _ in range(hasattr(sys, "monitoring"))),
    (gc.get_threshold, lambda value: gc.set_threshold(*value)),
    (gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
    (gc.get_debug, gc.set_debug),
    (lambda: gc.get_freeze_count() > 0, lambda frozen: None if frozen else gc.unfreeze()),
    (lambda: threading.current_thread().name,
     lambda name: setattr(threading.current_thread(), "name", name)),
    (_umask, os.umask),
    (_named, _named_back),
    (_printing, _printing_back),
    *(((lambda: (os.sched_getscheduler(0), os.sched_getparam(0))),
       (lambda before: os.sched_setscheduler(0, *before)))
      for _ in range(hasattr(os, "sched_setscheduler"))),
    (_limits, _limit),
    *(((lambda: os.getpriority(os.PRIO_PROCESS, 0)),
       (lambda before: os.setpriority(os.PRIO_PROCESS, 0, before)))
      for _ in range(hasattr(os, "setpriority"))),
    *(((lambda: os.sched_getaffinity(0)), (lambda before: os.sched_setaffinity(0, before)))
      for _ in range(hasattr(os, "sched_setaffinity"))),
    *(_timer(getattr(signal, name), clock) for name, clock in (
        ("ITIMER_REAL", time.monotonic), ("ITIMER_VIRTUAL", time.process_time),
        ("ITIMER_PROF", time.process_time)) if hasattr(signal, name)),
    *(((lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ())),
       (lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before)))
      for _ in range(hasattr(signal, "pthread_sigmask"))),
    *(((lambda: (time.timezone, time.altzone, time.tzname)), (lambda _: time.tzset()))
      for _ in range(hasattr(time, "tzset"))),
    (sys.get_asyncgen_hooks, lambda before: sys.set_asyncgen_hooks(*before)),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (threading.stack_size, threading.stack_size),
    (_safe, _safe_back),
    (partial(_locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    (_handlers, _handle),
    (lambda: forward_ad._current_level, _levels),
    (_saved_tensors, _saved_hooks),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    _attribute(torch.nn.modules.module, "_global_is_full_backward_hook"),
    _attribute(torch.distributions.Distribution, "_validate_args"),
    *(_attribute(torch.__future__, name) for name in vars(torch.__future__) if name.startswith("_")
      and isinstance(vars(torch.__future__)[name], bool)),
)  # fmt: skip


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):
        return False  # arrays are within, and are set again whatever is in them
