"""A model cut into the stages of a pipeline, where no program of a person's does it, and torch's schedule
over those of this rank.

A model of transformers says itself what runs before its layers, what behind them, and what is handed on
(`pp_plan`): a stage is the model with the layers of others taken out. Any other model is cut between its
repeated blocks by torch's own tool (`torch.distributed.pipelining.pipeline`), which exports it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_map_only

from opgraph.inputs.base import Example
from opgraph.record import units
from opgraph.record.errors import InputError, first_line
from opgraph.record.layout import Layout
from opgraph.sources.pipelines import Pipelined
from opgraph.tracing.base import bound
from opgraph.tracing.modes.loss import Loss, LossFunction, is_auto, loss_for, loss_of
from opgraph.tracing.modes.training import repeated
from opgraph.tracing.state.guard import guarded


@dataclass(frozen=True)
class Blocks:
    """The repeated blocks that a module has, and whether the `first` and the `last` of all are among
    them."""

    here: Sequence[nn.Module]
    first: bool = True
    last: bool = True


Spread = Callable[[nn.Module, Blocks], None]
"""Splits and shards a module that has some of the repeated blocks."""


def pipelined(
    copied: Callable[[], nn.Module], example: Example, layout: Layout, group: Any, spread: Spread,
    asked: str | LossFunction,
) -> tuple[Pipelined, Example]:  # fmt: skip
    """The stages of this rank, each of a copy of the model, and what a step of them is called with. `group`
    are the ranks of the pipeline, and `asked` is the loss.

    Raises `InputError` for a model that is not cut, and what torch's schedules do not do.
    """
    import torch.distributed as dist

    whole = copied()
    path, count = layers_of(whole)
    shares = layout.layers(count)
    if min(shares) < 1:
        raise InputError(f"{count:,} layers are fewer than {len(shares):,} stages",
                         hint=f"--pipeline-parallel {max(1, count // layout.chunks)}")  # fmt: skip
    ends = [sum(shares[:i]) for i in range(len(shares) + 1)]
    here = range(dist.get_rank(group), len(shares), layout.pipeline)
    plan = dict(getattr(whole, "pp_plan", None) or {})
    call = bound(whole, example.args, example.kwargs)
    _divided(call, layout.micro_batches)
    if path in plan and "input_ids" in call:
        found = loss_for(whole, example.args, example.kwargs, asked)
        given = {**call, **({} if found is None else found.arguments), "use_cache": False}
        stages = _by_plan(copied, plan, path, ends, here, given, layout, group, spread, found)
        says = "the loss of what it returns" if found is None else found.says
        loss: Loss | None = Loss("schedule", says, lambda result: result)
        ids = given.pop("input_ids")
        passed = replace(example, args=(ids,), kwargs=given)
        taken = ["input_ids"]
    else:
        stages, taken = _by_export(whole, path, ends, here, example, layout, group, spread)
        loss = None if is_auto(asked) else loss_for(whole, (), {}, asked)
        passed = replace(example, args=tuple(call[n] for n in taken), kwargs={})
    made = Pipelined(_schedule(layout, stages))
    made.loss, made.names = loss, tuple(taken)
    return made, passed


def _divided(call: Mapping[str, Any], batches: int) -> None:
    """Raise `InputError` where what a step is called with is not so many micro-batches."""
    for name, item in call.items():
        if isinstance(item, Tensor) and item.dim() and item.shape[0] % batches:
            raise InputError(
                f"the {item.shape[0]:,} of {name} are not {units.plural(batches, 'micro-batch')}"
            )


def layers_of(module: nn.Module) -> tuple[str, int]:
    """The path of the list of layers that a model goes through, and how many there are.

    Raises `InputError` where its repeated blocks do not stand in one list.
    """
    blocks = list(repeated(module))
    for name, part in module.named_modules():
        listed = isinstance(part, (nn.ModuleList, nn.Sequential)) and len(part) == len(blocks)
        if listed and len(blocks) > 1 and all(a is b for a, b in zip(part, blocks, strict=True)):
            return name, len(blocks)
    raise InputError(f"{type(module).__name__} has no list of layers that it goes through",
                     hint="a program of one's own cuts any model: opgraph.ranks")  # fmt: skip


def kept_layers(module: nn.Module, path: str, left: Sequence[int], numbers: bool = False) -> None:
    """Leave only some layers of the list at a path; what counts them, the model's configuration among it,
    goes by what is left. With `numbers` they keep the names that they had."""
    listed = module.get_submodule(path)
    whole = list(listed.children())
    listed._modules = {str(i if numbers else at): whole[i] for at, i in enumerate(left)}
    for number, block in enumerate(listed.children()):
        for part in block.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = number
    config = getattr(module, "config", None)
    for inner in {
        id(c): c for c in (config, getattr(config, "text_config", None)) if c is not None
    }.values():
        if getattr(inner, "num_hidden_layers", None) == len(whole):
            inner.num_hidden_layers = len(left)
            types = getattr(inner, "layer_types", None)
            if isinstance(types, list) and len(types) == len(whole):
                inner.layer_types = [types[i] for i in left]


def _by_plan(
    copied: Callable[[], nn.Module], plan: Mapping[str, Any], path: str, ends: Sequence[int],
    here: range, given: Mapping[str, Any], layout: Layout, group: Any, spread: Spread,
    loss: Loss | None,
) -> list[Any]:  # fmt: skip
    """Stages that are the model without the layers of others, and without what is before or behind."""
    from torch.distributed.pipelining import PipelineStage

    before = [p for p, (takes, _) in plan.items() if takes == ["input_ids"]]
    behind = [p for p, (takes, _) in plan.items() if takes == ["hidden_states"] and p != path]
    count = len(ends) - 1
    ids = given["input_ids"]
    like = ids[: ids.shape[0] // layout.micro_batches].to("meta")
    reads = copied().get_submodule(before[0])
    with guarded([reads]):
        handed: Tensor = reads(like).detach()
    if layout.sequence:
        if handed.shape[1] % layout.tensor:
            raise InputError(
                f"{handed.shape[1]:,} tokens do not divide over {layout.tensor:,} ranks"
            )
        handed = handed[:, : handed.shape[1] // layout.tensor]
    found = []
    for number in here:
        module = copied()
        first, last = number == 0, number == count - 1
        kept_layers(module, path, range(*ends[number : number + 2]), numbers=True)
        for gone in (*([] if first else before), *([] if last else behind)):
            owner, _, name = gone.rpartition(".")
            setattr(module.get_submodule(owner), name, nn.Identity())
        blocks = list(module.get_submodule(path).children())
        spread(module, Blocks(blocks, first, last))
        if layout.sequence and not first:
            blocks[0].register_forward_pre_hook(_split_again, with_kwargs=True, prepend=True)
        # What others go on with is what the layers give, before a head looks at it.
        inner: Any = module if last else module.get_submodule(path.rpartition(".")[0])
        inner = module.forward if inner is module else inner
        ranks = layout.tensor if layout.sequence else 1
        module.forward = partial(_called, inner, first, last, loss, ranks)
        out = torch.empty((), dtype=handed.dtype, device="meta") if last else handed
        found.append(PipelineStage(
            module, number, count, torch.device("cpu"), group=group,
            input_args=like if first else handed.clone().requires_grad_(),
            output_args=out.clone().requires_grad_(),
        ))  # fmt: skip
    return found


def _called(
    forward: Callable[..., Any], first: bool, last: bool, loss: Loss | None, ranks: int, x: Tensor,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """What a stage gives for what it is handed, tokens that are split over so many `ranks`: the loss, where
    it is the `last`."""
    if ranks > 1 and not first:
        x = _all_tokens(x, ranks)
    labels = {} if loss is None else loss.arguments
    if not last:
        kwargs = {n: a for n, a in kwargs.items() if n not in labels}
    out = forward(**{"input_ids" if first else "inputs_embeds": x}, **kwargs)
    if last:
        return (loss or loss_of(out)).of(out)
    handed: Tensor = out[0]
    return handed


_SPLIT = "_opgraph_split"
"""Where what stands for all tokens has those of this rank."""


def _all_tokens(x: Tensor, ranks: int) -> Tensor:
    """What stands for the tokens of all ranks (batch x tokens x features), of which this one has `x`: a
    model asks how many there are for their positions and masks. Nothing is computed or kept for it."""
    whole = x[:, :1].expand(-1, x.shape[1] * ranks, -1)
    setattr(whole, _SPLIT, x)
    return whole


def _split_again(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the first block of a stage have this rank's tokens."""
    args, kwargs = tree_map_only(Tensor, lambda x: getattr(x, _SPLIT, x), (args, kwargs))
    return args, kwargs


def _by_export(
    whole: nn.Module, path: str, ends: Sequence[int], here: range, example: Example, layout: Layout,
    group: Any, spread: Spread,
) -> tuple[list[Any], list[str]]:  # fmt: skip
    """Stages that torch cuts out of the exported model, and what the first one takes."""
    from torch.distributed.pipelining import SplitPoint, pipeline

    if layout.tensor > 1 or layout.expert > 1:
        raise InputError("a pipeline of a model without a plan of its own (pp_plan) is not split over "
                         "tensor_parallel or expert_parallel, too", hint="--fsdp goes with it")  # fmt: skip

    def part(x: Tensor) -> Tensor:
        return x[: x.shape[0] // layout.micro_batches].to("meta")

    args, kwargs = tree_map_only(Tensor, part, (tuple(example.args), dict(example.kwargs)))
    whole.train()
    if (config := getattr(whole, "config", None)) is not None:
        config.use_cache = False  # what is kept of tokens is of no use to a step, and no tensor
    paths = [f"{path}.{name}".lstrip(".") for name in whole.get_submodule(path)._modules]
    cuts = {paths[at]: SplitPoint.BEGINNING for at in ends[1:-1]}
    try:
        with guarded([whole]):
            pipe = pipeline(whole, args, kwargs, split_spec=cuts)
    except Exception as error:
        name = type(whole).__name__
        raise InputError(f"torch does not cut {name} into stages: {first_line(error)}",
                         hint="a program of one's own cuts any model") from error  # fmt: skip
    found = []
    for number in here:
        module = pipe.get_stage_module(number)
        _on_this_device(module)
        blocks = [module.get_submodule(p) for p in paths[slice(*ends[number : number + 2])]]
        spread(module, Blocks(blocks, number == 0, number == len(ends) - 2))
        found.append(pipe.build_stage(number, torch.device("cpu"), group))
    return found, list(inspect.signature(pipe.get_stage_module(0).forward).parameters)


def _on_this_device(exported: nn.Module) -> None:
    """Let what was exported on the meta device make its tensors on that of the ranks."""

    def here(item: Any) -> Any:
        return torch.device("cpu") if item == torch.device("meta") else item

    for part in exported.modules():
        graph = getattr(part, "graph", None)
        for node in graph.nodes if isinstance(graph, Graph) else ():
            node.args, node.kwargs = map_aggregate((node.args, node.kwargs), here)
        if isinstance(part, GraphModule):
            part.recompile()


def _schedule(layout: Layout, stages: list[Any]) -> Any:
    """Torch's schedule of that name over the stages of this rank."""
    from torch.distributed import pipelining

    names = {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe",
             "interleaved": "ScheduleInterleaved1F1B",
             "zero-bubble": "ScheduleInterleavedZeroBubble"}  # fmt: skip
    kind: Any = getattr(pipelining, names[layout.schedule])
    over = stages if layout.chunks > 1 else stages[0]
    try:
        return kind(over, layout.micro_batches, loss_fn=_unknown)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{layout.schedule} over {layout.pipeline:,} stages does not take "
                         f"{units.plural(layout.micro_batches, 'micro-batch')}: {first_line(error)}",
                         hint=f"--micro-batches {2 * layout.pipeline}") from error  # fmt: skip


def _unknown(_out: Any, _target: Any) -> Tensor:
    """Stands for a loss until the step that has one; a schedule without one has no backward."""
    raise AssertionError("the loss of a step is that of the training")


def kinds_of_ranks(module: nn.Module, layout: Layout) -> list[Any]:
    """What the stages of each rank of a pipeline have in common with those of ranks that are alike."""
    path, count = layers_of(module)
    blocks = list(module.get_submodule(path).children())
    shares = layout.layers(count)
    ends = [sum(shares[:i]) for i in range(len(shares) + 1)]
    last = len(shares) - 1
    kinds = [(i == 0, i == last, tuple(map(kind_of, blocks[ends[i] : ends[i + 1]])))
             for i in range(len(shares))]  # fmt: skip
    return [tuple(kinds[rank :: layout.pipeline]) for rank in range(layout.pipeline)]


def of_a_sample(layout: Layout, example: Example) -> tuple[Layout, Example]:
    """The layout and the inputs of a step of a few micro-batches, which shows how long each pass takes."""
    few = min(layout.micro_batches, layout.pipeline if layout.chunks > 1 else 3)
    schedule: Any = layout.schedule if layout.chunks > 1 else "gpipe"

    def part(x: Tensor) -> Tensor:
        return x[: x.shape[0] * few // layout.micro_batches] if x.dim() else x

    args, kwargs = tree_map_only(Tensor, part, (tuple(example.args), dict(example.kwargs)))
    return replace(layout, micro_batches=few, schedule=schedule), replace(
        example, args=args, kwargs=kwargs
    )


def kind_of(block: nn.Module) -> Any:
    """What blocks that are alike have in common: modules, sizes of weights, and settings."""
    settings = {
        k: v for m in block.modules() for k, v in vars(m).items()
        if isinstance(v, (int, float, str)) and k != "layer_idx"
    }  # fmt: skip
    weights = tuple((n, tuple(p.shape)) for n, p in block.named_parameters())
    return type(block), weights, tuple(sorted(settings.items()))
