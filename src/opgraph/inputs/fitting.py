"""Inputs that were guessed and do not fit: other ones to try, from the operator that refused them. It says
which argument reached it, and what it takes: a table takes ids, a layer so many features or channels."""

from __future__ import annotations

import heapq
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, permutations, product

import torch
from torch import Tensor, nn

from opgraph.inputs.base import Example, InputRequest
from opgraph.inputs.context import FRAMES, Context
from opgraph.record.graph import Graph, Node
from opgraph.record.remarks import Remark
from opgraph.sources.base import Model

_TRIES = 60
"""Runs on fake tensors at most; each takes milliseconds to a second."""
_SIDES = (28, 32, 64, 84, 96, 112, 128, 160, 192, 256, 299, 320, 384, 448, 512)
"""Sides of images that models are made for."""
_LONGEST = 8192
"""The largest size that is taken from an error: other numbers in it may mean something else."""
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

Run = Callable[[Example], Graph | None]
"""Runs the model, and gives the graph with the node that failed; None where it got through."""


def fitted(
    model: Model, request: InputRequest, example: Example, failed: Graph, run: Run
) -> tuple[Example | None, Remark]:
    """Other values for the guessed arguments of a call that failed, with which the model runs; None where
    none are found. And a remark on what was tried."""
    context = Context(model, request, inspect.signature(model.module.forward))
    order = count()
    waiting = [(-len(failed.nodes), next(order), example, failed)]
    seen = {_told(example): None}
    while waiting and len(seen) < _TRIES:
        _, _, before, graph = heapq.heappop(waiting)
        for other in _others(context, before, graph):
            told = _told(other)
            if told in seen or any(not t.numel() for t in _tensors(other)):
                continue  # on empty tensors nearly everything runs, and computes nothing
            seen[told] = None
            found = run(other)
            if found is None:
                return other, Remark("guessed-inputs", f"inputs found by trying: {told}")
            heapq.heappush(waiting, (-len(found.nodes), next(order), other, found))
            if len(found.nodes) > len(graph.nodes) or len(seen) >= _TRIES:
                break  # it got further: go on from there, and come back if that leads nowhere
        else:
            continue
        heapq.heappush(waiting, (-len(graph.nodes) + 1, next(order), before, graph))
    some = [text for text in seen if text != _told(example)]
    more = f" and {len(some) - 6} more" if len(some) > 6 else ""
    tried = f"tried {'; '.join([_told(example), *some[:6]])}{more}"
    return None, Remark("guessed-inputs", tried)


def _arguments(example: Example, names: list[str]) -> dict[str, Tensor]:
    """The guessed tensors of a call by name."""
    given = {**dict(zip(names, example.args, strict=False)), **example.kwargs}
    return {n: given[n] for n in example.guessed if isinstance(given.get(n), Tensor)}


def _with(example: Example, names: list[str], name: str, value: Tensor) -> Example:
    place = names.index(name)
    others = tuple(other for other in example.drawn if other != name)
    example = replace(example, drawn=others if value.is_floating_point() else (*others, name))
    if place < len(example.args):
        args = (*example.args[:place], value, *example.args[place + 1 :])
        return replace(example, args=args)
    return replace(example, kwargs={**example.kwargs, name: value})


def _tensors(example: Example) -> list[Tensor]:
    return [t for t in (*example.args, *example.kwargs.values()) if isinstance(t, Tensor)]


def _told(example: Example) -> str:
    return ", ".join(f"{'x'.join(map(str, t.shape))} {str(t.dtype)[6:]}" for t in _tensors(example))


def _others(context: Context, example: Example, graph: Graph) -> Iterator[Example]:
    """Calls in which one guessed argument is another, those first that the refusing operator asks for."""
    names = list(context.signature.parameters)
    guessed = _arguments(example, names)
    node = graph.failed
    if node is None:
        return
    if node.op == "bilinear":  # both arguments at once, since it refuses either alone
        weight = next(graph.value[i].shape for i in node.inputs[2:])
        two = [next(iter(_reaching(graph, [i])), "") for i in node.inputs[:2]]
        for lead in ((context.batch,), (context.batch, context.sequence)):
            if set(two) <= guessed.keys():
                other = example
                for name, features in zip(two, weight[1:], strict=True):
                    other = _with(other, names, name, context.floats(*lead, int(features)))
                yield other
    near = [n for n in _reaching(graph, node.inputs) if n in guessed]
    for name in near or guessed:
        for value in _asked(context, graph, node, guessed[name], len(near)):
            yield _with(example, names, name, value)
    for name in near or guessed:
        now = guessed[name]
        if now.dim() == 4 and context.request.image_size is None:
            for side in _SIDES:
                yield _with(example, names, name, context.floats(*now.shape[:2], side, side))
    for name, now in guessed.items():
        for layer in _layers(context.module):
            for value in _taken(context, _takes(layer), now):
                yield _with(example, names, name, value)


def _reaching(graph: Graph, values: Iterable[int]) -> list[str]:
    """The inputs that values come from, the nearest first, with the number in a list taken away."""
    found: dict[str, None] = {}
    waiting, known = list(values), set[int]()
    while waiting:
        id_ = waiting.pop(0)
        if id_ in known:
            continue
        known.add(id_)
        value = graph.value[id_]
        if value.kind == "input" and value.name is not None:
            found.setdefault(value.name.partition(".")[0])
        elif id_ in graph.producer:
            waiting += graph.producer[id_].inputs
    return list(found)


def _asked(context: Context, graph: Graph, node: Node, now: Tensor, near: int) -> Iterator[Tensor]:
    """What an operator asks for by the shapes of its weights, its other operands, or its error."""
    b, length = context.batch, context.sequence
    values = [graph.value[i] for i in node.inputs]
    weights, others = (
        [tuple(map(int, v.shape)) for v in values if (v.kind == "parameter") is weight]
        for weight in (True, False)
    )
    error = (node.error or "").lower()
    if weights:
        takes: tuple[str, tuple[int, ...]] = (node.op, weights[0])
        yield from _taken(context, takes, now)
        if node.op == "linear" and others and now.is_floating_point() and now.dim():
            # Others may be beside it in a concatenation.
            lacking = weights[0][-1] - others[0][-1]
            for features in (now.shape[-1] + lacking, weights[0][-1] // max(near, 1)):
                if features > 0:
                    yield context.floats(*now.shape[:-1], features)
    elif re.search(r"int64|\blong\b|\bindices\b|used as ind|integer|index \S*type", error):
        for shape in ((b, length), (b,), (2, length), tuple(now.shape)):
            yield torch.zeros(shape, dtype=torch.int64)
    beyond = re.search(r"index (\d+) is out of bounds for dimension (\d+)", error)
    if beyond and int(beyond[2]) < now.dim():
        longer = list(now.shape)
        longer[int(beyond[2])] = int(beyond[1]) + 1
        yield torch.zeros([longer[0], length], dtype=torch.int64)
        yield context.floats(*longer)
    unpacked = re.search(r"expected (\d+)(?:, got (\d+))?\)|got (\d+)d|(\d+)d", error)
    if unpacked or re.search(r"dims?\b|dimension", error):
        for shape in ((b, length, context.hidden), (b, context.hidden), _images(context), (b,)):
            yield context.floats(*shape)
    for shape in [s for s in (*others, *weights) if s and s != tuple(now.shape)]:
        yield context.floats(*shape)
        if len(shape) == now.dim() >= 2:  # a table of so many positions, say
            like = context.floats if now.is_floating_point() else context.ids
            yield like(now.shape[0], shape[1], *now.shape[2:])
    yield from _resized(context, graph, node, now)
    if now.dim() > 2:
        yield now.transpose(1, 2).contiguous()


def _resized(context: Context, graph: Graph, node: Node, now: Tensor) -> Iterator[Tensor]:
    """The argument with one of its sizes changed to the one that it met and does not fit: the size beside
    it in what no argument reaches (a table of so many positions), or another number of an error that the
    model raises itself."""
    shapes: dict[bool, list[tuple[int, ...]]] = {True: [], False: []}
    for i in node.inputs:
        shapes[bool(_reaching(graph, [i]))].append(tuple(map(int, graph.value[i].shape)))
    pairs = [
        (a, b)
        for one, other in product(shapes[True], shapes[False])
        for a, b in zip(reversed(one), reversed(other), strict=False)
        if b != 1
    ]
    own = (node.error or "") if node.op == "raise" else ""
    numbers = [int(n) for n in re.findall(r"\d+", own)]
    for old, new in dict.fromkeys([*pairs, *permutations(numbers[:6], 2)]):
        if old not in (1, new) and 0 < new <= _LONGEST and old in now.shape:
            sizes = [new if size == old else size for size in now.shape]
            yield context.floats(*sizes) if now.is_floating_point() else now.new_zeros(sizes)


def _images(context: Context) -> tuple[int, ...]:
    """The shape of a batch of images."""
    return context.batch, *context.image


def _layers(module: nn.Module) -> list[nn.Module]:
    """One layer of each kind and size that takes something."""
    found: dict[tuple[str, tuple[int, ...]], nn.Module] = {}
    for layer in module.modules():
        takes = _takes(layer)
        if takes[1]:
            found.setdefault(takes, layer)
    return list(found.values())[:8]


def _takes(layer: nn.Module) -> tuple[str, tuple[int, ...]]:
    """The operator of a layer and the shape of its weight."""
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return "embedding", tuple(layer.weight.shape)
        case nn.Linear():
            return "linear", (layer.out_features, layer.in_features)
        case nn.RNNBase():
            return "lstm", (layer.hidden_size, layer.input_size)
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return "conv", (layer.out_channels, layer.in_channels, *layer.kernel_size)
    return "", ()


def _taken(context: Context, takes: tuple[str, tuple[int, ...]], now: Tensor) -> Iterator[Tensor]:
    """Tensors that an operator with such a weight takes, those as long as the one now first."""
    op, weight = takes
    b, length = context.batch, context.sequence
    if op.startswith("embedding"):
        for shape in dict.fromkeys([(b,) if now.dim() == 1 else (b, length), (b, length), (b,)]):
            yield context.ids(*shape, below=weight[0])
    elif op == "linear" or op in _RECURRENT:
        features = weight[1]
        if now.dim() > 1 and math.prod(now.shape[:-1]) <= context.batch * context.sequence:
            yield context.floats(*now.shape[:-1], features)
        yield context.floats(b, features)
        yield context.floats(b, length, features)
        if features == 1:
            yield context.floats(b)
    elif op.startswith("conv") and len(weight) > 2:
        c, sizes = weight[1], _extents(context, len(weight) - 2)
        yield context.floats(b, c, *sizes)
        yield context.floats(b, *sizes, c)
        if c == 1:
            yield context.floats(b, *sizes)
    elif op in ("layer_norm", "rms_norm"):
        yield context.floats(b, *weight)
        yield context.floats(b, length, *weight)


def _extents(context: Context, dims: int) -> tuple[int, ...]:
    """How long, high and wide what a convolution slides over is."""
    if dims == 1:
        return (context.sequence,)
    return context.image_size if dims == 2 else (FRAMES, *context.image_size)
