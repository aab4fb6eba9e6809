"""How a model is laid out over many devices: into how many parts, by what, and in which order a step goes
through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Action = tuple[str, int, int]
"""What a rank of a pipeline does next: a forward ("F"), a backward ("B"), or the halves of one, towards the
inputs ("I") and to the weights ("W"); of which stage, and of which micro-batch."""

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zero-bubble")
"""In which order a stage of a pipeline takes its micro-batches."""

WAYS = ("pipeline", "data", "fsdp", "context", "tensor", "expert")
"""What can be split, in the order in which it is said."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Over how many ranks each operator is split (`tensor`), layers are (`pipeline`), the model is copied
    (`data`), its weights are sharded (`fsdp`), tokens are split throughout (`context`) and experts are
    spread (`expert`, among the ranks of `fsdp` and `tensor`). With `sequence` the tokens are split between
    split operators, too. `zero` says what is sharded (Rajbhandari et al., "ZeRO", SC 2020): 3 all of it, 2
    weights only between steps, 1 gradients only at the end of a step. A step goes through so many
    `micro_batches`, in the order of the `schedule`. With `offload` what `fsdp` shards is kept in the host's
    memory.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    micro_batches: int = 1
    fsdp: int = 1
    expert: int = 1
    context: int = 1
    sequence: bool = False
    zero: int = 3
    schedule: Literal["1f1b", "gpipe", "interleaved", "zero-bubble"] = "1f1b"
    offload: bool = False

    def __post_init__(self) -> None:
        ways = (
            self.tensor,
            self.pipeline,
            self.data,
            self.micro_batches,
            self.fsdp,
            self.expert,
            self.context,
        )
        if min(ways) < 1 or self.zero not in (1, 2, 3):
            raise ValueError("a layout has at least one part of everything, and zero is 1, 2 or 3")

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.tensor * self.pipeline * self.data * self.fsdp * self.context

    @property
    def chunks(self) -> int:
        """Runs of layers that each rank of a pipeline has."""
        return 2 if self.schedule in ("interleaved", "zero-bubble") else 1

    def layers(self, count: int) -> list[int]:
        """How many of so many layers each stage has: as even as can be, the first ones one more."""
        stages = self.pipeline * self.chunks
        return [count // stages + (i < count % stages) for i in range(stages)]

    @property
    def copies(self) -> int:
        """How many batches are worked on at once."""
        return self.data * self.fsdp

    @property
    def shards(self) -> int:
        """Over how many ranks weights are sharded: those that split tokens have some of them each, too."""
        return self.fsdp * self.context

    @property
    def bubble(self) -> float:
        """The share of a step in which a device waits for the pipeline: (p - 1) / (m + p - 1) (Narayanan et
        al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021,
        2.2, who give it against the ideal time, (p - 1) / m)."""
        return (self.pipeline - 1) / (self.micro_batches + self.pipeline - 1)

    def __str__(self) -> str:
        """What of it is split, in words: "tensor 8 x fsdp 64"."""
        parts = [f"{n} {getattr(self, n):,}" for n in WAYS if getattr(self, n) > 1]
        return " x ".join(parts) or "one device"


# What a graph says of how its operators can be split over ranks.

SIZED = frozenset({"view", "reshape", "expand", "split", "unflatten"})
"""What is called with the sizes of its result."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What differs where a rank calls something for its share: the dimensions of the result, with their
    sizes, that are divided where these are `said`, and those, counted from the last one, with their sizes,
    of which a rank takes its own of what is whole `beside` its share."""

    said: Mapping[int, int] = field(default_factory=dict)
    beside: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """How operators are split: the `styles` of modules by their paths ("column", "row", "gathered",
    "vocabulary", or what transformers calls one), those of them that are `turned` (their weights are inputs
    x outputs), what is `counted` by modules and what they call, and the `sizes` that ranks have to divide,
    with what says so. Where modules are `told`, how many heads they say that they have is changed, too."""

    styles: Mapping[str, str]
    turned: frozenset[str] = frozenset()
    counted: Mapping[str, Mapping[str, tuple[Counted, ...]]] = field(default_factory=dict)
    sizes: Mapping[int, str] = field(default_factory=dict)
    told: bool = False
