"""Recording somebody's own loop: the model is followed call by call, every second step under the profiler,
and traced with the arguments that it really gets. What the loop does stays what it was."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from opgraph.inputs.base import Example
from opgraph.measuring.marks import Marks
from opgraph.measuring.running import Profiled, run_of, run_otherwise, waiting, watched
from opgraph.record.errors import InputError, OpgraphError, TraceError, first_line
from opgraph.record.profile import ProfileRecord
from opgraph.record.run import RunRecord
from opgraph.record.turns import runs, timed, untimed
from opgraph.sources.weightless import uncompiled
from opgraph.tracing.parts import parameters_of
from opgraph.tracing.state.process import uncheckpointed

_PROFILED = 5
"""Steps under the profiler at most; all others are timed alone."""

Trace = Callable[[Example, str, str], ProfileRecord]
"""From the arguments of a call, the mode, and the name of an optimizer to a profile."""


def around(
    module: nn.Module, called: Callable[..., None], returned: Callable[..., None]
) -> Iterator[Any]:
    """Have functions called before and after each call of a module; what comes has a `remove`. They are
    hooks, but of a module that is compiled in place, where hooks would be part of what is compiled."""
    if module._compiled_call_impl is None:
        # The first of all, so that it gets what the loop gives:
        yield module.register_forward_pre_hook(_Hook(called), prepend=True, with_kwargs=True)
        yield module.register_forward_hook(_Hook(returned), always_call=True)
    else:
        yield _Around(module, called, returned)


class _Hook:
    """A hook of this model alone: what is copied or pickled of it has in its place what does nothing, and
    needs no opgraph."""

    def __init__(self, run: Callable[..., None]) -> None:
        self._run = run

    def __call__(self, *given: Any) -> None:
        # Dynamo goes into this, where it exports, and would not go into the other:
        if not (torch.compiler.is_exporting() and torch.compiler.is_dynamo_compiling()):
            self._run(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class _Around:
    """Stands for what a module that is compiled in place calls."""

    def __init__(
        self, module: nn.Module, called: Callable[..., None], returned: Callable[..., None]
    ) -> None:
        self._module, self._called, self._returned = module, called, returned
        self._compiled: Callable[..., Any] = module._compiled_call_impl
        self._on = True
        module._compiled_call_impl = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._on:  # somebody stands for this, and keeps it
            return self._compiled(*args, **kwargs)
        self._called(self._module, args, kwargs)
        try:
            return self._compiled(*args, **kwargs)
        finally:
            self._returned(self._module)

    def remove(self) -> None:
        """Be called no more."""
        self._on = False
        if self._module._compiled_call_impl is self:
            self._module._compiled_call_impl = self._compiled


class _Scopes:
    """The scopes that torch's profiler is told of (`record_function`, the step of an optimizer) and that
    began under a profile. The end of one that outlives it is written where that profile had it, if another
    one is on by then: into memory that is free."""

    def __init__(self, under: Callable[[], Any]) -> None:
        self.open: dict[int, Any] = {}
        self._profile: Callable[[], Any] = under
        enter, leave = record_function.__enter__, record_function.__exit__

        def entered(scope: Any) -> Any:
            if self._profile() is not None:
                self.open[id(scope)] = scope
            return enter(scope)

        def left(scope: Any, *given: Any) -> Any:
            self.open.pop(id(scope), None)
            return leave(scope, *given)

        self._plain, self._heard = (enter, leave), (entered, left)
        self._set(self._heard)

    def _set(self, methods: tuple[Any, Any]) -> None:
        record_function.__enter__, record_function.__exit__ = methods

    def remove(self) -> None:
        """Be told no more, also where somebody else has put this in the place of the plain ones again."""
        self._profile = lambda: None
        self.open.clear()
        if (record_function.__enter__, record_function.__exit__) == self._heard:
            self._set(self._plain)


class Follower:
    """Follows the calls of a model in a loop that somebody else writes. A step of training lasts from one
    call to the next, with all that the loop does between; without gradients a step is the call itself. Runs
    of opgraph's own are no calls, and a step within which there is one is left out."""

    def __init__(self, module: nn.Module, trace: Trace) -> None:
        self._module, self._trace = module, trace
        self._device = next((p.device for p in parameters_of(module)), torch.device("cpu"))
        self._wait = waiting(self._device)
        self._profile: ProfileRecord | None = None
        self._failed: OpgraphError | None = None
        self._refused: OpgraphError | None = None  # a call that the model itself refused, too
        self._call: tuple[BaseException | None] | None = (
            None  # one that runs: what is handled around it
        )
        self._optimizer = ""
        self._calls = 0
        self._runs = runs()  # around the loop; where there are more, it is not the loop that calls
        self._thread = self._within = (
            threading.get_ident()
        )  # of the loop, and of the step that runs
        self._left_out = 0
        self._again = False  # a checkpoint is around the model, and computes it again
        self._training = False
        self._begin: float | None = None
        self._under: Profiled | None = None
        self._marks: Marks | None = None
        self._after = False  # a step under the profiler: what begins in one must not end in another
        self._plain: list[float] = []
        self._traced: list[tuple[float, RunRecord]] = []
        self._handles: list[Any] = []

    def start(self) -> None:
        """Follow from now on. Raises `InputError` for a module that takes no hooks."""
        try:
            for handle in self._begun():
                self._handles.append(handle)
        except BaseException as error:
            self.stop()
            if not isinstance(error, Exception):
                raise
            raise InputError(
                f"{type(self._module).__name__} cannot be followed in a loop: {first_line(error)}",
                hint="opgraph.measure(model, inputs)",
            ) from error

    def _begun(self) -> Iterator[Any]:
        self._scopes = _Scopes(lambda: self._under)
        yield self._scopes
        yield from around(self._module, self._called, self._returned)
        yield register_optimizer_step_pre_hook(self._steps)
        yield register_optimizer_step_post_hook(self._stepped)

    def stop(self) -> None:
        """Follow no more; a step of training that runs ends here."""
        for handle in self._handles:
            handle.remove()
        self._end()

    @property
    def _is_called(self) -> bool:
        """Whether it is the loop that calls."""
        return runs() == self._runs

    @property
    def profile(self) -> ProfileRecord:
        """The profile with what was recorded. The first step warms up, and counts only where it is alone.

        Raises `TraceError` where no step was, and why a call could not be traced.
        """
        failed = self._failed or (self._refused if self._profile is None else None)
        if failed is not None:
            raise failed
        if self._profile is None or not self._traced:
            few = "one step of training" if self._calls else "no call of the model"
            hint = "let the loop run a few times within, under no other profiler"
            if self._left_out:
                few, hint = (
                    "no step without a profile in it",
                    "profile before the loop, or after it",
                )
            raise TraceError(f"{few} was recorded", hint=hint)
        warm = len(self._traced) > 1 and not self._training
        traced = self._traced[1:] if warm else self._traced
        plain = self._plain or [seconds for seconds, _ in traced]
        run = run_of(plain, traced, self._device)
        again = (
            "a checkpoint of the loop computes the model again in the backward, on no node of it"
        )
        notes = *run.notes, *[again] * self._again, *run_otherwise(self._profile, self._module)
        return replace(self._profile, measured=replace(run, source="recording", notes=notes))

    # What happens in the loop.

    @uncompiled
    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self._is_called or module is not self._module or self._failed is not None:
            return
        if torch._C._current_graph_task_id() != -1:  # a backward calls it again (checkpointing)
            return
        if torch.jit.is_tracing() or torch.compiler.is_exporting():  # which is no call of the loop
            if self._begin is not None:
                self._leave_out()
            return
        training, here = module.training and torch.is_grad_enabled(), threading.get_ident()
        if here != (self._thread if training else here if self._begin is None else self._within):
            self._failed = TraceError(
                "steps of several threads cannot be told apart, nor a step of training in another thread",
                hint="record in the thread that calls the model",
            )
            return
        self._end()
        self._training, self._within, self._call = training, here, (sys.exception(),)
        first, self._calls = self._calls == 0, self._calls + 1
        if self._profile is None and not (first and self._training):
            mode = "train" if self._training else "infer"
            try:
                with uncheckpointed() as self._again:
                    self._profile = self._trace(Example(args, kwargs), mode, self._optimizer)
            except OpgraphError as error:
                self._failed = error  # which is no reason for the loop to end
                return
            self._marks = Marks(self._profile.graph, module)
        if first and self._training:
            return  # the optimizer is not known yet, and all is cold
        few, after = len(self._traced) < _PROFILED, self._after
        self._after = False
        if (
            few
            and not after
            and not self._scopes.open
            and not watched()
            and self._profile is not None
            and self._marks is not None
        ):
            self._under = Profiled(self._profile, self._marks, self._device)
            self._under.begin()
            self._after = True
        self._wait()
        self._begin = time.perf_counter()
        timed(self._leave_out)

    @uncompiled
    def _returned(self, module: nn.Module, *_: Any) -> None:
        if (
            self._within != threading.get_ident()
            or not self._is_called
            or module is not self._module
        ):
            return
        call, self._call = self._call, None
        if call is None:
            return
        if sys.exception() is not call[0]:
            self._raised()
        elif not self._training:
            self._end()

    def _raised(self) -> None:
        """The call that runs has raised: it is no step, and what could not be traced of it tells nothing of
        those that come, where the loop goes on."""
        self._calls -= 1
        raised = first_line(sys.exception() or RuntimeError())
        why = TraceError(f"each call of the model raised: {raised}")
        self._refused, self._failed = self._failed or self._refused or why, None
        self._drop()

    def _end(self) -> None:
        if self._begin is None:
            return
        untimed(self._leave_out)
        if self._within != threading.get_ident():  # where it is, it is not over
            self._begin = self._under = None
            return
        self._wait()
        seconds, self._begin = time.perf_counter() - self._begin, None
        if self._under is None:
            self._plain.append(seconds)
        else:
            under, self._under = self._under, None
            found = under.end()
            self._traced += [] if found is None else [found]

    def _leave_out(self) -> None:
        """The step that runs is none: opgraph runs something within it."""
        self._left_out += 1
        self._drop()

    def _drop(self) -> None:
        """The step that runs is not to be told of."""
        untimed(self._leave_out)
        self._begin, under, self._under = None, self._under, None
        if under is not None:
            under.leave()

    def _steps(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._is_called:
            return
        self._optimizer = type(optimizer).__name__
        if self._marks is not None:
            self._marks.phase = "optimizer"

    def _stepped(self, *_: Any) -> None:
        if self._is_called and self._marks is not None:
            self._marks.phase = "forward"
