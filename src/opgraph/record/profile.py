"""`Profile`: a graph with where it came from and how it was traced. It is the one document that every
view draws, that is saved, loaded, compared and costed again. Nothing here imports torch."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from opgraph.record import units
from opgraph.record.files import dumps, suffix_of, write_atomically
from opgraph.record.graph import Graph, Node
from opgraph.record.schema import encode

if TYPE_CHECKING:
    from opgraph.analysis.cost.modules import ModuleCost
    from opgraph.analysis.cost.totals import OperatorCost, Totals
    from opgraph.record.formulas import Formulas


# `KVCache`: what a model keeps of the tokens it has seen so that it can go on, as measured on the cache
# object of a run. Part of a `Profile`; nothing here imports torch.

Count = Annotated[int, Meta(ge=0)]
CacheKind = Literal["growing", "window", "cross", "state"]


@dataclass(frozen=True, slots=True)
class CachePart:
    """Layers that keep the same amount in the same way, in bytes for one sequence.

    `growing` layers add `bytes_per_token` for every token; those with a `window` do so up to `limit`
    tokens; `cross` attention keeps `fixed` bytes of the encoder's output; a `state` (of a recurrence, or of
    a short convolution) has `fixed` bytes however long the text is. All of `fixed` and `bytes_per_token`
    are those of one layer.
    """

    kind: CacheKind
    layers: Count
    bytes_per_token: Count = 0
    limit: Count | None = None
    fixed: Count = 0

    def at(self, tokens: int) -> int:
        """Bytes of all these layers for one sequence of so many tokens."""
        held = tokens if self.limit is None else min(tokens, self.limit)
        return self.layers * (self.bytes_per_token * held + self.fixed)


@dataclass(frozen=True, slots=True)
class KVCache:
    """The cache of a run: `tokens` of `sequences`, in `bytes` altogether."""

    sequences: Count
    tokens: Count
    bytes: Count
    parts: tuple[CachePart, ...]

    @property
    def bytes_per_token(self) -> int:
        """What each further token of one sequence adds, while no window is full."""
        return sum(p.layers * p.bytes_per_token for p in self.parts)

    def at(self, tokens: int, sequences: int = 1) -> int:
        """Bytes for so many sequences of so many tokens each."""
        return sequences * sum(p.at(tokens) for p in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "bytes_per_token": self.bytes_per_token,
            "parts": [asdict(p) for p in self.parts],
        }


FORMAT = "opgraph-profile"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ModelInfo:
    """Which model this is: the name asked for, the source that had it, its class, and remarks."""

    name: str
    source: str = "object"
    cls: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One try of one tracer: on which tensors ("fake", "fake weights" or "real"), and why it failed if it
    did."""

    tracer: str
    tensors: str
    error: str | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 0.0


@dataclass(frozen=True)
class Tracing:
    """How the graph was found: every attempt in order, the last one being the one that counts."""

    attempts: tuple[Attempt, ...]

    @property
    def tracer(self) -> str:
        return self.attempts[-1].tracer

    @property
    def tensors(self) -> str:
        return self.attempts[-1].tensors

    @property
    def seconds(self) -> float:
        return sum(a.seconds for a in self.attempts)


@dataclass(frozen=True)
class Profile:
    """A traced model: its graph, the model's name and source, the attempts, versions, and conventions.

    `mode` is "infer", "train", "prefill" or "decode". `convention` records how things were counted
    where published figures differ (`{"attention": "full"}`). `formulas`, where they were looked for, give
    the costs at other sizes of the inputs. `cache` is what a generating model kept of the tokens it read.
    `compiled` has the ids of the nodes that TorchInductor would run as one kernel, group by group.
    """

    graph: Graph
    model: ModelInfo
    tracing: Tracing
    mode: str = "infer"
    convention: dict[str, str] = field(default_factory=lambda: {"attention": "full"})
    versions: dict[str, str] = field(default_factory=dict)
    formulas: Formulas | None = None
    cache: KVCache | None = None
    compiled: tuple[tuple[int, ...], ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.graph.nodes

    @cached_property
    def totals(self) -> Totals:
        """FLOPs, MACs, bytes, parameters, memory, coverage of the whole graph."""
        from opgraph.analysis.cost.totals import totals

        return totals(self.graph)

    def by_module(self, depth: int | None = None) -> tuple[ModuleCost, ...]:
        """The tree of modules with their costs, in order, down to `depth` levels below the root."""
        from opgraph.analysis.cost.modules import by_module

        return by_module(self.graph, depth)

    def by_op(self) -> tuple[OperatorCost, ...]:
        """The costs by canonical operator, dearest first."""
        from opgraph.analysis.cost.totals import by_op

        return by_op(self.graph)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data; `from_dict` gives an equal profile back. `totals` and `memory`, the live bytes
        after each kernel, are for those who read the file by other means."""
        from opgraph.analysis.memory import memory

        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "model": {**asdict(self.model), "notes": list(self.model.notes)},
            "mode": self.mode,
            "convention": self.convention,
            "versions": self.versions,
            "tracing": [asdict(a) for a in self.tracing.attempts],
            "totals": self.totals.to_dict(),
            "memory": memory(self.graph).to_dict(),
            **({} if self.cache is None else {"kv_cache": self.cache.to_dict()}),
            **(
                {"compiled": {"inductor": [list(g) for g in self.compiled]}}
                if self.compiled
                else {}
            ),
            **({} if self.formulas is None else {"formulas": self.formulas.to_dict()}),
            "graph": encode(self.graph),
        }

    def to_json(self) -> str:
        """The profile as JSON text: the same profile gives the same bytes."""
        data = self.to_dict()
        long = {key: data.pop(key) for key in ("compiled", "formulas", "graph") if key in data}
        parts = f',\n "memory": {_compact(data.pop("memory"))}'
        parts += "".join(f',\n "{key}": {_sections(part)}' for key, part in long.items())
        head = dumps(data, indent=1)
        return f"{head[:-2]}{parts}\n}}\n"

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """The profile that `to_dict` made.

        Raises `ProfileError` when the data is not a profile, is of a newer schema, or is broken.
        """
        from opgraph.record.loading import profile_from

        return profile_from(partial(msgspec.convert, data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON; the file appears whole or not at all."""
        write_atomically(path, self.to_json())

    def draw(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a picture of the graph: .svg, .png, .pdf, .dot or .mmd.

        The options are those of `opgraph.views.picture.picture.Options`: `depth=2`, `color_by="op"`,
        `module="encoder.layer.0"`, `theme="dark"` …

        Raises `RenderError` for a suffix or an option that does not exist.
        """
        from opgraph.views.picture.picture import draw

        draw(self, path, **options)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row a node."""
        from opgraph.views.files.records import to_pandas

        return to_pandas(self)

    def to_networkx(self) -> Any:
        """A `networkx.MultiDiGraph` of the nodes, with an edge for each tensor read."""
        from opgraph.views.files.records import to_networkx

        return to_networkx(self)

    def view(self, path: str | os.PathLike[str]) -> None:
        """Write the interactive page: one HTML file that needs no network.

        Raises `RenderError` for another suffix than .html or .htm.
        """
        from opgraph.views import render, view_named

        suffix_of(path, view_named("html").suffixes, "view")
        write_atomically(path, render("html", self))

    def widget(self, **options: Any) -> Any:
        """The interactive page as a notebook's widget; `selected` is what is chosen in it.

        Raises `MissingDependency` without anywidget.
        """
        from opgraph.views.page.notebook import widget

        return widget(self, **options)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        from opgraph.views.page.notebook import mimebundle

        return mimebundle(self, **options)

    def __repr__(self) -> str:
        t = self.totals
        return (
            f"<Profile {self.model.name}: {units.plural(t.nodes, 'node')}, {units.flops(t.flops)}, "
            f"{units.count(t.parameters)} parameters>"
        )

    def __str__(self) -> str:
        from opgraph.views import render

        return str(render("table", self, color=False))


def _sections(part: dict[str, Any]) -> str:
    """An object of lists and objects, with one of their records a line, so that files can be read and
    compared by line."""
    sections = ",\n".join(f'  "{key}": {_lines(rows)}' for key, rows in part.items())
    return f"{{\n{sections}\n }}"


def _lines(rows: list[Any] | dict[str, Any]) -> str:
    if isinstance(rows, dict):
        return "{" + ",\n   ".join(f"{_compact(k)}:{_compact(v)}" for k, v in rows.items()) + "}"
    return "[" + ",\n   ".join(map(_compact, rows)) + "]"


def _compact(record: Any) -> str:
    return dumps(record, separators=(",", ":"))
