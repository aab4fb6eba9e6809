"""`Costed`: a profile on a machine, as a person holds it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any

import msgspec

from opgraph.analysis.cost.fragments import extracted, part_of
from opgraph.analysis.cost.totals import Totals, cost_of
from opgraph.analysis.costed import ASKED, CostedRecord, costed, terms
from opgraph.analysis.measured.times import Excess, Measurement, Residual
from opgraph.analysis.memory import MemoryTimeline
from opgraph.analysis.nodes import NodeView, Part, Row
from opgraph.analysis.selection import matches
from opgraph.analysis.tree import HotSpot
from opgraph.hardware import Device
from opgraph.options import checked, named_options
from opgraph.record import loading, units
from opgraph.record.errors import InputError, RenderError, did_you_mean
from opgraph.record.files import write_atomically
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark
from opgraph.record.run import RunRecord
from opgraph.views import View, render, view_for, view_named

DRAWN = tuple(dict.fromkeys(n for v in ("svg", "pdf", "png") for n in view_named(v).heeds))
"""The options of a picture."""
PAGED = tuple(n for n in view_named("html").heeds if n != "against")
"""The options of the page."""


class Shown:
    """What a profile and a profile on a machine show alike, by what is `costed`."""

    @property
    def costed(self) -> Costed:
        """What is shown: itself, or itself on the generic ridge."""
        raise NotImplementedError

    @named_options(("depth",))
    def by_module(self, depth: int | None = None, **options: Any) -> Rows:
        """The costs by module, as a mapping from paths.

        "" is the root, which comes first; `depth` is how many levels below it. Raises `InputError` for a
        depth below 0, and for other options.
        """
        given = checked({"depth": depth, **options}, ("depth",), "by_module")
        found = self.costed.module_tree.walk(given["depth"])
        return Rows("module", {m.path: Row(self.costed, m.path, m.cls, m.calls, m.parameters, m.cost,
                                           tuple(n for b in m.walk() for n in b.nodes))
                               for m in found})  # fmt: skip

    def by_op(self) -> Rows:
        """The costs by canonical operator: a mapping from names, the costliest first."""
        return Rows("operator", {row.name: row for row in self.costed.operators})

    @cached_property
    def nodes(self) -> tuple[NodeView, ...]:
        """The operators in order of execution, with what is around them."""
        return tuple(NodeView(self.costed, node) for node in self.costed.graph.nodes)

    @cached_property
    def subgraphs(self) -> tuple[Part, ...]:
        """The subgraphs of the partition, in order, each with its nodes and what they cost."""
        costed = self.costed
        return tuple(
            Part(costed, f"{p.rule} {p.id}", "", len(p.nodes), None, p.cost,
                 tuple(map(costed.graph.node, p.nodes)), p)
            for p in costed.parts
        )  # fmt: skip

    def subgraph(self, which: str | Row | Iterable[int | NodeView]) -> Row:
        """Any nodes with what they cost together: those of a module and below it, or those given.

        Raises `InputError` for a module or a node that there is none of, and for no node.
        """
        if isinstance(which, Row):
            return which
        if isinstance(which, str):
            return self.by_module()[which]
        known = {n.id: n for n in self.costed.graph.nodes}
        chosen = {n.id if isinstance(n, NodeView) else n for n in which}
        if not chosen or chosen - known.keys():
            said = (
                f"there is no node {min(chosen - known.keys())}"
                if chosen
                else "a subgraph of no node"
            )
            raise InputError(said, hint=f"the graph has nodes 1 to {len(known):,}")
        nodes = tuple(known[i] for i in sorted(chosen))
        said = units.plural(len(nodes), "node")
        return Row(self.costed, said, "", len(nodes), None, cost_of(nodes), nodes)

    def extract(self, which: str | Row | Iterable[int | NodeView]) -> Profile:
        """Some nodes (see `subgraph`) as a profile of their own.

        What they read from elsewhere are its inputs, what others read of them its outputs. It runs as the
        whole does, but without a compiler, whose kernels reach over the borders of a part.
        """
        whole = replace(self.costed.profile, run=self.costed.run)
        row = self.subgraph(which)
        inside = {n.id for n in row.records if n.kind not in ("input", "output")}
        if not inside:
            raise InputError("inputs and outputs alone are no graph", hint="choose what is called")
        name = f"{whole.model.name}, {row.name or 'the model'}"
        part = part_of(whole, extracted(whole.graph, inside))
        return Profile.of(replace(part, model=replace(part.model, name=name)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, as the JSON view writes it."""
        from opgraph.views.files.json import costed_data, profile_data

        more = costed_data(self.costed)
        return profile_data(self.costed) | ({} if more is None else {"costed": more})

    def to_json(self) -> str:
        """The profile as JSON text, with its figures on the device."""
        from opgraph.views.files.json import to_json

        return to_json(self.costed)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row a node. Raises `MissingDependency` without pandas."""
        from opgraph.views.files.records import to_pandas

        return to_pandas(self.costed)

    def to_networkx(self) -> Any:
        """A `networkx.MultiDiGraph` of the nodes, with an edge for each tensor read."""
        from opgraph.views.files.records import to_networkx

        return to_networkx(self.costed)

    def widget(self, **options: Any) -> Any:
        """The interactive page as a widget of a notebook.

        Its `selected` is what is chosen in it. Raises `MissingDependency` without anywidget.
        """
        from opgraph.views.page.notebook import widget

        return widget(self.costed, **options)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        from opgraph.views.page.notebook import mimebundle

        return mimebundle(self.costed, **options)

    def _repr_html_(self) -> str:
        from opgraph.views.page.notebook import static

        return static(self.costed)

    def __str__(self) -> str:
        return str(render("table", self.costed, color=False))


class Costed(Shown, CostedRecord):
    """A profile costed on a device, or on the generic ridge.

    That is one of 10 FLOPs/byte. What it knows is worked out once: `totals`, `ridge`, `bounds`,
    `prediction`, `parts`, `roofline`, `memory`, `fit`, `fits`, `plan`, `steps`, `by_module()`, `by_op()`,
    `nodes`.
    """

    @property
    def costed(self) -> Costed:
        return self

    @property
    def seconds(self) -> float | None:
        """The predicted seconds of a run; None without a device."""
        return None if self.prediction is None else self.prediction.seconds

    @property
    def throughput(self) -> float | None:
        """Items of the batch a second; None without a device."""
        return None if self.prediction is None else self.prediction.throughput

    @cached_property
    def hotspots(self) -> tuple[HotSpot, ...]:
        """The costliest modules, equal ones together, by `metric`."""
        return self.tree.hot_spots()

    @named_options(DRAWN)
    def draw(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a picture: .svg, .png, .pdf, .dot or .mmd.

        `roofline.svg` draws the roofline. The options are those of `opgraph draw`: `depth=2`,
        `color_by="op"`, `module="encoder.layer.0"`, `theme="dark"` … Raises `RenderError` for a suffix or
        an option that does not exist.
        """
        self._write(path, view_for(path, "picture"), options)

    @named_options(PAGED)
    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        against: Costed | CostedRecord | None = None,
        **options: Any,
    ) -> None:
        """Write the interactive page: one HTML file that needs no network.

        With `against`, what differs from that model is shown. Raises `RenderError` for another suffix than
        .html or .htm, and for an option of other views.
        """
        given = {**options, **({"against": against} if against else {})}
        view = view_named("html") if path is None else view_for(path, "page")
        view.check(given, self.asked)
        if path is None:
            raise RenderError("which file?", hint="view('model.html')")
        self._write(path, view, given)

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a file as its suffix says, whole or not at all.

        .json (which `load` reads), .txt, .md, .csv, .parquet, .html, .svg, .graphml … The options are those
        of the view. Raises `RenderError` for a suffix that nothing writes, or an option that is not heeded.
        """
        self._write(path, view_for(path), options)

    def _write(self, path: str | os.PathLike[str], view: View, options: Mapping[str, Any]) -> None:
        given = view.check(options, self.asked)
        if isinstance(other := given.get("against"), ProfileRecord):
            given["against"] = costed(other)
        write_atomically(path, view.load()(self, **given))

    def render(self, view: str = "table", **options: Any) -> str | bytes:
        """What a view makes of it: "table", "svg", "markdown", "csv" …"""
        return render(view, self, **view_named(view).check(options, self.asked))

    def __repr__(self) -> str:
        t = self.totals
        on = (
            ""
            if self.device is None
            else f" on {self.device.id}: {units.seconds(self.seconds or 0)}"
        )
        return (
            f"<Costed {self.profile.model.name}{on}: {units.flops(t.flops)}, "
            f"{units.count(t.parameters)} parameters>"
        )


# `Profile`: a traced model, as a person holds it. What it shows without a device is what it costs on the
# generic ridge; `on` puts it on a machine.


class Measured(Costed):
    """A profile with what a run of it took, beside the prediction where a device is named.

    It is a `Costed` whose `seconds` are measured: `table`, `by_module()`, `draw(color_by="measured")` and
    `view` show both. `record` is the run as it is saved.
    """

    @property
    def _found(self) -> Measurement:
        return self.named_measurement()

    @property
    def record(self) -> RunRecord:
        """The run: its repeats, its events, its timeline."""
        return self._found.run

    @property
    def seconds(self) -> float:
        """The median seconds of a step."""
        return self.record.seconds

    @property
    def spread(self) -> float:
        """Half of what lies between the quartiles of the steps, as a share of the median."""
        return self.record.spread

    @property
    def throughput(self) -> float:
        """Items of the batch a second."""
        from opgraph.analysis.timing.prediction import batch_of

        return batch_of(self.graph) / self.seconds if self.seconds else 0.0

    @property
    def attributed(self) -> float:
        """The share of the time of operators and kernels that is on nodes."""
        return self.record.attributed

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization; None without a device."""
        return self._found.mfu

    @property
    def mbu(self) -> float | None:
        """Model bandwidth utilization; None without a device, and for training."""
        return self._found.mbu

    @property
    def excess(self) -> tuple[Excess, ...]:
        """The nodes by what they take above the device's roof. Raises `RenderError` without a device."""
        return self._found.excess

    @property
    def residuals(self) -> tuple[Residual, ...]:
        """The prediction against the measurement by class of work; empty without a device."""
        return self._found.residuals

    def __repr__(self) -> str:
        run = self.record
        return (
            f"<Measured {self.profile.model.name} on {run.device_name or run.device}: "
            f"{units.seconds(run.seconds)} ± {units.percent(run.spread)}, "
            f"{units.percent(run.attributed)} on nodes>"
        )


class Profile(Shown, ProfileRecord):
    """A traced model: its graph, where it came from, how it was traced.

    It is a `ProfileRecord` with a face. `p.on("h100-sxm")` costs it on a device; what is asked of the
    profile itself is answered on the generic ridge of 10 FLOPs/byte.
    """

    @classmethod
    def of(cls, record: ProfileRecord) -> Profile:
        """The same record with a face."""
        return cls(**{f.name: getattr(record, f.name) for f in fields(record)})

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """The profile that `to_dict` made.

        Raises `ProfileError` when the data is not a profile, is of a newer schema, or is broken.
        """
        return cls.of(loading.profile_from(partial(msgspec.convert, data)))

    @named_options(ASKED)
    def on(self, hardware: str | Device | None = None, **options: Any) -> Costed:
        """The profile on a device, or on the generic ridge.

        It is a `Measured` where a run was measured. A device is a name, a file, or a `Device`. The options
        are those of costing on the command line: `autocast="float16"`, `partition="none"`,
        `count={"attention": "causal"}`, `tensor_parallel=8` (docs/options.md). Raises `UnknownDevice` and
        `InputError`.
        """
        found = terms(self, hardware, **options)
        return Costed(*found) if self.measured is None else Measured(*found)

    @cached_property
    def costed(self) -> Costed:
        """The profile on the generic ridge."""
        return self.on()

    @cached_property
    def captured(self) -> Any:
        """The forward as torch's own compilers capture it: `.export`, `.dynamo`, `.fx`.

        They are a `torch.export.ExportedProgram`, a list of `torch.fx.GraphModule`, one a fragment, and one
        such; each is captured when it is first asked for. Raises `InputError` where the model is not at
        hand: a saved profile has none.
        """
        raise InputError(f"the model of {self.model.name} is not at hand: a saved profile has its graph "
                         "alone", hint="opgraph.profile(MODEL) captures it")  # fmt: skip

    @property
    def totals(self) -> Totals:
        """FLOPs, MACs, bytes, parameters, memory, coverage of the whole graph."""
        return self.costed.totals

    @property
    def memory(self) -> MemoryTimeline:
        """Live memory over the run, without weights."""
        return self.costed.memory

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What must be known of how the figures came about; `on` a device there may be more."""
        return self.costed.remarks

    @named_options(DRAWN)
    def draw(
        self, path: str | os.PathLike[str], *, hardware: str | Device | None = None, **options: Any
    ) -> None:
        """Write a picture of the graph (see `Costed.draw`)."""
        self.on(hardware).draw(path, **options)

    @named_options(PAGED)
    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        hardware: str | Device | None = None,
        against: ProfileRecord | Costed | None = None,
        **options: Any,
    ) -> None:
        """Write the interactive page (see `Costed.view`)."""
        other = Profile.of(against).on(hardware) if isinstance(against, ProfileRecord) else against
        self.on(hardware).view(path, against=other, **options)

    def save(
        self, path: str | os.PathLike[str], *, hardware: str | Device | None = None, **options: Any
    ) -> None:
        """Write a file as its suffix says (see `Costed.save`); `load` reads .json."""
        self.on(hardware).save(path, **options)

    def __repr__(self) -> str:
        t = self.totals
        return (
            f"<Profile {self.model.name}: {units.plural(t.nodes, 'node')}, {units.flops(t.flops)}, "
            f"{units.count(t.parameters)} parameters>"
        )


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile that `Profile.save` wrote.

    Raises `ProfileError` when the file cannot be read, is not a profile, or is broken.
    """
    return Profile.of(loading.load(path))


# Modules, operators and subgraphs with what stands around them at hand, for people who explore in Python.


class Rows(Mapping[str, Row]):
    """Costs by name, in order.

    The path of a fold, as tables print it (`encoder.layer.[0-11].output`), is all of its modules together.
    A name that is not there is an `InputError` with the nearest ones."""

    def __init__(self, kind: str, rows: Mapping[str, Row]) -> None:
        self._kind, self._rows = kind, rows

    def __getitem__(self, name: str) -> Row:
        if name in self._rows:
            return self._rows[name]
        found = [row for path, row in self._rows.items() if matches(name, path, below=False)]
        if not found:
            hint = did_you_mean(name, self._rows, cutoff=0.5)
            raise InputError(f"there is no {self._kind} {name!r}", hint=hint)
        first, *others = found
        return replace(
            first, name=name, count=sum(row.count for row in found),
            parameters=None if first.parameters is None else sum(row.parameters or 0 for row in found),
            cost=sum((row.cost for row in others), first.cost),
            records=tuple(n for row in found for n in row.records),
        )  # fmt: skip

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{units.plural(len(self), self._kind)}>"

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row each. Raises `MissingDependency` without pandas."""
        from opgraph.views.tables import frame

        rows = [{self._kind: name, **row.to_dict()} for name, row in self.items()]
        return frame(rows, self._kind)
