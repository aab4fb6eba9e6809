"""`CostedRecord`: one model on one machine. A profile, a device (or the generic ridge), and what was asked
of them; every answer is worked out once, when it is first read. All views take it, so that two of them
cannot disagree about the ridge, the bounds, the time, the subgraphs or the tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from opgraph.analysis.cost.conventions import counted
from opgraph.analysis.cost.totals import (
    GENERIC_RIDGE,
    BoundShare,
    Cost,
    Totals,
    bound_of,
    classify,
    cost_of,
    total_seconds,
    totals,
)
from opgraph.analysis.tree import Metric, Tree, build_tree, usual_metric
from opgraph.options import ON_PAPER, OPTIONS, QUANTIZED, Stage, checked, names
from opgraph.record import units
from opgraph.record.errors import InputError, RenderError
from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import TRANSFERS, Bound, Mode, Partition, Run
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark, coded

_NAMED = 4
"""Operators without a known cost that a remark names."""

COMPILED = Remark(
    "compiled",
    "by torch's own scheduler, products not padded; the host is taken to need for a kernel what "
    "it needs for a call of an operator",
)
"""The remark on what is assumed of a compiled run."""

STEP = Remark(
    "compiled",
    "the model's forward is compiled, and with it its backward; a loss outside of the model and the "
    "optimizer run as without a compiler",
)
"""The remark on what of a step of training is compiled."""

RECURRENT = Remark(
    "recurrent",
    "a recurrent layer is timed as one kernel: that its steps wait for one another is in no time, which "
    "is too short where they are many and small",
)
"""The remark on the time of recurrent layers."""

_OF_ANY_DEVICE = ("totals", "multiplied", "work", "memory", "footprint")
"""Answers that hang on the graph alone."""

# What only some answers need is imported where they are worked out: a table of a saved profile takes none.
if TYPE_CHECKING:
    from opgraph.analysis.compiled import SpeedUp
    from opgraph.analysis.cost.totals import ModuleCost
    from opgraph.analysis.fusion.partition import Subgraph
    from opgraph.analysis.measured.times import Measurement
    from opgraph.analysis.memory import Fit, Footprint, MemoryTimeline
    from opgraph.analysis.nodes import Row
    from opgraph.analysis.parallel.paper import Plan
    from opgraph.analysis.serving.batches import Step
    from opgraph.analysis.timing.collectives import Exchanged
    from opgraph.analysis.timing.energy import Energy, Price
    from opgraph.analysis.timing.prediction import Prediction
    from opgraph.analysis.timing.roofline import RooflinePoint
    from opgraph.analysis.timing.workload import Work
    from opgraph.hardware import Device
    from opgraph.record.layout import Layout


@dataclass(frozen=True, eq=False)
class CostedRecord:
    """A profile costed on a device, or without one on the generic ridge.

    `partition` says which subgraphs `parts` are, `layout` over how many devices `plan` lays the model,
    `price_per_hour` says what the device costs; how it is run belongs to the profile.
    `asked` are the options that it was costed with: a view that would show nothing of one refuses it.
    """

    profile: ProfileRecord
    device: Device | None = None
    partition: Partition = Partition.FUSE
    layout: Layout | None = None
    asked: frozenset[str] = frozenset()
    price_per_hour: float | None = None

    def beside(self, hardware: str | Device, **asked: Any) -> CostedRecord:
        """The profile on another device, where what no device changes is not worked out again."""
        found = costed(self.profile, hardware, **asked)
        if found.profile.graph is self.graph:
            vars(found).update({name: getattr(self, name) for name in _OF_ANY_DEVICE})
        return found

    @property
    def run(self) -> Run:
        """How the host launches it."""
        return self.profile.run

    def running(self, run: Run) -> CostedRecord:
        """The same, run in another way."""
        return replace(self, profile=replace(self.profile, run=run))

    @cached_property
    def graph(self) -> Graph:
        """The graph with the kernels that run: the compiler's or an engine's where it was asked for."""
        if self.run is Run.ENGINE:
            from opgraph.analysis.serving.engine import engine

            return engine(self.profile.graph)
        if self.run.compiled and self.profile.compiled is not None:
            from opgraph.analysis.compiled import compiled_graph

            return compiled_graph(self.profile.graph, self.profile.compiled)
        return self.profile.graph

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What must be known of how the figures came about, each once."""
        profile, graph = self.profile, self.profile.graph
        notes = list(profile.model.notes)
        if profile.tracing.tensors == "fake weights":
            text = "forward asks for values of its inputs: figures are those of its way with these"
            notes.append(Remark("branch", f"{text}, which are made up unless they were given"))
        if profile.tracing.tensors == "real":
            # Not every failure on fake ones is for want of a value, so it is said which it was.
            failed = [a.error for a in profile.tracing.attempts if a.error and a.tensors != "real"]
            why = f": {failed[-1]}" if failed else ""
            notes.append(Remark("real-tensors", f"ran on real tensors, not on fake ones{why}"))
        if unknown := self.totals.unknown:
            listed = ", ".join(name for name, _ in unknown[:_NAMED])
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            text = f"{units.plural(len(unknown), 'operator')} without a known cost: {listed}{more}"
            notes.append(Remark("unknown-operator", text))
        if self.device is not None:
            notes += [Remark("device", text) for text in self.device.assumptions]
            notes += [Remark("precision", text) for text in self._multiplied(self.device)]
        if self.device is not None and (profile.world is not None or self.layout is not None):
            notes += [Remark("network", text) for text in self._of_the_network(self.device)]
        kept = self.device is not None and self.device.kind != "cpu"  # whose memory is the host's
        if self.device is not None and kept and self.graph.on_host.storages:
            notes.append(Remark("host", self._of_the_host(self.device)))
        if (
            self.device is not None
            and self.device.kind != "cpu"
            and any(
                kernel.category == "recurrent" for node in graph.nodes for kernel in node.kernels
            )
        ):
            notes.append(RECURRENT)
        if self.device is not None and profile.pipeline is not None and not profile.pipeline.like:
            text = "other stages of the pipeline are taken to be as quick as those of this rank"
            notes.append(Remark("network", text))
        if self.run.compiled:
            notes.append(COMPILED)
            if profile.mode == "train":
                notes.append(STEP)
        if self.run is Run.ENGINE:
            from opgraph.analysis.serving.engine import assumed

            notes += assumed(graph)
        if graph.failed is not None:
            where = f"the {graph.failed.part} failed at node {graph.failed.id}"
            text = f"{where}: the graph ends there"
            notes.append(Remark("failed", text))
        return coded(notes)

    def _multiplied(self, device: Device) -> Iterable[str]:
        """What is said where most products are in a dtype in which the device does not multiply, or where
        it multiplies float32 with fewer digits."""
        dtype, alone = self.main_dtype, device.kind == "accelerator"
        if dtype == "tfloat32":
            yield (
                f"most products of float32 are computed in TensorFloat-32 on {device.name}: torch does so "
                "in convolutions and recurrent layers (unless torch.backends.cudnn.conv.fp32_precision is "
                "'ieee'), and in others where it is told to"
            )
        if self.totals.flops and not (device.has_matrix if alone else device.has_units)(dtype):
            known = ", ".join(k[7:] for k in device.figures if k.startswith("matrix."))
            yield (f"most products are in {dtype}, for which {device.name} has no units: they are taken at "
                   f"{units.count(device.matrix_peak(dtype), 'FLOP/s')}, its other units' rate in float32"
                   + f" (matrix units take {known})" * bool(known))  # fmt: skip

    def _of_the_network(self, device: Device) -> Iterable[str]:
        """What is assumed of what links the ranks, where any of them exchange something."""
        from opgraph.analysis.timing.collectives import placed
        from opgraph.hardware.devices import NO_LINK

        found = {k.collective for n in self.graph.nodes for k in n.kernels if k.collective}
        groups = {each for each in found if each.kind not in TRANSFERS}
        apart = any(placed(each, device.node)[1] > 1 for each in groups)
        apart = apart or (self.layout is not None and self.layout.devices > device.node)
        if groups and device.link_bandwidth is None:
            yield f"what ranks exchange takes no time here: {NO_LINK.format(device.name)}"
        elif apart and device.network_bandwidth is None:
            yield (f"what ranks exchange between nodes of {device.node} takes the time of the link within "
                   f"one: the file of {device.name} gives no network")  # fmt: skip
        elif apart:
            speed = units.count(device.network_bandwidth or 0.0, "B/s")
            yield (f"what ranks exchange between nodes of {device.node} goes over {speed} a device, as "
                   "NCCL reckons: nothing measured stands behind it")  # fmt: skip

    def _of_the_host(self, device: Device) -> str:
        """What is assumed of the link to the host, and of what runs there."""
        figures = {"link": device.host_link, "memory": device.host_memory}
        link, memory = (units.count(rate, "B/s") for rate in figures.values())
        unsaid = " and ".join(n for n in figures if device.figure(f"host.{n}") is None)
        usual = f" (assumed: the file of {device.name} gives no {unsaid})" if unsaid else ""
        return (f"copies to the host and back reach {link}, and what runs there is bound by {memory} "
                f"of its memory, a device's part{usual}: nothing measured stands behind it")  # fmt: skip

    @cached_property
    def exchanged(self) -> tuple[Exchanged, ...]:
        """What this rank exchanges with others, by phase, kind and group."""
        from opgraph.analysis.timing.collectives import exchanges

        return exchanges(self.graph)

    @cached_property
    def totals(self) -> Totals:
        """FLOPs, MACs, bytes, parameters, memory and coverage of the whole graph."""
        return totals(self.graph)

    @cached_property
    def multiplied(self) -> str:
        """The dtype in which most FLOPs of matrix products and convolutions are done, where a device has
        units for it."""
        flops: Counter[str] = Counter()
        for node in self.graph.nodes:
            for kernel in node.kernels:
                flops[kernel.multiplied] += kernel.flops
        found = max(sorted(flops), key=lambda d: flops[d], default="")
        return found if flops[found] else "float32"

    @property
    def main_dtype(self) -> str:
        """The dtype in which most FLOPs of matrix products and convolutions are done on the device."""
        if self.device is not None:
            return self.device.multiplies(self.multiplied)
        return self.multiplied.replace("tfloat", "float")

    @cached_property
    def ridge(self) -> float:
        """The ridge point in FLOPs/byte: the device's in the main dtype, or the generic one."""
        return GENERIC_RIDGE if self.device is None else self.device.ridge_point(self.main_dtype)

    @cached_property
    def prediction(self) -> Prediction | None:
        """The predicted time of every kernel; None without a device."""
        if self.device is None:
            return None
        from opgraph.analysis.timing.prediction import predict

        found = predict(
            self.graph, self.device, self.run, works=self.work, pipeline=self.profile.pipeline
        )
        return self.believed(found, self.device)

    def believed(
        self, found: Prediction, device: Device, often: Mapping[int, int] | None = None
    ) -> Prediction:
        """A prediction with the interval that it has where a device runs some nodes by other kernels, or
        by such as were never measured. `often` is how many nodes a node of it stands for."""
        from opgraph.analysis.targets import run_otherwise

        otherwise = run_otherwise(self.profile, device)
        others = otherwise | self._quantized | self.graph.on_host.nodes
        if self.run.compiled and found.limit == "host":
            found = found.unmeasured()  # no compiled run that waits for the host was
        return found.without_knowing(others, otherwise, often or {}) if others else found

    @property
    def _quantized(self) -> frozenset[int]:
        """Nodes with kernels for weights in fewer bits, to which nothing is fitted (docs/quantized.md)."""
        if "weights" not in self.profile.convention:
            return frozenset()
        from opgraph.analysis.timing.workload import QUANTIZED

        nodes = self.graph.nodes
        return frozenset(n.id for n in nodes if any(k.op.startswith(QUANTIZED) for k in n.kernels))

    @cached_property
    def work(self) -> tuple[Work, ...]:
        """What a device really runs, one piece of work after the other."""
        if self.run.compiled and self.profile.compiled is not None:
            from opgraph.analysis.compiled import compiled_work

            return compiled_work(self.profile.graph, self.profile.compiled)
        from opgraph.analysis.timing.workload import workload

        return workload(self.graph)

    @cached_property
    def plain(self) -> CostedRecord:
        """The same without a compiler."""
        if not self.run.compiled:
            return self if self.run is not Run.ENGINE else self.running(Run.EAGER)
        return self.running(Run.GRAPHS if self.run.recorded else Run.EAGER)

    @property
    def traffic(self) -> str:
        """What the bytes are those of: kernels as they were traced, or as a compiler fused them."""
        if self.run is Run.ENGINE:
            return "as an engine fuses"
        return "as compiled" if self.run.compiled else "unfused"

    @cached_property
    def speed_up(self) -> SpeedUp | None:
        """What compiling saves on the device, and by what; None where it was not asked for."""
        if not self.run.compiled:
            return None
        from opgraph.analysis.compiled import speed_up

        return speed_up(self)

    @cached_property
    def energy(self) -> Energy | None:
        """The energy of a run; None without a device, or where its file has no power limit."""
        if self.device is None or self.prediction is None:
            return None
        from opgraph.analysis.timing.energy import energy

        return energy(self.work, self.prediction, self.device)

    @property
    def price(self) -> Price | None:
        """The price of a run; None where no price per hour was given."""
        if self.price_per_hour is None or self.prediction is None:
            return None
        from opgraph.analysis.timing.energy import price

        return price(self.prediction, self.price_per_hour)

    @property
    def seconds_by_node(self) -> Mapping[int, float] | None:
        """The predicted seconds that the device needs for every node that takes any, by its id; None
        without a device."""
        return None if self.prediction is None else self.prediction.by_node

    @property
    def host_by_node(self) -> Mapping[int, float] | None:
        """The same of the host, which launches them; none of a node where both are one, or a graph is
        recorded."""
        return None if self.prediction is None else self.prediction.by_queue["host"]

    @property
    def hosted(self) -> bool:
        """Whether the host is the limit: then the seconds of nodes, which are the device's, add up to less
        than the run takes."""
        return self.prediction is not None and self.prediction.limit == "host"

    @property
    def measurement(self) -> Measurement | None:
        """What was measured of the profile; None where no time was."""
        return None if self.ran is None or not self.ran.run.events else self.ran

    @cached_property
    def ran(self) -> Measurement | None:
        """What was measured of the profile, be it memory alone; None where nothing was."""
        if self.profile.measured is None:
            return None
        from opgraph.analysis.measured.times import Measurement

        return Measurement(self, self.profile.measured)

    def named_measurement(self) -> Measurement:
        """What was measured. Raises `RenderError` where nothing was."""
        if self.ran is None:
            raise RenderError("nothing was measured of this profile",
                              hint="opgraph measure MODEL -o run.json")  # fmt: skip
        return self.ran

    @property
    def metric(self) -> Metric:
        """What shares are of, and hot spots are ordered by (see `usual_metric`)."""
        measured = self.measurement is not None
        return usual_metric(self.totals.cost, timed=self.device is not None, measured=measured)

    @cached_property
    def node_bounds(self) -> Mapping[int, Bound]:
        """What each node that moves data waits for, by its id."""
        if self.prediction is not None:
            return self.prediction.bounds
        found = ((n.id, classify(n.arithmetic_intensity, self.ridge)) for n in self.graph.nodes)
        return {node: bound for node, bound in found if bound is not None}

    @cached_property
    def tree(self) -> Tree:
        """The calls of modules in order of execution, repeats folded, with the figures of each item."""
        return self.tree_of()

    def tree_of(
        self, nodes: Sequence[Node] | None = None, *, root: str = "", fold: bool = True
    ) -> Tree:
        """The tree of some nodes below a module, or of all, folded or not."""
        bounds = None if self.device is None else self.node_bounds
        return build_tree(
            self.graph, nodes, root=root, fold=fold,
            seconds=self.seconds_by_node, bounds=bounds, ridge=self.ridge,
            host=self.host_by_node,
            measured=None if self.measurement is None else self.measurement.by_node,
        )  # fmt: skip

    @cached_property
    def bounds(self) -> tuple[BoundShare, ...]:
        """The nodes by what they wait for: on a device arithmetic, memory, launches or other ranks, with
        their shares of the time that it works; without one above, about or below the ridge point, with
        their shares of the bytes."""
        kinds: tuple[Bound, ...] = (Bound.COMPUTE, Bound.BALANCED, Bound.MEMORY)
        if self.device is not None:
            from opgraph.record.kinds import DEVICE_BOUNDS, KERNEL_BOUNDS

            found = set(self.node_bounds.values()).union(KERNEL_BOUNDS)
            kinds = tuple(b for b in DEVICE_BOUNDS if b in found)
        groups: dict[Bound, list[Node]] = {bound: [] for bound in kinds}
        for node in self.graph.nodes:
            if (bound := self.node_bounds.get(node.id)) is not None:
                groups[bound].append(node)
        seconds = self.seconds_by_node
        rows = [
            (b, nodes, cost_of(nodes), total_seconds(nodes, seconds)) for b, nodes in groups.items()
        ]
        whole = sum(cost.bytes if taken is None else taken for _, _, cost, taken in rows) or 1.0
        return tuple(
            BoundShare(b, len(nodes), cost, taken, (cost.bytes if taken is None else taken) / whole)
            for b, nodes, cost, taken in rows
        )

    @property
    def waits(self) -> Mapping[Bound, float]:
        """What the run waits for, with the shares of its time, or of the bytes without a device: launches
        alone where the host is the limit."""
        if self.hosted:
            return {Bound.LAUNCH: 1.0}
        return {b.bound: b.share for b in self.bounds if b.nodes}

    @property
    def bound(self) -> Bound | None:
        """What the whole run waits for; None where nothing is moved."""
        if self.hosted:
            return Bound.LAUNCH
        return self.bound_of(self.graph.nodes, self.totals.cost)

    def bound_of(self, nodes: Iterable[Node], cost: Cost) -> Bound | None:
        """What some nodes of this cost wait for together."""
        return bound_of(nodes, cost, self.ridge, self.node_bounds, self.seconds_by_node)

    @cached_property
    def parts(self) -> tuple[Subgraph, ...]:
        """The subgraphs of the partition.

        Raises `RenderError` where TorchInductor was not asked when the profile was made.
        """
        from opgraph.analysis.fusion.partition import compiled, fused_subgraphs, singletons

        if self.partition is Partition.INDUCTOR or self.run.compiled:
            if self.profile.compiled is None:
                raise RenderError(
                    "this profile does not have TorchInductor's groups",
                    hint="opgraph profile MODEL --partition inductor -o FILE.json keeps them, and in "
                    "Python profile(MODEL, inductor=True)",
                )
            from opgraph.analysis.compiled import compiled_graph, compiled_groups

            graph, by = self.profile.graph, self.profile.compiled
            groups = [g for g in compiled_groups(by) if g]
            return compiled(graph, groups, compiled_graph(graph, by))
        return (
            singletons(self.graph)
            if self.partition is Partition.NONE
            else fused_subgraphs(self.graph)
        )

    @cached_property
    def barriers(self) -> Mapping[int, str]:
        """Why each subgraph goes no further, by its id."""
        from opgraph.analysis.fusion.partition import fusion_barriers

        return fusion_barriers(self.graph, self.parts)

    @cached_property
    def roofline(self) -> tuple[RooflinePoint, ...]:
        """Every subgraph that moves data against the device's roof.

        Raises `RenderError` without a device.
        """
        from opgraph.analysis.timing.roofline import roofline

        return roofline(self.graph, self.parts, self.named_device(), self.run, self.work)

    @cached_property
    def memory(self) -> MemoryTimeline:
        """Live memory over the run, without weights."""
        from opgraph.analysis.memory import memory

        return memory(self.graph)

    @property
    def peak_memory(self) -> int:
        """Weights, buffers, and the most bytes of activations and inputs live at a time."""
        return self.footprint.weights + self.memory.peak

    @cached_property
    def host_memory(self) -> int:
        """The most bytes that are in the host's memory, where something is kept there."""
        from opgraph.analysis.memory import on_host

        return on_host(self.graph)

    @cached_property
    def footprint(self) -> Footprint:
        """What the run needs of memory, whatever the device."""
        from opgraph.analysis.memory import Footprint

        return Footprint(self.graph, self.memory)

    @cached_property
    def fit(self) -> Fit | None:
        """What the run needs of the device's memory; None without a device."""
        return None if self.device is None else self.footprint.on(self.device)

    @property
    def fits(self) -> bool | None:
        """Whether the run fits into the device's memory; None without a device."""
        return None if self.fit is None else self.fit.fits

    @cached_property
    def plan(self) -> Plan | None:
        """The model over several devices; None where no layout was asked for."""
        return None if self.layout is None else self.plan_of(self.layout)

    def plan_of(self, layout: Layout) -> Plan:
        """The model over so many devices. Raises `RenderError` where it does not divide."""
        from opgraph.analysis.parallel.paper import parallel

        cache = 0 if self.profile.cache is None else self.profile.cache.bytes
        return parallel(self.graph, layout, self.device, cache=cache, run=self.run)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Prefill or decoding steps by batch, as far as they fit; empty for another mode or no device."""
        if self.device is None or self.profile.cache is None or self.run.compiled:
            return ()  # kernels are compiled for one size
        if not Mode(self.profile.mode).generates:
            return ()
        from opgraph.analysis.serving.batches import steps

        return steps(self.profile, self.device, self.run)

    @cached_property
    def module_tree(self) -> ModuleCost:
        """The modules by path, the root with all that is below it."""
        from opgraph.analysis.cost.totals import module_tree

        return module_tree(self.graph, self.seconds_by_node)

    @cached_property
    def operators(self) -> tuple[Row, ...]:
        """The costs by canonical operator, the costliest first: by time on a device."""
        from opgraph.analysis.nodes import by_op

        return by_op(self)

    def named_device(self, what: str = "this") -> Device:
        """The device. Raises `RenderError` where none was named, saying `what` needs one."""
        if self.device is None:
            raise RenderError(f"{what} needs a device",
                              hint="--hardware h100-sxm (opgraph hardware lists them)")  # fmt: skip
        return self.device


def costed(
    profile: ProfileRecord, hardware: str | Device | None = None, **asked: Any
) -> CostedRecord:
    """Cost a profile on a device, or without one on the generic ridge (see `terms`)."""
    return CostedRecord(*terms(profile, hardware, **asked))


Terms: TypeAlias = (
    "tuple[ProfileRecord, Device | None, Partition, Layout | None, frozenset[str], float | None]"
)

ASKED = (
    *(n for n in names(Stage.COSTING) if n not in ("hardware", "memory")),
    *ON_PAPER,
    "count",
)
"""The options, beside the device, that say how a profile is costed."""


_OF_RANKS = frozenset({"network", "devices_per_node"})


def terms(profile: ProfileRecord, hardware: str | Device | None = None, **asked: Any) -> Terms:
    """The fields of a `CostedRecord`: the profile as it is costed, the device by its name, its file or
    itself, the partition, the layout, what was asked, and the price per hour.

    `asked` are options of `ASKED`: `autocast="float16"`, `partition="none"`, `count={"attention":
    "causal"}`, `tensor_parallel=8` … Raises `UnknownDevice`, and `InputError` for what the profile cannot
    meet.
    """
    given = {n: v for n, v in checked(asked, ASKED, "costing").items() if v is not None}
    devices = None
    if isinstance(hardware, str):
        from opgraph.hardware import cluster

        devices, hardware = cluster(hardware)
    if hardware is not None:
        hardware = hardware.over(given.get("network"), given.get("devices_per_node"))
    profile = counted(profile, given.get("count", {}))
    if hardware is not None:
        from opgraph.analysis.targets import retargeted

        profile = retargeted(profile, hardware)
    if "autocast" in given:
        profile = in_precision(profile, given["autocast"])
    profile = quantized(profile, given, hardware)
    sizes = [given.get(name) for name in ON_PAPER]
    layout = None
    if any(sizes):
        from opgraph.record.layout import Layout

        if profile.world is not None:
            raise InputError("this profile is of one rank of many: it is laid out already",
                             hint="lay out a profile of the whole model")  # fmt: skip
        tensor, pipeline, data, micro_batches = (size or 1 for size in sizes)
        layout = Layout(tensor, pipeline, data, micro_batches)
    ranks = (
        profile.world.size if layout is None and profile.world else layout.devices if layout else 1
    )
    if devices not in (None, ranks):
        raise InputError(f"this runs on {units.plural(ranks, 'device')}, not {devices:,}",
                         hint="--world-size, or a layout of so many devices")  # fmt: skip
    if layout is None and profile.world is None and (within := given.keys() & _OF_RANKS):
        raise InputError(f"{OPTIONS[min(within)].flag} is for what several devices exchange",
                         hint="--world-size, or a layout of several devices")  # fmt: skip
    partition = Partition(given.get("partition", Partition.FUSE))
    run, price = Run(given.get("run", profile.run)), given.get("price_per_hour")
    heeded = frozenset([n for n, v in given.items() if v != {}] + ["hardware"] * bool(hardware))
    if run is Run.ENGINE and not Mode(profile.mode).generates:
        raise InputError(
            f"an engine runs a prefill or a decoding step, and this is the mode {profile.mode}",
            hint="add --mode decode, or --mode prefill",
        )
    if run is Run.ENGINE and layout is not None:
        raise InputError("a step of an engine over several devices is what opgraph serve works out",
                         hint="opgraph serve MODEL --hardware 4xh100-sxm")  # fmt: skip
    if run.compiled:
        from opgraph.analysis.compiled import ensure_compiled

        profile = ensure_compiled(profile, hardware)
        if layout is not None:
            raise InputError("a compiled run over several devices is not worked out",
                             hint="leave out --run compiled, or the layout")  # fmt: skip
    return replace(profile, run=run), hardware, partition, layout, heeded, price


def quantized(
    profile: ProfileRecord, given: Mapping[str, Any], device: Device | None = None
) -> ProfileRecord:
    """The profile with weights, activations and cache in what is asked for, or in what it is published in;
    one that was saved so is as it is.

    Raises `InputError` for one that was saved otherwise, and for what does not go together.
    """
    from opgraph.record.quantization import scheme_of

    asked = {n: given.get(n) for n in QUANTIZED}
    own = profile.convention
    if asked["weights"] == "none":  # and so when it is opened again
        profile = replace(profile, model=replace(profile.model, weights=None))
    scheme = scheme_of(
        asked["weights"], asked["group_size"], asked["activations"], profile.model.weights
    )
    now = {"weights": asked["weights"] and str(scheme or "none"), "kv_cache": asked["kv_cache"],
           "activations": asked["activations"]}  # fmt: skip
    saved = {"activations": "no fewer bits", **own} if "weights" in own else own
    for name, value in now.items():
        if value is not None and name in saved and saved[name] != value:
            raise InputError(f"this profile was saved with its {name.replace('_', ' ')} in {saved[name]}",
                             hint="name the model, or a profile without it")  # fmt: skip
    scheme = None if "weights" in own else scheme
    cache = None if "kv_cache" in own or asked["kv_cache"] == "none" else asked["kv_cache"]
    if scheme is None and cache is None and "activations" not in own:
        return profile
    from opgraph.analysis.cost.quantization import in_fewer_bits, multiplies

    if device is not None and not multiplies(profile, device):
        raise InputError(f"this profile was saved with its activations in {own['activations']}, for which "
                         f"{device.name} has no units", hint="name the model")  # fmt: skip
    return in_fewer_bits(profile, scheme, cache, device)


def in_precision(profile: ProfileRecord, lower: str) -> ProfileRecord:
    """The profile in mixed precision; one that was saved so is as it is, since its casts are in it already.

    Raises `InputError` for one that was saved in another precision, or a dtype that is not lower.
    """
    lower = OPTIONS["autocast"].check(lower)
    already = profile.convention.get("autocast")
    if already == lower:
        return profile
    if profile.measured is not None:
        raise InputError("what was measured ran in the precision that it has",
                         hint=f"measure the model in {lower}, or name it without a run")  # fmt: skip
    if already is not None:
        raise InputError(
            f"this profile was saved with --autocast {already}",
            hint=f"name the model, or a profile without it, for {lower}",
        )
    from opgraph.analysis.cost.precision import autocast

    return replace(
        profile,
        graph=autocast(profile.graph, lower),
        pipeline=None
        if (found := profile.pipeline) is None
        else replace(
            found, samples=tuple(replace(s, graph=autocast(s.graph, lower)) for s in found.samples)
        ),
        formulas=None,  # they are those of the precision before
        convention={**profile.convention, "autocast": lower},
    )
