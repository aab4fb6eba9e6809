"""The caches of generating models, measured on the cache objects of a run: which layers keep what, and
how it grows. Only real cache objects of transformers count; shapes alone never make a cache."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from opgraph.record.profile import CachePart, KVCache

_TOKENS = ("keys", "values", "indexer_keys")
"""What layers of attention keep for each token: [batch, …, tokens, size]."""

_STATES = ("conv_states", "recurrent_states")
"""What layers of recurrence and convolution keep, whatever the length."""


def cache_in(result: Any) -> Any:
    """The cache object among what a model returns; None if there is none."""
    library = sys.modules.get("transformers.cache_utils")
    if library is None:
        return None
    items = result.values() if isinstance(result, Mapping) else result
    if not isinstance(result, (Mapping, tuple, list)):
        return None
    return next((item for item in items if isinstance(item, library.Cache)), None)


def measured(cache: Any) -> KVCache | None:
    """The sizes of a cache; None where it holds nothing."""
    kinds: Counter[CachePart] = Counter()
    total = tokens = sequences = 0
    for layer, cross in _layers(cache):
        held = [
            t for name in _TOKENS if (t := getattr(layer, name, None)) is not None and t.numel()
        ]
        states = [t for name in _STATES for t in _values(getattr(layer, name, None))]
        if not held and not states:
            continue
        sequences = int((held or states)[0].shape[0])
        sizes = [_bytes(t) for t in held]
        total += sum(sizes) + sum(map(_bytes, states))
        if held:
            length = int(held[0].shape[-2])
            each = sum(sizes) // (sequences * length)
            if cross:
                kinds[CachePart("cross", 1, fixed=each * length)] += 1
            elif (limit := _limit(layer)) is not None:
                kinds[CachePart("window", 1, each, limit=limit)] += 1
            else:
                kinds[CachePart("growing", 1, each)] += 1
            if not cross:
                tokens = max(tokens, int(layer.get_seq_length()))
        if states:
            kinds[CachePart("state", 1, fixed=sum(map(_bytes, states)) // sequences)] += 1
    parts = tuple(
        CachePart(p.kind, count, p.bytes_per_token, p.limit, p.fixed) for p, count in kinds.items()
    )
    return KVCache(sequences, tokens, total, parts) if parts else None


def _layers(cache: Any) -> Iterator[tuple[Any, bool]]:
    """The layers of a cache, and whether they are of attention to an encoder's output."""
    if hasattr(cache, "cross_attention_cache"):
        yield from ((layer, False) for layer in cache.self_attention_cache.layers)
        yield from ((layer, True) for layer in cache.cross_attention_cache.layers)
    else:
        yield from ((layer, False) for layer in cache.layers)


def _limit(layer: Any) -> int | None:
    """The most tokens that a layer with a window keeps between steps: a growing one drops the token that
    the next step pushes out of the window at once, one of fixed size when it is overwritten. None for a
    layer without a window."""
    if not getattr(layer, "is_sliding", False):
        return None
    fixed = getattr(layer, "max_cache_len", None)
    window = getattr(layer, "sliding_window", None) if fixed is None else fixed
    if window is None or window <= 0:
        return None
    return int(window) - (fixed is None)


def _values(states: Any) -> list[Tensor]:
    found = states.values() if isinstance(states, dict) else [states]
    return [t for t in found if isinstance(t, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
