"""Invented traces of a graph, spoilt at random: the time on nodes and the time on none is always the time
in the trace, every row is one of the graph's nodes, and nothing raises."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraph.record.errors import ProfileError
from opgraph.record.run import DEVICE_KINDS
from opgraph.traces import join, read


def invented(graph, rng, runs=2):
    """What a device might have done for a graph: each kernel that does work, launched by its operator."""
    events, at, number = [], 1000.0, 0
    for run in range(runs):
        begun = at
        for node in graph.nodes:
            for kernel in (k for k in node.kernels if k.cost != "zero"):
                number += 1
                took = rng.uniform(1, 50)
                dims = [list(s) for s in kernel.shapes] + [[]]
                name = kernel.op.replace("aten.", "aten::")
                events += [
                    {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": at, "dur": 8,
                     "args": {"External id": number, "Input Dims": dims}},
                    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": at + 2,
                     "dur": 3, "args": {"External id": number, "correlation": number}},
                    {"ph": "X", "cat": "kernel", "name": f"void kernel<{name}>", "tid": 7, "ts": at + 6,
                     "dur": took, "args": {"External id": number, "correlation": number, "stream": 7}},
                ]  # fmt: skip
                at += max(10, took)
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{run}", "tid": 1,
                       "ts": begun - 1, "dur": at - begun})  # fmt: skip
        at += 5
    return events


def test_an_untouched_trace_is_on_its_nodes(graph, tmp_path):
    found = graph("alexnet")
    events = invented(found, random.Random(0))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    run = join(found, read(path))
    assert (run.steps, run.attributed, run.partial, run.notes) == (2, 1.0, (), ())
    works = [n.id for n in found.nodes if any(k.cost != "zero" for k in n.kernels)]
    assert sorted({e.nodes[0] for e in run.events if e.kind == "kernel"}) == works


NAMES = ["aten::mm", "x", "", "opgraph:node:2", "autograd::engine::evaluate_function: X"]
SPOIL = [
    "drop",
    "rename",
    "stream",
    "shapes",
    "launch",
    "shuffle",
    "external",
    "thread",
    "time",
    "steps",
]


@pytest.mark.parametrize("name", ["alexnet", "toy"])
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    spoils=st.lists(st.sampled_from(SPOIL), max_size=4),
    share=st.floats(0, 1),
    kept=st.floats(0.05, 1),
)
def test_no_time_is_lost_or_made(graph, tmp_path_factory, name, seed, spoils, share, kept):
    rng, found = random.Random(seed), graph(name)
    events = invented(found, rng, runs=rng.randint(1, 3))
    for spoil in spoils:
        if spoil == "shuffle":
            rng.shuffle(events)
        for event in [e for e in events if rng.random() < share]:
            args = event.setdefault("args", {})
            if spoil == "drop":
                events.remove(event)
            elif spoil == "rename":
                event["name"] = rng.choice(
                    [
                        "aten::mm",
                        "x",
                        "",
                        "opgraph:node:2",
                        "autograd::engine::evaluate_function: X",
                    ]
                )
            elif spoil == "stream":
                args["stream"] = rng.randint(0, 3)
            elif spoil == "shapes":
                args["Input Dims"] = rng.choice([[], [[1]], [[2, 3], [3, 4]]])
            elif spoil == "launch":
                args.pop("correlation", None)
            elif spoil == "external":
                args["External id"] = rng.randint(0, 5)
            elif spoil == "thread":
                event["tid"] = rng.randint(0, 2)
            elif spoil == "time":
                event["ts"] += rng.uniform(-100, 100)
            elif event["name"].startswith("ProfilerStep"):
                events.remove(event)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    text = json.dumps({"traceEvents": events})
    path.write_text(text[: int(len(text) * kept)] if kept < 0.9 else text)
    try:
        (trace,) = read(path)
    except ProfileError:
        assert kept < 0.9 or not events
        return
    run = join(found, [trace])
    rows = [e for e in (*run.events, *run.partial) if e.kind in DEVICE_KINDS]
    assert sum(e.seconds for e in rows) == pytest.approx(sum(w.seconds for w in trace.work))
    assert sum(e.count for e in rows) == len(trace.work)
    ids = {n.id for n in found.nodes}
    assert all(set(e.nodes) <= ids and bool(e.nodes) == bool(e.link) for e in rows)
    assert 0 <= run.attributed <= 1 + 1e-9
    assert all(s >= 0 for s in run.profiled)
    assert all(0 <= piece.event < len(run.events) for piece in run.timeline)
