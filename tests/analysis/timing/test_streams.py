"""What ranks exchange beside the kernels, on timelines worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from opgraph.analysis.timing.streams import (
    KERNELS,
    PACKED,
    PACKING,
    WAITING,
    overlapped,
    sources,
)
from opgraph.analysis.timing.workload import NOTHING, Task, Work
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
