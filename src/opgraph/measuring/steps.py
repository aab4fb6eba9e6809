"""What is measured: one step of a model for real, on a device, with weights of its own: a forward, a step
of training, a prompt, or one more token, as the traced one was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from opgraph.inputs.base import Example
from opgraph.measuring.marks import Marks
from opgraph.options import Options
from opgraph.record.errors import TraceError, first_line
from opgraph.sources.base import Model
from opgraph.sources.ranks import arrived
from opgraph.tracing.base import Prepare, arguments
from opgraph.tracing.eager import materialized, sized
from opgraph.tracing.modes import generation
from opgraph.tracing.modes.training import Training, backward, has_gradient, still_parts
from opgraph.tracing.state.copies import deep_copy
from opgraph.tracing.state.iterators import is_iterator
from opgraph.tracing.state.memory import free_bytes

Run = Callable[[], Any]
_GENERATING: dict[str, Prepare] = {"prefill": generation.prefill, "decode": generation.decode}


@dataclass(frozen=True)
class Step:
    """A step that can be run again and again: `ready` prepares one, which is not measured, and gives what
    runs it. `module` is a copy of the model's, or made anew: the model itself is left alone. `shared` are
    the classes of arguments that cannot be copied: a step gets them as the last one has left them."""

    module: nn.Module
    ready: Callable[[Marks | None], Run]
    shared: set[type]


def step_of(
    model: Model,
    example: Example,
    options: Options,
    device: torch.device,
    *,
    gradients: bool = False,
) -> Step:
    """The step that the options ask for, on a device; `gradients` are on where forward computes some.

    Raises `TraceError` where the model cannot be copied, or has no weights that fit into memory.
    """
    whole = materialized(model, options.memory_limit or free_bytes() / 2**30)
    module = _placed(sized(whole, example), model, device)
    shared: set[type] = set()
    give = partial(_given, model.module, device, shared)
    if options.mode == "train":
        return Step(module, _training(module, example, options, device, give), shared)
    module.eval()
    prepare: Prepare | None = _GENERATING.get(options.mode)

    def ready(_: Marks | None) -> Run:
        given = give(example)
        if prepare is not None:
            with torch.no_grad():
                given = prepare(module, *given, None)

        def run() -> Any:
            with torch.set_grad_enabled(gradients):
                return arrived(module(*given[0], **given[1]))

        return run

    return Step(module, ready, shared)


def _placed(module: nn.Module, model: Model, device: torch.device) -> nn.Module:
    """A module of our own on the device, with the weights that were found."""
    if module is model.module:
        try:
            module = deep_copy(module)
        except Exception as error:
            raise TraceError(
                f"{model.info.name} cannot be copied, so that it stays as it is: {first_line(error)}"
            ) from error
        for weight in module.parameters():  # of a scripted module they are results of copying here
            if not weight.is_leaf:
                weight.detach_().requires_grad_()
    return module.to(device)


_Given = tuple[tuple[Any, ...], dict[str, Any]]


def _given(whole: nn.Module, device: torch.device, shared: set[type], example: Example) -> _Given:
    """The arguments of one step, which may change them: containers, tensors, iterators and objects of its
    own. Those of the `shared` classes cannot be copied; nor is the model, where one leads to it."""
    args, kwargs = arguments(example, None)
    leaves = zip(
        tree_leaves((example.args, dict(example.kwargs))), tree_leaves((args, kwargs)), strict=True
    )
    memo: dict[int, Any] = {id(whole): whole} | {id(t): own for t, own in leaves if own is not t}

    def own(item: Any) -> Any:
        if isinstance(item, Tensor):
            return item.to(device)
        if is_iterator(type(item)):  # it goes on from where it was already
            return item
        try:
            return deep_copy(item, memo)
        except Exception:  # noqa: BLE001  (objects may answer as they like)
            shared.add(type(item))
            return item

    made: _Given = tree_map(own, (args, kwargs))
    return made


def _training(
    module: nn.Module, example: Example, options: Options, device: torch.device,
    give: Callable[[Example], _Given],
) -> Callable[[Marks | None], Run]:  # fmt: skip
    """A step of training: gradients of the loss, and a step of the optimizer with its state there."""
    how = Training(options.optimizer, options.checkpointed, options.loss, options.accumulation)
    args, kwargs = how.prepare(module, *give(example), None)  # with labels made here
    labelled = replace(example, args=args, kwargs=kwargs)
    heard: list[Any] = []
    how.checkpoint(module, heard)
    still = still_parts(module)
    module.train()
    for name, part in module.named_modules():
        part.training &= name not in still
    weights = [w for w in module.parameters() if w.requires_grad and has_gradient(w)]
    if not weights:
        raise TraceError("all weights of the model are frozen: there is nothing to train")
    stepper = how.stepper(weights, "loop" if device.type == "cpu" else "foreach")
    scaler = torch.amp.GradScaler(device.type, enabled=options.loss_scaling)

    def ready(marks: Marks | None) -> Run:
        stepper.zero_grad(set_to_none=not options.accumulation)
        given = [give(labelled) for _ in range(options.micro_batches or 1)]
        heard[:] = () if marks is None else (marks,)

        def run() -> Any:
            for batch, named in given:
                loss = how.loss(module(*batch, **named))
                with nullcontext() if marks is None else marks.backward():
                    backward(scaler.scale(loss))
            if marks is not None:
                marks.phase = "optimizer"
            scaler.step(stepper)
            scaler.update()
            return loss

        return run

    return ready
