"""Requests through an engine: a loop over its steps.

Each step takes the sequences that decode, and of the prompts that wait as much as its budget of tokens
leaves; its time is that of the model (`StepTimes`), or any other function of what is in it. Nothing of it
is random but the requests and what is drafted, both from a seed.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

from opgraph.analysis.cost.conventions import seen
from opgraph.analysis.serving.steps import Load
from opgraph.record.profile import KVCache


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt of so many tokens that arrives at some second, and so many tokens that it asks for. The
    first `shared` tokens of the prompt are in the cache already; an encoder reads `source` tokens."""

    arrival: float
    prompt: int
    output: int
    shared: int = 0
    source: int = 0


@dataclass(frozen=True, slots=True)
class Drafts:
    """Speculative decoding: so many tokens are drafted in a step, each accepted with this chance after
    those before it. `seconds` is a step of the drafting model for so many new tokens, keys, and pairs of
    both; it reads prompts, too."""

    tokens: int
    acceptance: float
    seconds: Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine schedules: tokens in a step and sequences at a time at most, tokens in a page of the
    cache, whether prompts are split (`chunked`: else a prompt is read whole, and alone), and seconds that
    scheduling adds to a step. `pages` is the room of the cache; `held` says how many pages a sequence of so
    many tokens takes, whose encoder read so many. `limits` and `direct` are those of `StepTimes`, `launch`
    is what the host needs to launch a step that is not recorded as a graph: one of more tokens than
    `recorded`, or one that reads prompts where that is 0; `once` are seconds that a request adds to the
    step in which its prompt is begun, by what its encoder reads."""

    pages: int
    held: Callable[[int, int], int]
    limits: tuple[int | None, ...] = (None,)
    tokens: int = 8192
    sequences: int = 256
    chunked: bool = True
    overhead: float = 0.0
    launch: float = 0.0
    recorded: int = 0
    direct: float = 1.0
    once: Callable[[int], float] = lambda _: 0.0
    drafts: Drafts | None = None

    def launched(self, seconds: float, tokens: int, *, reads: bool) -> float:
        """The seconds of a step of so many tokens that takes the device so long, and `reads` a prompt."""
        by_host = tokens > self.recorded if self.recorded else reads
        return max(seconds, self.launch) if by_host else seconds


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request on its way: tokens that have to be read (the prompt, and after a preemption what was given
    out, too), tokens in the cache, tokens given out, and pages held."""

    number: int
    request: Request
    to_read: int
    cached: int = 0
    given: int = 0
    pages: int = 0
    first: float = 0.0
    last: float = 0.0
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a request: the seconds at which its first and its last token were given out."""

    request: Request
    first: float
    last: float
    preemptions: int

    @property
    def first_token(self) -> float:
        """Seconds to the first token."""
        return self.first - self.request.arrival

    @property
    def per_token(self) -> float | None:
        """Seconds a token after the first; None where there is no other."""
        rest = self.request.output - 1
        return (self.last - self.first) / rest if rest else None

    @property
    def latency(self) -> float:
        """Seconds from the arrival to the last token."""
        return self.last - self.request.arrival


@dataclass(slots=True)
class Run:
    """A run of an engine. `gaps` are the seconds between tokens, with how many there were of each; `filled`
    is the integral of the pages held over the seconds, `busy` the seconds in steps, and `exchanged` those
    of them in which its devices exchange something."""

    served: list[Served] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    steps: int = 0
    busy: float = 0.0
    exchanged: float = 0.0
    end: float = 0.0
    start: float = 0.0
    read: int = 0
    preemptions: int = 0
    filled: float = 0.0
    fullest: int = 0
    running: float = 0.0


def simulate(
    requests: Iterable[Request], engine: Engine, seconds: Callable[[Load], float], seed: int = 0
) -> Run:
    """Let an engine serve some requests, first come first served. One that could never fit is refused."""
    return _Simulation(requests, engine, seconds, seed).run()


class _Simulation:
    def __init__(
        self,
        requests: Iterable[Request],
        engine: Engine,
        seconds: Callable[[Load], float],
        seed: int,
    ) -> None:
        self.engine, self.seconds, self.random = engine, seconds, Random(seed)
        self.found = Run()
        self.coming: deque[_Sequence] = deque()
        for number, each in enumerate(sorted(requests, key=lambda r: r.arrival)):
            room = engine.held(each.prompt + each.output, each.source)
            whole = engine.chunked or each.prompt + each.output <= engine.tokens
            if room > engine.pages or not whole:
                self.found.refused.append(each)
            else:
                self.coming.append(_Sequence(number, each, each.prompt))
        self.waiting: list[_Sequence] = []
        self.reading: list[_Sequence] = []
        self.decoding: list[_Sequence] = []
        self.preempted: dict[int, int] = {}
        self.free = engine.pages
        self.clock = self.coming[0].request.arrival if self.coming else 0.0
        self.found.start = self.clock

    def run(self) -> Run:
        while self.coming or self.waiting or self.reading or self.decoding:
            while self.coming and self.coming[0].request.arrival <= self.clock:
                self.waiting.append(self.coming.popleft())
            if not (self.waiting or self.reading or self.decoding):
                self.clock = self.coming[0].request.arrival
                continue
            self._step()
        self.found.end = self.clock
        return self.found

    def _step(self) -> None:
        engine = self.engine
        drafted = engine.drafts.tokens if engine.drafts else 0
        self._make_room(1 + drafted)
        chunks = self._chunks(len(self.decoding) * (1 + drafted))
        decoding = self.decoding if engine.chunked or not chunks else []
        load = self._load(decoding, chunks, drafted)
        taken = engine.launched(self.seconds(load), load.tokens, reads=bool(chunks))
        taken += engine.overhead
        taken += sum(engine.once(s.request.source) for s, _ in chunks if not s.begun)
        if engine.drafts and decoding:
            keys = sum(s.cached for s in decoding)
            taken += drafted * engine.drafts.seconds(len(decoding), keys, keys)
        if engine.drafts and chunks:
            ends = sum(s.cached + n for s, n in chunks)
            pairs = sum(seen(s.cached, n, None) for s, n in chunks)
            taken += engine.drafts.seconds(sum(n for _, n in chunks), ends, pairs)
        held = engine.pages - self.free
        found = self.found
        found.steps += 1
        found.busy += taken
        found.filled += held * taken
        found.running += (len(decoding) + len(chunks)) * taken
        found.fullest = max(found.fullest, held)
        found.read += sum(n for _, n in chunks)
        self.clock += taken
        self._decoded(decoding)
        self._read(chunks)

    def _load(
        self, decoding: Sequence[_Sequence], chunks: Sequence[tuple[_Sequence, int]], drafted: int
    ) -> Load:
        new = 1 + drafted
        limits = self.engine.limits
        keys, pairs = [0] * len(limits), [0] * len(limits)
        for i, limit in enumerate(limits):
            for s in decoding:
                after = s.cached + new
                kept = after if limit is None or after < limit else limit
                keys[i] += kept
                pairs[i] += kept if new == 1 else seen(s.cached, new, limit)
            for s, n in chunks:
                after = s.cached + n
                keys[i] += after if limit is None else min(after, limit + n)
                pairs[i] += round(seen(s.cached, n, limit) * self.engine.direct)
        ends = sum(1 for s, n in chunks if s.cached + n == s.to_read)
        return Load(
            len(decoding) * new + sum(n for _, n in chunks), len(decoding) * new + ends,
            tuple(keys), tuple(pairs),
            sum(s.request.source for s in (*decoding, *(s for s, _ in chunks))),
            sum(s.request.source * n for s, n in (*((s, new) for s in decoding), *chunks)),
        )  # fmt: skip

    # The cache

    def _take(self, s: _Sequence, tokens: int) -> bool:
        """Give a sequence the pages for so many tokens, if there are any."""
        more = self.engine.held(tokens, s.request.source) - s.pages
        if more > self.free:
            return False
        if more > 0:
            s.pages += more
            self.free -= more
        return True

    def _make_room(self, new: int) -> None:
        """Pages for the next tokens of all that decode; those that came last are preempted until there are
        enough, and read all again."""
        kept: list[_Sequence] = []
        pending = self.decoding
        while pending:
            s = pending[0]
            most = min(s.cached + new, s.request.prompt + s.request.output)
            if self._take(s, most):
                kept.append(pending.pop(0))
            elif self.reading:
                self._preempt(self.reading.pop())
            else:
                self._preempt(pending.pop())
        self.decoding = kept

    def _preempt(self, s: _Sequence) -> None:
        self.free += s.pages
        s.pages, s.to_read, s.cached = 0, s.request.prompt + s.given, 0
        self.found.preemptions += 1
        self.preempted[s.number] = self.preempted.get(s.number, 0) + 1
        insort(self.waiting, s, key=lambda one: one.number)

    # Prompts

    def _chunks(self, taken: int) -> list[tuple[_Sequence, int]]:
        """What is read in a step: prompts that are begun, then those that wait, as far as tokens, sequences
        and pages go."""
        engine = self.engine
        left = engine.tokens - (taken if engine.chunked else 0)
        found = []
        for s in list(self.reading):
            if s not in self.reading:
                continue  # it gave its pages to one before it
            n = min(left, s.to_read - s.cached)
            while n > 0 and not self._take(s, s.cached + n) and self.reading[-1] is not s:
                self._preempt(self.reading.pop())
            if n > 0 and self._take(s, s.cached + n):
                found.append((s, n))
                left -= n
        while self.waiting and left > 0:
            s = self.waiting[0]
            if len(self.decoding) + len(self.reading) >= engine.sequences:
                break
            hit = min(s.request.shared, s.to_read - 1)
            n = min(left, s.to_read - hit)
            if (not engine.chunked and n < s.to_read - hit) or not self._take(s, hit + n):
                break
            self.waiting.pop(0)
            s.cached = hit
            self.reading.append(s)
            found.append((s, n))
            left -= n
        return found

    def _read(self, chunks: Iterable[tuple[_Sequence, int]]) -> None:
        for s, n in chunks:
            s.begun = True
            s.cached += n
            if s.cached < s.to_read:
                continue
            self.reading.remove(s)
            if not s.given:
                s.first = self.clock
            else:
                self.found.gaps.append((self.clock - s.last, 1))
            s.given, s.last = s.given + 1, self.clock
            if s.given >= s.request.output:
                self._end(s)
            else:
                self.decoding.append(s)

    def _decoded(self, decoding: list[_Sequence]) -> None:
        """The tokens that a step gives out."""
        if not decoding:
            return
        clock, drafts, gaps = self.clock, self.engine.drafts, self.found.gaps
        left = []
        gap, alike = -1.0, 0
        for s in decoding:
            new = 1
            if drafts:
                while new <= drafts.tokens and self.random.random() < drafts.acceptance:
                    new += 1
                new = min(new, s.request.output - s.given)
                if new > 1:
                    gaps.append((0.0, new - 1))
            s.cached += new
            s.given += new
            since = clock - s.last
            if since == gap:
                alike += 1
            else:
                if alike:
                    gaps.append((gap, alike))
                gap, alike = since, 1
            s.last = clock
            if s.given >= s.request.output:
                self._end(s)
            else:
                left.append(s)
        gaps.append((gap, alike))
        self.decoding = left

    def _end(self, s: _Sequence) -> None:
        self.free += s.pages
        s.pages = 0
        again = self.preempted.get(s.number, 0)
        self.found.served.append(Served(s.request, s.first, s.last, again))


def pages_of(cache: KVCache, page: int, source: int = 0) -> tuple[int, Callable[[int, int], int]]:
    """The bytes of a page of so many tokens, and how many pages a sequence takes, of so many tokens and of
    others that its encoder read: whole ones of what grows with it, and as many as what does not grow is
    worth. The cache holds what an encoder left of `source` tokens."""
    each = cache.at(page) - cache.at(0) or cache.at(0) or 1
    left = sum(p.layers * p.fixed for p in cache.parts if p.kind == "cross") if source else 0

    known: dict[tuple[int, int], int] = {}

    def held(tokens: int, read: int) -> int:
        key = ceil(tokens / page), read
        if key not in known:
            more = left * (read - source) // source if left else 0
            known[key] = ceil((cache.at(key[0] * page) + more) / each)
        return known[key]

    return each, held


def arrivals(count: int, rate: float, random: Random) -> list[float]:
    """The seconds at which requests arrive: by a Poisson process, or all at once."""
    if rate == inf:
        return [0.0] * count
    found, clock = [], 0.0
    for _ in range(count):
        clock += random.expovariate(rate)
        found.append(clock)
    return found
