"""What TorchInductor lowers for a step of training: AOTAutograd's joint graph of a captured fragment and
its gradients, parted by TorchInductor's own partitioner.

Autograd on a GPU needs its driver, and nothing behind it does: the joint graph is traced on fake tensors of
the CPU, and taken over to a GPU that is not there before it is rewritten, parted and lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from opgraph.record.profile import Phase

Strides = Sequence[Sequence[int] | None]
Lower = Callable[[Callable[[], Any], Phase], Strides]
"""Calls what lowers a graph, told which of the two it is; gives the strides of its results."""
Take = Callable[[Any], Any]
"""An argument of a node, or a tensor, as it is on another device."""

ATEN, CPU = torch.ops.aten, torch.device("cpu")
PUT = torch.ops.prims.device_put.default

_OF_A_CPU = (ATEN.mm, ATEN.addmm, ATEN.bmm)
"""Products that are taken apart where few numbers are multiplied on a CPU."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a forward keeps for its backward: the nodes of Dynamo's graph that it comes from and its bytes,
    of each tensor that is not there anyway (as a weight or an input). `again` are the nodes of which
    something is computed again in the backward. A forward has so many `results` besides; None where it has
    no others."""

    tensors: tuple[tuple[tuple[str, ...], int], ...] = ()
    again: tuple[str, ...] = ()
    results: int | None = None


class Parted(BaseException):
    """Both parts are lowered: nothing that follows is needed."""


def lower_both(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, take: Take | None,
    there: Callable[[], AbstractContextManager[Any]], lower: Lower,
) -> Kept:  # fmt: skip
    """Lower the forward of a captured graph on fake tensors of the CPU, and then its backward, by `lower`;
    `take` takes both to another device before, in the context `there`. Where nothing needs a gradient,
    TorchInductor goes on by itself."""
    from torch._functorch import partitioners
    from torch._inductor import compile_fx, decomposition
    from torch._inductor import graph as inductor_graph
    from torch._inductor.virtualized import V

    plain, results = compile_fx.partition_fn, compile_fx.get_num_model_outputs(gm)
    found = Kept()

    def part(joint: fx.GraphModule, given: Sequence[Any], **how: Any) -> Any:
        nonlocal found
        _name_sources(joint.graph)
        with there(), V.set_fake_mode(mode), torch.no_grad(), torch._C._DisableAutocast():
            if take is not None:
                given = _taken(joint, mode, take)
            forward, backward = plain(joint, given, **how)
            found = _kept(forward.graph, backward.graph, how["num_fwd_outputs"])
            extra = compile_fx.create_compiler_config_extra(gm)
            strides = lower(
                lambda: compile_fx.compile_fx_forward(
                    forward, _values(forward.graph), results, len(inputs), extra
                ),
                "forward",
            )
            _lay_out(forward.graph, backward.graph, strides)
            donated = _donated(forward.graph, backward.graph, how["num_fwd_outputs"])
            with mock.patch.object(inductor_graph, "get_donated_idxs", return_value=donated):
                lower(
                    lambda: compile_fx.compile_fx_backward(
                        backward, _values(backward.graph), extra
                    ),
                    "backward",
                )
        raise Parted

    table: dict[Any, Any] | None = None
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(compile_fx, "partition_fn", part))
        # That what is drawn again is what was drawn before changes no kernel, and asks a driver.
        drawn = mock.patch.object(partitioners, "functionalize_rng_ops", lambda *a: a[1:3])
        stack.enter_context(drawn)
        stack.enter_context(torch.enable_grad())
        if take is not None:
            table = {
                operator: rule
                for operator, rule in compile_fx.select_decomp_table().items()
                if getattr(operator, "overloadpacket", None) not in _OF_A_CPU
            }
            table |= dict.fromkeys((ATEN.bernoulli_.float, ATEN.bernoulli.p), _bernoulli)
            stack.enter_context(mock.patch.object(decomposition, "is_gpu", _yes))
        with suppress(Parted):
            compile_fx.compile_fx(gm, list(inputs), decompositions=table)
    return found


def _yes(_kind: str) -> bool:
    return True


def _bernoulli(self: torch.Tensor, p: float = 0.5, **_how: Any) -> torch.Tensor:
    """What is drawn from random numbers everywhere but on a CPU (torch/_decomp/decompositions_for_rng)."""
    return (torch.rand_like(self, dtype=torch.float32) < p).to(self.dtype)


def dynamo_names(node: fx.Node) -> Iterator[str]:
    """The names that a node had in the graph that Dynamo captured."""
    for made_of in node.meta.get("from_node") or ():
        source = made_of
        while source.from_node:
            source = source.from_node[0]
        yield str(source.name)


def _name_sources(graph: fx.Graph) -> None:
    """Note of each gradient in a joint graph what it is the gradient of: autograd numbers what it
    differentiates. What has no number (a sum of several gradients) goes with the one before."""
    numbered: dict[int | None, list[Any]] = {}
    last: list[Any] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        made_of, number = node.meta.get("from_node") or [], node.meta.get("seq_nr")
        if made_of and number is not None:
            numbered.setdefault(number, made_of)  # those that follow are not differentiated
        elif not made_of:
            made_of = node.meta["from_node"] = numbered.get(number, last)
        last = made_of


def _taken(joint: fx.GraphModule, mode: FakeTensorMode, take: Take) -> list[Any]:
    """Take a joint graph to another device; gives what goes in. Constants keep their values, by which they
    are folded, and are copied there."""
    for name, item in list(vars(joint).items()):
        if isinstance(item, FakeTensor):
            setattr(joint, name, take(item))
    joint._buffers.update(
        {n: take(item) for n, item in joint._buffers.items() if isinstance(item, FakeTensor)}
    )
    for node in joint.graph.find_nodes(op="get_attr"):
        if type(getattr(joint, str(node.target), None)) is torch.Tensor:
            for lifted in list(node.users):  # how a traced graph takes a constant
                with joint.graph.inserting_after(lifted):
                    there = joint.graph.call_function(PUT, (lifted, CPU))
                there.meta.update(lifted.meta)
                lifted.replace_all_uses_with(there, delete_user_cb=partial(is_not, there))
    given = []
    for node in joint.graph.nodes:
        node.args, node.kwargs = take(node.args), take(node.kwargs)
        if node.op == "placeholder":
            node.meta["val"] = take(node.meta["val"])
            given.append(node.meta["val"])
    FakeTensorProp(joint, mode).propagate_dont_convert_inputs(*given)
    return given


def _values(graph: fx.Graph) -> list[Any]:
    return [node.meta["val"] for node in graph.find_nodes(op="placeholder")]


def _kept(forward: fx.Graph, backward: fx.Graph, results: int) -> Kept:
    """What passes from a forward with so many results to its backward, each memory once."""
    there = {_memory(v) for v in _values(forward) if isinstance(v, torch.Tensor)}
    tensors = []
    for node in forward.output_node().args[0][results:]:
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        if isinstance(value, torch.Tensor) and _memory(value) not in there:
            there.add(_memory(value))
            tensors.append((tuple(dynamo_names(node)), value.untyped_storage().nbytes()))
    again = (
        name
        for node in backward.nodes
        if is_again(node) and not _is_view(node)
        for name in dynamo_names(node)
    )
    return Kept(tuple(tensors), tuple(dict.fromkeys(again)), results)


def is_again(node: fx.Node) -> bool:
    """Whether a node of a backward computes something of the forward."""
    return bool(node.meta.get("partitioner_tag") == "is_forward")


def _donated(forward: fx.Graph, backward: fx.Graph, results: int) -> list[int]:
    """Which of the inputs of a backward nobody else has, so that it may write into them."""
    from torch._functorch._aot_autograd.graph_compile import collect_fw_donated_buffer_idxs

    def values(graph: fx.Graph) -> list[Any]:
        return [getattr(n, "meta", {}).get("val") for n in graph.output_node().args[0]]

    made = values(forward)
    found: list[int] = collect_fw_donated_buffer_idxs(
        _values(forward), made[:results], values(backward), made[results:]
    )
    return found


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(result.alias_info is not None for result in schema.returns)


def _memory(value: torch.Tensor) -> int:
    found: int = value.untyped_storage()._cdata
    return found


def _lay_out(forward: fx.Graph, backward: fx.Graph, strides: Strides) -> None:
    """Let a backward read what its forward keeps in the layout in which that is left."""
    named = zip(forward.output_node().args[0], strides, strict=False)  # none where it has no work
    known = {
        node.name: each for node, each in named if isinstance(node, fx.Node) and each is not None
    }
    for node in backward.find_nodes(op="placeholder"):
        value, stride = node.meta["val"], known.get(node.name)
        if (
            isinstance(value, torch.Tensor)
            and stride is not None
            and value.stride() != tuple(stride)
        ):
            node.meta["val"] = value.as_strided(value.size(), stride)
