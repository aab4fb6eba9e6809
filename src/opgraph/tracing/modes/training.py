"""Ways of running a model other than one forward: a step of training, and the generation of one token.
Each is a capture (see `base`): what goes before is not recorded, what it returns is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from inspect import unwrap
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from opgraph.costs.count import describe
from opgraph.record.errors import InputError, TraceError
from opgraph.record.graph import GRADIENT
from opgraph.record.identity import identity
from opgraph.record.layout import Action
from opgraph.record.remarks import Remark
from opgraph.sources.pipelines import Pipelined
from opgraph.sources.ranks import (
    are_replicated,
    behind_micro_batches,
    between_micro_batches,
    current,
    is_offloaded,
    is_spread,
    local,
    rebuild,
)
from opgraph.tracing.base import Capture, Runner, forward, taken
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.capture.scopes import ModuleCalls
from opgraph.tracing.capture.values import tensors_in
from opgraph.tracing.fake.types import has_values, is_its_own
from opgraph.tracing.modes.loss import Loss, LossFunction, is_auto, loss_for, loss_of
from opgraph.tracing.parts import named_parts, parts_of
from opgraph.tracing.state.guard import only_heard

# Activation checkpointing for a step of training: blocks keep their inputs alone, and run again when their
# gradients are computed. A model of transformers says itself which blocks those are; elsewhere they are the
# repeated ones.


@cache
def _costs_much(func: Any) -> bool:
    """Whether an operator is one whose results selective checkpointing keeps."""
    operator = describe(func)
    return operator.contraction is not None or operator.category == "collective"


def _policy(_context: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    kept = _costs_much(func)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def enable(
    module: nn.Module, again: Callable[[Callable[..., Any]], Callable[..., Any]],
    selective: bool = False,
) -> None:  # fmt: skip
    """Let the blocks of a module be checkpointed. `again` wraps what is run anew in the backward: all of a
    block, or with `selective` what is no contraction and no collective. What is changed in the module is
    for the caller to undo (see `opgraph.tracing.state.guard`).

    Raises `InputError` when the model has no repeated blocks.
    """

    chosen: Any = partial(create_selective_checkpoint_contexts, _policy)
    how = {"context_fn": chosen} if selective else {}

    def kept(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # What a compiler captures it runs again itself.
        run = function if torch.compiler.is_compiling() else again(function)
        return checkpoint(
            run, *args, use_reentrant=False, preserve_rng_state=has_values(), **how, **kwargs
        )

    if isinstance(module, Pipelined):
        for part in module.parts:
            enable(part.submod, again, selective)
        return
    if getattr(module, "supports_gradient_checkpointing", False):
        enabled: Any = module.gradient_checkpointing_enable
        enabled()
        for part in module.modules():
            if getattr(part, "gradient_checkpointing", False):
                part._gradient_checkpointing_func = kept
        return
    blocks = list(repeated(module))
    if not blocks:
        raise InputError(f"{type(module).__name__} has no repeated blocks to checkpoint")
    for block in blocks:
        block.forward = partial(kept, block.forward)


def repeated(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules made of others that stand in a list with more of their class."""
    same = Counter(type(part) for part in module.children())
    listed = isinstance(module, (nn.ModuleList, nn.Sequential))
    for part in module.children():
        made_of_others = next(part.children(), None) is not None
        if listed and same[type(part)] > 1 and made_of_others:
            yield part
        else:
            yield from repeated(part)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-3),
    "adamw": partial(torch.optim.AdamW, lr=1e-3),
}
"""Optimizers by name."""

WAYS = ("loop", "foreach", "fused")
"""How an optimizer goes over the weights: one by one, all at once operator by operator, or all at once in
one kernel. Where nothing is asked for a CPU does the first, a GPU the second."""


class _Hears(Protocol):
    """Who hears of a run: in which phase it is, and which modules are called."""

    phase: str
    modules: ModuleCalls


class Training:
    """One step of training: forward in training mode, backward through autograd from the loss, and a step
    of the optimizer. With `checkpointing`, "full" or "selective" (see `enable`), blocks keep their inputs
    alone, and what runs again in the backward is the phase "recompute". With `accumulation` the gradients
    of a step before are there, and the new ones are added to them, and so are those of one micro-batch to
    those of another. With `loss_scaling` the loss is multiplied by a scale, and the gradients divided by it
    before the optimizer, as `torch.amp.GradScaler` does it.

    Weights that are frozen stay so, and what is `still` (see `still_parts`) in eval mode. It is not the
    first step: what the optimizer keeps is there from the beginning, for every weight that gets a
    gradient. `loss` is what `opgraph.tracing.modes.loss.loss_for` takes, and `found` the one that was
    used. Of a pipeline, `begun` is what this rank began at which node, and `batch` that of a step,
    which all of its ranks go through.

    Raises `TraceError` when there is no such optimizer.
    """

    def __init__(
        self,
        optimizer: str,
        checkpointing: str | None = None,
        loss: str | LossFunction = "auto",
        accumulation: bool = False,
        micro_batches: int = 1,
        loss_scaling: bool = False,
        still: frozenset[str] = frozenset(),
    ) -> None:
        name, _, way = optimizer.partition("-")
        if name not in OPTIMIZERS or (way and way not in WAYS):
            raise TraceError(
                f"there is no optimizer {optimizer!r}", hint=f"one of {', '.join(OPTIMIZERS)}"
            )
        self.found: Loss | None = None
        self.begun: list[tuple[Action, int]] = []
        self.batch = 0
        self._optimizer, self._way = name, way
        self._checkpointing, self._accumulation = checkpointing, accumulation
        self._loss, self._micro_batches = loss, micro_batches
        self._loss_scaling, self._still = loss_scaling, still
        self._offloaded = False

    def prepare(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], _mode: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with those that the loss needs."""
        if isinstance(module, Pipelined):
            if self._micro_batches > 1 or self._loss_scaling:
                what = "micro_batches" if self._micro_batches > 1 else "loss_scaling"
                raise InputError(
                    f"a schedule goes through a pipeline by itself: it heeds no {what}"
                )
            if module.loss is not None:
                self.found = module.loss
            elif "target" in kwargs:
                self.found = Loss("schedule", "the loss of its schedule", lambda result: result)
            elif not is_auto(self._loss):
                self.found = loss_for(module, args, kwargs, self._loss)
            elif not module.last:
                self.found = Loss("schedule", "the loss of its last stage", lambda result: result)
            module.batch = args
            self.batch = next((x.shape[0] for x in tensors_in(args) if x.dim()), 0)
            passed = {n: a for n, a in kwargs.items() if n != "target" or module.last}
            return args if module.first else (), passed
        self.found = loss_for(module, args, kwargs, self._loss)
        known = taken(module)
        labels = {} if self.found is None else dict(self.found.arguments)
        if self.found is not None:  # which keeps none of the run's tensors
            self.found = replace(self.found, arguments={})
        given = [labels.pop(n, a) for n, a in zip(known, args, strict=False)]
        args = (*given, *args[len(given) :])
        return args, {**kwargs, **labels, **({"use_cache": False} if "use_cache" in known else {})}

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        within: Capture = forward,
    ) -> Runner:  # fmt: skip
        """The capture of the step, in which the forward is captured by `within`."""
        for name, part in named_parts(module):
            part.training = name not in self._still
        kept = _kept(self._optimizer)
        self._offloaded = is_offloaded(parts_of(module))
        recorders: list[_Hears] = []
        self.checkpoint(module, recorders)
        called = within(module, args, kwargs)

        def run(recorder: Recorder) -> Any:
            recorders.append(recorder)
            with recorder.silent(), recorder.capture.beside():
                weights = _trained(module, recorder)
                for weight in weights:
                    weight.requires_grad = True
                    if self._accumulation:
                        weight.grad = recorder.like(weight)
                        recorder.existing(weight.grad, GRADIENT)
                scale = _scale(recorder) if self._loss_scaling else None
            if current() is not None and are_replicated(parts_of(module)):
                with recorder.silent(), recorder.capture.beside(), torch.enable_grad():
                    backward(self.loss(recorder.complete(called(recorder))))
                    rebuild(parts_of(module))
                for weight in weights:
                    weight.grad = None
            loss: Any
            if isinstance(module, Pipelined):
                loss = self._scheduled(module, args, dict(kwargs), recorder)
            for number in range(
                1, 1 + (0 if isinstance(module, Pipelined) else self._micro_batches)
            ):
                recorder.phase = "forward"
                between_micro_batches(module, last=number == self._micro_batches)
                with torch.enable_grad():
                    first = len(recorder.records)
                    result = recorder.complete(called(recorder))
                    found = self.found = self.found or loss_of(result)
                    with recorder.as_loss(found.name):
                        loss = found.of(result)
                        scaled = loss if scale is None else loss * scale[0]
                    if found.is_own:
                        recorder.is_loss(first, loss, result)
                    del result
                recorder.phase = "backward"
                with recorder.inside(recorder.loss):
                    start = torch.ones_like(scaled)
                backward(scaled, start, keep=_is_of_others(scaled, recorder))
            behind_micro_batches(module, self._micro_batches)
            recorder.phase = "optimizer"
            weights += _unfrozen(module, weights)
            reached = [w for w in weights if w.grad is not None]
            if weights and not reached:
                recorder.notes += (_NONE_REACHED,)
            self._update(reached, kept, recorder, scale)
            return loss

        return run

    def _scheduled(
        self, module: Pipelined, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
    ) -> list[Tensor]:
        """The losses of a step through a pipeline, as its schedule goes through it."""

        self.begun.clear()
        mode = recorder.capture.fake_mode or nullcontext()
        with recorder.silent(), recorder.capture.beside(), torch.no_grad(), mode:
            recorder.notes += tuple(module.hand_over(kwargs))

        def begin(action: Action) -> None:
            recorder.phase = "forward" if action[0] == "F" else "backward"
            self.begun.append((action, len(recorder.records)))

        with torch.enable_grad():
            return module.step(args, kwargs, self.loss, begin)

    def checkpoint(self, module: nn.Module, heard: list[_Hears]) -> None:
        """Let the blocks of a module be checkpointed, where that was asked for. Who hears of a run, if
        anybody does, is told what runs again."""
        if self._checkpointing:
            enable(module, partial(_again, heard), self._checkpointing == "selective")

    def loss(self, result: Any) -> Tensor:
        """What is made small, of what the model returned."""
        self.found = self.found or loss_of(result)
        return self.found.of(result)

    def stepper(self, weights: list[Tensor], way: str) -> torch.optim.Optimizer:
        """The optimizer of some weights, which goes over them that way if no other was asked for."""
        way = self._way or way
        return OPTIMIZERS[self._optimizer](weights, foreach=way == "foreach", fused=way == "fused")

    def _update(
        self,
        weights: list[Tensor],
        kept: Mapping[str, Tensor],
        recorder: Recorder,
        scale: tuple[Tensor, Tensor] | None,
    ) -> None:
        """The step of the optimizer: of each weight by itself, or of all at once, which is divided over the
        modules that own them."""
        at_once = recorder.substitutes.foreach and not self._offloaded
        way = self._way or ("foreach" if at_once else "loop")
        together = way != "loop"
        homes: dict[object, list[Tensor]] = {}
        for weight in map(_here, weights):
            at = recorder.weights.home(weight)
            homes.setdefault(at if together else id(weight), []).append(weight)
        groups = list(homes.values())
        if scale is not None:
            _unscale(groups, scale, recorder)
        steppers = [self.stepper(g, way) for g in groups]
        recorder.held += steppers
        with recorder.silent(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            for stepper, group in zip(steppers, groups, strict=True):
                for weight in group:
                    stepper.state[weight] = _state(weight, kept, recorder)
        if together and not self._way:
            recorder.substitutes.note_foreach(self._optimizer)
        first = len(recorder.records)
        for stepper, group in zip(steppers, groups, strict=True):
            home = recorder.weights.home(group[0])
            if together:
                with torch._C.DisableTorchFunction():
                    parts = (t for w in group for t in (w, w.grad, *stepper.state[w].values()))
                    given = [t for t in parts if isinstance(t, Tensor)]
                    recorder.as_one(home, self._optimizer, given, stepper.step)
            else:
                with recorder.inside(home):
                    stepper.step()
        if together:
            recorder.divide(recorder.records[first:])


def still_parts(module: nn.Module) -> frozenset[str]:
    """The paths of what somebody has left in eval mode in a model that is in training mode, as one does
    with normalizations whose statistics are to stay. Of a model in eval mode nothing is known to be left.
    """
    if not module.training:
        return frozenset()
    return frozenset(name for name, part in named_parts(module) if not part.training)


def backward(loss: Tensor, start: Tensor | None = None, *, keep: bool = False) -> None:
    """Compute the gradients of a loss from its own, which is 1. Not by `loss.backward()`: that is one torch
    function, within which no other is heard. It frees what the forward saved for it, unless that is to be
    kept."""
    start = torch.ones_like(loss) if start is None else start
    _engine_run_backward(
        (loss,), (start,), keep_graph=keep, create_graph=False,
        inputs=(), allow_unreachable=True, accumulate_grad=True,
    )  # fmt: skip


def _is_of_others(loss: Tensor, recorder: Recorder) -> bool:
    """Whether a backward from a loss goes on into results that were there before (`self.hidden` of a call
    of the person's), whose own backward is still to come: autograd frees all of a graph or nothing."""
    guard = recorder.capture.guard
    if guard is None:
        return False
    ends, frees = guard.meets_before(loss)
    guard.say(Remark("state", text) for text, so in ((_ENDED, ends), (_KEPT, frees)) if so)
    return frees


_ENDED = (
    "the backward ends at results that were there before: what made them gets no gradients from it"
)
_KEPT = (
    "the backward goes on into results that were there before, and is made to free nothing, "
    "so that theirs still can be run: what autograd saves is in the peak to the end of it"
)


def _scale(recorder: Recorder) -> tuple[Tensor, Tensor]:
    """What a loss is multiplied by, and for how many steps it has been: numbers that stay on the device."""
    made = torch.tensor(2.0**16), torch.tensor(0, dtype=torch.int32)
    for tensor, name in zip(made, ("loss scale", "steps at this scale"), strict=True):
        recorder.existing(tensor, name)
    return made


def _unscale(
    groups: Sequence[list[Tensor]], scale: tuple[Tensor, Tensor], recorder: Recorder
) -> None:
    """What `torch.amp.GradScaler` does before the optimizer steps: one kernel divides all gradients and
    looks for what is not finite; the scale of the next step follows from that. That the host waits for
    the answer, since it steps only where all was finite, is in no graph."""
    with recorder.inside(recorder.loss):
        inverse = scale[0].double().reciprocal().float()
        found = torch.zeros_like(scale[0])
    first = len(recorder.records)
    for group in groups:
        gradients = [weight.grad for weight in group if weight.grad is not None]
        given = [gradients, found, inverse]
        unscale = partial(torch._amp_foreach_non_finite_check_and_unscale_, *given)
        recorder.as_one(
            recorder.weights.home(group[0]), "unscale", [*gradients, found, inverse], unscale
        )
    recorder.divide(recorder.records[first:])
    with recorder.inside(recorder.loss):
        torch._amp_update_scale_(*scale, found, 2.0, 0.5, 2000)


def _again(heard: list[_Hears], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that says, while it runs in the backward, that this is for the second time, and of which
    block: it is the block's forward, and no call that hooks would hear of."""
    inner, given = (
        (function.func, function.args) if isinstance(function, partial) else (function, ())
    )
    owner = getattr(inner, "__self__", *given[:1] or (None,))
    block = (
        owner
        if getattr(inner, "__name__", "") == "forward" and isinstance(owner, nn.Module)
        else None
    )

    def run(*args: Any, **kwargs: Any) -> Any:
        if not heard or heard[0].phase != "backward":
            return function(*args, **kwargs)
        recorder = heard[0]
        recorder.phase = "recompute"
        if block is not None:
            recorder.modules.enter(block)
        try:
            return function(*args, **kwargs)
        finally:
            if block is not None:
                recorder.modules.leave()
            recorder.phase = "backward"

    return run


def _trained(module: nn.Module, recorder: Recorder) -> list[Tensor]:
    """All parameters that are trained, once each; real ones are copies, since a step changes them."""
    weights = recorder.weights
    found: dict[int, Tensor] = {}
    copies: dict[int, Tensor] = {}
    for table in (m._parameters for m in parts_of(module)):
        for name, weight in table.items():
            if weight is None or not has_gradient(weight) or not weights.is_trainable(weight):
                continue
            if id(weight) not in found:
                found[id(weight)] = weight
                if recorder.capture.fake_mode is None or is_its_own(weight):
                    found[id(weight)] = copies[identity(weight)] = recorder.copied(weight)
            table[name] = found[id(weight)]
    if recorder.capture.guard is not None:
        recorder.capture.guard.lend(copies)
    if not found:
        any_ = any(p.kind == "parameter" for p in weights.parameters)
        without = "all of its weights are frozen" if any_ else "it has no weights"
        raise InputError(f"{type(module).__name__} cannot be trained: {without}")
    return list(found.values())


def _unfrozen(module: nn.Module, known: Iterable[Tensor]) -> list[Tensor]:
    """Parameters beside those that are trained which have a gradient by now: the forward let them want
    one."""
    seen = {id(weight) for weight in known}
    parameters = (w for m in parts_of(module) for w in m._parameters.values() if w is not None)
    unique = {id(w): w for w in parameters if w.requires_grad and id(w) not in seen}
    return [w for w in unique.values() if w.grad is not None]


def has_gradient(weight: Tensor) -> bool:
    """Whether a weight is of numbers that autograd differentiates by."""
    return bool(weight.is_floating_point() or weight.is_complex())


def _here(weight: Tensor) -> Tensor:
    """What this rank updates of a weight: its piece, which is what an optimizer of spread weights comes
    down to, unless the gradient has first to be exchanged."""
    if not is_spread(weight):
        return weight
    spread, gradient = cast(Any, weight), cast(Any, weight.grad)
    if spread.placements != gradient.placements:
        return weight
    piece = local(weight)
    piece.grad = local(gradient)
    return piece


_NONE_REACHED = Remark(
    "gradients",
    "no weight has a gradient of its own after the backward: the step has no update by an optimizer",
)


def _kept(optimizer: str) -> dict[str, Tensor]:
    """What an optimizer keeps for a weight, by name, found out on a weight of one element, whatever a mode
    of somebody's makes of tensors. No hook of all optimizers is called: this is no step of theirs."""
    with only_heard(), torch.no_grad():
        weight = torch.zeros(1, requires_grad=True)
        weight.grad = torch.zeros(1)
        stepper = OPTIMIZERS[optimizer]([weight], foreach=False)
        unwrap(type(stepper).step)(stepper)
    return {k: v for k, v in stepper.state[weight].items() if isinstance(v, Tensor)}


def _state(weight: Tensor, kept: Mapping[str, Tensor], recorder: Recorder) -> dict[str, Tensor]:
    """What an optimizer keeps for a weight: numbers, and tensors as large as the weight."""
    state = {}
    for name, item in kept.items():
        state[name] = recorder.like(weight) if item.dim() else item.clone()
        recorder.existing(state[name], name)
    return state
