"""When the ranks of a pipeline do what: each as soon as it is done with what was before, and has what
another stage gives. Nothing but durations and the order of a schedule decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opgraph.analysis.timing.streams import SENT
from opgraph.record.graph import Collective, Graph
from opgraph.record.layout import Action
from opgraph.record.profile import Begun, Pipeline


@dataclass(frozen=True, slots=True)
class Done:
    """When a rank of a pipeline does something, in seconds from the beginning of a step."""

    action: Action
    begin: float
    end: float


def gone_through(
    orders: Sequence[Sequence[Action]],
    seconds: Mapping[tuple[int, Action], float],
    sending: float,
    behind: Mapping[tuple[int, Action], float] | None = None,
    before: Sequence[float] | None = None,
) -> list[list[Done]]:
    """When each rank does what it does: as soon as it is done with what was before, and has what another
    stage gives. `seconds` are those of a rank's action, whichever of its micro-batches it is of, or of that
    one; what goes to another rank takes `sending` more. What a rank does `behind` an action, to reduce its
    gradients, takes its time, and no other stage waits for it; nor for what it does `before` all of them.

    Raises `ValueError` where ranks wait for each other.
    """
    home = {a[1]: rank for rank, todo in enumerate(orders) for a in todo}
    last = max(home)
    done: dict[tuple[str, int, int], float] = {}
    found: list[list[Done]] = [[] for _ in orders]
    clock = list(before or [0.0] * len(orders))
    moved = True
    while moved:
        moved = False
        for rank, todo in enumerate(orders):
            while len(found[rank]) < len(todo):
                kind, stage, m = action = todo[len(found[rank])]
                if kind == "F":
                    needs = ("F", stage - 1, m) if stage else None
                elif kind == "W":
                    needs = ("B", stage, m)
                else:
                    needs = ("B", stage + 1, m) if stage < last else ("F", stage, m)
                ready = 0.0
                if needs is not None:
                    if needs not in done:
                        break
                    ready = done[needs] + (sending if home[needs[1]] != rank else 0.0)
                begin = max(clock[rank], ready)
                end = begin + seconds[rank, action]
                clock[rank] = end + (behind or {}).get((rank, action), 0.0)
                if kind != "W":  # others wait for what goes to the inputs alone
                    done["F" if kind == "F" else "B", stage, m] = end
                found[rank].append(Done(action, begin, clock[rank]))
                moved = True
    if any(len(f) < len(o) for f, o in zip(found, orders, strict=True)):
        raise ValueError("a schedule in which ranks wait for each other")
    return found


def makespan(found: Sequence[Sequence[Done]]) -> tuple[float, float]:
    """The seconds until all ranks have done all, and those that the busiest waits."""
    end = max(done.end for row in found for done in row)
    return end, end - max(sum(done.end - done.begin for done in row) for row in found)


# The ranks of a pipeline of which one was traced.


@dataclass(frozen=True, slots=True)
class Course:
    """How a step goes through a pipeline: when each rank does what (`rows`), until all have updated their
    weights (`end`), when the traced rank begins each node that an action of it begins with, and which of
    its nodes the host takes longer to launch than the device to run (`hosted`)."""

    rows: tuple[tuple[Done, ...], ...]
    end: float
    begins: Mapping[int, float]
    hosted: frozenset[int]


def course(
    pipeline: Pipeline, graph: Graph, taken: Callable[[Graph], Sequence[Mapping[int, float]]],
    sending: Callable[[Collective], float],
) -> Course:  # fmt: skip
    """How a step goes through a pipeline, of which the rank of a `graph` was traced. `taken` are seconds of
    each node of a graph in each queue, of which an action takes the longer one, and `sending` those of what
    one rank sends another. Of ranks that were not traced each micro-batch takes what one in the middle of
    their sample takes."""
    own = _Passes(graph, pipeline.begun, taken(graph))
    known = [own, *(_Passes(s.graph, s.begun, taken(s.graph)) for s in pipeline.samples)]
    like = [known[at + 1] for at in pipeline.like] or [own] * len(pipeline.orders)
    seconds: dict[tuple[int, Action], float] = {}
    behind = {(rank, todo[-1]): like[rank].after for rank, todo in enumerate(pipeline.orders)}
    for rank, todo in enumerate(pipeline.orders):
        usual = like[rank].usual(todo)
        for action in todo:
            seconds[rank, action] = usual[action[:2]]
            if rank == pipeline.rank and action in own.seconds:
                seconds[rank, action] = own.seconds[action] - behind.get((rank, action), 0.0)
    sent = [k.collective for n in graph.nodes for k in n.kernels if k.collective is not None]
    largest = max((c for c in sent if c.kind in SENT), key=lambda c: c.bytes, default=None)
    moving = 0.0 if largest is None else sending(largest)
    rows = gone_through(pipeline.orders, seconds, moving, behind, [p.before for p in like])
    ids = {n.name: n.id for n in graph.nodes}
    begins = {done.action: done.begin for done in rows[pipeline.rank]}
    return Course(
        tuple(map(tuple, rows)),
        max(row[-1].end + passes.update for row, passes in zip(rows, like, strict=True)),
        {ids[b.node]: begins[b.action] for b in pipeline.begun if b.node in ids},
        own.hosted,
    )


class _Passes:
    """The seconds of what a rank does: of each action all nodes until the next one begins, of what comes
    `before` the first, as to gather the weights of its stages, of its `update` of weights, and of what
    comes `after` the last micro-batch."""

    def __init__(
        self, graph: Graph, begun: Sequence[Begun], taken: Sequence[Mapping[int, float]]
    ) -> None:
        starts = {b.node: b.action for b in begun}
        beside = "before", "update"
        parts: list[Action | str] = [*beside, *(b.action for b in begun)]
        nodes: dict[Action | str, list[int]] = {part: [] for part in parts}
        now: Action | None = None
        for node in graph.nodes:
            update = node.phase == "optimizer"
            now = now if update else starts.get(node.name, now)
            if any(k.collective is not None and k.collective.kind in SENT for k in node.kernels):
                continue
            nodes["update" if update else now or "before"].append(node.id)
        device, host = (
            {part: sum(seconds.get(i, 0.0) for i in ids) for part, ids in nodes.items()}
            for seconds in taken
        )
        self.hosted = frozenset(i for p, ids in nodes.items() if host[p] > device[p] for i in ids)
        self.seconds = {b.action: max(device[b.action], host[b.action]) for b in begun}
        self.before, self.update = (max(device[part], host[part]) for part in beside)
        middle = self._middle()
        self.after = 0.0 if now is None else max(0.0, self.seconds[now] - middle[now[:2]])

    def _middle(self) -> dict[tuple[str, int], float]:
        """What a micro-batch takes in the middle, by kind and stage."""
        found: dict[tuple[str, int], list[float]] = {}
        for action, spent in self.seconds.items():
            found.setdefault(action[:2], []).append(spent)
        return {key: sorted(spent)[(len(spent) - 1) // 2] for key, spent in found.items()}

    def usual(self, todo: Sequence[Action]) -> Mapping[tuple[str, int], float]:
        """The same for a rank that is like it, by its own stages."""
        here = sorted({stage for _, stage, _ in self.seconds})
        there = sorted({stage for _, stage, _ in todo})
        back = dict(zip(there, here, strict=False))
        middle = self._middle()
        return {(k, s): middle.get((k, back.get(s, -1)), 0.0) for k, s, _ in todo}
