"""The `dynamo` tracer: `torch.compile` with a backend that keeps what it is given. Every captured fragment
is run under the recorder at the moment the model calls it, and the Python between fragments runs as it is,
so the graph is whole; where one fragment ends and the next begins there is a graph break with its reason.
"""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorConverter

from opgraph.inputs.base import Example
from opgraph.record.graph import GraphBreak
from opgraph.sources.base import Model
from opgraph.sources.locations import shown
from opgraph.tracing.base import Capture, Outcome, Prepare, Runner, TraceOptions, forward
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.eager import trace_either, trace_fake, trace_real
from opgraph.tracing.replay.replay import Replay

_OPGRAPH = str(Path(__file__).parents[1]) + "/"
_NO_LIMIT = 1 << 20
_REASON_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Backend:
    """A compiler that looks on: `compile` makes something of a captured graph and its inputs, and `ran` is
    told that each time when that is run, with the number of the fragment and the position at which each
    node of the graph was recorded, and, once a backward has run it again, recorded again."""

    compile: Callable[[fx.GraphModule, Sequence[Any]], Any]
    ran: Callable[[int, Any, Mapping[str, int], Mapping[str, int]], None]


Around = Callable[[Capture], Capture]
"""From the capture of a forward to that of what it is a part of, as a step of training."""


def trace(
    model: Model, example: Example, options: TraceOptions, backend: Backend | None = None,
    prepare: Prepare | None = None, around: Around | None = None,
) -> list[Outcome]:  # fmt: skip
    """The tracer. A plain run comes first and finds out, in milliseconds where Dynamo takes long, on which
    tensors the model runs: what Python does between fragments is the same in both. `around` says what is
    run besides the forward, of which nothing is captured."""
    around = around or (lambda inner: inner)
    run = {**options.run, "prepare": prepare}
    plain = trace_either(model, example, capture=around(forward), **run)
    failed = [replace(o, tracer="dynamo", graph=None) for o in plain[:-1]]
    how: dict[str, Any] = {
        "capture": around(
            capture(fullgraph=options.fullgraph, backend=backend, target=options.target)
        ),
        "tracer": "dynamo", "stance": "default", "gradients": plain[-1].gradients, **run,
    }  # fmt: skip
    if plain[-1].tensors == "real":
        found = [*failed, trace_real(model, example, **how)]
    elif plain[-1].tensors == "fake weights":
        found = [*failed, trace_fake(model, example, real_inputs=True, **how)]
    else:
        found = trace_either(model, example, **how)
    return [replace(o, graph=None) if _gave_up(o.error) else o for o in found]


def _gave_up(error: BaseException | None) -> bool:
    """Whether it was Dynamo that could not go on, and not the model that failed."""
    return isinstance(error, torch._dynamo.exc.TorchDynamoException)


def capture(
    *, fullgraph: bool, backend: Backend | None = None, target: str = "cpu"
) -> Capture:  # fmt: skip
    """A capture by Dynamo for a target. It compiles while the model runs, so there is nothing to do
    before."""

    def find(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
        def run(recorder: Recorder) -> Any:
            fragments = _Fragments(module, recorder, backend)
            known = target == "cpu" and backend is None  # to a compiler each is given by itself
            with clean() as looked, nullcontext() if known else _values_elsewhere():
                context = torch._dynamo.optimize(fragments.compile, nopython=fullgraph)
                context.callback = _Shield(context.callback, looked, fragments)
                return context(entry(module))(*args, **kwargs)

        return run

    return find


def entry(module: nn.Module) -> Callable[..., Any]:
    """What to hand to Dynamo so that it sees the model's forward: as torch.compile does it, a module of
    torch itself needs a frame around it, since the frames of torch are skipped."""
    from torch._dynamo import external_utils, trace_rules

    if isinstance(module.forward, MethodType) and trace_rules.check(module.forward):
        wrapped: Any = external_utils.wrap_inline(module)
        wrapped.__code__ = wrapped.__code__.replace()  # another's may be compiled, and all share it
        return wrapped  # type: ignore[no-any-return]
    call: Callable[..., Any] = module.__call__
    return call


class Looked:
    """What Dynamo has looked at, and what it has put into globals beside it."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self._spaces: dict[int, tuple[dict[str, Any], set[str]]] = {}

    @contextmanager
    def at(self, frame: FrameType) -> Iterator[None]:
        """Dynamo looks at a frame."""
        self.codes.add(frame.f_code)
        before = set(frame.f_globals)
        try:
            yield
        finally:
            _, names = self._spaces.setdefault(id(frame.f_globals), (frame.f_globals, set()))
            names |= frame.f_globals.keys() - before

    def forget(self) -> None:
        """Let all of it be as if nobody had looked."""
        for code in self.codes:
            torch._dynamo.eval_frame.reset_code(code)
        ours = {(at, name) for at, (_, names) in self._spaces.items() for name in names}
        kept = (
            torch._dynamo.utils.CleanupManager.instance
        )  # code behind a graph break lives on in torch
        for code, hooks in list(kept.values.items()):
            if not ours.isdisjoint((id(hook.scope), hook.name) for hook in hooks):
                kept._remove_id(code)
        for space, names in self._spaces.values():
            for name in names & space.keys():
                del space[name]


@contextmanager
def _as_if_new() -> Iterator[None]:
    """Within, functions that somebody has compiled have copies of their code, and what Dynamo makes of
    these ends with them: what it notes at a code cannot be taken back piece by piece."""
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
    seen = (code() for code in torch._dynamo.convert_frame.input_codes.seen)
    compiled = {id(code): code for code in seen if code is not None and entries(code)}
    functions = gc.get_objects() if compiled else ()
    before = [
        (f, f.__code__) for f in functions if type(f) is FunctionType and id(f.__code__) in compiled
    ]
    del functions
    copies = {key: code.replace() for key, code in compiled.items()}
    try:
        for function, code in before:
            function.__code__ = copies[id(code)]
        yield
    finally:
        for function, code in before:
            function.__code__ = code


@contextmanager
def clean() -> Iterator[Looked]:
    """Dynamo with a memory of its own: nothing of it is left behind, and what others compiled stays
    compiled. Each call is compiled for the sizes that it
    really has, however often a module is called. Gives what must be told what is looked at."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch._dynamo")]
    levels = [logger.level for logger in loggers]
    pgo = torch._dynamo.pgo
    sizes = pgo._CODE_STATE, pgo._INIT_CODE_STATE
    looked, backends = Looked(), torch._dynamo.eval_frame.cached_backends
    others, finalizers = set(backends), set(weakref.finalize._registry)  # type: ignore[attr-defined]
    try:
        pgo._CODE_STATE = defaultdict(
            pgo.CodeState
        )  # the sizes seen so far, which decide what is dynamic
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)  # what is worth saying becomes a reason
        with (
            _as_if_new(),
            torch._dynamo.config.patch(
                recompile_limit=_NO_LIMIT,
                accumulated_recompile_limit=_NO_LIMIT,
                automatic_dynamic_shapes=False,
                assume_static_by_default=True,
                suppress_errors=False,
                run_gc_after_compile=False,  # see `_Fragments.compile`
            ),
        ):
            yield looked
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        looked.forget()
        for key in backends.keys() - others:
            del backends[key]
        pgo._CODE_STATE, pgo._INIT_CODE_STATE = sizes
        for finalizer in weakref.finalize._registry.keys() - finalizers:  # type: ignore[attr-defined]
            if _is_of_what_was_compiled(finalizer):
                finalizer.detach()


def _is_of_what_was_compiled(finalizer: weakref.finalize[..., Any]) -> bool:
    """Whether it is one by which what Dynamo compiled ends with what that was compiled for: its guards, or
    what its graph has of an optimizer."""
    found = finalizer.peek()
    ends = found[1] if found else None
    by = getattr(getattr(ends, "func", None), "__self__", None)
    made_in = getattr(ends, "__module__", None) or ""
    return isinstance(by, torch._dynamo.guards.CheckFunctionManager) or made_in.startswith(
        "torch._dynamo.variables."
    )


@contextmanager
def _values_elsewhere() -> Iterator[None]:
    """Dynamo knows what number is in a tensor of the CPU, and goes on with it where a function asks (as an
    amount of padding); of another device it does not, and breaks the graph."""
    make = FakeTensorConverter.__init__

    def made(self: FakeTensorConverter, **how: Any) -> None:
        make(self, **how)
        self.export = True  # all that hangs on this

    with patch.object(FakeTensorConverter, "__init__", made):
        yield


class Watch:
    """Stands between the interpreter and Dynamo, and tells what is compiled. Dynamo does not compile
    opgraph itself, which is called where the model's own code hands out memory or is recorded."""

    def __init__(self, dynamo: Any, looked: Looked) -> None:
        self._torchdynamo_orig_backend = dynamo  # the name by which Dynamo looks for the one within
        self._looked = looked

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

        if frame.f_code.co_filename.startswith(_OPGRAPH):
            self._looked.codes.add(frame.f_code)
            return ConvertFrameReturn(FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
        return self._compile(frame, cache_entry, frame_state)

    def _compile(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        with self._looked.at(frame):
            return self._torchdynamo_orig_backend(frame, cache_entry, frame_state)


@dataclass(frozen=True, slots=True)
class Seam:
    """Why a fragment ended, and at which line of the user's."""

    reason: str
    file: str | None = None
    line: int | None = None

    @classmethod
    def of(cls, found: Any) -> Seam:
        """From what Dynamo notes: a text of many lines, and a stack."""
        for frame in reversed(found.user_stack or []):
            file = shown(frame.filename)
            if file is not None:
                return cls(_plain(found.reason), file, frame.lineno)
        return cls(_plain(found.reason))


class _Fragments:
    """The fragments of one run, in the order in which they are run, and the seams between them."""

    def __init__(
        self, module: nn.Module, recorder: Recorder, backend: Backend | None = None
    ) -> None:
        self.recorder = recorder
        self._backend = backend
        self._count = 0
        self._captured = False
        self._ended: Seam | None = None
        self._broken: dict[tuple[str, int], Seam] = {}
        self._modules = {id(m): m for m in module.modules()}

    def compile(self, gm: fx.GraphModule, example: list[Any]) -> Callable[..., Any]:
        """The backend: nothing is compiled, the graph is run node by node when its time comes. What the
        compilation of the fragment before left hangs in cycles, and goes first."""
        if self._captured:
            gc.collect(1)
        self._captured = True
        for path, part in gm.named_modules():  # so that a node is known by its name alone
            for node in part.graph.nodes if path and isinstance(part, fx.GraphModule) else ():
                node._rename(f"{path}_{node.name}".replace(".", "_"))
        compiled = None if self._backend is None else self._backend.compile(gm, example)
        reason = gm.compile_subgraph_reason
        placeholders = gm.graph.find_nodes(op="placeholder")

        def run(*values: Any) -> Any:
            self._begin()
            replay = Replay(gm.graph, gm, self.recorder, self._module)
            result = replay.replay(dict(zip(placeholders, values, strict=True)), self._count)
            self._ended = Seam.of(reason) if reason.graph_break else None
            if self._backend is not None:
                self._backend.ran(self._count, compiled, replay.made, replay.again)
            return result

        return run

    def _begin(self) -> None:
        """A fragment begins. If it is not the first one, there is a reason why it is not one with the
        fragment before: that one ended in a graph break, or a caller of both cannot be compiled."""
        if self._count:
            seam = self._ended or self._broken_caller()
            self.recorder.breaks.append(GraphBreak(self._count, seam.reason, seam.file, seam.line))
        self._count += 1

    def _broken_caller(self) -> Seam:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code is not Recorder.run.__code__:
            seam = self._broken.get(_function(frame.f_code))
            if seam is not None:
                where = f" ({seam.file}:{seam.line})" if seam.file else ""
                return Seam(f"{frame.f_code.co_name} is not compiled as one: {seam.reason}{where}",
                            shown(frame.f_code.co_filename), frame.f_lineno)  # fmt: skip
            frame = frame.f_back
        return Seam("it was called from code that is not compiled")

    def converted(self, code: CodeType, reasons: Sequence[Any]) -> None:
        """Dynamo has looked at a function, and could not take it in one piece for these reasons."""
        if reasons:
            self._broken[_function(code)] = Seam.of(reasons[-1])

    def know(self, thing: Any) -> None:
        """Modules that a frame holds may be none of the model's tree; they are known by their ids too."""
        if isinstance(thing, nn.Module) and id(thing) not in self._modules:
            with suppress(AttributeError):  # one that is still being made, by a copy of it
                self._modules.update((id(m), m) for m in thing.modules())

    def _module(self, key: str, _name: str) -> nn.Module | None:
        number = key.partition("@")[0]
        return self._modules.get(int(number)) if number.isdigit() else None


class _Shield(Watch):
    """Dynamo must not see that it is recorded."""

    def __init__(self, dynamo: Any, looked: Looked, fragments: _Fragments) -> None:
        super().__init__(dynamo, looked)
        self._fragments = fragments

    def _compile(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        for thing in frame.f_locals.values():
            self._fragments.know(thing)
        reasons = torch._dynamo.utils.graph_break_reasons
        before = len(reasons)
        with self._fragments.recorder.silent():
            result = super()._compile(frame, cache_entry, frame_state)
        self._fragments.converted(frame.f_code, reasons[before:])
        return result


def _function(code: CodeType) -> tuple[str, int]:
    """Which function a code object is of: what Dynamo makes of it keeps the file and the first line."""
    return code.co_filename, code.co_firstlineno


def _plain(reason: str) -> str:
    """Dynamo's reason in one line: its headline and explanation, without the advice below it."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    text = lines[0] if lines else "no reason is given"
    if text.startswith("generic_jump"):
        text = "a branch on the value of a tensor"
    for line in lines[1:]:
        if line.startswith("Explanation:"):
            text += line.removeprefix("Explanation")
    return text if len(text) <= _REASON_SHOWN else text[: _REASON_SHOWN - 1] + "…"
