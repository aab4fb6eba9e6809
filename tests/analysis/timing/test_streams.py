"""What ranks exchange beside the kernels, on timelines worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.random_graphs import tried

from opgraph.analysis.timing.streams import (
    KERNELS,
    PACKED,
    PACKING,
    WAITING,
    overlapped,
    sources,
)
from opgraph.analysis.timing.workload import NOTHING, SAVED, Task, Work
from opgraph.record.graph import Collective, Graph, Kernel, Node
from opgraph.record.kinds import CollectiveKind


def kernel(node: int, name: str = "aten.mm") -> Work:
    return Work(node, Task(name, "matmul", "float32", 1, 0, 0, ()))


def exchange(node: int, group: str = "", kind: CollectiveKind = CollectiveKind.ALL_GATHER) -> Work:
    each = Collective(kind, 1, 4, group=group)
    return Work(node, Task("c10d", "collective", "", 0, 0, 0, (), collective=each))


def test_a_kernel_waits_for_what_it_reads() -> None:
    """Gathered from 0 to 3, beside a kernel from 0 to 1; what reads it runs from 3 to 5."""
    works = [exchange(1), kernel(2), kernel(3)]
    adds, found, slots = overlapped(works, [3, 1, 2], {3: (1,)})
    assert adds == [2, 1, 2]
    assert (found.seconds, found.exposed) == (3, 2)
    assert [(s.node, s.queue, s.begin, s.end) for s in slots] == [
        (1, "group of 4", 0, 3), (2, KERNELS, 0, 1), (1, WAITING, 1, 3), (3, KERNELS, 3, 5),
    ]  # fmt: skip


def test_a_view_does_not_wait_but_what_reads_it_does() -> None:
    works = [exchange(1), Work(2, NOTHING), kernel(3), kernel(4)]
    adds, *_ = overlapped(works, [3, 0, 2, 2], {2: (1,), 4: (2,)})
    assert adds == [1, 0, 2, 2]


def test_a_kernel_waits_through_what_runs_nothing() -> None:
    """A wait for the exchange and a view of a backward are no work: what reads them runs after it."""
    works = [exchange(1), kernel(4), kernel(5)]
    adds, *_ = overlapped(works, [3, 2, 2], {2: (1,), 3: (2,), 5: (3,)})
    assert adds == [1, 2, 2]
    # What FSDP reduces is added up in a queue of its own, and waited for by the optimizer alone.
    task = replace(exchange(1, kind=CollectiveKind.REDUCE_SCATTER).task, kernel="c10d.scattered")
    reduced = [Work(1, task), *works[1:]]
    adds, *_ = overlapped(reduced, [9, 2, 2], {2: (1,), 3: (2,), 5: (3,)})
    assert adds == [5, 2, 2]


def test_a_group_is_a_queue_and_another_group_another() -> None:
    one, *_ = overlapped([exchange(1), exchange(2)], [3, 2], {})
    two, *_ = overlapped([exchange(1, "dp"), exchange(2, "tp")], [3, 2], {})
    assert (sum(one), sum(two)) == (5, 3)


def test_weights_are_converted_and_packed_beside_the_kernels() -> None:
    """A kernel from 0 to 5; converted from 0 to 1, packed from 1 to 2, gathered from 2 to 4. A copy that
    nothing packs is a kernel."""
    copied = "aten._foreach_copy_"
    works = [kernel(1), kernel(2, copied), kernel(3, PACKED), exchange(4), kernel(5, copied)]
    adds, found, slots = overlapped(works, [5, 1, 1, 2, 1], {3: (2,), 4: (3,), 5: (4,)})
    assert (sum(adds), found.exposed) == (6, 0)
    assert [s.queue for s in slots] == [KERNELS, PACKING, PACKING, "group of 4", KERNELS]


def test_what_ends_last_is_exposed() -> None:
    """A kernel from 0 to 1, and from 1 to 5 its gradients are reduced, beside a kernel from 1 to 2."""
    works = [kernel(1), exchange(2, kind=CollectiveKind.REDUCE_SCATTER), kernel(3)]
    adds, found, _ = overlapped(works, [1, 4, 1], {2: (1,)})
    assert adds == [1, 3, 1]
    assert found.hidden == 0.25


def test_gradients_are_packed_when_those_before_are_reduced() -> None:
    """Reduced from 1 to 5; packed from 5 to 6, though nothing of that is read."""
    works = [
        kernel(1),
        exchange(2, kind=CollectiveKind.REDUCE_SCATTER),
        kernel(3, "fsdp.chunk_cat"),
    ]
    adds, *_ = overlapped(works, [1, 4, 1], {2: (1,)})
    assert adds == [1, 4, 1]


def test_a_wait_is_shared_out_over_the_queues_that_are_busy() -> None:
    """A kernel from 0 to 1; a shard goes to the device from 0 to 4, is packed until 5, and gathered until
    7, for which a kernel waits from 1 to 7."""
    up = exchange(2, kind=CollectiveKind.UPLOAD)
    works = [kernel(1), up, kernel(3, PACKED), exchange(4), kernel(5)]
    adds, found, slots = overlapped(works, [1, 4, 1, 2, 1], {3: (2,), 4: (3,), 5: (4,)})
    assert adds == [1, 3, 1, 2, 1]
    assert (found.seconds, found.exposed) == (6, 5)
    waits = [(s.node, s.begin, s.end) for s in slots if s.queue == WAITING]
    assert waits == [(2, 1, 4), (3, 4, 5), (4, 5, 7)]


Runs = list[tuple[str | CollectiveKind, str, int, list[int]]]
"""What is run, in which group, for how long, and which of those before it reads."""


@st.composite
def runs(draw: st.DrawFn) -> Runs:
    names = [
        "aten.mm", "aten.mm", "", PACKED, "aten._foreach_copy_",
        "fsdp.split_with_sizes_copy", "fsdp.chunk_cat", *CollectiveKind,
    ]  # fmt: skip
    return [
        (
            draw(st.sampled_from(names)),
            draw(st.sampled_from(("", "dp", "tp", SAVED))),
            draw(st.integers(0, 9)),
            draw(st.lists(st.integers(1, node - 1), max_size=3, unique=True)) if node > 1 else [],
        )
        for node in range(1, draw(st.integers(2, 14)))
    ]


@tried(200)
@given(runs())
def test_no_queue_holds_up_kernels_longer_than_it_runs(found: Runs) -> None:
    """Whatever is run: a wait is for what runs at that time, and all that is waited for and run is the
    whole time."""
    works = [
        exchange(node, group, name)
        if isinstance(name, CollectiveKind)
        else Work(node, NOTHING)
        if not name
        else kernel(node, name)
        for node, (name, group, *_) in enumerate(found, start=1)
    ]
    taken = [float(seconds) if name else 0.0 for name, _, seconds, _ in found]
    made_by = {node: tuple(read) for node, (*_, read) in enumerate(found, start=1)}
    adds, all_, slots = overlapped(works, taken, made_by)
    assert all(0 <= a <= t for a, t in zip(adds, taken, strict=True))
    end = max((s.end for s in slots), default=0)
    assert sum(adds) == end
    waits = [s for s in slots if s.queue == WAITING]
    saved = [w.node for w in works if w.task.collective and not w.task.beside]
    beside = [s for s in slots if s.queue not in (KERNELS, WAITING) and s.node not in saved]
    for wait in waits:
        (its,) = (s for s in beside if s.node == wait.node)
        assert its.begin <= wait.begin < wait.end <= its.end
    idle = sum(s.end - s.begin for s in waits)
    busy = sum(s.end - s.begin for s in slots if s not in beside and s not in waits)
    assert idle + busy == end
    assert all_.exposed <= all_.seconds


def test_the_optimizer_begins_when_all_gradients_are_reduced() -> None:
    """Whichever it goes over first: here it reads nothing of what is reduced."""
    each = Collective(CollectiveKind.ALL_REDUCE, 8, 2)
    sent = Kernel("c10d.allreduce_", "collective", 0, 0, 0, 0, "zero", collective=each)
    nodes = (
        Node(1, "call", "all_reduce", "a", kernels=(sent,), phase="backward"),
        Node(2, "call", "adamw", "b", phase="optimizer"),
        Node(3, "call", "adamw", "c", phase="optimizer"),
    )
    assert sources(Graph(nodes, (), ())) == {1: (), 2: (1,), 3: ()}
