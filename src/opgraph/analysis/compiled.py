"""A profile as a compiler would run it: the kernels that TorchInductor scheduled in the place of those of
its nodes, the work of a device for them, and what is gained over an eager run, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from opgraph.analysis.cost.conventions import is_masked
from opgraph.analysis.timing.workload import (
    Task,
    Work,
    contraction_of,
    left_by_mask,
    packed_of,
    workload,
)
from opgraph.hardware import Device
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph, Kernel, Node, Storage, elements
from opgraph.record.profile import GENERATED, Compiled, CompiledKernel, ProfileRecord
from opgraph.record.remarks import Remark

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord

_RANK = ("sorting", "pooling", "interpolation", "indexing", "softmax", "normalization", "reduction")
"""The category of generated loops is the first of these that a node of theirs has."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A compiled kernel at a node: the one that moves most of those that are computed in it at last."""

    node: int
    kernel: Kernel
    source: CompiledKernel
    group: tuple[int, ...]


def compiled_groups(compiled: Compiled) -> list[tuple[int, ...]]:
    """For each kernel the nodes that it completes: a node of several belongs to a library's, whatever
    is done before and after (casts, a bias), or else to the last."""
    home: dict[int, int] = {}
    for generated in (True, False):
        for i, each in enumerate(compiled.kernels):
            if _generated(each.kernel) is generated:
                home |= dict.fromkeys(each.nodes, i)
    groups: list[list[int]] = [[] for _ in compiled.kernels]
    for node in sorted(home):
        groups[home[node]].append(node)
    return list(map(tuple, groups))


def _generated(kernel: Kernel) -> bool:
    """Whether the compiler made a kernel, and did not call a library."""
    return kernel.op.startswith(GENERATED)


def placed(graph: Graph, compiled: Compiled) -> list[Placed]:
    """The kernels with what is known of their nodes: the class of their work, and its FLOPs."""
    found, last = [], {"forward": 1, "backward": 1}
    of = _parts(graph, compiled)
    for node in reversed(graph.nodes):
        if node.id in of:
            last[of[node.id][1]] = node.id
    for each, group in zip(compiled.kernels, compiled_groups(compiled), strict=True):
        nodes = [graph.node(i) for i in group or each.nodes]
        if nodes:
            last[each.phase] = max(nodes, key=lambda n: n.bytes).id
        kernel = each.kernel
        if _generated(kernel):
            kinds = {k.category for n in nodes for k in n.kernels}
            own = [graph.node(i) for i in group]
            kernel = replace(
                kernel,
                category=next((c for c in _RANK if c in kinds), kernel.category),
                other_flops=sum(n.other_flops + n.flops for n in own),
            )
        found.append(Placed(last[each.phase], kernel, each, group))
    return found


Part = tuple[int, str]
"""A fragment and its phase: what is compiled, and runs, as one."""


def _parts(graph: Graph, compiled: Compiled) -> dict[int, Part]:
    """The part that each node is of, where it is of one: gradients are of the fragment of what they are the
    gradients of, and what is run again for them is of the same part."""
    known = {(k.fragment, k.phase) for k in compiled.kernels}
    found: dict[int, Part] = {}
    for node in graph.nodes:
        of = node if node.phase != "backward" or node.forward is None else graph.node(node.forward)
        part = of.fragment, "backward" if node.phase == "recompute" else node.phase
        if part in known:
            found[node.id] = part
    return found


def compiled_graph(graph: Graph, compiled: Compiled) -> Graph:
    """The graph with the compiler's kernels at its nodes, and the memory that it allocates; what no
    fragment has is as it was."""
    kernels: dict[int, list[tuple[int, Kernel]]] = {}
    for at, each in enumerate(placed(graph, compiled)):
        kernels.setdefault(each.node, []).append((at, each.kernel))
    inside = _parts(graph, compiled)
    nodes: list[Node] = []
    clock: list[int] = []  # when each kernel of the graph would run now, and at last the end
    places: dict[int, int] = {}
    now = 0
    for node in graph.nodes:
        runs, own = node.kernels, kernels.get(node.id, [])
        clock += [now + (0 if node.id in inside else i) for i in range(len(runs))]
        if node.id in inside:
            places |= {at: now + i for i, (at, _) in enumerate(own)}
            runs = tuple(kernel for _, kernel in own) or _views(node)
        nodes.append(replace(node, kernels=runs))
        now += len(runs)
    clock.append(now)
    # Nodes are in the order of an eager run and the compiler's kernels not quite: each part has its times.
    parts: dict[Part, list[int]] = {}
    for at, kernel in enumerate(compiled.kernels):
        parts.setdefault((kernel.fragment, kernel.phase), []).append(at)
    when = {at: time for own in parts.values()
            for at, time in zip(own, sorted(map(places.__getitem__, own)), strict=True)}  # fmt: skip
    storages = tuple(_living(graph, compiled, inside, clock, when))
    return replace(graph, nodes=tuple(nodes), storages=storages)


def _living(
    graph: Graph, compiled: Compiled, inside: Mapping[int, Part], clock: Sequence[int],
    when: Mapping[int, int],
) -> list[Storage]:  # fmt: skip
    """The storages of a graph in their places, those that the compiler does not make empty, and then its
    own. A result of a fragment is where an eager run has one of its size, and goes when that goes."""
    ran = [inside.get(n.id) for n in graph.nodes for _ in n.kernels]
    found: list[Storage] = []
    results: dict[tuple[Part, int], list[int]] = {}
    for i, s in enumerate(graph.storages):
        part = None if graph.was_there(s) or s.born >= len(ran) else ran[s.born]
        if part is not None and (s.died is None or ran[s.died - 1] != part):
            results.setdefault((part, s.bytes), []).append(i)
        died = None if s.died is None else clock[s.died]
        found.append(
            replace(s, bytes=s.bytes if part is None else 0, born=clock[s.born], died=died)
        )
    for s in compiled.storages:
        kernel, died = compiled.kernels[s.born], None if s.died is None else when[s.died - 1] + 1
        own = replace(s, born=when[s.born], died=died)
        eager = results.get(((kernel.fragment, kernel.phase), s.bytes))
        if died is None and eager:
            i = eager.pop()
            end = found[i].died
            found[i] = replace(own, died=end and max(end, own.born), node=found[i].node)
        else:
            found.append(own)
    return found


def _views(node: Node) -> tuple[Kernel, ...]:
    return tuple(k for k in node.kernels if k.cost == "zero")


def compiled_work(graph: Graph, compiled: Compiled) -> tuple[Work, ...]:
    """What a device does for a graph as it was traced: fragment by fragment what was compiled, and between
    them what was not. The host makes one call for a kernel, and one of a module for a fragment."""
    parts: dict[Part, list[Placed]] = {}
    for each in placed(graph, compiled):
        parts.setdefault((each.source.fragment, each.source.phase), []).append(each)
    return tuple(_works(graph, parts, _parts(graph, compiled)))


def _works(graph: Graph, parts: dict[Part, list[Placed]], of: dict[int, Part]) -> Iterator[Work]:
    begun: set[Part] = set()
    moved, touched = 0, dict[int, int]()
    known: dict[tuple[object, ...], Task] = {}
    for work in workload(graph):
        part = of.get(work.node)
        if part is None:
            yield work
            continue
        if part in begun:
            continue
        begun.add(part)
        for first, each in enumerate(parts[part]):
            source = each.source
            sizes = tuple(size for _, size in source.reads)
            node = graph.node(each.node)
            left = left_by_mask(each.kernel) if is_masked(node, each.kernel) else 1.0
            packed = packed_of(each.kernel, [graph.value[v] for v in node.inputs])
            key = (each.kernel, sizes, source.layout, left, packed)
            task = known.setdefault(key, _task(*key))
            distances = [
                None if b not in touched else moved - touched[b] + size for b, size in source.reads
            ]
            moved += task.bytes
            touched.update((b, moved) for b, _ in (*source.reads, *source.writes))
            yield Work(each.node, task, tuple(distances), 1, int(not first))


def _task(kernel: Kernel, sizes: tuple[int, ...], layout: str, left: float, packed: float) -> Task:
    shape = kernel.out_shapes[0][2:] if kernel.out_shapes else ()
    return Task(
        kernel=kernel.op, category=kernel.category, dtype=kernel.dtype,
        flops=round(kernel.flops * left), other_flops=round(kernel.other_flops * left),
        written=kernel.written, sizes=sizes,
        contraction=contraction_of(kernel),
        layout="channels-last" if layout == "channels-last" else "contiguous",
        positions=elements(shape), packed=packed, multiplied=kernel.multiplied,
    )  # fmt: skip


def ensure_compiled(profile: ProfileRecord, device: Device | None) -> ProfileRecord:
    """The profile, if TorchInductor scheduled it for what it is now costed on, with a remark where that was
    another generation. Raises `RenderError`."""
    compiled = profile.compiled
    if compiled is None:
        raise RenderError(
            "this profile does not have TorchInductor's kernels",
            hint="name the model: opgraph profile MODEL --run compiled --hardware DEVICE -o FILE.json "
            "keeps them (in Python: profile(…, inductor=True))",
        )
    if compiled.kernels and not compiled.storages:
        raise RenderError("this profile was saved before TorchInductor's memory was worked out",
                          hint="name the model with --run compiled")  # fmt: skip
    lower = profile.convention.get("autocast")
    if compiled.autocast != lower:
        raise RenderError(
            f"TorchInductor compiled this profile {_precision(compiled.autocast)}, and it is costed "
            f"{_precision(lower)}",
            hint="name the model with --run compiled"
            + (f" --autocast {lower}" if lower else "")
            + (f" (in Python: inductor_autocast={lower!r})" if lower else ""),
        )
    if device is None or device.target == compiled.target:
        return profile
    if device.target.partition(":")[0] != compiled.target.partition(":")[0]:
        raise RenderError(f"TorchInductor compiled this profile for {compiled.target}, and "
                          f"{device.name} is {device.target}",
                          hint="name the model with --run compiled and the device")  # fmt: skip
    note = Remark("target", f"compiled for {compiled.target}, costed on {device.name}")
    return replace(profile, model=profile.model.noting(note))


def _precision(lower: str | None) -> str:
    return "as it is" if lower is None else f"in mixed precision ({lower})"


# What is gained over an eager run, and by what.


@dataclass(frozen=True, slots=True)
class Reason:
    """What saves time: what is done, and the seconds that it saves (below zero where it costs)."""

    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What a compiled step of training keeps for its backward: bytes and tensors beside weights and
    inputs, the bytes that are alive after an eager forward, and how many nodes of each operator are
    computed again, in part or whole."""

    bytes: int
    tensors: int
    eager_bytes: int
    again: dict[str, int]


def kept(profile: ProfileRecord) -> Kept | None:
    """What passes from the forward of a compiled step of training to its backward."""
    compiled = profile.compiled
    if compiled is None or profile.mode != "train":
        return None
    from opgraph.analysis.cost.training import training

    again = Counter(profile.graph.node(i).op for i in compiled.again)
    return Kept(
        sum(size for _, size in compiled.kept), len(compiled.kept),
        training(profile.graph).saved_activations, dict(again.most_common()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """A compiled run beside an eager one: their seconds and launches, and why they differ, the most
    important first."""

    eager: float
    compiled: float
    launches: tuple[int, int]
    reasons: tuple[Reason, ...]
    kept: Kept | None = None

    @property
    def factor(self) -> float:
        """How many times as fast as an eager run."""
        return self.eager / self.compiled if self.compiled else 1.0

    def to_dict(self) -> dict[str, object]:
        """JSON-ready data."""
        return {
            "eager_seconds": self.eager, "factor": self.factor,
            "launches": {"eager": self.launches[0], "compiled": self.launches[1]},
            "reasons": [{"text": r.text, "seconds": r.seconds} for r in self.reasons],
            **({} if self.kept is None else {"kept": asdict(self.kept)}),
        }  # fmt: skip


def speed_up(costed: CostedRecord) -> SpeedUp | None:
    """What compiling saves on the device; None where it was not asked for."""
    device, compiled = costed.device, costed.profile.compiled
    if device is None or compiled is None or costed.prediction is None:
        return None
    plain = costed.plain
    before, now = plain.prediction, costed.prediction
    if before is None:
        return None
    # A kernel that has a part in several nodes (a fused optimizer) is launched once.
    launches = tuple(
        round(sum(w.task.share for w in each.work if w.task.kernel)) for each in (plain, costed)
    )
    saved: dict[str, float] = {}
    eager, mine = before.by_node, now.by_node
    graph = costed.profile.graph
    for group in compiled_groups(compiled):
        working = [graph.node(i) for i in group if graph.node(i).bytes]
        if working:
            gain = sum(eager.get(i, 0.0) - mine.get(i, 0.0) for i in group)
            text = _said(working)
            saved[text] = saved.get(text, 0.0) + gain
    reasons = [Reason(text, seconds) for text, seconds in saved.items() if seconds]
    if before.limit == "host":
        waiting = before.host_seconds - max(now.host_seconds, before.device_seconds)
        # Calls, not launches: a compiler may make more kernels, and still spares the calls of modules.
        was, is_ = (sum(w.calls + w.modules for w in each.work) for each in (plain, costed))
        text = f"{is_:,} calls of operators and modules instead of {was:,}"
        reasons.append(Reason(text, waiting))
    reasons.sort(key=lambda r: -abs(r.seconds))
    counts = launches[0], launches[1]
    return SpeedUp(before.seconds, now.seconds, counts, tuple(reasons), kept(costed.profile))


def _said(nodes: Sequence[Node]) -> str:
    """What becomes of some nodes, by rule: their operators in one kernel, or another kernel of one."""
    ops = list(dict.fromkeys(n.op for n in nodes))
    named = f"{', '.join(ops[:-1])} and {ops[-1]}" if len(ops) > 1 else ops[0]
    if len(nodes) > 1:
        return f"{named} in one kernel"
    kinds = {k.category for n in nodes for k in n.kernels}
    if any("convolution" in kind for kind in kinds):
        return f"{named} in channels-last"
    return f"{named} as generated or in another layout"
