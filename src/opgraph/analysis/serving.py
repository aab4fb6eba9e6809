"""Serving a model that generates, on paper: the time of a prefill or of a decoding step on a device against
the batch, and how many sequences fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from opgraph.analysis.batching import at_batch
from opgraph.analysis.cost.totals import cost_of
from opgraph.analysis.memory import fit
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph
from opgraph.record.kinds import Run
from opgraph.record.profile import ProfileRecord

LARGEST = 512
"""The largest batch that is looked at."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step for a batch of sequences: its predicted seconds (the time to the first token of a prefill,
    or per output token of a decoding step), tokens a second over the whole batch, bytes of cache, bytes
    needed altogether (weights, and the peak with the cache), and whether that fits on the device."""

    batch: int
    seconds: float
    tokens_per_second: float
    cache: int
    needed: int
    fits: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self)


def steps(profile: ProfileRecord, device: Device, run: Run = Run.EAGER) -> tuple[Step, ...]:
    """Steps for batches of once, twice, four times … the batch that was traced, up to the first that does
    not fit on the device.

    Raises `RenderError` for a profile of another mode than prefill or decode.
    """
    cache = profile.cache
    if cache is None or profile.mode not in ("prefill", "decode"):
        raise RenderError("only a prefill or a decoding step has these figures",
                          hint="profile with --mode prefill or --mode decode")  # fmt: skip
    each = cache.tokens or _prompt(profile.graph) if profile.mode == "prefill" else 1
    found: list[Step] = []
    times = 1
    while cache.sequences * times <= LARGEST or not found:
        graph = at_batch(profile.graph, times)
        seconds = predict(graph, device, run).seconds
        need = fit(graph, device)
        batch = cache.sequences * times
        rate = batch * each / seconds if seconds else 0.0
        found.append(Step(batch, seconds, rate, cache.bytes * times, need.needed, need.fits))
        if not need.fits:
            break
        times *= 2
    return tuple(found)


def _prompt(graph: Graph) -> int:
    """Tokens of each prompt, which a cache that keeps states alone does not count."""
    inputs = {v.name: v.shape for v in map(graph.value.__getitem__, graph.inputs)}
    shape = inputs.get("decoder_input_ids") or inputs.get("input_ids") or (1,)
    return shape[-1] if isinstance(shape[-1], int) else 1


def shared_reads(profile: ProfileRecord) -> int:
    """Bytes read once for the whole batch: the weights, as far as the step uses them."""
    once = cost_of(profile.graph.nodes).read
    twice = cost_of(at_batch(profile.graph, 2).nodes).read
    return max(0, 2 * once - twice)
