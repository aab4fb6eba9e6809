"""`ProfileRecord`: a graph with where it came from and how it was traced, the one record that is saved,
loaded, compared and costed again; and `KVCache`, what a generating model keeps of what it read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from opgraph.record import units
from opgraph.record.graph import Graph, Kernel, Storage
from opgraph.record.kinds import Run
from opgraph.record.layout import Action, Layout
from opgraph.record.quantization import Scheme
from opgraph.record.remarks import Remark
from opgraph.record.run import RunRecord
from opgraph.record.targets import Target

if TYPE_CHECKING:
    from opgraph.record.formulas import Formulas

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
    """The cache of a run: `tokens` of `sequences`, in `bytes` altogether. A model that has learned
    positions has those of at `most` so many tokens."""

    sequences: Count
    tokens: Count
    bytes: Count
    parts: tuple[CachePart, ...]
    most: Count | None = None

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
            **({} if self.most is None else {"most": self.most}),
        }


FORMAT = "opgraph-profile"
GUESSED = Remark(
    "guessed-inputs",
    "its inputs were guessed from its signature: give others if they do not fit it",
)
"""A note on a model whose forward failed, on inputs that nobody gave."""

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ModelInfo:
    """Which model this is: the name asked for, the source that had it, its class, and remarks. `weights` is
    what they are published in, where that has fewer bits than they compute in and the graph has not."""

    name: str
    source: str = "object"
    cls: str = ""
    notes: tuple[str, ...] = ()
    weights: Scheme | None = None

    def noting(self, *notes: str) -> ModelInfo:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True)
class Attempt:
    """One try of one tracer: on which tensors ("fake", "fake weights" or "real"), and why it failed if it
    did."""

    tracer: str
    tensors: str
    error: str | None = None
    seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0


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


@dataclass(frozen=True, slots=True)
class World:
    """So many ranks, of which one, with the number `rank`, was traced. `layout` says how the model was laid
    out over them, where that was by options."""

    size: Annotated[int, Meta(ge=1)]
    rank: Count = 0
    layout: Layout | None = None

    def __str__(self) -> str:
        return f"rank {self.rank:,} of {self.size:,}"


@dataclass(frozen=True, slots=True)
class Begun:
    """Where in a graph a rank of a pipeline begins what it does: an action, and the name of the node."""

    action: Action
    node: str


@dataclass(frozen=True)
class Sample:
    """The graph of another rank of a pipeline, with a few micro-batches, and what is done in it."""

    graph: Graph
    begun: tuple[Begun, ...]


@dataclass(frozen=True)
class Pipeline:
    """What each rank of a pipeline does, in order (`orders`), in a step of a whole `batch` (0: nothing says
    it); the one with this number was traced, and does what it has `begun`. Of others there are `samples`:
    `like` says which of them each is like; -1 is the traced one."""

    rank: Count
    orders: tuple[tuple[Action, ...], ...]
    begun: tuple[Begun, ...]
    samples: tuple[Sample, ...] = ()
    like: tuple[int, ...] = ()
    batch: Count = 0

    def __str__(self) -> str:
        """Which part of what the traced rank is: "stage 2 of 4, a batch of 8 in 8 micro-batches"."""
        every = [action for row in self.orders for action in row]
        here = sorted({stage for _, stage, _ in self.orders[self.rank]})
        said = " and ".join(f"{stage + 1:,}" for stage in here)
        stages = 1 + max(stage for _, stage, _ in every)
        parts = units.plural(1 + max(number for *_, number in every), "micro-batch")
        return (f"stage{'s' * (len(here) > 1)} {said} of {stages:,}, "
                + (f"a batch of {self.batch:,} in {parts}" if self.batch else parts))  # fmt: skip


Access = tuple[Count, Count]
"""A buffer, by its number, and the bytes of it that are read or written."""


Phase = Literal["forward", "backward"]
"""Which part of a step of training a compiler's kernel is of."""


GENERATED = "inductor."
"""What the names of kernels begin with that a compiler generates, and does not call a library for."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel that a compiler schedules: what it does, the ids of the nodes that it computes (all of
    them or a part), the buffers that it reads and writes, the fragment it is of, the layout of what a
    convolution reads, and whether it is of the fragment's gradients."""

    kernel: Kernel
    nodes: tuple[int, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    fragment: Count = 1
    layout: Literal["contiguous", "channels-last"] = "contiguous"
    phase: Phase = "forward"


@dataclass(frozen=True)
class Compiled:
    """What TorchInductor schedules for a target, in the order in which it runs, and the dtype of the mixed
    precision that it was compiled in. What is in no fragment runs as it does without a compiler.

    Of a step of training, `kept` is what the forwards keep for the backwards, each tensor with the node
    that made it (0 where none is known) and its bytes, without weights and inputs; `again` are the nodes
    of which a backward computes something again. `storages` is the memory that is allocated, on the clock
    of the kernels: what has no end is a result, and goes when whoever called is done with it.
    """

    target: str
    autocast: str | None
    kernels: tuple[CompiledKernel, ...]
    kept: tuple[Access, ...] = ()
    again: tuple[Count, ...] = ()
    storages: tuple[Storage, ...] = ()


@dataclass(frozen=True)
class ProfileRecord:
    """A traced model: its graph, the model's name and source, the attempts, versions, and conventions.

    `mode` is "infer", "train", "prefill" or "decode". `convention` records how things were counted
    where published figures differ (`{"attention": "full"}`). `formulas`, where they were looked for, give
    the costs at other sizes of the inputs. `cache` is what a generating model kept of the tokens it read.
    `target` says which device's kernels these are.
    `compiled` are the kernels that TorchInductor would run, where it was asked.
    `measured` is what a run of it took, on its nodes. `world` says of which rank it is, where there are
    several, and `pipeline` what the stages of one do when. `run` is how it runs unless another way is
    asked for; its graph is the one that was traced.
    """

    graph: Graph
    model: ModelInfo
    tracing: Tracing
    mode: str = "infer"
    convention: dict[str, str] = field(default_factory=lambda: {"attention": "full"})
    versions: dict[str, str] = field(default_factory=dict)
    formulas: Formulas | None = None
    cache: KVCache | None = None
    compiled: Compiled | None = None
    target: Target = field(default_factory=Target)
    measured: RunRecord | None = None
    world: World | None = None
    run: Run = Run.EAGER
    pipeline: Pipeline | None = None

    @property
    def untried(self) -> str:
        """What was not tried where its forward failed, to be said after the failure: "; it was not …"."""
        return "".join(f"; it {n}" for n in self.model.notes if n.startswith("was not traced "))

    @property
    def failure(self) -> str | None:
        """Where and why its forward failed, and what was not tried; None if it did not."""
        failed = self.graph.failed
        return None if failed is None else f"{failed.failure}{self.untried}"
