"""What every tracer takes and gives, and what they share: one way to run a model under a recorder."""

from __future__ import annotations

import copy
import inspect
import logging
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Literal

import torch
from torch import Tensor
from torch._higher_order_ops import invoke_subgraph
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_map

from opgraph.costs.formulas.linalg import SPARSE
from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.graph import Graph
from opgraph.record.identity import identity
from opgraph.record.profile import Attempt, KVCache
from opgraph.record.remarks import Remark, leave
from opgraph.record.targets import Target
from opgraph.record.turns import Standing, aged, as_before, replaced, roomy, turn, uncollected
from opgraph.sources.pipelines import Pipelined
from opgraph.sources.ranks import (
    assembled,
    begin,
    current,
    gathered_from,
    is_spread,
    kept_elsewhere,
    numbered_apart,
)
from opgraph.tracing.capture.kernels import MADE_UP
from opgraph.tracing.capture.kv_cache import cache_in, measured
from opgraph.tracing.capture.launches import NOT_RUN, launched_in, launches
from opgraph.tracing.capture.recorder import Recorder, build
from opgraph.tracing.capture.values import tensors_in
from opgraph.tracing.fake.tensors import (
    STANDING,
    Pointers,
    RunMode,
    converted_in_place,
    fake,
    is_away,
    memory_read,
    shared_memory,
)
from opgraph.tracing.fake.types import dress, graded, slots, true_types, unasked
from opgraph.tracing.fake.weights import Weights, set_eval, stand_in, uncompile, undistribute
from opgraph.tracing.parts import named_parts, parts_of, tensors_of
from opgraph.tracing.state.guard import Guard, Stopped
from opgraph.tracing.state.histories import Same, unhooked
from opgraph.tracing.state.iterators import restarted
from opgraph.tracing.state.leaks import leaks, modes_made
from opgraph.tracing.state.process import cast_anew
from opgraph.tracing.state.reach import Reach
from opgraph.tracing.target import Substitutes

CompileFlags = Literal["none", "compiling", "exporting"]
"""What torch answers a model that asks whether it is being compiled or exported; exporting is both.
Libraries ask, and then run other code: under Dynamo and export they build masks that a plain run finds to
be of no use. A plain run with the same flags runs the same program, and so can be measured against
them."""

COMPILE_FLAGS: dict[str, CompileFlags] = {"dynamo": "compiling", "export": "exporting"}
"""The flags that tracers raise, by their names; the others raise none."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What a person may ask of a tracer: `concrete_args` are arguments that symbolic tracing takes as
    they are instead of following them; `fullgraph` makes a graph break an error; `warm_up` runs the
    model once before it is traced, so that what it makes at its first call (anchors, tables of
    positions) is there already; `compile_flags` are those that a plain run raises; `memory_limit` is what
    a run on real tensors may take, in GiB, half of what is free where it is None; `target` is what the
    kernels are of (see `opgraph.record.targets`). Where it `trains`, backwards end at results that were
    there before."""

    concrete_args: Mapping[str, Any] = field(default_factory=dict)
    fullgraph: bool = False
    warm_up: bool = False
    compile_flags: CompileFlags = "none"
    memory_limit: float | None = None
    target: str = "cpu"
    trains: bool = False

    @property
    def run(self) -> dict[str, Any]:
        """What of them every tracer hands to `record`."""
        names = "warm_up", "memory_limit", "target", "trains"
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt of a tracer gave: a graph (a partial one when the forward raised), the error,
    how long it took, and the cache that the model returned. `caught` is what it went on with for want of
    values, as it would not with real ones: an error that the model caught itself. `notes` are remarks on
    the run; `misfit` says that a layer got other sizes than it states; `target` what the kernels are of.
    `gradients` says that these were on, and `ungraded` that the forward failed, or caught a failure, since
    they were off; `of_place` that it failed where it looks whether a tensor is on a GPU."""

    tracer: str
    tensors: str
    graph: Graph | None
    error: BaseException | None = None
    seconds: float = 0.0
    cache: KVCache | None = None
    caught: str | None = None
    notes: tuple[str, ...] = ()
    misfit: bool = False
    target: Target = field(default_factory=Target)
    gradients: bool = False
    ungraded: bool = False
    of_place: bool = False

    @property
    def too_large(self) -> bool:
        """Whether a run on fake tensors ended since there was no memory for its graph."""
        return self.graph is None and self.tensors != "real" and type(self.error) is TraceError

    @property
    def attempt(self) -> Attempt:
        reason = "the model caught that gradients are off" if self.ungraded else self.caught
        if self.error is not None:
            reason = first_line(self.error)
        return Attempt(self.tracer, self.tensors, reason, round(self.seconds, 4))


Runner = Callable[[Recorder], Any]
"""Runs a model, or what was captured of it, under the recorder, and gives its result."""

Capture = Callable[[torch.nn.Module, tuple[Any, ...], Mapping[str, Any]], Runner]
"""What a tracer does before anything is recorded: from a module and the arguments of one call to a
runner. What it raises means that the tracer cannot see this model, and that there is no graph."""


Prepare = Callable[
    [torch.nn.Module, tuple[Any, ...], Mapping[str, Any], FakeTensorMode | None],
    tuple[tuple[Any, ...], dict[str, Any]],
]
"""From the arguments that were made to those of the call that is recorded. It may run the model."""


def forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
    """The plain capture: the module's own forward will run."""
    return lambda _recorder: module(*args, **kwargs)


@roomy
@turn()
def record(
    module: torch.nn.Module,
    example: Example,
    *,
    real: bool = False,
    real_inputs: bool = False,
    prepare: Prepare | None = None,
    capture: Capture = forward,
    tracer: str = "eager",
    stance: str = "force_eager",
    warm_up: bool = False,
    compile_flags: CompileFlags = "none",
    memory_limit: float | None = None,
    ceiling: int | None = None,
    gradients: bool = False,
    target: str = "cpu",
    spread: bool = False,
    placed: bool = False,
    trains: bool = False,
) -> Outcome:
    """Run a module once under a recorder, on fake tensors or on real ones, and leave it as it was. With
    `real_inputs` the weights are fake and the inputs are not.

    `prepare` and `capture` come first, and may fail: then there is no graph. Nor is there one where more
    than the `memory_limit` (in GiB) would be needed, or the whole process would go beyond the `ceiling` (in
    bytes). The run may raise: then the graph is what there was so
    far, with the failing node marked. `stance` is what `torch.compile` means
    within. Autograd follows where `gradients` are asked for, which is remarked. What runs are the kernels
    of the `target` (see `opgraph.record.targets`). With `spread`, the best of some scores are taken to be
    each of them equally often, which is remarked. Tensors that are `placed` say that they are on a GPU.
    Where it `trains`, backwards end at results that were there before.
    """
    start = time.perf_counter()
    tensors = "real" if real else "fake weights" if real_inputs else "fake"
    stage: Stage | None = None
    run = _Recorded(None, None)
    raised: BaseException | None = None
    # Real tensors may hang in cycles of the model's, and are to be freed.
    with nullcontext() if real else uncollected():
        try:
            with staged(
                module,
                example,
                real=real,
                real_inputs=real_inputs,
                stance=stance,
                warm_up=warm_up,
                compile_flags=compile_flags,
                memory_limit=memory_limit,
                ceiling=ceiling,
                gradients=gradients,
                plain=tracer == "eager",
                trains=trains,
            ) as stage:
                substitutes = Substitutes(target, real=real, spread=spread, placed=placed)
                with substitutes.unrefused():
                    run = _recorded(module, stage, substitutes, prepare, capture)
        except BaseException as error:  # noqa: BLE001  (an interrupt, or what cannot be met)
            raised = error
        if stage is not None:
            modes = stage.modes
            stage = None
            if raised is not None:
                raised.__traceback__ = None  # it leads through `staged`
            # A list: what is still being made of a generator must not be found by another thread's search.
            leave(list(leaks(run.alive, modes)))
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # it leads here
    seconds = time.perf_counter() - start
    if isinstance(run.error, Stopped):
        reason = TraceError(str(run.error))
        return Outcome(tracer, tensors, None, reason, seconds)
    notes = (*run.notes, *((GRADED,) if gradients else ()))
    return Outcome(tracer, tensors, run.graph, run.error, seconds, run.cache, run.caught, notes,
                   run.misfit, substitutes.found(), gradients, run.ungraded, run.of_place)  # fmt: skip


GRADED = Remark(
    "gradients",
    "ran with gradients on, since forward computes some: what autograd saves counts in the peak",
)
"""The remark on a run in which autograd followed."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What came of a run, without its tensors; `alive` says whether fake ones of it are there still."""

    graph: Graph | None
    error: BaseException | None
    cache: KVCache | None = None
    caught: str | None = None
    notes: tuple[str, ...] = ()
    misfit: bool = False
    ungraded: bool = False
    of_place: bool = False
    alive: Callable[[], bool] = lambda: True


def _recorded(
    module: torch.nn.Module,
    stage: Stage,
    substitutes: Substitutes,
    prepare: Prepare | None,
    capture: Capture,
) -> _Recorded:
    """Run what is staged under a recorder."""
    args, kwargs = stage.args, stage.kwargs
    try:
        if prepare is None and capture is forward:
            run = forward(module, args, kwargs)
        else:
            with stage.guard.listening():
                weights = stage.weights.stand_ins
                if prepare is not None:
                    with Pointers(stage.guard.asked), substitutes.autocast(weights()):
                        args, kwargs = prepare(module, args, kwargs, stage.mode)
                plain = nullcontext() if capture is forward else substitutes.autocast(weights())
                with modes_made(stage.modes), plain:
                    run = capture(module, args, kwargs)
    except InputError:
        raise
    except BaseException as reason:  # a forward may raise anything, SystemExit too
        if stage.guard.interrupted(reason):
            raise
        stage.guard.settle(reason)
        return _Recorded(None, reason)
    with unasked():
        recorder = Recorder(stage.weights, stage.mode, stage.guard, substitutes)
        with stage.guard.preparing():
            inputs = tuple(
                recorder.source(tensor, name) for name, tensor in named(module, args, kwargs)
            )
            # No name here for one of them, which would hold it for as long as the run takes.
            recorder.capture.are_random(
                (t for n, t in named(module, args, kwargs) if n in stage.drawn), MADE_UP
            )
    viewed = [stage.weights.name_of(weight) for weight in stage.guard.viewed()]
    result, error = recorder.run(lambda: run(recorder))
    if isinstance(error, Stopped):
        alive = recorder.release()
        stage.guard.settle(error)
        return _Recorded(None, error, alive=alive)
    recorder.finish(error)
    outputs = recorder.sink(result) if error is None else ()
    cache = measured(found) if (found := cache_in(result)) is not None else None
    del result, found
    alive = recorder.release()
    stage.guard.settle(error)  # before there is a graph, which would be looked through, too
    graph = build(recorder, inputs, outputs)
    idle = _idle(graph, {p.name for p in viewed if p is not None})
    notes = (*recorder.notes, *substitutes.remarks, *recorder.capture.notes, *idle)
    if stage.mode is None and launched_in(graph):
        notes = (*notes, NOT_RUN)
    ungraded = recorder.ungraded or (recorder.differentiates and error is not None)
    return _Recorded(
        graph,
        error,
        cache,
        recorder.caught,
        notes,
        recorder.misfit,
        ungraded,
        recorder.of_place,
        alive,
    )


def _idle(graph: Graph, viewed: set[str]) -> Iterator[str]:
    """What is to be said of a forward that got through and did no work that was to be expected. What reads
    a view of a parameter that was there before has no name for it."""
    works = (
        bool(viewed)
        or any(n.parameters or n.target.startswith("torch.ops.higher_order") for n in graph.nodes)
        or any(k.flops for n in graph.nodes for k in n.kernels)
    )
    if graph.failed is not None or (works and graph.inputs):
        return
    names = viewed.union(p for n in graph.nodes for p in n.parameters)
    sizes = [(p.numel, p.name in names) for p in graph.parameters if p.kind == "parameter"]
    read, most = sum(size for size, used in sizes if used), sum(size for size, _ in sizes)
    if works and 2 * read >= most:
        return
    without = (
        "" if graph.inputs else " (it was called without tensors: its arguments have defaults)"
    )
    if graph.parameters:
        some = f"{read:,} of the {most:,}" if read else "none of the"
        yield Remark("no-work", f"forward reads {some} weights of the model{without}")
    elif not graph.inputs and not any(n.kernels for n in graph.nodes):
        yield Remark("no-work", f"forward computes nothing{without}")


@dataclass(frozen=True, slots=True)
class Stage:
    """A model ready to be called: the arguments, its weights, the mode of its fake tensors, the guard of
    what was there before, all modes of which there may be fake tensors afterwards, and the names of the
    arguments that were drawn at random."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    weights: Weights
    mode: FakeTensorMode | None
    guard: Guard
    modes: list[weakref.ref[FakeTensorMode]]
    drawn: tuple[str, ...] = ()


@contextmanager
def staged(
    module: torch.nn.Module,
    example: Example,
    *,
    real: bool = False,
    real_inputs: bool = False,
    stance: str = "force_eager",
    warm_up: bool = False,
    compile_flags: CompileFlags = "none",
    memory_limit: float | None = None,
    ceiling: int | None = None,
    gradients: bool = False,
    plain: bool = False,
    trains: bool = False,
) -> Iterator[Stage]:
    """Within, a model in eval mode, with stand-ins for its weights, may be called or captured; afterwards
    it is as it was, and so is the state of the process. The options are those of `record`; `plain` says
    that the code of the model runs as it is. Threads take turns."""
    with ExitStack() as stack:
        stack.enter_context(turn())
        _refuse_transformed(module, example)
        mode = None if real else RunMode()
        modules = parts_of(module)
        limit = None if memory_limit is None else int(memory_limit * 2**30)
        guarded = [module, *example.given]
        guard = Guard(guarded, modules, limit, ceiling, stand_in=not real, ends=trains)
        guard.begin()
        stack.callback(STANDING.clear)
        stack.callback(guard.restore)
        stack.enter_context(unhooked())
        if current() is None:
            guard.say(kept_elsewhere(modules))
            undistribute(modules)
        # Their classes are not told that they are looked at; what code of modules' does then is heard.
        with guard.preparing(), torch._C.DisableTorchFunction():
            weights = Weights(dict(named_parts(module)))
        for tensor, parameter in list(weights.names.values()):
            brought = guard.brought(tensor)
            if brought is not None:
                weights.stands_for(brought, parameter)
        if torch.get_default_device().type not in ("cpu", "meta"):
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(unset_fake_temporarily())  # somebody's: there is one of the run's own
        stack.enter_context(torch.set_grad_enabled(gradients))
        stack.callback(_set_fast_layers, torch.backends.mha.get_fastpath_enabled())
        _set_fast_layers(False)  # noqa: FBT003
        stack.enter_context(compiling(stance))
        for name in ("__call__", "__getattr__"):  # which torch's tracer of symbols has others for
            stack.enter_context(as_before(torch.nn.Module, name))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(uncommented())
        compiler, raised = torch.compiler, compile_flags != "none"
        compiled = raised or compiler._is_compiling_flag
        exporting = compile_flags == "exporting" if raised else compiler._is_exporting_flag
        stack.enter_context(replaced(compiler, "_is_compiling_flag", compiled))
        stack.enter_context(replaced(compiler, "_is_exporting_flag", exporting))
        with guard.preparing():
            set_eval(modules)
        uncompile(modules)
        if warm_up or stance == "default":
            guard.keep_counts()
        try:
            for group in gathered_from(modules) if real else ():
                guard.meets(group)
        except Stopped as error:
            raise TraceError(str(error)) from error
        guard.lend(stand_in(modules, weights, mode))
        stack.enter_context(converted_in_place())
        stack.enter_context(numbered_apart())
        imported = guard.when_imported = stack.enter_context(launches())
        if mode is not None:
            stack.enter_context(memory_read(guard.raised))
        if current() is not None:
            for weight, piece in begin(modules, mode):
                known = weights.name_of(weight)
                if known is not None:
                    weights.also(piece, known)
        with guard.preparing(guard.is_new):
            args, kwargs = arguments(example, mode, real_inputs)
        if plain and mode is not None:
            told = stack.enter_context(
                true_types(weights.stand_ins(), sets_classes=guard.sets_classes)
            )

            def imported_now() -> None:
                imported()
                told.tell(guard.spaces)

            guard.when_imported, guard.while_imported = imported_now, told.untold
            told.tell(guard.spaces)
        if warm_up:
            before = Reach.of([module])
            try:
                with guard.listening(), Pointers(guard.asked), compiling("force_eager"):
                    module(*args, **kwargs)
            except BaseException as error:  # what is wrong will show again, with a reason
                if guard.interrupted(error):
                    raise
                guard.settle(error)
                guard.say(before.restore())
                guard.lacking.clear()
            cast_anew()
        stack.callback(guard.restore_late)
        modes = [] if mode is None else [weakref.ref(mode)]
        aged()  # what is left of the run is looked for among what it has made
        try:
            yield Stage(args, kwargs, weights, mode, guard, modes, example.drawn)
        except Stopped as error:
            guard.settle(error)
            raise TraceError(str(error)) from error
        except BaseException as error:
            guard.settle(error)
            raise


def _refuse_transformed(module: torch.nn.Module, example: Example) -> None:
    """Raise `InputError` for tensors of a function that is transformed around the profile, and where a
    transform lets nobody say which tensors want gradients."""
    if torch._C._functorch.maybe_current_level() is None:
        return
    given = tensors_in((example.args, dict(example.kwargs)))
    tensors = (*given, *tensors_of(module))
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        raise InputError(
            "weights or inputs are tensors of torch.func (grad, vmap, jvp), which have no memory",
            hint="profile a module whose forward calls torch.func itself, from outside",
        )
    if not torch._C._functorch.get_inplace_requires_grad_allowed():
        raise InputError(
            "there is no profile within a function that torch.func transforms (vmap, grad)",
            hint="profile the module before or after it, or one whose forward calls torch.func itself",
        )


@contextmanager
def compiling(stance: str, *, in_a_loop: bool = False) -> Iterator[None]:
    """Within, `torch.compile` means that, and so do regions that are compiled by themselves: where nothing
    is, an export would call them from themselves without end. What a person's own loop says that it means
    (`in_a_loop`) it does so behind this."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and it is slow to import
        yield
        return
    with ExitStack() as stack:
        if stance == "force_eager":
            stack.enter_context(replaced(_REGIONS, "invoke_subgraph_placeholder", _plainly))
        stack.enter_context(_Stance(stance, in_a_loop))
        yield


class _Stance(Standing):
    def __init__(self, stance: str, in_a_loop: bool) -> None:
        self._stance, self._in_a_loop = stance, in_a_loop

    def put(self) -> None:
        dynamo: Any = torch._dynamo
        self._before = dynamo.eval_frame._set_stance(dynamo.eval_frame.DynamoStance(self._stance))
        if self._in_a_loop:
            self._set, dynamo.decorators._set_stance = dynamo.decorators._set_stance, self._told

    def _told(self, stance: Any) -> Any:
        before, self._before = self._before, stance
        return before

    def take(self) -> None:
        dynamo: Any = torch._dynamo
        if self._in_a_loop:
            dynamo.decorators._set_stance = self._set
        dynamo.eval_frame._set_stance(self._before)


_REGIONS = sys.modules[invoke_subgraph.__class__.__module__]


def _plainly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def arguments(
    example: Example, mode: FakeTensorMode | None, real_inputs: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call: on fake tensors the floating-point ones become fake unless `real_inputs`
    are asked for. Integers and booleans stay real, since a forward may look at them, and sparse ones, since
    fake ones do not say how much they store; for a run on real tensors what is on the meta device is filled
    with random numbers. Real ones are copies on the CPU, since a forward may write to its arguments."""
    with unasked():
        return _arguments(example, mode, real_inputs)


def _arguments(
    example: Example, mode: FakeTensorMode | None, real_inputs: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    shared = shared_memory(tensors_in((example.args, dict(example.kwargs)))) if mode else {}
    stand = partial(_stood_in, {}, mode, shared, real_inputs)
    args, kwargs = tuple(example.args), dict(example.kwargs)
    if _ALONE.issuperset(map(type, (*args, *kwargs.values()))):
        return tuple(map(stand, args)), {name: stand(item) for name, item in kwargs.items()}
    args, kwargs = tree_map(stand, (args, kwargs))
    return args, kwargs


_ALONE = frozenset({Tensor, int, float, bool, str, type(None)})
"""Types of arguments that hold no others."""


def _stood_in(
    memo: dict[int, Any], mode: FakeTensorMode | None, shared: Any, real_inputs: bool, item: Any
) -> Any:
    """What stands in for a tensor that is given, the same wherever it is; for one that is spread over
    devices, all of it. Jagged ones are made of other values; those of the same offsets go together, and so
    do their stand-ins."""
    made: Tensor
    if not isinstance(item, Tensor):
        return restarted(item)
    if identity(item) in memo:
        return memo[identity(item)]
    if is_spread(item) and current() is None:
        whole = assembled(item, mode)
        made = memo[identity(item)] = _stood_in(memo, mode, shared, real_inputs, whole)
        return made
    numbers = not real_inputs and (item.is_floating_point() or item.is_complex())
    here = item.device.type != "meta" and not isinstance(item, FakeTensor)
    if item.layout is torch.jagged:
        nested: Any = item
        values, offsets, lengths = (
            _stood_in(memo, mode, shared, real_inputs, part)
            for part in (nested._values, nested._offsets, nested._lengths)
        )
        made = torch.nested.nested_tensor_from_jagged(
            values.detach(), offsets, lengths, jagged_dim=nested._ragged_idx,
            min_seqlen=nested._maybe_min_seqlen, max_seqlen=nested._maybe_max_seqlen,
        ).requires_grad_(item.requires_grad)  # fmt: skip
    elif mode is None:
        made = _filled(item)
    elif here and (not numbers or item.layout in SPARSE or item.is_nested):
        made = _copied(item)
    else:
        made = fake(item, mode, shared).requires_grad_(item.requires_grad)
        dress(made, item)
    if made.requires_grad and not graded(item, "is_leaf"):  # somebody may write to it in place
        with torch.enable_grad():
            made = Same.apply(made, False)  # noqa: FBT003
        dress(made, item)
    memo[identity(item)] = made
    return made


def _filled(tensor: Tensor) -> Tensor:
    if tensor.device.type != "meta" and not isinstance(tensor, FakeTensor):
        return _copied(tensor)
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.randn(tensor.shape, dtype=tensor.dtype)
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def _copied(tensor: Tensor) -> Tensor:
    """The same on the CPU, in memory of its own, with the same strides."""
    if is_away(tensor):
        return tensor.detach().cpu().requires_grad_(tensor.requires_grad)
    if tensor.layout in SPARSE or tensor.is_nested:  # not all of them can be copied otherwise
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    made = tensor.detach()
    whole = made.is_contiguous() and made.untyped_storage().nbytes() == made.nbytes
    plain = whole and type(tensor) is Tensor and not tensor.is_quantized and not tensor.is_conj()
    made = made.clone() if plain else copy.deepcopy(made)
    if not hasattr(tensor, "__tensor_flatten__"):
        made = made if type(made) is type(tensor) else made.as_subclass(type(tensor))
        vars(made).update(vars(tensor))
        for slot, value in slots(tensor):
            slot.__set__(made, value)
    return made.requires_grad_(tensor.requires_grad)


def taken(module: torch.nn.Module) -> Mapping[str, inspect.Parameter]:
    """What a forward takes, by name: nothing where it does not say it, as what `torch.jit.trace` made."""
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def bound(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by the names that forward gives them, or the first stage of a pipeline."""
    if isinstance(module, Pipelined) and len(args) <= len(module.names):
        return {**dict(zip(module.names, args, strict=False)), **kwargs}
    run = module.forward
    if not kwargs and type(run) is MethodType and type(run.__func__) is FunctionType:
        code = run.__code__
        names = code.co_varnames[1 : code.co_argcount]
        if len(args) <= len(names) and not run.__dict__:  # as the signature says, in less time
            return dict(zip(names, args, strict=False))
    try:
        return dict(inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"input_{i}": a for i, a in enumerate(args)}, **kwargs}


def named(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """The input tensors of a call with names from forward's signature, numbered within a list, and by their
    keys within a dictionary."""
    seen: set[int] = set()
    for name, item in bound(module, args, kwargs).items():
        tensors = [t for t in tensors_in(item) if identity(t) not in seen]
        seen.update(map(identity, tensors))
        keys = {identity(t): path for path, t in _parts(item)} if isinstance(item, dict) else {}
        alone = len(tensors) == 1 and not isinstance(item, list)
        for position, tensor in enumerate(tensors):
            part = keys.get(identity(tensor), f".{position}")
            yield (name if alone else f"{name}{part}"), tensor


def _parts(item: Any, around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """What is in dictionaries and lists within each other, with the way there: `.boxes.0`."""
    if not isinstance(item, (dict, list, tuple)):
        yield "", item
    elif identity(item) not in around:
        for key, held in item.items() if isinstance(item, dict) else enumerate(item):
            for path, part in _parts(held, (*around, identity(item))):
                yield f".{key}{path}", part


_set_fast_layers = torch.backends.mha.set_fastpath_enabled
"""Torch's own transformer layers run operator by operator without. Where nothing looks on they may call one
kernel for a whole layer, which Dynamo and export would capture and the others never see."""

_CHATTY = "torch._subclasses.fake_tensor", "transformers.modeling_utils"
"""What logs of a run that says nothing of the model: that an operator failed, which is in the graph, and
which loss a model takes, which opgraph says itself."""


@contextmanager
def uncommented() -> Iterator[None]:
    """Within, loggers whose comments on a run say nothing of the model are silent."""
    with ExitStack() as stack:
        known = logging.Logger.manager.loggerDict  # none is made that is not there
        for logger in map(known.get, _CHATTY):
            if isinstance(logger, logging.Logger):
                stack.enter_context(quiet(logger))
        yield


def quiet(logger: logging.Logger) -> AbstractContextManager[None]:
    """Within, this logger says nothing."""
    return replaced(logger, "disabled", value=True)
