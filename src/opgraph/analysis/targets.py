"""A profile on another device than it was traced for: which choices of the trace can be made anew, and what
there is to say of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from opgraph.hardware import Device
from opgraph.record.graph import Graph, Kernel
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark
from opgraph.record.targets import Substitution, Target, chosen_for

FUSED = ("flash", "cudnn", "efficient")
"""Kernels of attention that compute the same without keeping scores: one stands in for another, a CPU's
too."""

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
