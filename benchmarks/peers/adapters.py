"""The peers, one function each: from a model with weights and the arguments of one call to what the tool
says. The counters that `opgraph check` knows are called as it calls them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from opgraph.checking import counters


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool said: its figure in its own unit, parameters, and the nodes of its graph."""

    value: int | None = None
    parameters: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool: its distribution, and what its figure counts. A figure in MACs is right when twice of it
    is the right FLOPs; of tools that count element-wise work too, only the contractions are asked for
    where they tell them apart."""

    distribution: str
    unit: str | None
    run: Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], Said]
    package: str


def _counter(name: str) -> Callable[..., Said]:
    def run(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Said:
        found = getattr(counters, name)(model, args, kwargs)
        return Said(found.value, found.parameters)

    return run


def flop_counter_mode(model: nn.Module, args: Any, kwargs: Any) -> Said:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(*args, **kwargs)
    return Said(counter.get_total_flops())


def deepspeed(model: nn.Module, args: Any, kwargs: Any) -> Said:
    from deepspeed.profiling.flops_profiler import get_model_profile

    _, macs, parameters = get_model_profile(
        model, args=list(args), kwargs=dict(kwargs), print_profile=False, as_string=False, warm_up=0
    )
    return Said(int(macs), int(parameters))


def torchview(model: nn.Module, args: Any, kwargs: Any) -> Said:
    from torchview import draw_graph

    data = list(args) if args else dict(kwargs)
    more = dict(kwargs) if args else {}
    graph = draw_graph(model, input_data=data, expand_nested=True, depth=100, device="cpu", **more)
    return Said(nodes=len(graph.node_set))


def torchvista(model: nn.Module, args: Any, kwargs: Any) -> Said:
    """Its page, with everything unfolded; it takes positional arguments only."""
    from torchvista import trace_model

    wrapped = counters._Positional(model, args, kwargs)
    with tempfile.NamedTemporaryFile(suffix=".html") as file:
        trace_model(
            wrapped, wrapped.tensors(), collapse_modules_after_depth=100, export_path=file.name
        )
        if not file.read():
            raise RuntimeError("it wrote no page")
    return Said(nodes=0)


def torchlens(model: nn.Module, args: Any, kwargs: Any) -> Said:
    import torchlens

    trace = torchlens.trace(model, list(args), dict(kwargs))
    return Said(int(trace.total_macs_forward), int(trace.num_params), int(trace.num_ops))


def idlmav(model: nn.Module, args: Any, kwargs: Any) -> Said:
    from idlmav import MAV

    wrapped = counters._Positional(model, args, kwargs)
    nodes = MAV(wrapped, wrapped.tensors(), device="cpu").tracer.g.nodes
    error = next((n.error for n in nodes if n.error), None)
    if error is not None:
        raise RuntimeError(str(error))
    return Said(sum(n.flops or 0 for n in nodes), sum(n.params or 0 for n in nodes), len(nodes))


PEERS = {
    "torchinfo": Peer("torchinfo", "MACs", _counter("torchinfo"), "torchinfo"),
    "fvcore": Peer("fvcore", "MACs", _counter("fvcore"), "fvcore.nn"),
    "ptflops": Peer("ptflops", "MACs", _counter("ptflops"), "ptflops"),
    "thop": Peer("ultralytics-thop", "MACs", _counter("thop"), "thop"),
    "calflops": Peer("calflops", "FLOPs", _counter("calflops"), "calflops"),
    "DeepSpeed profiler": Peer(
        "deepspeed", "MACs", deepspeed, "deepspeed.profiling.flops_profiler"
    ),
    "FlopCounterMode": Peer("torch", "FLOPs", flop_counter_mode, "torch.utils.flop_counter"),
    "torchview": Peer("torchview", None, torchview, "torchview"),
    "torchvista": Peer("torchvista", None, torchvista, "torchvista"),
    "torchlens": Peer("torchlens", "MACs", torchlens, "torchlens"),
    "idlmav": Peer("idlmav", "FLOPs", idlmav, "idlmav"),
}
"""The registry: another tool is one function and one line."""

OURS = "opgraph"
