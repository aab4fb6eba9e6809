"""Serving a model as an inference engine would: a few traces, the time of any step from them, and requests
through a simulated engine."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from opgraph.analysis.costed import quantized
from opgraph.analysis.serving.curve import ServingPoint, serve_at
from opgraph.analysis.serving.engine import assumed
from opgraph.analysis.serving.simulation import Drafts, Engine, Request, arrivals, pages_of
from opgraph.analysis.serving.steps import Load, Shares, StepTimes, Traces, step_times
from opgraph.api.pipeline import as_it_was, profiled, resolved, with_generating_head
from opgraph.hardware import Device, cluster
from opgraph.inputs.context import learned_positions
from opgraph.options import NAMES, OPTIONS, Options, checked, named_options, targeted
from opgraph.options.fields import QUANTIZED, SERVING
from opgraph.record.errors import InputError, RenderError, first_line
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark
from opgraph.record.units import percent, plural, seconds, size
from opgraph.results import Serving, ServingPlan
from opgraph.tracing.modes.generation import encoder_decoder

if TYPE_CHECKING:
    from torch import nn

    from opgraph.sources.base import Model

SHORT, LONG = 64, 512
"""Tokens in the cache of the steps that times are made from, where no layer has a window."""
SEQUENCES = 2
LONGEST = 10**9
"""Tokens of a prompt or an answer at most, far beyond any model: more is a mistake of who asks."""
SHARES = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0)
"""Rates of a curve, in the rate at which requests leave when all come at once."""

BESIDE = (
    "not in these times: HTTP, tokenizing, the server's own queue, and the padding of a step to the "
    "sequences of a recorded graph"
)
"""What a server does beside the steps of its engine."""

LIMITS = {"max_first_token": "first_token", "max_per_token": "per_token"}
"""Options that say what requests wait for at most, and what of a point they are of."""
_WAITED = {"max_first_token": "to the first token", "max_per_token": "a token"}
_HALVINGS = 7
"""Between rates that keep the limits and rates that do not: to 1 % of what is reached."""

_OF_A_STEP = ("mode", "context_len", "batch_size", "seq_len", "decoder_seq_len")


@named_options((*(n for n in NAMES if n not in _OF_A_STEP), *SERVING, "hardware", *QUANTIZED))
@as_it_was
def serve(
    model: str | nn.Module, *, hardware: str | Device, progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Serving:  # fmt: skip
    """Simulate an inference engine that serves a model.

    `hardware` is a device or its name, with how many share each operator ("4xh100-sxm"). The step times
    are those of the model's own graph as an engine runs it (`--run engine`), at any tokens and length.
    `options` are those of `profile` (`dtype` is bfloat16 if not given), how weights and cache are kept
    (`weights="fp8"`), and of the engine: `request_rate="1,4,8"`, `input_len="100-2000"`, `output_len`,
    `requests`, `workload`, `step_tokens` … The same seed gives the same figures.

    Raises `InputError` for a model that does not generate, or whose steps cannot be worked out from a few,
    and `RenderError` where it does not fit.

    >>> print(opgraph.serve("gpt2", hardware="a10", request_rate="8", input_len="512", output_len="64"))
    """
    count, device = cluster(hardware) if isinstance(hardware, str) else (None, hardware)
    job = _Job(model, device, options, progress or (lambda _: None))
    return job.served(job.engine(count or 1))


SPLIT = ("tensor_parallel", "pipeline_parallel", "data_parallel")
"""Options that say over how many devices engines are spread, and how many there are."""

_DEEPEST = 16
"""Stages of an engine up to which a plan looks."""


def planned(
    model: str | nn.Module, count: int, device: Device, tell: Callable[[str], None], top: int,
    options: dict[str, Any], *, explain: bool = False,
) -> ServingPlan:  # fmt: skip
    """The best ways to serve a model with so many devices: engines in a power of two of stages, each of
    which shares its operators over a power of two of devices; side by side, each with its share of the
    requests. At a rate that is asked for, what is quickest for a request on average; else what serves most
    within the limits (milliseconds that 99 of 100 requests keep). What is said of the layout holds for all,
    or, with `explain`, is one that is compared with the best.

    Raises what `serve` raises, and `InputError` where nothing serves it.
    """
    limits = {n: options.pop(n) for n in LIMITS if options.get(n) is not None}
    limits = checked(limits, LIMITS, "plan")
    said = checked({n: options.pop(n) for n in SPLIT if options.get(n) is not None}, SPLIT, "plan")
    if options.get("disaggregate") is not None:
        raise InputError("engines apart for prompts and tokens are not looked through",
                         hint="opgraph serve takes --disaggregate")  # fmt: skip
    job = _Job(model, device, options, tell)
    if len(job.rates) > 1:
        raise InputError("a plan is for one rate of requests", hint="--request-rate 8")
    rated = bool(job.rates) or job.arrive
    wanted = "latency" if rated else "throughput"
    known: dict[tuple[int, int], Serving | str] = {}

    def served(tensor: int, stages: int) -> Serving | str:
        key = tensor, stages
        if key not in known:
            try:
                engine = job.engine(tensor, count // (tensor * stages), stages)
                known[key] = job.within(engine, limits, wanted)
            except (RenderError, InputError) as error:
                known[key] = first_line(error)
        return known[key]

    asked = None
    if explain:
        tensor, stages, copies = (said.get(n) or 1 for n in SPLIT)
        if tensor * stages * copies != count:
            text = f"{copies:,} engines of {stages:,} x {tensor:,} devices are not {count:,}"
            rest, left = divmod(count, tensor * stages)
            raise InputError(text, hint=None if left else f"--data-parallel {rest}")
        found = served(tensor, stages)
        if isinstance(found, str):
            raise InputError(f"engines of {stages:,} x {tensor:,} devices cannot be had: {found}")
        asked, said = found, {}
    best: list[Serving] = []
    refused: dict[str, None] = {}
    for tensor, stages in _spread(count, device, said):
        one = served(tensor, stages)
        if isinstance(one, str):
            staged = f" in {stages:,} stages" if stages > 1 else ""
            refused[f"engines of {tensor * stages:,}{staged}: {one}"] = None
        else:
            best.append(one)
    if not best:
        whys = "; ".join(list(refused)[:3]) or "no engines are as many devices as that"
        raise InputError(f"no engine over {count:,} of {device.name} serves it: {whys}",
                         hint="more devices, --weights fp8, or wider limits")  # fmt: skip
    best.sort(key=lambda s: _wanted(s.points[0], wanted) * (1 if rated else -1))
    return ServingPlan(
        best[0].model, device.name, count, wanted, limits, tuple(best[:top]), tuple(refused),
        len(best) + len(refused), asked,
    )  # fmt: skip


def _spread(count: int, device: Device, said: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Over how many devices engines share each operator, and in how many stages they are."""
    tensor, stages, copies = (said.get(n) for n in SPLIT)
    for t in [tensor] if tensor else reversed(_powers(min(count, device.node))):
        for s in [stages] if stages else _powers(min(count // t, _DEEPEST)):
            if count % (t * s) == 0 and (copies or count // (t * s)) == count // (t * s):
                yield t, s


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]


def _wanted(point: ServingPoint, wanted: str) -> float:
    """What a plan goes by: the mean latency in seconds, or tokens a second."""
    if wanted == "latency":
        return inf if point.latency is None else point.latency.mean
    return point.output_tokens_per_second


@dataclass(frozen=True)
class _Engines:
    """Engines side by side in `stages` that share each operator over `tensor` devices, the bytes of a page,
    and of a device by what they are of. As many batches as there are stages go through an engine at once:
    each is an engine by itself, with its share of the requests and of the cache."""

    times: StepTimes
    engine: Engine
    page: int
    held: Mapping[str, int]
    copies: int = 1

    def at_pace(self, pace: float) -> _Engines:
        """The same where all steps take so many times as long."""
        times = replace(self.times, pace=pace)
        return replace(self, times=times, engine=replace(self.engine, once=times.once))


class _Job:
    """What is to be served, with what each engine is made of: traces are made once for all of them."""

    def __init__(
        self, model: str | nn.Module, device: Device, options: dict[str, Any],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.device, self.tell = device, tell
        asked = self.asked = {n: OPTIONS[n].default for n in SERVING}
        own = checked({n: options.pop(n) for n in SERVING if n in options}, SERVING, "serve")
        asked |= own
        bits = {n: options.pop(n) for n in QUANTIZED if n in options}
        self.bits = bits = checked(bits, QUANTIZED, "serve")
        for name in _OF_A_STEP:
            if options.pop(name, None) not in (None, "infer"):
                raise InputError(f"serve does not take {name}: what is in a step follows from the requests",
                                 hint="input_len, output_len, request_rate")  # fmt: skip
        given = targeted(checked(options, NAMES, "serve"), device.target)
        given["dtype"] = given.get("dtype") or "bfloat16"
        self.rates, self.apart = _rates(asked["request_rate"]), _apart(asked["disaggregate"])
        built, self.shortened = _generating(model, given), ""
        if asked["workload"] is None and not {"input_len", "output_len"} <= own.keys():
            self.shortened = _shortened(asked, own, built)
        self.workload, self.arrive = _workload(asked)
        if asked["workload"] is not None:
            arrive = self.arrive
            file_has = (
                "input_len",
                "output_len",
                "requests",
                *(("request_rate",) if arrive else ()),
            )
            if twice := [OPTIONS[n].flag for n in file_has if own.get(n) is not None]:
                raise InputError(
                    f"the workload says what its requests are{' and when they come' * arrive}",
                    hint=f"leave out {' and '.join(twice)}",
                )
            asked |= dict.fromkeys(file_has)
        if asked["draft"] is not None and asked["acceptance"] is None:
            raise InputError("how many drafts are accepted hangs on both models and the text",
                             hint="--acceptance 0.7")  # fmt: skip
        traces = self.traces = traced(built, given, bits, device, tell, self.workload)
        if traces.source:
            if refused := [
                OPTIONS[n].flag for n in ("prefix_hits", "draft", "disaggregate") if own.get(n)
            ]:
                raise InputError(f"{traces.prefill.model.name} has an encoder, for which {refused[0]} is "
                                 "not worked out", hint=f"leave out {' and '.join(refused)}")  # fmt: skip
            self.workload = [
                replace(r, prompt=1, source=r.prompt) if traces.longer else replace(r, source=1)
                for r in self.workload
            ]
        self.shares: dict[int, Shares] = {}
        self.drafting: Traces | None = None
        if asked["draft"] is not None:
            self.drafting = traced(asked["draft"], given, {}, device, tell, self.workload)
            if self.drafting.source:
                raise InputError(
                    f"{self.drafting.prefill.model.name} has an encoder, and cannot draft"
                )

    def engine(self, tensor: int, copies: int = 1, stages: int = 1) -> _Engines:
        """Engines that share each operator over so many devices. Raises what `step_times` raises."""
        if tensor not in self.shares:
            self.shares[tensor] = Shares(self.traces, self.device, tensor)
        times = self.shares[tensor].in_stages(stages)
        drafts = None
        if self.drafting is not None:
            if stages > 1:
                raise InputError("drafts in a pipeline are not worked out")
            drafts = step_times(self.drafting, self.device, tensor)
        return replace(_engines(self.asked, times, drafts), copies=copies)

    def at(self, engines: _Engines, rate: float) -> ServingPoint:
        """What requests see at a rate."""
        asks, times, seed = self.workload, engines.times, self.asked["seed"] or 0
        self.tell(f"{len(asks)} requests" + ("" if rate == inf else f" at {rate:.3g} a second"))
        asks = asks if self.arrive else _arriving(asks, rate, seed)
        link = self.device.linked().link_reached if self.apart else 1.0
        moving = times.cache.at(1000) / 1000 / link if self.apart else 0.0
        side = engines.copies * times.stages
        return serve_at(rate, asks, engines.engine, times, seed, self.apart, moving, side)

    def rate_of_arrivals(self) -> float:
        """How many requests a second a file has."""
        span = max(r.arrival for r in self.workload) - min(r.arrival for r in self.workload)
        return len(self.workload) / span if span else inf

    def served(self, engines: _Engines) -> Serving:
        """What requests see at all rates that were asked for, or at some up to what is reached."""
        if self.arrive:
            return self.result(engines, [self.at(engines, self.rate_of_arrivals())])
        if self.rates:
            return self.result(engines, [self.at(engines, rate) for rate in self.rates])
        most = self.at(engines, inf)
        wanted = [float(f"{share * most.requests_per_second:.3g}") for share in SHARES]
        points = [self.at(engines, rate) for rate in wanted if rate > 0]
        return self.result(engines, [*points, most])

    def within(self, engines: _Engines, limits: Mapping[str, float], wanted: str) -> Serving | str:
        """What requests see at the rate that was asked for, or at the highest that keeps the limits, with
        the interval of what is wanted; why there is none else."""
        found, why = self._within(engines, limits)
        if why:
            return why
        ends = [self._within(engines.at_pace(r), limits) for r in engines.times.ratios]
        low, high = sorted(0.0 if why and wanted == "throughput" else _wanted(p, wanted)
                           for p, why in ends)  # fmt: skip
        return replace(self.result(engines, [found]), interval=(low, high))

    def _within(self, engines: _Engines, limits: Mapping[str, float]) -> tuple[ServingPoint, str]:
        """The same, and why none keeps the limits."""

        def broken(p: ServingPoint) -> str:
            for name, most in limits.items():
                seen = getattr(p, LIMITS[name])
                if seen is not None and seen.p99 * 1e3 > most:
                    return f"{seen.p99 * 1e3:,.3g} ms {_WAITED[name]}, not {most:,.3g}"
            return "" if p.requests else "no request fits"

        given = self.rate_of_arrivals() if self.arrive else next(iter(self.rates), None)
        found = self.at(engines, inf if given is None else given)
        if not (why := broken(found)) or given is not None:
            return found, why
        low, high, best = 0.0, found.requests_per_second, None
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            one = self.at(engines, rate)
            if why := broken(one):
                high = rate
            else:
                low, best = rate, one
        return (found, why) if best is None else (best, "")

    def result(self, engines: _Engines, points: Sequence[ServingPoint]) -> Serving:
        """The record of some rates."""
        times, asked, traces = engines.times, self.asked, self.traces
        settings = {n: v for n, v in {**asked, **self.bits}.items() if v is not None}
        reads, takes, source = (
            round(sum(getattr(r, n) for r in self.workload) / len(self.workload))
            for n in ("prompt", "output", "source")
        )
        launched = engines.engine.launched
        one, many = (launched(times.decoding(n, reads + takes // 2, source), n, reads=False)
                     for n in (1, 32))  # fmt: skip
        prompt = launched(times.reading(reads, source=source), reads, reads=True)
        return Serving(
            traces.prefill.model.name, self.device.name, times.tensor * times.stages,
            sum(self.apart) if self.apart else engines.copies, settings, times.weights,
            engines.engine.pages * times.stages * asked["page_tokens"],
            {"decode_1": one, "decode_32": many,
             "prefill": times.once(source) + prompt},
            tuple(points), tuple(_remarks(self, engines)),
            times.stages, engines.held,
        )  # fmt: skip


def _generating(model: str | nn.Module | Model, given: Mapping[str, Any]) -> Model:
    options = Options(**given, mode="decode")
    return with_generating_head(model, resolved(model, options), options)


def _reads_text(built: Model) -> bool:
    """Whether an encoder reads what is asked, and a decoder only gives the answer."""
    both = encoder_decoder(built.module)
    return both and getattr(built.module, "main_input_name", "") == "input_ids"


def _shortened(asked: dict[str, Any], own: Mapping[str, Any], built: Model) -> str:
    """Make the lengths that were not asked for fit the positions of a model, in the proportion
    of the usual ones; gives what is to be said of it."""
    most = learned_positions(built)
    reads, takes = (_range(n, asked[n])[1] for n in ("input_len", "output_len"))
    each = _reads_text(built)  # has positions of its own for both
    if most is None or (max(reads, takes + 1) if each else reads + takes) <= most:
        return ""
    left = {"input_len": min(reads, most), "output_len": min(takes, most - 1)}
    if not each:
        answer = takes if "output_len" in own else max(1, takes * most // (reads + takes))
        left = {"input_len": most - answer, "output_len": answer}
        if "input_len" in own:
            left["output_len"] = most - reads
    changed = {n: str(v) for n, v in left.items() if n not in own and v > 0}
    asked |= changed
    words = {"input_len": "prompts", "output_len": "answers"}
    said = " and ".join(f"{words[n]} of {plural(int(v), 'token')}" for n, v in changed.items())
    return f"{said}: it has learned {most:,} positions"


def traced(
    model: str | nn.Module | Model, given: Mapping[str, Any], bits: Mapping[str, Any], device: Device,
    tell: Callable[[str], None], requests: Sequence[Request] = (),
) -> Traces:  # fmt: skip
    """The steps that the times of a model are made from, for some requests. Where an encoder reads text,
    that is their prompt, and the decoder begins with one token.

    Raises `InputError` where the model has learned fewer positions.
    """
    built = _generating(model, given)
    both, text = encoder_decoder(built.module), _reads_text(built)
    most = learned_positions(built)
    whole = (max(r.prompt, r.output + 1) if text else r.prompt + r.output for r in requests)
    longest = max(whole, default=0)
    if most is not None and longest > most:
        raise InputError(
            f"{built.info.name} has learned {most:,} positions, and a request has {longest:,} tokens "
            f"{'in or out' if text else 'in and out'}",
            hint="shorter ones: --input-len, --output-len or the lines of --workload",
        )

    def step(mode: str, context: int, source: int = SHORT) -> ProfileRecord:
        tell(f"tracing {built.info.name}: {mode}, {context} tokens")
        many = 1 if mode == "prefill" else SEQUENCES
        options = Options(**given, mode=mode, context_len=context, batch_size=many,
                          seq_len=source if text else None)  # fmt: skip
        found = profiled(built, options=options)
        if found.graph.failed is not None:
            raise InputError(f"{found.model.name} failed at {found.graph.failed.failure}")
        return quantized(found, bits, device)

    first = step("decode", SHORT)
    limits = [p.limit for p in (first.cache.parts if first.cache else ()) if p.limit is not None]
    if limits:
        short = max(2, min(SHORT, min(limits) // 4))
        first = first if short == SHORT else step("decode", short)
        decodes = [first, step("decode", 2 * short), step("decode", max(limits) + SHORT)]
    else:
        try:
            decodes = [first, step("decode", LONG)]
        except InputError:  # fewer positions
            decodes = [first, step("decode", SHORT + 16)]
    longer = tuple(step("prefill", SHORT, SHORT * n) for n in (2, 3)) if text else ()
    return Traces(
        tuple(decodes), step("prefill", SHORT), (SHORT if text else 1) if both else 0, longer
    )


def _engines(asked: Mapping[str, Any], times: StepTimes, draft: StepTimes | None) -> _Engines:
    """The engine that was asked for."""
    device = times.device
    each, held = pages_of(times.cache, asked["page_tokens"], times.source)
    weights = times.weights + (0 if draft is None else draft.weights)
    if draft is not None:
        each += pages_of(draft.cache, asked["page_tokens"])[0]
    beside = times.activation * asked["step_tokens"]
    room = (device.capacity * asked["memory_share"]) - device.context - weights - beside
    page = each * times.kept * times.stages  # of the batches of all stages, of this device's layers
    if room < page:
        raise RenderError(
            f"{size(weights)} of weights and {size(round(beside))} for a step leave no room for a cache in "
            f"{asked['memory_share']:.0%} of the {size(device.capacity)} of {device.name}",
            hint="more devices (4xh100-sxm), --weights fp8, or fewer --step-tokens",
        )
    drafts = None
    if draft is not None:
        found = draft

        def seconds(tokens: int, keys: int, pairs: int) -> float:
            many = len(found.limits)
            sampled = (
                tokens if keys == pairs else 0
            )  # a prompt's next token is drafted in the next step
            return found.seconds(Load(tokens, sampled, (keys,) * many, (pairs,) * many))

        drafts = Drafts(asked["draft_tokens"], asked["acceptance"], seconds)
    recorded = asked["recorded"]
    engine = Engine(
        int(room // page), held, times.limits, asked["step_tokens"], asked["max_sequences"],
        asked["chunked"], (asked["step_overhead"] or 0.0) / 1e3,
        0.0 if recorded == "all" else times.launch, int(recorded) if recorded.isdigit() else 0,
        times.direct, times.once, drafts,
    )  # fmt: skip
    held_here = {"weights": weights, "working": round(beside), "cache": int(room // page * page)}
    return _Engines(times, engine, each, held_here)


def _workload(asked: Mapping[str, Any]) -> tuple[list[Request], bool]:
    """The requests, and whether they say when they arrive."""
    share = asked["prefix_hits"] or 0.0
    if share > 1:
        raise InputError("prefix_hits is a share, at most 1")
    if asked["workload"] is not None:
        found = list(_from_file(asked["workload"]))
    else:
        random = Random(asked["seed"] or 0)
        ranges = [_range(n, asked[n]) for n in ("input_len", "output_len")]
        found = [
            (None, random.randint(*ranges[0]), random.randint(*ranges[1]))
            for _ in range(asked["requests"])
        ]
    asks = [Request(when or 0.0, n, out, int(n * share)) for when, n, out in found]
    return asks, found[0][0] is not None


def _range(name: str, text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        found = int(low), int(high or low)
    except ValueError:
        found = (0, 0)
    if not 0 < found[0] <= found[1] <= LONGEST:
        raise InputError(f"{OPTIONS[name].flag} {text:.40} is no number of tokens",
                         hint="512, or a range: 100-2000")  # fmt: skip
    return found


def _rates(text: str | None) -> list[float]:
    found = []
    for word in (text or "").split(","):
        try:
            rate = float(word) if word.strip() else 0.0
        except ValueError:
            rate = -1.0
        if text is not None and not rate > 0:
            raise InputError(f"--request-rate {text:.40} is no rate",
                             hint="8, several: 1,2,4, or inf")  # fmt: skip
        if rate > 0:
            found.append(rate)
    return found


def _apart(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    readers, _, writers = text.partition(":")
    if not (readers.isdecimal() and writers.isdecimal() and int(readers) and int(writers)):
        raise InputError(f"--disaggregate {text:.40} says no engines",
                         hint="1:1, or 2:3: engines that read, and that give out tokens")  # fmt: skip
    return int(readers), int(writers)


def _from_file(path: str) -> Iterator[tuple[float | None, int, int]]:
    """Requests of a file: CSV with the columns input and output (tokens), and arrival (seconds) if they are
    to arrive when they did; or JSON, an object a line with these keys."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}") from None
    found = 0
    timed = None
    try:
        lines = text.splitlines()
        rows: Any = csv.DictReader(lines)
        if text.lstrip()[:1] == "{":
            rows = (json.loads(line) for line in lines if line.strip())
        for row in rows:
            when = row.get("arrival")
            one = None if when in (None, "") else float(when), int(row["input"]), int(row["output"])
            if not (0 < one[1] <= LONGEST and 0 < one[2] <= LONGEST):
                raise ValueError
            if one[0] is not None and not 0 <= one[0] < inf:
                raise ValueError
            timed = one[0] is not None if timed is None else timed
            if timed != (one[0] is not None):
                raise InputError(f"only some requests of {path} say when they arrive",
                                 hint="give all of them an arrival, or none")  # fmt: skip
            found += 1
            yield one
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        csv.Error,
    ):
        raise InputError(f"request {found + 1} of {path} has no tokens in and out",
                         hint="a CSV with the columns arrival (seconds, or none), input and output, or "
                         "JSON with these keys, a line each") from None  # fmt: skip
    if not found:
        raise InputError(f"{path} has no requests")


def _arriving(requests: Sequence[Request], rate: float, seed: int) -> list[Request]:
    """The requests at a rate."""
    times = arrivals(len(requests), rate, Random(f"{seed} arrivals"))
    return [replace(r, arrival=when) for r, when in zip(requests, times, strict=True)]


def _requests(job: _Job) -> str:
    """How many requests there are, of how many tokens, and when they come."""
    said = []
    for name in ("source" if job.traces.longer else "prompt", "output"):
        tokens = [getattr(r, name) for r in job.workload]
        low, high = min(tokens), max(tokens)
        said.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    at_once = job.rates and min(job.rates) == inf
    by_chance = "all at once" if at_once else f"by chance (seed {job.asked['seed'] or 0})"
    when = "when the file says" if job.arrive else by_chance
    many = plural(len(job.workload), "request")
    return f"{many} of {said[0]} tokens in and {said[1]} out come {when}"


def _remarks(job: _Job, engines: _Engines) -> Iterator[Remark]:
    traces, times, asked = job.traces, engines.times, job.asked
    notes = dict.fromkeys(
        n for p in (*traces.decodes, traces.prefill) for n in p.model.notes if isinstance(n, Remark)
    )
    yield from notes
    yield from assumed(traces.decodes[0].graph)
    if (recorded := asked["recorded"]) != "all":
        which = "that read prompts" if recorded == "decode" else f"of more than {recorded} tokens"
        text = (
            f"but steps {which} are launched kernel by kernel, for which the host takes {{}} each"
        )
        yield Remark("engine", text.format(seconds(times.launch)))
    text = (
        f"scheduling takes {asked['step_overhead'] or 0:g} ms a step beside the device's time; "
        f"{plural(asked['page_tokens'], 'token')} of the cache are a page of {size(engines.page)}"
    )
    yield Remark("engine", text)
    yield Remark("engine", _requests(job))
    if job.shortened:
        yield Remark("engine", job.shortened)
    yield Remark("engine", BESIDE)
    if times.source:
        text = "what an encoder left of a request is made once and held until the request is done; "
        yield Remark(
            "engine",
            text
            + (
                "prompts are the encoder's, and the decoder begins with one token"
                if traces.longer
                else "each has as long an input of its encoder as was traced"
            ),
        )
    if times.tensor > 1:
        text = f"each operator is shared by {times.tensor} devices on paper, and waits for each exchange"
        yield Remark("engine", text)
    if times.stages > 1:
        text = f"{times.stages} batches go through an engine's stages at once, at the pace of the slowest"
        yield Remark("engine", text)
    if asked["prefix_hits"]:
        text = (
            "what of a prompt is in the cache already is held once for each sequence that shares it"
        )
        yield Remark("engine", text)
    if job.drafting is not None:
        many, chance = plural(asked["draft_tokens"], "token"), percent(asked["acceptance"])
        text = (f"{job.drafting.prefill.model.name} drafts {many} a step, each accepted with a chance of "
                f"{chance} after those before it, and reads prompts, too")  # fmt: skip
        yield Remark("engine", text)
    if job.apart:
        readers, givers = (plural(n, "engine") for n in job.apart)
        text = (f"prompts are read by {readers} and tokens given out by {givers}; the cache moves between "
                f"them at {job.device.linked().link_reached / 1e9:.3g} GB/s")  # fmt: skip
        yield Remark("engine", text)


__all__ = ["serve", "traced"]
