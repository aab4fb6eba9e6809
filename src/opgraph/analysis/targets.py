"""A profile on another device than it was traced for: which choices of the trace can be made anew, and what
there is to say of the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from opgraph.hardware import Device
from opgraph.record.graph import Graph, Kernel, Node, Storage
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark
from opgraph.record.targets import AS_ON_A_CPU, Substitution, Target, chosen_for

FUSED = ("flash", "cudnn", "efficient")
"""Kernels of attention that compute the same without keeping scores: one stands in for another, a CPU's
too."""

ONE_KERNEL = {
    "scaled_dot_product_attention": "attention",
    "rms_norm": "normalization",
    "lstm": "recurrent",
    "gru": "recurrent",
}
"""Operators that are one kernel on most accelerators, whatever a CPU runs, and its category."""

_CONVERSION = "aten._to_copy"

_SEVERAL = ("math", AS_ON_A_CPU)
"""What is chosen where one of these operators is several kernels."""

_ON_A_CPU = {
    "aten.bernoulli_": "dropout",
    "aten._safe_softmax": "attention",
    "aten.mkldnn_rnn_layer": "recurrent layers",
}
"""Kernels of a trace for a CPU, or for Metal, for which CUDA has others, and what they are of."""


def retargeted(profile: ProfileRecord, device: Device) -> ProfileRecord:
    """The profile with the kernels that the device chooses, as far as one stands in for another, and a
    remark on what it would run otherwise."""
    own, wanted = profile.target, device.target
    names = instead(profile, device)
    differ = [
        f"{each.op} ({each.chosen} here, {choice} there)"
        for each, choice in _chosen_otherwise(profile, device)
        if each.chosen not in names
    ]
    if _misses(profile, device):
        differ += _missed(profile)
    together = as_one(profile, device)
    if together:
        profile = replace(profile, graph=put_together(profile.graph, together))
    if names:
        chosen = tuple(replace(s, chosen=names.get(s.chosen, s.chosen)) for s in own.substitutions)
        graph = _renamed(profile.graph, names)
        name = wanted if own.device == wanted.partition(":")[0] else own.name
        profile = replace(profile, graph=graph, target=Target(name, chosen))
    if not differ:
        return profile
    note = f"traced for {own.label}, costed on {device.name}, which runs otherwise: {', '.join(differ)}"
    return replace(profile, model=profile.model.noting(Remark("target", note)))


def _chosen_otherwise(profile: ProfileRecord, device: Device) -> Iterator[tuple[Substitution, str]]:
    for each in profile.target.substitutions:
        choice = chosen_for(each.choices, device.target)
        if choice not in (None, each.chosen):
            yield each, choice or ""


def instead(profile: ProfileRecord, device: Device) -> dict[str, str]:
    """The kernels of attention that a device runs in the place of those of the trace: flash to cudnn."""
    pairs = ((s.chosen, choice) for s, choice in _chosen_otherwise(profile, device))
    return {old: new for old, new in pairs if {old, new} <= set(FUSED)}


def kernel_instead(op: str, names: Mapping[str, str]) -> str:
    """The kernel that is run in the place of one of attention (see `instead`)."""
    for old, new in names.items():
        if f"_{old}_attention" in op:
            renamed = op.replace(f"_{old}_attention", f"_{new}_attention")
            return renamed.replace("_for_cpu", "")
    return op


def _misses(profile: ProfileRecord, device: Device) -> bool:
    """Whether a device has kernels that a profile for another kind of device says nothing of."""
    return profile.target.device != "cuda" and device.target.startswith("cuda")


def _missed(profile: ProfileRecord) -> list[str]:
    """What CUDA runs otherwise than a CPU, of what is in a profile and was not noted call by call."""
    ran = {k.op for n in profile.graph.nodes for k in n.kernels}
    if any("attention" in s.op for s in profile.target.substitutions):
        ran.discard("aten._safe_softmax")
    found = dict.fromkeys(what for op, what in _ON_A_CPU.items() if op in ran)
    step = ["the optimizer"] if any(n.phase == "optimizer" for n in profile.graph.nodes) else []
    return [*found, *step]


def run_otherwise(profile: ProfileRecord, device: Device) -> frozenset[int]:
    """The nodes of a profile on a device (see `retargeted`) that it runs by other kernels, and those of
    their gradients."""
    own = profile.target
    names = instead(profile, device)
    ops = {s.op for s, _ in _chosen_otherwise(profile, device) if s.chosen not in names}
    missed = _misses(profile, device)
    if not ops and not missed:
        return frozenset()
    stepped = missed or any(s.chosen == "foreach" and s.op in ops for s in own.substitutions)
    found: set[int] = set()
    for node in profile.graph.nodes:
        differs = node.op in ops or (missed and any(k.op in _ON_A_CPU for k in node.kernels))
        if differs or node.forward in found or (stepped and node.phase == "optimizer"):
            found.add(node.id)
    return frozenset(found)


def as_one(profile: ProfileRecord, device: Device) -> frozenset[str]:
    """Operators that a device runs as one kernel, and the trace has several of: those of another target, or
    of a CPU on real tensors."""
    found = {s.op for s, choice in _chosen_otherwise(profile, device) if choice not in _SEVERAL}
    if _misses(profile, device):
        found |= ONE_KERNEL.keys() - {s.op for s in profile.target.substitutions}
    return frozenset(found & ONE_KERNEL.keys())


def put_together(graph: Graph, ops: Collection[str]) -> Graph:
    """The graph with each call of these operators as one kernel, and without the memory that lived within.
    Fused attention takes four dimensions (batch, heads, tokens, width); with any other number it is really
    several kernels."""
    nodes: list[Node] = []
    places: list[int] = []  # of each kernel of before
    ones: set[int] = set()
    now = 0
    for node in graph.nodes:
        made = _put_together(graph, node) if node.op in ops else node
        end = now + len(made.kernels)
        if made is node:
            places += range(now, end)
        else:
            ones.add(end - 1)
            conversions = iter(range(now, end - 1))
            places += [next(conversions) if k.op == _CONVERSION else end - 1 for k in node.kernels]
        nodes.append(made)
        now = end
    places.append(now)
    used = {value for n in graph.nodes for value in (*n.inputs, *n.outputs[:1])}
    known = {graph.value[value].storage for value in used}

    def moved(number: int, storage: Storage) -> Storage:
        born, died = places[storage.born], storage.died
        if died is not None:
            died = places[died - 1] + 1 if died > storage.born else born
        if born in ones and number not in known:
            died = born
        return replace(storage, born=born, died=died)

    storages = tuple(moved(number, s) for number, s in enumerate(graph.storages))
    return replace(graph, nodes=tuple(nodes), storages=storages)


def _put_together(graph: Graph, node: Node) -> Node:
    category = ONE_KERNEL[node.op]
    first = graph.value[node.inputs[0]].shape if node.inputs else None
    conversions = [k for k in node.kernels if k.op == _CONVERSION]
    rest = [k for k in node.kernels if k.op != _CONVERSION]
    work = [k for k in rest if k.bytes or k.flops]
    apart = category == "attention" and first is not None and len(first) != 4
    apart = apart or any(k.category == category == "attention" for k in work)  # it is one already
    if len(work) < 2 or apart:
        return node
    return replace(node, kernels=(*conversions, _one(work, category)))


def _one(kernels: Sequence[Kernel], category: str) -> Kernel:
    """Several kernels as one: it reads what comes from outside and writes what the last one writes."""
    first, last = kernels[0], kernels[-1]
    read, shapes = first.read, first.shapes
    products = [k for k in kernels if k.category in ("matmul", "attention")]
    if len(products) >= 2:
        scores = products[0].written
        read = products[0].read + max(0, products[1].read - scores)
        query, key = products[0].shapes[-2:]
        shapes = (query, (*key[:-2], key[-1], key[-2]), products[1].shapes[-1])
    return Kernel(
        op=first.op,
        category=category,
        dtype=last.dtype,
        flops=sum(k.flops for k in kernels),
        other_flops=sum(k.other_flops for k in kernels),
        read=read,
        written=last.written,
        cost=first.cost,
        shapes=shapes,
        out_shapes=last.out_shapes,
        compute_dtype=products[0].compute_dtype if products else "",
    )


def _renamed(graph: Graph, names: dict[str, str]) -> Graph:
    known: dict[int, Kernel] = {}

    def of(kernel: Kernel) -> Kernel:
        if kernel.category != "attention":
            return kernel
        if id(kernel) not in known:
            known[id(kernel)] = replace(kernel, op=kernel_instead(kernel.op, names))
        return known[id(kernel)]

    return replace(
        graph,
        nodes=tuple(
            replace(n, kernels=tuple(map(of, n.kernels)))
            if any(k.category == "attention" for k in n.kernels)
            else n
            for n in graph.nodes
        ),
    )
