"""Nodes, modules and operators with what stands around them at hand, for people who explore in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from opgraph.analysis.cost.totals import Cost, WithCost, total_seconds
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.nodes import NodeView
from opgraph.analysis.selection import matches
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.errors import InputError, did_you_mean
from opgraph.record.graph import Node
from opgraph.record.kinds import Bound


@dataclass(frozen=True, eq=False, repr=False)
class Row(WithCost):
    """What some nodes cost together.

    They are those of a module with all below it, or those of an operator. `count` is how often the module
    was called, or how many nodes there are; `parameters` is None for operators; `class_name` is that of the
    module.
    """

    costed: CostedRecord
    name: str
    class_name: str
    count: int
    parameters: int | None
    cost: Cost
    records: tuple[Node, ...]

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in order of execution."""
        return tuple(NodeView(self.costed, n) for n in sorted(self.records, key=lambda n: n.id))

    @property
    def module(self) -> str:
        """The path of the innermost module that all of them are in: "" for the model itself."""
        paths = sorted(n.scope.split(".") for n in self.records)
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(paths[0], paths[-1], strict=False))
        return ".".join(part for part, _ in shared)

    @property
    def seconds(self) -> float | None:
        """The predicted seconds; None without a device."""
        return total_seconds(self.records, self.costed.seconds_by_node)

    @property
    def measured(self) -> float | None:
        """The measured seconds; None where nothing was measured."""
        found = self.costed.measurement
        return None if found is None else total_seconds(self.records, found.by_node)

    @property
    def share(self) -> float:
        """The share of the whole, by `CostedRecord.metric`."""
        costed, whole = self.costed, self.costed.totals
        of: tuple[float, float] = (self.bytes, whole.bytes)
        if costed.measurement is not None:
            of = (self.measured or 0.0, sum(costed.measurement.by_node.values()))
        elif costed.metric is Metric.SECONDS:
            every = total_seconds(costed.graph.nodes, costed.seconds_by_node)
            of = (self.seconds or 0.0, every or 0.0)
        elif costed.metric is Metric.FLOPS:
            of = (self.flops, whole.flops)
        return of[0] / of[1] if of[1] else 0.0

    @property
    def bound(self) -> Bound | None:
        """What they wait for; None where nothing is moved."""
        return self.costed.bound_of(self.records, self.cost)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "class": self.class_name, "count": self.count, "parameters": self.parameters,
            "flops": self.flops, "macs": self.macs, "other_flops": self.other_flops,
            "bytes": self.bytes, "arithmetic_intensity": self.arithmetic_intensity,
            "seconds": self.seconds, "measured": self.measured, "share": self.share, "bound": self.bound,
        }  # fmt: skip

    def __repr__(self) -> str:
        time = "" if self.seconds is None else f", {units.seconds(self.seconds)}"
        cls = f" {self.class_name}" if self.class_name else ""
        return f"<{self.name or 'the model'}{cls}: {units.flops(self.flops)}{time}>"


@dataclass(frozen=True, eq=False, repr=False)
class Part(Row):
    """A subgraph of the partition: its nodes with what they cost one by one.

    `part` is the record, with the `rule` that made it, the `reason`, and the bytes that it would move as
    one kernel.
    """

    part: Subgraph

    @property
    def rule(self) -> str:
        """The rule that made it one."""
        return self.part.rule

    @property
    def fused_bytes(self) -> int:
        """The bytes that it moves as one kernel."""
        return self.part.fused_bytes

    @property
    def barrier(self) -> str | None:
        """Why it goes no further; None where nothing stands beside it."""
        return self.costed.barriers.get(self.part.id)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return super().to_dict() | self.part.to_dict() | {"module": self.module}


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
