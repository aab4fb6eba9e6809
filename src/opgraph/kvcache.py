"""`KVCache`: what a model keeps of the tokens it has seen so that it can go on, as measured on the cache
object of a run. Part of a `Profile`; nothing here imports torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

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
