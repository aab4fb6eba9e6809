"""The best layout of a model over many devices: a few layers are traced once for each way in which they are
split, and a step of every layout that fits is put together of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from opgraph.analysis.parallel.composing import Candidate, Memory, Sample, composed
from opgraph.api.pipeline import as_it_was, profiled, resolved
from opgraph.api.serving import SPLIT, planned
from opgraph.hardware import Device, cluster
from opgraph.options import (
    OPTIONS,
    QUANTIZED,
    Options,
    Stage,
    checked,
    named_options,
    names,
    targeted,
)
from opgraph.options.fields import SERVING
from opgraph.record.errors import InputError, OpgraphError, first_line
from opgraph.record.layout import Layout
from opgraph.record.units import size
from opgraph.results import Plan, ServingPlan

if TYPE_CHECKING:
    from torch import nn

    from opgraph.sources.base import Model

_LAYERS = 3
"""Layers that are traced: the inner one stands for all but the first and the last."""

_DEEPEST, _LARGEST, _WIDEST = 64, 4, 16
"""Stages of a pipeline, the batch of a micro-batch, and ranks that tokens are split over throughout, up to
which layouts are looked for."""

_LONG = 4096
"""Tokens that each of those ranks has at least, where nobody asks for so many of them."""


_SERVED = (*SERVING, *QUANTIZED, "max_first_token", "max_per_token")
"""Options of plans for serving alone."""


@named_options((*names(Stage.BUILD, Stage.INPUTS, Stage.MODE, Stage.PARALLEL), *_SERVED))
@as_it_was
def plan(
    model: str | nn.Module,
    *,
    devices: str | tuple[int, Device],
    explain: bool = False,
    network: str | None = None,
    top: int = 10,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Plan | ServingPlan:
    """The quickest layouts of a step of training over many devices ("1024xh100-sxm"), or, with
    `mode="decode"`, the best engines that serve the model there (see `opgraph.serve`).

    `global_batch` says how many sequences (or images) a step has. Options of a layout that are given hold
    for all that is tried; with `explain` they are one layout, which is compared with the best. `network`
    says what links nodes. Other `options` are those of `profile`.

    Raises what `profile` raises, and `InputError` where no layout fits.

    >>> found = opgraph.plan("gpt2", devices="16xh100-sxm", mode="train", global_batch=64)
    """
    count, device = cluster(devices) if isinstance(devices, str) else devices
    if count is None or count < 2:
        raise InputError("over how many devices?", hint="--devices 1024xh100-sxm")
    device = device.over(network, None).linked()
    serving = options.get("mode") == "decode"
    foreign = [n for n in names(Stage.PARALLEL) if n not in SPLIT] if serving else _SERVED
    for name in [n for n in options if n in foreign]:
        raise InputError(
            f"{OPTIONS[name].flag} is of no use to {'engines' if serving else 'a step of training'}",
            hint="--mode train" if serving else "--mode decode plans engines that serve the model",
        )
    if serving:
        return planned(
            model, count, device, progress, top, {**options, "mode": None}, explain=explain
        )
    options = checked({"mode": "train", **options}, Options.__dataclass_fields__, "plan")
    given = Options(**targeted(options, device.target))
    if given.mode != "train":
        raise InputError(f"layouts are looked for of a step of training, not of the mode {given.mode}",
                         hint="--mode decode plans engines that serve the model")  # fmt: skip
    if given.global_batch is None:
        beside = f" ({OPTIONS['batch_size'].flag} is that of a micro-batch)" if given.batch else ""
        raise InputError("how many sequences has a step?", hint=f"--global-batch 2048{beside}")
    if given.schedule == "zero-bubble":
        raise InputError("a step whose backward is halved (zero-bubble) is not planned",
                         hint="opgraph profile --pipeline-parallel traces one")  # fmt: skip
    if given.cpu_offload:
        raise InputError("a step whose weights are kept in the host's memory (cpu_offload) is not planned",
                         hint="opgraph profile --fsdp --cpu-offload traces one")  # fmt: skip
    alone = {n: OPTIONS[n].default for n in names(Stage.PARALLEL)}
    plain = replace(given, checkpointing=False, **alone)
    ordered = options.get("schedule") is not None
    search = _Search(model, plain, given, count, device, progress, ordered)
    return search.found(explain, top)


class _Search:
    """Samples by how operators are split, each traced once; and all layouts put together of them."""

    def __init__(
        self, model: Any, plain: Options, given: Options, count: int, device: Device,
        progress: Callable[[str], None], ordered: bool = False,
    ) -> None:  # fmt: skip
        from opgraph.tracing.modes.layouts import thinned
        from opgraph.tracing.parts import parameters_of

        self.ordered = ordered  # the schedule is given, be it the usual one
        self.plain, self.given, self.count, self.device = plain, given, count, device
        self.progress = progress
        self.whole: Model = resolved(model, plain)
        self.few, self.blocks, self.counts = thinned(self.whole, _LAYERS)
        parameters = parameters_of(self.whole.module)
        self.weights = sum(p.numel() * p.element_size() for p in parameters)
        self.dtypes = {str(p.dtype).removeprefix("torch.") for p in parameters}
        self.samples: dict[Any, Sample | str] = {}
        self.uncut: dict[Any, str] = {}
        self.known: dict[Any, Any] = {}
        self.capacity = device.capacity - device.context
        self.batch = given.global_batch or 1
        self.tried = 0
        self.undivided: dict[str, None] = {}

    def sample(self, layout: Layout, batch: int, checkpointing: bool) -> Sample | str:
        """The trace of a few layers whose operators are split as in a layout, or why there is none."""
        shards = max(2, layout.expert // layout.tensor) if layout.fsdp > 1 else 1
        copies = min(2, layout.data)
        zero = layout.zero if layout.shards > 1 else 3 if copies == 1 else 0
        staged = layout.pipeline > 1 and layout.shards * copies > 1
        # With the first micro-batch, and the last, one that stands for all between them.
        apart = (zero < 2 or copies > 1) and not staged
        several = min(layout.micro_batches, 3 if apart else 2)
        key = (layout.tensor, layout.sequence, layout.expert, layout.context, shards, copies, zero,
               staged, several, batch, checkpointing)  # fmt: skip
        if key not in self.samples:
            self.progress(f"tracing {self.whole.info.name} in {layout.tensor} parts …")
            asked = replace(
                self.plain.of_batch(batch),
                tensor_parallel=layout.tensor, sequence_parallel=layout.sequence,
                expert_parallel=layout.expert if layout.expert > 1 else None,
                context_parallel=layout.context if layout.context > 1 else None,
                fsdp=shards if shards > 1 else None, data_parallel=copies if copies > 1 else None,
                zero=zero if layout.shards > 1 else None, micro_batches=several,
                checkpointing=checkpointing,
            )  # fmt: skip
            from opgraph.tracing.modes.layouts import stage_like

            try:
                graph = profiled(stage_like(self.few) if staged else self.few, options=asked).graph
                self.samples[key] = Sample(graph, self.blocks, self.counts, shards * layout.context,
                                           several, zero, copies, staged)  # fmt: skip
            except OpgraphError as error:
                self.samples[key] = first_line(error)
        return self.samples[key]

    def candidate(
        self, layout: Layout, batch: int, checkpointing: bool, regardless: bool = False
    ) -> Candidate | Memory | str:
        """A step in a layout, the memory of one that does not fit (unless `regardless`), or why there is
        none."""
        if self._least(layout) > self.capacity and not regardless:
            return ""
        if layout.expert not in (1, layout.tensor * layout.fsdp):
            return "experts that are sharded beside being spread are not put together"
        if layout.schedule == "interleaved" and not self._interleaves(
            layout.pipeline, layout.micro_batches
        ):
            return (f"interleaved takes a multiple of {layout.pipeline} micro-batches, and {layout.chunks} "
                    "layers a stage")  # fmt: skip
        if layout.pipeline > 1 and (why := self._uncut(layout)):
            return why
        sample = self.sample(layout, batch, checkpointing)
        if isinstance(sample, str):
            return sample
        self.tried += 1
        return composed(sample, self.device, layout, batch=batch, checkpointing=checkpointing,
                        capacity=self.capacity, known=self.known, regardless=regardless)  # fmt: skip

    def _uncut(self, layout: Layout) -> str:
        """Why torch's tools make no such pipeline of the model, or "" where they do, which is tried with a
        few layers over two ranks. A model that says itself what its stages hand on is not asked."""
        from opgraph.tracing.modes.layouts import thinned

        if getattr(self.whole.module, "pp_plan", None):
            return ""
        key = layout.schedule, layout.tensor
        if key not in self.uncut:
            self.progress(f"cutting {self.whole.info.name} into stages …")
            asked = replace(
                self.plain.of_batch(2), pipeline_parallel=2, schedule=layout.schedule, micro_batches=2,
                tensor_parallel=layout.tensor, sequence_parallel=layout.sequence,
            )  # fmt: skip
            self.uncut[key] = ""
            try:
                profiled(thinned(self.whole, 2 * layout.chunks)[0], options=asked)
            except OpgraphError as error:
                self.uncut[key] = first_line(error)
        return self.uncut[key]

    def _least(self, layout: Layout) -> float:
        """Bytes of weights, gradients and optimizer state on average, which are known without a trace."""
        split = layout.tensor * layout.pipeline
        sharded = 4 * self.weights / (split * layout.shards)
        kept = layout.zero < 3 and layout.shards > 1
        return float(sharded + (2 * self.weights / split if kept else 0))

    def _undivided(self, number: int, what: str, by: int) -> None:
        self.undivided[f"{number:,} {what} do not divide by {by:,}"] = None

    def layouts(self) -> Iterator[tuple[Layout, int, bool]]:
        """All layouts that are tried, with the batch of a micro-batch and whether layers run again."""
        given = self.given
        layers = round(sum(self.counts))
        tensors = (
            [given.tensor_parallel] if given.tensor_parallel else _powers(min(self.device.node, 8))
        )
        depths = (
            [given.pipeline_parallel] if given.pipeline_parallel else _powers(min(_DEEPEST, layers))
        )
        batches = [given.batch] if given.batch else _powers(_LARGEST)
        for tensor, pipeline, context in product(tensors, depths, self._contexts):
            if pipeline > layers:
                continue
            ranks = tensor * pipeline * context
            if self.count % ranks:
                self._undivided(self.count, "devices", ranks)
                continue
            rest = self.count // ranks
            fsdp = given.fsdp or max(1, rest // (given.data_parallel or 1))
            if rest % fsdp or (given.data_parallel or rest // fsdp) != rest // fsdp:
                continue
            for batch in batches:
                if self.batch % (rest * batch):
                    self._undivided(self.batch, "sequences of a step", rest * batch)
                    continue
                m = self.batch // (rest * batch)
                if given.micro_batches and given.micro_batches != m:
                    continue
                for zero, schedule in self._ways(pipeline, fsdp * context, m):
                    one = Layout(
                        tensor, pipeline, rest // fsdp, m, fsdp=fsdp, context=context,
                        expert=given.expert_parallel or 1,
                        sequence=tensor > 1 and self._sequence, zero=zero, schedule=schedule,
                    )  # fmt: skip
                    for again in [True] if given.checkpointing else [False, True]:
                        yield one, batch, again

    @property
    def _contexts(self) -> list[int]:
        """Over how many ranks tokens are split throughout: those of long sequences over several, too."""
        given = self.given
        if given.context_parallel:
            return [given.context_parallel]
        shape = given.input_shape or ()
        tokens = given.seq_len or (shape[1] if len(shape) in (2, 3) else 0)
        return [1, *(n for n in _powers(_WIDEST) if n > 1 and tokens // n >= _LONG)]

    @property
    def _sequence(self) -> bool:
        """Whether tokens are split between layers, too: where nothing but linear layers is split."""
        return self.given.sequence_parallel or not getattr(self.whole.module, "ep_plan", None)

    def _interleaves(self, pipeline: int, m: int) -> bool:
        """Whether each stage has several runs of layers, and micro-batches go round by as many as there are
        stages."""
        return m % pipeline == 0 and round(sum(self.counts)) >= 2 * pipeline

    def _ways(self, pipeline: int, shards: int, m: int) -> Iterator[tuple[int, Any]]:
        given = self.given
        zeros = [given.zero] if given.zero else [1, 3] if pipeline == 1 else [1]
        if shards == 1:  # nothing is sharded
            zeros = [given.zero or 3]
        schedules = ["1f1b"]
        if pipeline > 1 and self._interleaves(pipeline, m):
            schedules.append("interleaved")
        if self.ordered:
            schedules = [given.schedule]
        for zero in zeros:
            for schedule in schedules if pipeline > 1 else ["1f1b"]:
                yield zero, schedule

    def found(self, explain: bool, top: int) -> Plan:
        """The best of all layouts; first with the smallest batch, then with larger ones near the best."""
        asked = self._asked() if explain else None
        if explain:
            given = self.given
            self.given = replace(self.plain, batch_size=None, global_batch=given.global_batch)
            self.ordered = False
            self.tried = 0  # of what is looked through
        given = self.given
        best: list[Candidate] = []
        least_kept = inf
        refused: dict[str, None] = {}

        def compare(layout: Layout, batch: int, again: bool) -> None:
            nonlocal least_kept
            made = self.candidate(layout, batch, again)
            if isinstance(made, str) and made and layout.sequence and not given.sequence_parallel:
                made = self.candidate(replace(layout, sequence=False), batch, again)
            if made == "":
                least_kept = min(least_kept, self._least(layout))
            elif isinstance(made, str):
                found = layout.context > 1 and not given.context_parallel
                refused[f"{f'context {layout.context}' if found else layout}: {made}"] = None
            elif isinstance(made, Memory):
                least_kept = min(least_kept, made.total)
            else:
                best.append(made)
            best.sort(key=lambda c: c.seconds)

        everything = list(self.layouts())
        least = min((b for _, b, _ in everything), default=1)
        fewest = min((c.context for c, *_ in everything), default=1)
        # All with the smallest batch; near the best of these larger ones, tokens that are split over more
        # ranks (anywhere, if nothing fits), and tokens that are whole between split operators.
        for larger, wider in ((False, False), (True, False), (False, True)):
            near = {_split(c.layout, c.checkpointing) for c in best[:3]}
            for layout, batch, again in everything:
                if (batch > least, layout.context > fewest) == (larger, wider) and (
                    not (larger or wider) or _split(layout, again) in near or (wider and not near)
                ):
                    compare(layout, batch, again)
        for c in [c for c in best[:3] if c.layout.sequence and not given.sequence_parallel]:
            compare(replace(c.layout, sequence=False), c.batch, c.checkpointing)
        if not best and asked is None:
            whys = [*refused, *self.undivided]
            if least_kept < inf:
                kept, room = size(round(least_kept)), size(int(self.capacity))
                whys = [f"at least {kept} a device, of {room}"]
            raise InputError(
                f"{self.whole.info.name} fits in no layout over {self.count:,} of {self.device.name}: "
                + "; ".join(whys[:3]),
                hint="more devices, or a global batch that they divide",
            )
        return Plan(
            self.whole.info.name, self.device.name, self.count, self.batch, int(self.capacity),
            tuple(best[:top]), self.tried, len(best), asked, tuple(refused),
            sum(isinstance(s, Sample) for s in self.samples.values()), self._assumed(),
        )  # fmt: skip

    def _assumed(self) -> tuple[str, ...]:
        """What the figures take for granted."""
        kept = " and ".join(sorted(self.dtypes))
        plain = "" if self.dtypes == {"float32"} else "; copies of them in float32 are not counted"
        between = self.count > self.device.node
        apart = any(key[3] > 1 for key in self.samples)
        return (
            f"gradients and optimizer state are kept as weights are, in {kept}{plain}",
            *["nothing measured stands behind the time of exchanges between nodes"] * between,
            *["where tokens are split throughout, MFU leaves out what a causal mask hides"] * apart,
        )

    def _asked(self) -> Candidate:
        """The layout that was asked for, with the quickest micro-batches that fit where it says none."""
        given, layout = self.given, self.given.layout
        if layout.devices != self.count:
            copies, rest = divmod(self.count, layout.devices)
            text = f"{layout} are {layout.devices:,} devices, not {self.count:,}"
            raise InputError(text, hint=None if rest else f"--fsdp {layout.fsdp * copies}")
        sequences = self.batch // layout.copies
        said = given.micro_batches or given.batch
        sizes = [sequences // layout.micro_batches] if said else _powers(_LARGEST)
        made = [
            self.candidate(replace(layout, micro_batches=sequences // batch), batch, given.checkpointing,
                           regardless=True)
            for batch in sizes if sequences % batch == 0
        ]  # fmt: skip
        found = [c for c in made if isinstance(c, Candidate)]
        if not found:
            raise InputError(f"{layout} cannot be had: {made[0]}")
        return min(found, key=lambda c: (not c.fits, c.seconds if c.fits else c.memory.total))


def _split(layout: Layout, again: bool) -> Any:
    return layout.tensor, layout.zero, again


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]


__all__ = ["plan"]
