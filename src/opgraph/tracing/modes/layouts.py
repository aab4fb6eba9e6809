"""A model laid out over ranks by torch's own tools, where no program of a person's does it. The model that
is laid out is a copy without values: what these tools change cannot be changed back.

Linear layers are split by columns and rows (Shoeybi et al., "Megatron-LM", 2019): by the plan that a model
of transformers has for it, elsewhere as its graph allows. What several of them read is gathered, and its
gradient reduced, once for all of a module.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, update_wrapper
from itertools import cycle
from math import gcd
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from opgraph.inputs.base import Example
from opgraph.record import units
from opgraph.record.errors import InputError, first_line
from opgraph.record.layout import Counted, Layout, Split
from opgraph.sources.base import Model
from opgraph.sources.pipelines import Pipelined
from opgraph.sources.ranks import KEPT, STAGED, current, is_spread
from opgraph.tracing.capture.names import spelled, target
from opgraph.tracing.modes.loss import LossFunction
from opgraph.tracing.modes.stages import Blocks, Spread, kept_layers, kind_of, layers_of, pipelined
from opgraph.tracing.modes.training import repeated
from opgraph.tracing.parts import parameters_of, parts_of
from opgraph.tracing.state.copies import adapting, copied

Styles = Mapping[str, str]
"""How modules are split, by their paths: "column", "row", "gathered", "vocabulary", or a style that
transformers knows."""


def laid_out(model: Model, layout: Layout, allowed: Callable[[], Split]) -> Model:
    """The model over all ranks of the world; `allowed` finds how its graph allows it to be split.

    Raises `InputError` for what it, or torch, does not divide.
    """

    def over(_: Any, spread: Spread) -> nn.Module:
        module = _without_values(model.module)
        spread(module, Blocks(list(repeated(module))))
        return module

    return _over(model, layout, allowed, over)


def in_stages(
    model: Model, example: Example, layout: Layout, allowed: Callable[[], Split],
    loss: str | LossFunction,
) -> tuple[Model, Example]:  # fmt: skip
    """The stages of this rank, laid out over the ranks beside it, and what it calls them with: the
    `example` is of a whole step.

    Raises `InputError` for what it, or torch, does not divide.
    """
    passed = example

    def over(mesh: Any, spread: Spread) -> nn.Module:
        nonlocal passed
        copied = partial(_without_values, model.module)
        module, passed = pipelined(
            copied, example, layout, mesh["pipeline"].get_group(), spread, loss
        )
        return module

    made = _over(model, layout, allowed, over)
    with adapting(model.module):
        tied = list(_tied(model.module, made.module))
    return replace(made, info=made.info.noting(made.module.says, *tied)), passed


def _over(
    model: Model, layout: Layout, allowed: Callable[[], Split],
    over: Callable[[Any, Spread], nn.Module],
) -> Model:  # fmt: skip
    """The model that is made over a mesh of all ranks, with what splits and shards a part of it."""
    if current() is None:
        raise InputError("a model is laid out over the ranks of a world", hint="opgraph.ranks(8)")
    mesh = _mesh(layout)
    notes: dict[str, None] = {}

    def spread(module: nn.Module, blocks: Blocks) -> None:
        if layout.tensor > 1 or layout.expert > 1:
            notes.update(dict.fromkeys(_split(module, mesh, layout, allowed, blocks)))
        if layout.fsdp > 1 or layout.data > 1 or layout.context > 1:
            notes.update(dict.fromkeys(_sharded(module, blocks.here, mesh, layout)))

    try:
        with adapting(model.module):
            module = over(mesh, spread)
    except InputError:
        raise
    except (RuntimeError, ValueError, NotImplementedError, AssertionError, TypeError) as error:
        text = f"{model.info.name} cannot be laid out: {first_line(error)}"
        raise InputError(text, hint=_ON_PAPER) from error
    return replace(model, module=module, info=model.info.noting(*notes), materialize=None)


def _tied(whole: nn.Module, module: Pipelined) -> Iterator[str]:
    """What is to be said of weights that several stages have: what these exchange of their gradients is
    left out."""
    names: dict[int, list[str]] = {}
    for name, weight in whole.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(name)
    here = {n.partition(".")[2] for n, _ in module.named_parameters(remove_duplicate=False)}
    for shared in names.values():
        if len(shared) > 1 and here.intersection(shared):
            yield (
                f"{' and '.join(shared)} are one weight, of which the first stage and the last have a copy "
                "each: the sum of their gradients is not exchanged"
            )


_ON_PAPER = "a saved profile of its forward (-o FILE.json) can be laid out on paper"

_ORDER = ("pipeline", "data", "fsdp", "tensor")
"""Dimensions of the mesh, those whose ranks are nearest to each other last."""


def _mesh(layout: Layout, *, tokens: bool = False) -> Any:
    """All ranks of the world, by these dimensions. Those that split tokens are among those of "fsdp", since
    each has other gradients; or, for their sake, the last of them apart."""
    from torch.distributed.device_mesh import init_device_mesh

    shape = {n: getattr(layout, n) for n in _ORDER}
    if tokens:
        shape = {"others": layout.devices // (layout.context * layout.tensor),
                 "context": layout.context, "tensor": layout.tensor}  # fmt: skip
    else:
        shape["fsdp"] *= layout.context
    return init_device_mesh(
        "cpu", tuple(shape.values()), mesh_dim_names=tuple(shape),
        # Where one of them has all ranks it is a group of its own, by its name, and not the one of all.
        backend_override=dict.fromkeys(shape, "fake"),
    )  # fmt: skip


@contextmanager
def tokens_split(example: Example, layout: Layout, causal: Callable[[], bool]) -> Iterator[Example]:
    """What this rank reads of an `example` whose tokens are split throughout; within, attention goes over
    all of them by torch's `context_parallel`. Each rank has a run of tokens from both ends where attention
    is `causal`, so that all have as much to do.

    Raises `InputError` for inputs that are no tokens, and for as many as are not divided.
    """
    if layout.context == 1:
        yield example
        return
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._context_parallel import _attention

    leaves, spec = tree_flatten((example.args, dict(example.kwargs)))
    first = next((x for x in leaves if isinstance(x, Tensor)), None)
    if first is None or first.dim() not in (2, 3):
        raise InputError("tokens are split (context_parallel) of inputs that are batch x tokens, with or "
                         "without features")  # fmt: skip
    tokens, even = first.shape[1], causal()
    parts = layout.context * (2 if even else 1)
    if tokens % parts:
        raise InputError(f"{tokens:,} tokens are not {parts:,} runs of them, "
                         f"{'two' if even else 'one'} for each of {layout.context:,} ranks",
                         hint=f"--seq-len {max(1, tokens // parts) * parts}")  # fmt: skip
    copied = [x.clone() if isinstance(x, Tensor) else x for x in leaves]
    split = [x for x in copied if isinstance(x, Tensor) and x.shape[1:2] == (tokens,)]
    mesh = _mesh(layout, tokens=True)["context"]
    with (
        patch.object(
            _attention, "_dispatch_mode", _attention._dispatch_mode
        ),  # torch sets it, and leaves it
        patch.object(_attention._cp_options, "enable_load_balance", even),
        context_parallel(
            mesh, buffers=split, buffer_seq_dims=[1] * len(split), no_restore_buffers={*split}
        ),
    ):
        args, kwargs = tree_unflatten(copied, spec)
        notes = (*example.notes, *([_LEFT_OUT] if even else []))
        yield replace(example, args=args, kwargs=kwargs, notes=notes)


_LEFT_OUT = (
    "of other ranks' tokens attention goes over those that a causal mask leaves: the FLOPs of all ranks "
    "add up to fewer than the model's own, in which it counts all"
)


def _sharded(
    module: nn.Module, blocks: Sequence[nn.Module], mesh: Any, layout: Layout
) -> Iterator[str]:
    """Shard each repeated block, and what is beside them, over the ranks that have batches of their own;
    several copies of that exchange gradients."""
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    ranks = layout.shards
    if ranks == 1:
        over = mesh["data"]
        from torch.distributed._composable.replicate_with_fsdp import replicate

        shard: Any = partial(replicate, mesh=over)
    else:
        over = mesh["fsdp"] if layout.data == 1 else mesh["data", "fsdp"]
        shard = partial(
            fully_shard, mesh=over, reshard_after_forward=None if layout.zero == 3 else False,
            **({"offload_policy": CPUOffloadPolicy()} if layout.offload else {}),
        )  # fmt: skip
    for block in blocks:
        shard(block)
    shard(module)
    setattr(module, KEPT, layout.zero if ranks > 1 else 0)
    if ranks > 1:
        how = {3: "gathered one after the other", 2: "kept from the forward to the backward",
               1: "kept, and reduced with the last micro-batch"}[layout.zero]  # fmt: skip
        if layout.pipeline > 1:
            how = ("gathered for each micro-batch" if layout.zero == 3 else "kept for the step") + (
                ", and reduced when all micro-batches are done"
            )
        yield f"sharded over {ranks:,} ranks as {len(blocks)} repeated blocks and the rest, {how}"
    if layout.data > 1:
        last = " with the last micro-batch" if layout.micro_batches > 1 else ""
        yield f"{layout.data:,} copies, whose gradients are added up{last}"


# Splitting operators over ranks.


def _split(
    module: nn.Module, mesh: Any, layout: Layout, allowed: Callable[[], Split], blocks: Blocks
) -> Iterator[str]:
    """Split linear layers, tables and experts."""
    planned = _planned(module, layout)
    found = Split({}) if planned is not None or layout.tensor == 1 else allowed()
    styles = found.styles if planned is None else planned
    modules = dict(module.named_modules())
    own = {
        p: s for p, s in styles.items() if s in _OWN and _is_layer(modules.get(p), found.turned, p)
    }
    others = {p: s for p, s in styles.items() if p not in own}
    if planned is None and others:
        kinds = sorted({type(modules[p]).__name__ for p in others if p in modules})
        raise InputError(f"torch does not split layers like {', '.join(kinds) or next(iter(others))}, "
                         "and the model has no plan of its own", hint=_ON_PAPER)  # fmt: skip
    how = "the model's own plan" if planned is not None else "what its graph allows"
    if layout.tensor > 1:
        if not own:
            raise InputError("no linear layer of it can be split over ranks",
                             hint="without tensor_parallel")  # fmt: skip
        if layout.sequence and others:
            path, style = next(iter(others.items()))
            raise InputError(
                f"sequence_parallel is for blocks of which linear layers alone are split: {path} is "
                f"{style} by {how}",
                hint="without sequence_parallel",
            )
        uneven = [n for n in sorted(found.sizes) if n % layout.tensor]
        if uneven and not any(hasattr(m, "num_key_value_groups") for m in modules.values()):
            raise InputError(f"{uneven[0]:,} heads or features ({found.sizes[uneven[0]]}) do not divide "
                             f"over {layout.tensor:,} ranks",
                             hint=f"{_divisors(gcd(*found.sizes))} do")  # fmt: skip
        yield from _replicated_heads(module, own, layout.tensor)
        if layout.sequence and not blocks.here:
            raise InputError(
                "sequence_parallel splits tokens between repeated blocks, of which it has none"
            )
        _linears(
            module, mesh["tensor"], own, found.turned, blocks if layout.sequence else Blocks(())
        )
        counted = {p: c for p, c in found.counted.items() if p in modules and p not in own}
        told = {n for m in modules.values() for n in _of_a_rank(m, found.sizes, layout.tensor)} if (
            found.told) else set()  # fmt: skip
        if told:
            yield f"{' and '.join(sorted(told))} of its modules are those of a rank"
        _counting({p: (modules[p], c) for p, c in counted.items()}, mesh["tensor"], bool(told))
        yield f"split over {layout.tensor:,} ranks by {how}: {_styled(own)}"
    if others or layout.expert > 1:
        yield from _by_transformers(module, mesh, others, layout)


_OWN = ("column", "row", "gathered", "vocabulary")


def _is_layer(module: nn.Module | None, turned: Collection[str], path: str) -> bool:
    """Whether a module is one that torch splits, or one like it whose weight is inputs x outputs."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        return True
    return path in turned and module is not None and {*module._parameters} <= {"weight", "bias"}


def _styled(styles: Styles) -> str:
    names = {"column": "by columns", "row": "by rows", "gathered": "by columns and gathered",
             "vocabulary": "by the vocabulary"}  # fmt: skip
    found = {s: list(styles.values()).count(s) for s in _OWN}
    return ", ".join(f"{n} {names[s]}" for s, n in found.items() if n)


_TERMS = {"colwise": "column", "rowwise": "row", "colwise_gather_output": "gathered",
          "colwise_rep": "gathered", "embedding_rowwise": "vocabulary"}  # fmt: skip
"""Styles of transformers' plans as they are called here."""


def _planned(module: nn.Module, layout: Layout) -> dict[str, str] | None:
    """The model's own plan of transformers', by paths of modules and weights; None where it has none."""
    rules: dict[str, str] = dict(getattr(module, "tp_plan", None) or {})
    experts: dict[str, str] = dict(getattr(module, "ep_plan", None) or {})
    if layout.expert > 1 and not experts:
        raise InputError("this model has no plan for its experts",
                         hint="a program of one's own spreads them: examples/experts_apart.py")  # fmt: skip
    if layout.expert > 1:
        covered = tuple(experts)
        rules = {k: s for k, s in rules.items() if not k.startswith(covered)}
    if not rules:
        return None
    known = [
        (re.compile(re.escape(k).replace(r"\*", r"\d+")), _TERMS.get(s, s))
        for k, s in rules.items()
    ]
    there = (n for n, m in module.named_modules() if not isinstance(m, nn.Identity))
    names = [*there, *(n for n, _ in module.named_parameters())]
    found = {}
    for name in names:
        style = next((s for rule, s in known if rule.fullmatch(name)), None)
        if style is not None:
            found[name] = style
    return found


def _replicated_heads(module: nn.Module, styles: Styles, ranks: int) -> Iterator[str]:
    """Let ranks that share a head of keys and values each have it, as engines do: the projection has each
    of its rows as often as that."""
    widened = set()
    for path, style in styles.items():
        layer = module.get_submodule(path)
        if style != "column" or not isinstance(layer, nn.Linear):
            continue
        owner: Any = module.get_submodule(path.rpartition(".")[0])
        size: int = getattr(owner, "head_dim", 0) or 0
        heads = layer.out_features // size if size else 0
        if not heads or layer.out_features % size or heads % ranks == 0:
            if layer.out_features % ranks:
                raise InputError(
                    f"{layer.out_features:,} columns of {path} do not divide over {ranks:,} ranks"
                )
            continue
        queries: int = getattr(getattr(owner, "config", None), "num_attention_heads", 0)
        if (
            not hasattr(owner, "num_key_value_groups")
            or heads == queries
            or ranks % heads
            or queries % ranks
        ):
            raise InputError(f"{heads:,} heads of {path} do not divide over {ranks:,} ranks",
                             hint=f"{_divisors(heads)} do")  # fmt: skip
        layer.out_features = ranks * size
        for name, weight in list(layer._parameters.items()):
            if weight is not None:
                bare = weight.new_empty((layer.out_features, *weight.shape[1:]))
                setattr(layer, name, nn.Parameter(bare, requires_grad=weight.requires_grad))
        widened.add((owner, queries // ranks, heads))
    for owner, groups, _ in widened:
        owner.num_key_value_groups = groups
    for heads in sorted({h for _, _, h in widened}):
        yield f"each of the {heads:,} heads of keys and values is on {ranks // heads:,} ranks"


def _divisors(n: int) -> str:
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)


def _linears(
    module: nn.Module, mesh: Any, styles: Styles, turned: Collection[str], within: Blocks
) -> None:
    """Split linear layers and tables by torch's styles. What several columns of one module read is gathered
    there once; `within` blocks tokens are split."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    blocks = within.here
    inside = {id(m) for b in blocks for m in b.modules()}
    tied: dict[int, list[tuple[nn.Module, str]]] = {}
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                tied.setdefault(id(weight), []).append((part, name))
    read: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
    gathering: dict[str, Any] = {}
    width = 0
    for path, style in styles.items():
        layer: Any = module.get_submodule(path)
        split = id(layer) in inside
        how: Any = {
            "column": ColwiseParallel,
            "gathered": partial(ColwiseParallel, output_layouts=Replicate()),
            "row": partial(RowwiseParallel, output_layouts=Shard(1) if split else Replicate()),
            "vocabulary": partial(RowwiseParallel, input_layouts=Replicate()),
        }[style]()
        if style == "column":
            width = width or layer.weight.shape[path not in turned]
            owner = path.rpartition(".")[0]
            while isinstance(module.get_submodule(owner), (nn.ModuleList, nn.ModuleDict)):
                owner = owner.rpartition(".")[0]
            around = module.get_submodule(owner)
            if owner not in read:
                read[owner] = {}
                around.register_forward_hook(partial(_forgotten, read[owner]), always_call=True)
            # What a module reads its tokens of has all of them; a block adds its own to what layers give.
            whole = split and not any(around is b for b in blocks)
            if whole:
                gathering[owner] = _once(partial(_gathered, mesh=mesh, split=True), width)
            how._prepare_input_fn = partial(_columns_input, None if whole else read[owner], split)
        how._prepare_output_fn = partial(_owned, how._prepare_output_fn)
        if path in turned:
            _turn(layer, mesh, how, style)
        else:
            parallelize_module(layer, mesh, how, src_data_rank=None)
    for owners in tied.values():
        first, name = next(((m, n) for m, n in owners if is_spread(m._parameters[n])), owners[0])
        for other, also in owners:
            setattr(other, also, first._parameters[name])
    for owner, hook in gathering.items():
        module.get_submodule(owner).register_forward_pre_hook(hook, with_kwargs=True, prepend=True)
    if blocks and within.first:
        blocks[0].register_forward_pre_hook(
            _once(partial(_scattered, mesh=mesh), width), with_kwargs=True
        )
    if blocks and within.last:
        blocks[-1].register_forward_hook(partial(_put_together, mesh=mesh))


def _turn(layer: nn.Module, mesh: Any, how: Any, style: str) -> None:
    """Split a layer whose weight is inputs x outputs, otherwise as a style of torch's does."""
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    by_rows = style == "row"
    placed: dict[str, Any] = {"weight": Shard(0 if by_rows else 1),
                              "bias": Replicate() if by_rows else Shard(0)}  # fmt: skip
    wanted = (Shard(-1),) if by_rows else how.desired_input_layouts

    def part(_name: str, module: nn.Module, over: Any) -> None:
        for name, weight in list(module.named_parameters(recurse=False)):
            piece = distribute_tensor(weight, over, [placed[name]], src_data_rank=None)
            setattr(module, name, nn.Parameter(piece, requires_grad=weight.requires_grad))

    distribute_module(
        layer, mesh, part, partial(how._prepare_input_fn, how.input_layouts, wanted),
        partial(how._prepare_output_fn, how.output_layouts, how.use_local_output),
    )  # fmt: skip


class _Own(torch.autograd.Function):
    """A tensor that is no view, of the same memory: what comes out of a DTensor is one, which torch lets
    nobody add to in place."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.data

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


def _owned(
    given: Callable[..., Any], layouts: Any, local: bool, module: Any, outputs: Any, mesh: Any
) -> Any:
    """What a split layer gives, as it would be of a layer that is whole."""
    out: Tensor = given(layouts, local, module, outputs, mesh)
    made: Any = _Own.apply
    return out if is_spread(out) else made(out)


def _columns_input(
    read: dict[int, tuple[Tensor, Tensor]] | None, split: bool, _from: Any, _to: Any,
    _module: Any, inputs: Any, mesh: Any,
) -> Any:  # fmt: skip
    """What a layer split by columns reads: all of it, which is gathered once for all layers of a module
    that `read` it, unless the module has it gathered."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    x = inputs[0]
    if read is not None:
        if id(x) not in read:
            read[id(x)] = x, _gathered(x, mesh, split)
        x = read[id(x)][1]
    made: Any = DTensor.from_local
    return made(x, mesh, [Replicate()], run_check=False, grad_placements=[Partial()])


def _forgotten(read: dict[int, Any], *_: Any) -> None:
    read.clear()


# Models whose own code says sizes that are split.


def _counting(
    counted: Mapping[str, tuple[nn.Module, Mapping[str, Sequence[Counted]]]], mesh: Any, told: bool
) -> None:
    """Let modules that say themselves how many heads or features there are be told those of a rank; where
    they have been `told` some, they may say these."""
    calls = _Calls(mesh, told)
    for module, own in counted.values():
        for name, part in module.named_modules():
            if name:  # what runs within is not what the module itself calls
                part.register_forward_pre_hook(calls.leave, prepend=True)
                part.register_forward_hook(calls.back, always_call=True)
        module.forward = update_wrapper(partial(calls.within, own, module.forward), module.forward)


def _of_a_rank(module: nn.Module, sizes: Collection[int], ranks: int) -> Iterator[str]:
    """Let a module whose code computes with how many heads there are have those of a rank; gives the names
    of what is changed."""
    for name, value in list(vars(module).items()):
        if type(value) is int and value in sizes and _HEADS.fullmatch(name) and value % ranks == 0:
            setattr(module, name, value // ranks)
            yield name


_HEADS = re.compile(r"(n|num|number)_(\w+_)?heads?|nheads?|heads")
"""How a number of heads is called."""


class _Calls(TorchFunctionMode):
    """Hears what modules call, and changes what differs on a rank: sizes that are said, and what is whole
    beside its share."""

    def __init__(self, mesh: Any, told: bool) -> None:
        super().__init__()
        self._mesh, self._told = mesh, told
        self._expected: list[dict[str, Iterator[Counted]]] = []

    def within(
        self, own: Mapping[str, Sequence[Counted]], forward: Callable[..., Any], *args: Any,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a module that does `own`."""
        self._expected.append({target: cycle(calls) for target, calls in own.items()})
        try:
            with self:
                return forward(*args, **kwargs)
        finally:
            self._expected.pop()

    def leave(self, *_: Any) -> None:
        """Hear nothing of a module within."""
        self._expected.append({})

    def back(self, *_: Any) -> None:
        """Hear of the module around again."""
        self._expected.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        named = kwargs or {}
        if self._expected and self._expected[-1]:
            name = spelled(func)
            expected = self._expected[-1].get(target(func))
            call = None if expected is None else next(expected)
            if call is not None and call.said:
                args, named = _divided(name, args, named, call.said, self._mesh.size(), self._told)
            elif call is not None and call.beside:
                args, named = tree_map_only(Tensor, partial(self._own, call.beside), (args, named))
        return func(*args, **named)

    def _own(self, beside: Mapping[int, int], x: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, Replicate, Shard

        for dim, whole in beside.items():
            if x.dim() >= -dim and x.shape[dim] == whole:
                here: Any = DTensor.from_local(x, self._mesh, [Replicate()], run_check=False)
                x = here.redistribute(placements=[Shard(x.dim() + dim)]).to_local()
        return x


def _divided(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], dims: Mapping[int, int], ranks: int,
    whole: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """The arguments of a call that says sizes, with those of some dimensions divided; with `whole`, where
    they are those of all ranks together."""

    def part(n: Any) -> Any:
        return n // ranks if type(n) is int and n > 0 and n % ranks == 0 else n

    def parts(sizes: Sequence[Any], first: int = 0) -> tuple[Any, ...]:
        return tuple(
            part(n) if dims.get(at) in ((n,) if whole else dims.values()) else n
            for at, n in enumerate(sizes, first)
        )

    x, *rest = args
    if name == "split":
        sizes = rest[0] if rest else kwargs.get("split_size", kwargs.get("split_size_or_sections"))
        dim = (rest[1] if len(rest) > 1 else kwargs.get("dim", 0)) % x.dim()
        if dim not in dims or sizes is None:
            return args, kwargs
        divided = [part(n) for n in sizes] if isinstance(sizes, (list, tuple)) else part(sizes)
        return (x, divided), {"dim": dim}
    if name == "unflatten":
        dim, sizes = [*rest, *kwargs.values()][:2]
        return (x, dim, parts(sizes, dim % x.dim())), {}
    sizes = rest[0] if rest and isinstance(rest[0], (tuple, list)) else rest
    return (x, parts(sizes)) if sizes else args, {} if sizes else kwargs


def _once(change: Callable[[Tensor], Tensor], width: int) -> Callable[..., Any]:
    """A hook that changes the first tensor of so many features that a module is called with."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place, item in enumerate(args):
            if _is_wide(item, width):
                return (*args[:place], change(item), *args[place + 1 :]), kwargs
        for name, item in kwargs.items():
            if _is_wide(item, width):
                return args, {**kwargs, name: change(item)}
        return args, kwargs

    return hook


def _is_wide(item: Any, width: int) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point() and item.shape[-1] == width


def _gathered(x: Tensor, mesh: Any, split: bool) -> Tensor:
    """All of what layers read, of which each rank has its tokens where they are `split`; its gradient is
    the sum of theirs."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    here: Any = DTensor.from_local(x, mesh, [Shard(1) if split else Replicate()], run_check=False)
    return here.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def _scattered(x: Tensor, mesh: Any) -> Tensor:
    """This rank's tokens of what all have."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    if x.dim() < 3:
        raise InputError("sequence_parallel splits what is batch x tokens x features, "
                         f"not {units.shape(x.shape)}")  # fmt: skip
    here: Any = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return here.redistribute(placements=[Shard(1)]).to_local()


def _put_together(_module: nn.Module, _args: Any, out: Any, mesh: Any) -> Any:
    """All tokens of what the last block gives."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    first = out if isinstance(out, Tensor) else out[0]
    here: Any = DTensor.from_local(first, mesh, [Shard(1)], run_check=False)
    whole = here.redistribute(placements=[Replicate()]).to_local()
    return whole if isinstance(out, Tensor) else (whole, *out[1:])


def _by_transformers(module: nn.Module, mesh: Any, styles: Styles, layout: Layout) -> Iterator[str]:
    """Split what transformers has styles of its own for, and spread experts, by its own tools."""
    try:
        from transformers.distributed.expert_parallel import apply_expert_parallelism
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    except ImportError as error:
        raise InputError(
            "this version of transformers does not split models on the meta device",
            hint="pip install -U transformers",
        ) from error
    back = {"column": "colwise", "row": "rowwise", "gathered": "colwise_gather_output",
            "vocabulary": "embedding_rowwise"}  # fmt: skip
    if layout.tensor > 1 and styles:
        weights = {n for n, _ in module.named_parameters()}
        plan = {p: back.get(s, s) for p, s in styles.items()}
        apply_tensor_parallelism(
            module, mesh["tensor"], dict(sorted(plan.items(), key=lambda p: p[0] not in weights))
        )
    if layout.expert > 1:
        yield from _experts(module, mesh, layout, apply_expert_parallelism)


def _experts(module: Any, mesh: Any, layout: Layout, apply: Callable[..., Any]) -> Iterator[str]:
    """Spread experts over the ranks of `tensor` and `fsdp`, those of `tensor` first."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if layout.context > 1:
        raise InputError("experts are not spread beside tokens that are split (context_parallel)")
    inner = layout.tensor * layout.fsdp
    if inner % layout.expert or layout.expert % layout.tensor:
        raise InputError(
            f"experts over {layout.expert:,} ranks: these are among the {inner:,} of tensor_parallel x "
            "fsdp, and a multiple of tensor_parallel",
            hint=f"--fsdp {layout.expert // layout.tensor or 1}",
        )
    shape = (layout.pipeline * layout.data, inner // layout.expert, layout.expert)
    spread = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "expert_fsdp", "expert"))
    plan = module._expand_parallel_plan(dict(module.ep_plan))
    apply(module, spread["expert"], mesh["tensor"], plan, "all_to_all")
    if layout.fsdp > 1:
        for path, style in plan.items():
            if style == "ep_dispatch_experts":
                fully_shard(module.get_submodule(path), mesh=spread["expert_fsdp"])
    yield f"experts are spread over {layout.expert:,} ranks, to which tokens go by all-to-all"


def _without_values(module: nn.Module) -> nn.Module:
    """A copy of a module whose parameters are on the meta device, those that are shared still shared."""
    memo: dict[int, torch.Tensor] = {}
    for parameter in parameters_of(module):
        bare = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(bare, requires_grad=parameter.requires_grad)
    made = copied(module, memo)
    owned: dict[int, Any] = {}
    for one, other in zip(parts_of(module), parts_of(made), strict=True):
        config = getattr(one, "config", None)
        if config is not None and getattr(other, "config", None) is config:
            if id(config) not in owned:
                owned[id(config)] = _own(config)
            vars(other)["config"] = owned[id(config)]
    return made


def _own(config: Any) -> Any:
    """A configuration that may be changed, like one that a copy of a model has in common with the model: a
    class, or what a class has."""
    if isinstance(config, type):
        return type(config)(config.__name__, (config,), {})
    return copy.deepcopy(config)


# A few layers of a model, which stand for all.


def stage_like(model: Model) -> Model:
    """The model as what stands for a stage of a pipeline, which it is gone through like."""
    module = _without_values(model.module)
    setattr(module, STAGED, True)
    return replace(model, module=module, materialize=None)


def thinned(model: Model, most: int) -> tuple[Model, tuple[str, ...], tuple[float, ...]]:
    """A copy without values that has only a few of the model's repeated blocks, their paths in it, and of
    how many each is one. Of blocks that are all alike `most` are left, else two of each kind.

    Raises `InputError` where they do not stand in one list.
    """
    module = _without_values(model.module)
    path, _ = layers_of(module)
    blocks = list(module.get_submodule(path).children())
    kinds: dict[Any, list[int]] = {}
    for i, block in enumerate(blocks):
        kinds.setdefault(kind_of(block), []).append(i)
    each = most if len(kinds) == 1 else 2
    left = sorted(i for those in kinds.values() for i in those[:each])
    counts = {i: len(those) / len(those[:each]) for those in kinds.values() for i in those[:each]}
    kept_layers(module, path, left)
    paths = tuple(f"{path}.{i}".lstrip(".") for i in range(len(left)))
    return replace(model, module=module, materialize=None), paths, tuple(counts[i] for i in left)
