"""`Profile`: a graph with where it came from and how it was traced. It is the one document that every
view draws, that is saved, loaded, compared and costed again. Nothing here imports torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from opgraph.errors import ProfileError
from opgraph.files import write_atomically
from opgraph.garbage import uncollected
from opgraph.graph import Graph, InvariantError, Node, verify
from opgraph.graph.schema import GraphRecord, Malformed, decode, encode
from opgraph.jsontext import dumps
from opgraph.kvcache import KVCache

if TYPE_CHECKING:
    from opgraph.analysis import ModuleCost, OperatorCost, Totals
    from opgraph.formulas import Formulas

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
        from opgraph.analysis import totals

        return totals(self.graph)

    def by_module(self, depth: int | None = None) -> tuple[ModuleCost, ...]:
        """The tree of modules with their costs, in order, down to `depth` levels below the root."""
        from opgraph.analysis import by_module

        return by_module(self.graph, depth)

    def by_op(self) -> tuple[OperatorCost, ...]:
        """The costs by canonical operator, dearest first."""
        from opgraph.analysis import by_op

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
        return _profile(partial(msgspec.convert, data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON; the file appears whole or not at all."""
        write_atomically(path, self.to_json())

    def draw(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a picture of the graph: .svg, .png, .pdf, .dot or .mmd.

        The options are those of `opgraph.views.picture.Options`: `depth=2`, `module="encoder.layer.0"`,
        `color_by="op"`, `theme="dark"` …

        Raises `RenderError` for a suffix or an option that does not exist.
        """
        from opgraph.views.picture import draw

        draw(self, path, **options)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row a node."""
        from opgraph.views.frames import to_pandas

        return to_pandas(self)

    def to_networkx(self) -> Any:
        """A `networkx.MultiDiGraph` of the nodes, with an edge for each tensor read."""
        from opgraph.views.frames import to_networkx

        return to_networkx(self)

    def view(self, path: str | os.PathLike[str]) -> None:
        """Write the interactive page: one HTML file that needs no network."""
        from opgraph.views import render

        write_atomically(path, render("html", self))

    def widget(self, **options: Any) -> Any:
        """The interactive page as a notebook's widget; `selected` is what is chosen in it.

        Raises `MissingDependency` without anywidget.
        """
        from opgraph.views.notebook import widget

        return widget(self, **options)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        from opgraph.views.notebook import mimebundle

        return mimebundle(self, **options)

    def __str__(self) -> str:
        from opgraph.views import render

        return str(render("table", self, color=False))


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile that `Profile.save` wrote.

    Raises `ProfileError` when the file cannot be read, is not a profile, or is broken.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    with uncollected():
        try:
            return _profile(partial(_parsed, text))
        except ProfileError as error:
            raise ProfileError(f"{path}: {error}", hint=error.hint) from error


def is_saved_profile(spec: str) -> bool:
    """Whether what names a model is a saved profile: a file that ends in .json."""
    try:
        return spec.endswith(".json") and not Path(spec).is_dir()
    except OSError:  # a name that no folder can have
        return True


class _Record(msgspec.Struct):
    """A profile in a file: what is read of it."""

    format: Literal["opgraph-profile"]
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=SCHEMA_VERSION)]
    model: ModelInfo
    mode: str
    convention: dict[str, str]
    versions: dict[str, str]
    tracing: Annotated[tuple[Attempt, ...], msgspec.Meta(min_length=1)]
    graph: GraphRecord
    compiled: dict[Literal["inductor"], tuple[tuple[int, ...], ...]] = {}
    formulas: Any = None
    kv_cache: KVCache | None = None


class _Head(msgspec.Struct):
    """What tells a profile, and of what schema, from other files."""

    format: Any = None
    schema_version: Any = None


def _profile(read: Callable[..., Any]) -> Profile:
    """The profile that `read(type=…)` finds."""
    try:
        record = read(type=_Record)
        return Profile(
            graph=verify(decode(record.graph)),
            model=record.model,
            tracing=Tracing(record.tracing),
            mode=record.mode,
            convention=record.convention,
            versions=record.versions,
            formulas=_formulas(record.formulas),
            cache=record.kv_cache,
            compiled=_groups(record.compiled.get("inductor", ()), len(record.graph.nodes)),
        )
    except msgspec.ValidationError as error:
        _look_at_head(read)
        raise ProfileError(f"this profile is broken: {error}") from error
    except (Malformed, InvariantError) as error:
        raise ProfileError(f"this profile is broken: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ProfileError(f"this profile is broken: {type(error).__name__} {error}") from error


def _look_at_head(read: Callable[..., Any]) -> None:
    """Raises `ProfileError` where what is wrong is not that a profile is broken."""
    try:
        head = read(type=_Head)
    except msgspec.ValidationError:
        head = _Head()
    if head.format != FORMAT:
        raise ProfileError("this is not an opgraph profile")
    version = head.schema_version
    if type(version) is not int or version < 1:
        raise ProfileError("this profile has no schema version")
    if version > SCHEMA_VERSION:
        raise ProfileError(
            f"this profile has schema version {version}; this opgraph reads up to {SCHEMA_VERSION}",
            hint="upgrade opgraph",
        )


def _parsed(text: bytes, type: Any) -> Any:  # noqa: A002 - as msgspec calls it
    """What JSON text says, as that type. Raises `ProfileError` for what is not JSON."""
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        # json takes halves of characters, as names of files can have them, and says in which line it fails.
        try:
            data = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ProfileError(f"this is not an opgraph profile: {error}") from error
        return msgspec.convert(data, type=type)


def _groups(found: tuple[tuple[int, ...], ...], nodes: int) -> tuple[tuple[int, ...], ...]:
    """Groups of node ids, no node in two of them."""
    flat = [i for group in found for i in group]
    if not all(1 <= i <= nodes for i in flat) or len(set(flat)) < len(flat):
        raise Malformed("its compiled groups are not of its nodes, each once")
    return tuple(group for group in found if group)


def _formulas(data: Any) -> Formulas | None:
    if data is None:
        return None
    from opgraph.formulas import Formulas

    return Formulas.from_dict(data)


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


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
