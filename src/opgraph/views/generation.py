"""What there is to say of models that generate: their cache, and a step on a device against the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opgraph import units
from opgraph.document import Profile
from opgraph.hardware import Device
from opgraph.kvcache import CachePart, KVCache

if TYPE_CHECKING:
    from rich.console import Group

_LENGTHS = (1024, 8192, 32768, 131072)


def generation_facts(profile: Profile) -> list[tuple[str, str]]:
    """Rows of the summary: which step this is, and the cache, if there is one."""
    cache = profile.cache
    if cache is None:
        return []
    rows: list[tuple[str, str]] = []
    many = units.plural(cache.sequences, "sequence")
    logits = profile.convention.get("logits")
    logits = f"; logits of {'the last token' if logits == 'last token' else logits}"
    if profile.mode == "prefill":
        prompt = f" of {units.plural(cache.tokens, 'token')}" if cache.tokens else ""
        rows.append(("Mode", f"prefill: {many}, a prompt{prompt} into an empty cache{logits}"))
    elif profile.mode == "decode":
        from opgraph.analysis.generation import shared_reads

        before = f" after {units.integer(cache.tokens - 1)} in the cache" if cache.tokens else ""
        rows.append(("Mode", f"decode: one token for {many}{before}{logits}"))
        rows.append(("Reads", f"{units.size(shared_reads(profile))} of weights for the whole batch, "
                              f"{units.size(cache.bytes)} of cache"))  # fmt: skip
    return [*rows, *_cache(cache)]


def _cache(cache: KVCache) -> list[tuple[str, str]]:
    rate = cache.bytes_per_token
    here = f"{units.size(cache.bytes)} here"
    head = (
        f"{units.size(rate)}  ({units.integer(rate)} bytes) a token of a sequence; " if rate else ""
    )
    rows = [("KV cache", f"{head}{here}"), ("", ", ".join(map(_part, cache.parts)))]
    if rate:
        grown = (f"{units.size(cache.at(n))} at {n // 1024}Ki" for n in _LENGTHS)
        rows.append(("", f"grows to {', '.join(grown)} tokens"))
    return rows


def _part(part: CachePart) -> str:
    layers = units.plural(part.layers, "layer")
    if part.kind == "growing":
        return f"{layers} keep{_s(part)} every token"
    if part.kind == "window":
        return f"{layers} keep{_s(part)} the last {units.integer(part.limit or 0)}"
    fixed = units.size(part.layers * part.fixed)
    if part.kind == "cross":
        return f"{layers} keep{_s(part)} {fixed} of the encoder's output"
    return f"{layers} keep{_s(part)} {fixed} of state"


def _s(part: CachePart) -> str:
    return "s" if part.layers == 1 else ""


def serving(profile: Profile, device: Device) -> Group:
    """A step on a device against the batch, up to the first batch that does not fit."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from opgraph.analysis.generation import steps

    prefill = profile.mode == "prefill"
    title = "Time to the first token" if prefill else "Time per output token"
    result = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    rate = "prompt tokens/s" if prefill else "tokens/s"
    for header in ("batch", "time", rate, "cache", "memory", ""):
        result.add_column(header, justify="left" if not header else "right", no_wrap=True)
    for step in steps(profile, device):
        result.add_row(
            f"{step.batch:,}", units.seconds(step.seconds), units.count(step.tokens_per_second),
            units.size(step.cache), units.size(step.needed),
            "" if step.fits else f"more than {units.size(device.capacity)}",
        )  # fmt: skip
    return Group(Text(f"{title} on {device.name}, predicted", style="bold"), result)
