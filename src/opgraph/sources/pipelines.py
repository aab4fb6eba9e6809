"""The stages that a rank has of a pipeline, and torch's schedule that goes through them
(`torch.distributed.pipelining`), as one module: a step is what the schedule does."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from opgraph.record.errors import InputError
from opgraph.record.layout import Action
from opgraph.record.remarks import Remark
from opgraph.sources.ranks import current, forget, fsdp_state


def is_schedule(thing: Any) -> bool:
    """Whether something is a schedule of torch's; what is none imports nothing for that."""
    return any(
        c.__module__.startswith("torch.distributed.pipelining") and "Schedule" in c.__name__
        for c in type(thing).__mro__
    )


class Pipelined(nn.Module):
    """The stages of a schedule; each is called `stageN` by its number.

    A call is for the inputs of a whole step: the first stage takes them, the last one the `target`. Where
    this rank has neither, it takes nothing but what other stages send.

    `loss` is what is made small of what the last stage returns, where somebody knows it, `batch` what
    a step is called with on the first stage, and `names` what that calls it.

    Raises `InputError` where the process is no rank.
    """

    def __init__(self, schedule: Any) -> None:
        super().__init__()
        if current() is None:
            raise InputError("a pipeline's stages exchange something, and there are no ranks here",
                             hint="with opgraph.ranks(4, rank=1): … or --world-size 4")  # fmt: skip
        self.schedule = schedule
        self.loss: Any = None
        self.batch: tuple[Any, ...] = ()
        self._filled: list[tuple[Any, Any, Any]] = []
        self.parts: tuple[Any, ...] = tuple(getattr(schedule, "_stages", None) or [schedule._stage])
        for part in self.parts:
            self.add_module(f"stage{part.stage_index}", part.submod)
        self.names: tuple[str, ...] = ()
        if self.first:
            taken = inspect.signature(self.parts[0].submod.forward).parameters.values()
            self.names = tuple(p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD)

    def forward(self, x: Any, *more: Any, target: Any = None, **named: Any) -> Any:
        """What a step is called with; a pipeline is not gone through by a call (see `step`)."""
        raise NotImplementedError((x, more, target, named))

    @property
    def first(self) -> bool:
        """Whether the first stage is here."""
        return any(part.is_first for part in self.parts)

    @property
    def last(self) -> bool:
        """Whether the last stage is here."""
        return any(part.is_last for part in self.parts)

    @property
    def says(self) -> str:
        """What of it is here, in words."""
        whole = self.parts[0].num_stages
        here = " and ".join(f"{part.stage_index + 1:,}" for part in self.parts)
        kind = type(self.schedule).__name__.removeprefix("Schedule")
        return (f"stage{'s' * (len(self.parts) > 1)} {here} of {whole:,}, in the order of {kind} with "
                f"{self.schedule._n_microbatches:,} micro-batches")  # fmt: skip

    @property
    def orders(self) -> tuple[tuple[Action, ...], ...]:
        """What each rank of the pipeline does, in order."""
        found = self.schedule.pipeline_order
        rows = (_actions(found[rank]) for rank in sorted(found))
        single = len(self.parts) == 1 and hasattr(self.schedule, "_stage")
        return tuple(tuple(_numbered(row) if single else row) for row in rows)

    @property
    def rank(self) -> int:
        """The number of this rank in the pipeline."""
        return int(self.parts[0].group_rank)

    def hand_over(self, kwargs: dict[str, Any]) -> Iterator[Remark]:
        """Find what stages take and give of a micro-batch where their program does not say it, for which
        torch sends it: by a run of each. What others send is as wide as the weights of a stage take it."""
        from torch.distributed.pipelining._utils import extract_tensor_metas

        known: dict[int, Any] = {}
        named = {n: a for n, a in kwargs.items() if n not in ("target", "loss_kwargs")}
        for part in self.parts:
            meta: Any = getattr(part, "_user_meta", None)
            if meta is None or meta.is_complete_for_forward():
                continue
            batches, names = self.schedule._split_inputs(self.batch, named)
            before = batches[0] if part.is_first else known.get(part.stage_index - 1)
            tried = [before] if before else [*known.values(), *_handed(batches[0], part.submod)]
            for given in tried:
                try:
                    out = part.submod(*given, **names[0])
                except (RuntimeError, ValueError, TypeError, AssertionError):
                    forget(part.submod.modules())
                else:
                    break
            else:
                continue
            known[part.stage_index] = outs = out if isinstance(out, tuple) else (out,)
            if before is None:
                given = tuple(g.to(outs[0].dtype) for g in given)
                shape = "x".join(map(str, given[0].shape))
                yield Remark(
                    "guessed-inputs", f"stage {part.stage_index + 1} is taken to be handed {shape}: "
                    "PipelineStage(…, input_args=…, output_args=…) says it",
                )  # fmt: skip
            self._filled.append((meta, meta.inputs, meta.outputs))
            for of, tensors in (("inputs", given), ("outputs", outs)):
                follows = of == "outputs" or not part.is_first
                like = [
                    t.detach().requires_grad_(follows and t.is_floating_point()) for t in tensors
                ]
                setattr(meta, of, extract_tensor_metas(tuple(like)))
            forget(part.submod.modules())

    def step(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Callable[[Any], Any],
        begin: Callable[[Action], None],
    ) -> list[torch.Tensor]:  # fmt: skip
        """Go through the schedule, and give the losses of all micro-batches, where the last stage is here.
        Without a target the `loss` of what the last stage returns stands for the schedule's. `begin` hears
        of everything that is done when it begins."""
        losses: list[torch.Tensor] = []
        target = kwargs.pop("target", None)
        if not self.first:
            args = ()
        # What the last stage returns of all micro-batches is put together where somebody wants it.
        taken = inspect.signature(self.schedule.step).parameters
        more: dict[str, Any] = {"return_outputs": False} if "return_outputs" in taken else {}
        with ExitStack() as stack:
            for thing in (self.schedule, *self.parts):
                stack.callback(_as_they_were, thing, {**vars(thing)}, [
                    (held, held.copy()) for held in vars(thing).values()
                    if isinstance(held, (dict, list, set))
                ])  # fmt: skip
            for part in self.parts:
                part._stage_meta = copy.copy(part._stage_meta)
                stack.enter_context(patch.object(part, "device", torch.device("cpu")))
                for name, kind in _KINDS.items():
                    heard = _heard(getattr(part, name), kind, part, begin)
                    stack.enter_context(patch.object(part, name, heard))
            try:
                if not self.last or target is not None:
                    given = {"target": target, "losses": losses} if self.last else {}
                    self.schedule.step(*args, **given, **more, **kwargs)
                    return losses
                own = lambda out, _: loss(out)  # noqa: E731
                stack.enter_context(patch.object(self.schedule, "_loss_fn", own))
                batches = self.schedule._n_microbatches
                split, named = self.schedule._split_inputs(args, kwargs)
                self.schedule.step(
                    arg_mbs=split,
                    kwarg_mbs=named,
                    target_mbs=[None] * batches,
                    losses=losses,
                    **more,
                )
            except RuntimeError as error:
                if "dynamic shape inference" not in str(error):
                    raise error.__cause__ or error from None  # it tells of all arguments
                raise InputError(
                    "what this stage is handed is not known, and it does not run on positions as wide as "
                    "its weights: PipelineStage(…, input_args=…, output_args=…) says it"
                ) from error
            finally:
                for meta, inputs, outputs in self._filled:
                    meta.inputs, meta.outputs = inputs, outputs
                self._filled.clear()
        return losses


def _as_they_were(thing: Any, attributes: Mapping[str, Any], filled: list[tuple[Any, Any]]) -> None:
    """Let a schedule or a stage have what it had: a step prepares room for what it receives, and a later
    one would go on with that."""
    vars(thing).clear()
    vars(thing).update(attributes)
    for held, before in filled:
        held.clear()
        (held.extend if isinstance(held, list) else held.update)(before)


_KINDS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
"""What a stage is told to do, and how a schedule calls it."""


def _handed(batch: tuple[Any, ...], module: nn.Module) -> Iterator[tuple[torch.Tensor]]:
    """What a stage could be handed of a micro-batch: as many positions, or a share of them where these are
    split over ranks, each as wide as weights of the stage."""
    first = next((a for a in batch if isinstance(a, torch.Tensor)), None)
    weights = [p for p in module.parameters() if p.dim()]
    if first is None or not weights:
        return
    policy = getattr(fsdp_state(module), "_mp_policy", None)
    dtype = getattr(policy, "param_dtype", None) or weights[0].dtype
    *lead, count = first.shape[:-1] if first.is_floating_point() else first.shape
    for parts in (2**n for n in range(8) if lead and count % 2**n == 0):
        for width in dict.fromkeys(p.shape[-1] for p in weights):
            yield (torch.empty(*lead, count // parts, width, dtype=dtype),)


def _heard(
    method: Callable[..., Any], kind: str, part: Any, begin: Callable[[Action], None]
) -> Callable[..., Any]:
    def call(batch: int, *args: Any, **kwargs: Any) -> Any:
        half = kind == "B" and not kwargs.get("full_backward", True)
        begin(("I" if half else kind, part.stage_index, batch))
        return method(batch, *args, **kwargs)

    return call


def _actions(row: Any) -> Iterator[Action]:
    """Of what a rank does, what is computed: forwards, backwards, and halves of these."""
    for action in row:
        parts = getattr(action, "sub_actions", None) or [action]
        for each in parts:
            kind = getattr(getattr(each, "computation_type", None), "value", "")
            if kind in ("F", "B", "I", "W"):
                yield kind, each.stage_index, each.microbatch_index


def _numbered(row: Iterable[Action]) -> Iterator[Action]:
    """The same where micro-batches come one after the other: of 1F1B torch shows other numbers."""
    numbers = {"F": count(), "B": count()}
    for kind, stage, _ in row:
        yield kind, stage, next(numbers[kind])
