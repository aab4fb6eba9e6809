"""`KVCache`: what a model keeps of the tokens it has seen so that it can go on, as measured on the cache
object of a run. Part of a `Profile`; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    layers: int
    bytes_per_token: int = 0
    limit: int | None = None
    fixed: int = 0

    def at(self, tokens: int) -> int:
        """Bytes of all these layers for one sequence of so many tokens."""
        held = tokens if self.limit is None else min(tokens, self.limit)
        return self.layers * (self.bytes_per_token * held + self.fixed)


@dataclass(frozen=True, slots=True)
class KVCache:
    """The cache of a run: `tokens` of `sequences`, in `bytes` altogether."""

    sequences: int
    tokens: int
    bytes: int
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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KVCache:
        """The cache that `to_dict` made. Raises KeyError, TypeError or ValueError when it is broken."""
        return cls(
            _number(data["sequences"]),
            _number(data["tokens"]),
            _number(data["bytes"]),
            tuple(
                CachePart(
                    _kind(p["kind"]),
                    _number(p["layers"]),
                    _number(p["bytes_per_token"]),
                    None if p["limit"] is None else _number(p["limit"]),
                    _number(p["fixed"]),
                )
                for p in data["parts"]
            ),
        )


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.40} is not a size")
    return value


def _kind(value: Any) -> CacheKind:
    if value not in ("growing", "window", "cross", "state"):
        raise ValueError(f"{value!r:.40} is not a kind of cache")
    kind: CacheKind = value
    return kind
