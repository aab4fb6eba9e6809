"""Traces of real devices, by others (AMD-AGI/TraceLens, facebookresearch/HolisticTraceAnalysis; both MIT,
cut down to what a join reads), on the graphs of their models; and what marks of our own say."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache

import msgspec
import pytest
from tests.traces.conftest import DATA

import opgraph
from opgraph.analysis.measured.times import idle, overlap
from opgraph.record.run import DEVICE_KINDS, RunRecord
from opgraph.record.schema import RunFile, decode_run, encode_run
from opgraph.traces import join, read
from opgraph.traces.events import Launch, Trace, Work

MODELS = [f"{model}-{device}" for model in ("bert", "vit", "qwen") for device in ("h100", "mi300")]


@pytest.fixture(scope="module")
def tables():
    """TraceLens' own tables: the kernels of each trace, and the time of its device, in microseconds."""
    kernels: dict[str, dict[tuple[str, str], tuple[float, int]]] = defaultdict(dict)
    device: dict[str, dict[str, float]] = defaultdict(dict)
    text = gzip.decompress((DATA / "tracelens" / "kernels.csv.gz").read_bytes()).decode()
    for row in csv.DictReader(io.StringIO(text)):
        if row["host"] == "gpu_timeline":
            device[row["trace"]][row["kernel"]] = float(row["microseconds"])
        else:
            key = (row["host"], row["kernel"])
            kernels[row["trace"]][key] = (float(row["microseconds"]), int(row["count"]))
    return kernels, device


@pytest.fixture(scope="module")
def joined(graph):
    """The traces of TraceLens on their graphs, each joined once."""

    @cache
    def of(name: str) -> RunRecord:
        return join(graph(name.partition("-")[0]), read(DATA / "tracelens" / f"{name}.json.gz"))

    return of


@pytest.mark.parametrize("name", MODELS)
def test_kernels_stand_on_nodes_and_add_up_to_the_tables_of_others(joined, tables, name):
    run = joined(name)
    kernels, device = tables[0][name], tables[1][name]
    assert run.steps == run.ranks == 1

    strict = sum(e.seconds for e in run.events if run.works(e) and e.link == "alignment")
    assert strict / run.work > 0.9998
    for event in run.events:  # what is aligned is the same operator on the same shapes
        assert (event.link == "") == (event.nodes == ())

    ours: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for event in (*run.events, *run.partial):
        if event.kind == "kernel":  # their tables are without copies and fillings
            row = ours[event.host, event.name]
            row[0] += event.seconds * 1e6
            row[1] += event.count
    theirs = {key: row for key, row in kernels.items() if not key[1].startswith("Memcpy")}
    assert {key: row[1] for key, row in ours.items()} == {
        key: row[1] for key, row in theirs.items()
    }
    for key, (took, _) in theirs.items():
        assert ours[key][0] == pytest.approx(took, rel=1e-6, abs=1e-3)

    assert idle(run).seconds * 1e6 == pytest.approx(device["idle_time"], abs=0.6)
    assert run.work * 1e6 == pytest.approx(device["busy_time"], rel=1e-4, abs=0.6)


def test_a_step_that_was_cut_off_is_in_no_sum(graph, joined):
    """The H100 was still busy with the step before when recording began: its 509 kernels have no launch in
    the trace. They are the last 509 kernels of a step, in the same order."""
    nodes = graph("qwen").nodes
    run = joined("qwen-h100")
    cut = [e for e in run.partial if e.kind in DEVICE_KINDS]
    assert sum(e.count for e in cut) == 509
    assert {e.link for e in cut} == {"repeat"}
    assert sum(e.seconds for e in cut) == pytest.approx(0.0137418, abs=1e-7)
    assert (
        decode_run(msgspec.json.decode(json.dumps(encode_run(run)), type=RunFile), len(nodes))
        == run
    )
    whole = {(e.name, e.nodes): e.seconds / e.count for e in run.events if e.kind in DEVICE_KINDS}
    for event in cut:
        assert whole[event.name, event.nodes] > 0
    assert max(nodes[e.nodes[0] - 1].id for e in cut) == max(
        nodes[e.nodes[0] - 1].id for e in run.events if e.nodes and e.kind in DEVICE_KINDS
    )


@pytest.mark.slow
def test_mfu_is_what_a_hand_computes(graph, joined):
    """24 layers of width 1,024 with 2,816 between, 16 sequences of 559 tokens, on 989.4 TFLOP/s."""
    tokens, width, inner, layers = 16 * 559, 1024, 2816, 24
    products = layers * 2 * tokens * (4 * width * width + 3 * width * inner)
    attention = layers * 4 * 16 * 559 * 559 * width
    with gzip.open(DATA / "tracelens" / "qwen-h100.json.gz") as file:
        events = json.load(file)["traceEvents"]
    launches = {e["args"]["correlation"] for e in events if e["cat"].startswith("cuda_")}
    kernels = sorted((e for e in events if e["cat"] == "kernel"), key=lambda e: e["ts"])
    lost = [e for e in kernels if e["args"]["correlation"] not in launches]
    seconds = (kernels[-1]["ts"] + kernels[-1]["dur"] - lost[-1]["ts"] - lost[-1]["dur"]) * 1e-6
    by_hand = (products + attention) / seconds / 989.4e12

    run = joined("qwen-h100")
    flops = sum(n.flops for n in graph("qwen").nodes)
    assert flops / run.seconds / 989.4e12 == pytest.approx(by_hand, rel=0.01)
    assert by_hand == pytest.approx(0.1727, abs=0.0005)


def test_a_compiled_kernel_is_all_nodes_it_was_made_from(graph):
    found = graph("block")
    run = join(found, read(DATA / "tracelens" / "block-compiled-mi300.json.gz"))
    assert run.attributed == 1.0
    fused = {
        e.name: [found.node(n).op for n in e.nodes]
        for e in run.events
        if e.link == "fusion" and e.kind == "kernel"
    }
    norm = ["pow", "mean", "add", "rsqrt", "mul", "mul"]
    assert fused == {
        "triton_red_fused_add_mean_mul_pow_rsqrt_0": norm,
        "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1": ["add", *norm],
        "triton_poi_fused__unsafe_view_mul_silu_2": ["silu", "mul"],
        "triton_poi_fused__unsafe_view_add_3": ["add"],
    }
    aligned = {e.nodes for e in run.events if e.link == "alignment" and e.kind == "kernel"}
    assert {found.node(n).scope for (n,) in aligned} == {
        "",
        "q",
        "k",
        "v",
        "o",
        "gate",
        "up",
        "down",
    }


def test_a_trace_without_shapes_is_joined_by_names_alone_and_says_so(graph):
    """AlexNet, run twice on an A100; what copied its weights there before belongs to no run."""
    run = join(graph("alexnet"), read(DATA / "hta" / "alexnet-a100.json.gz"))
    assert (run.steps, run.device_name, run.attributed) == (2, "NVIDIA A100-PG509-200", 1.0)
    assert {e.link for e in run.events if run.works(e)} == {"names"}
    assert {e.name.partition(" ")[0] for e in run.partial if e.kind == "copy"} == {"Memcpy"}


def test_a_step_of_training(graph):
    """Linear, ReLU and a mean squared error with SGD on an MI250, gradients added to those of the step
    before. The batch and what it is compared with come from the host: copies of what the graph is given."""
    found = graph("toy")
    run = join(found, read(DATA / "hta" / "toy-train-mi250.json.gz"))
    hosts = {}
    for event in (e for e in run.events if run.works(e)):
        hosts.setdefault(event.host, []).extend(found.node(n) for n in event.nodes)
    for host, ops, phase in [
        ("aten::copy_", ["input", "zeros"], "forward"),
        ("aten::addmm", ["linear", "linear"], "forward"),
        ("aten::mm", ["mm"], "backward"),
        ("aten::threshold_backward", ["threshold_backward"], "backward"),
        ("aten::add_", ["add", "add"], "backward"),
        ("aten::_foreach_add_", ["sgd"], "optimizer"),
    ]:
        assert [(n.op, n.phase) for n in hosts[host]] == [(op, phase) for op in ops], host
    assert run.attributed == 1


def test_a_copy_of_an_operand_is_its_readers_where_the_graph_does_not_make_it(graph):
    """transformers 4.49 copies queries, keys and values for attention, and newer ones do not: without these
    nodes in the graph the copies are still attention's, whose operands are not contiguous."""
    found = graph("qwen")
    attention = [n for n in found.nodes if n.op == "scaled_dot_product_attention"]
    copies = {found.producer[v].id: found.producer[v] for n in attention for v in n.inputs}
    read_by = {v: n.inputs[0] for n in copies.values() for v in n.outputs}
    newer = replace(
        found,
        nodes=tuple(
            replace(n, kernels=(), kind="constant", inputs=(), outputs=())
            if n.id in copies
            else replace(n, inputs=tuple(read_by.get(v, v) for v in n.inputs))
            for n in found.nodes
        ),
    )
    run = join(newer, read(DATA / "tracelens" / "qwen-h100.json.gz"))
    moved = [e for e in run.events if run.works(e) and e.link == "operand"]
    readers = {n.id for n in attention}
    assert sum(e.count for e in moved if e.nodes[0] in readers) == len(copies) == 72
    assert run.attributed > 0.999


def test_a_folder_is_one_run_of_several_ranks(graph):
    traces = read(DATA / "hta" / "ranks")
    run = join(graph("toy"), traces)
    assert [t.rank for t in traces] == [0, 1]
    assert run.ranks == 2
    assert run.notes == ("what is in the trace is not this graph: is it the same model and sizes?",)
    assert run.attributed == 0.0
    (clock,) = run.clocks
    (exchange,) = run.exchanges  # ten collectives of two of 128 ranks, whose ends are far apart
    assert (clock.rank, clock.ahead, clock.count) == (1, 0.0, 10)
    assert clock.spread == pytest.approx(0.0272, rel=0.01)
    assert (exchange.count, exchange.last) == (10, 1)
    assert {s.rank for s in run.timeline} == {0, 1}
    moved = overlap(run)
    assert 0 < moved.exposed < moved.seconds
    assert run.work == pytest.approx(sum(w.seconds for t in traces for w in t.work) / 2)


def test_ranks_are_set_on_one_clock_by_the_ends_of_their_collectives(graph):
    """Twelve all-reduces of 2 ms, and as many of 1: rank 2 comes to each 3 ms after the first, rank 1 one.
    Rank 1's clock is 5 s ahead and its trace begins one collective sooner; rank 2's is 7 ms behind."""

    def trace(rank, late, clock, first):
        work = []
        for i in range(first, 24):
            name, took = (("gather", 1e3), ("reduce", 2e3))[i % 2]
            at = 1e6 + 2e4 * i + 500 * (i * i % 7)
            begin, end = at + late, at + 3e3 + took  # once the last is there
            work.append(Work("ncclKernel", begin + clock, (end - begin) * 1e-6, 7, "communication",
                             exchange=name))  # fmt: skip
        return Trace(rank, "cuda", work=work)

    traces = [trace(0, 0, 0, 0), trace(1, 1e3, 5e6, -1), trace(2, 3e3, -7e3, 0)]
    run = join(graph("toy"), traces)
    assert [(c.rank, c.ahead, c.count) for c in run.clocks] == [
        (1, pytest.approx(5), 24), (2, pytest.approx(-0.007), 24)
    ]  # fmt: skip
    assert max(c.spread for c in run.clocks) < 1e-9
    rows = {e.name: (e.count, e.seconds, e.waiting, e.last, e.times) for e in run.exchanges}
    waits = pytest.approx(12 * (3e-3 + 2e-3 + 0) / 3)
    assert rows == {
        "gather": (12, pytest.approx(12e-3), waits, 2, 12),
        "reduce": (12, pytest.approx(24e-3), waits, 2, 12),
    }
    begun = {s.rank: s.start for s in reversed(run.timeline)}
    assert begun[2] - begun[0] == pytest.approx(3e-3)
    for other in traces:
        other.host = "one"  # then there is one clock, whatever the ends say
    assert [c.ahead for c in join(graph("toy"), traces).clocks] == [0, 0]


def test_the_same_trace_on_another_graph_gives_no_node(graph):
    run = join(graph("vit"), read(DATA / "tracelens" / "bert-h100.json.gz"))
    assert run.attributed < 0.02
    assert "not this graph" in run.notes[0] or Counter(e.link for e in run.events)[""] > 0
    one = replace(graph("vit"), nodes=graph("vit").nodes[:1])  # as of a forward that failed
    assert join(one, read(DATA / "tracelens" / "bert-h100.json.gz")).attributed == 0


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("shaped", [True, False])
def test_one_call_of_hundreds_of_kernels_is_a_node_of_many(tmp_path, shaped):
    torch = pytest.importorskip("torch")

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(8, 8, batch_first=True)
            self.head = torch.nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.gru(x)[0][:, -1].relu()).softmax(-1)

    model, x, path = Recurrent(), torch.ones(2, 40, 8), tmp_path / "trace.json"
    graph = opgraph.trace(model, x, target="cpu")
    with torch.no_grad(), torch.profiler.profile(record_shapes=shaped) as ran:
        model(x), model(x)
    ran.export_chrome_trace(str(path))
    run = join(graph, read(path))
    assert run.steps == 2
    assert run.attributed > 0.9


def test_marks_of_our_own_say_exactly_whose_time_it_is(graph, tmp_path):
    def call(name, start, took, thread=1):
        args = {"External id": int(start)}
        return {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "tid": thread,
            "ts": start,
            "dur": took,
            "args": args,
        }

    events = [
        call("opgraph:step:0", 0, 100),
        call("opgraph:node:2", 10, 30),
        call("aten::linear", 15, 20),
        call("aten::addmm", 20, 10),
        call("aten::detach", 42, 4),
        call("opgraph:node:3,5", 50, 10),
        call("aten::relu", 52, 5),
        call("aten::mm", 62, 16),  # of a backward, which a dispatch mode marks
        call("PythonDispatchMode", 64, 12),
        call("opgraph:node:4", 66, 8),
        call("aten::mm", 68, 4),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    run = join(graph("toy"), read(path))
    rows = {(e.name, e.nodes): round(e.seconds * 1e6, 6) for e in run.events}
    assert rows == {
        ("aten::addmm", (2,)): 10,
        ("aten::linear", (2,)): 10,
        ("aten::relu", (3, 5)): 5,
        ("aten::detach", ()): 4,
        ("aten::mm", (4,)): 4,
        ("python", (2,)): 20,  # 10 before the mark, and 10 in it
        ("python", (3, 5)): 11,  # what stands around an operator without a node is the next one's
        ("python", (4,)): 14,
        ("python", ()): 22,
    }
    assert sum(rows.values()) == 100
    assert run.profiled == (pytest.approx(100e-6),)


@pytest.mark.slow
def test_the_modules_in_the_trace_agree_with_every_alignment(graph):
    """These traces say in which module each operator ran (`Qwen2Attention_7` is the eighth of its class),
    which the alignment of operators does not look at: it puts every kernel into the same module."""
    checked = 0
    for name in MODELS:
        found = graph(name.partition("-")[0])
        path = DATA / "tracelens" / f"{name}.json.gz"
        numbered: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for node in found.nodes:
            at = node.scope
            above = [at, *(at[:i] for i in range(len(at) - 1, 0, -1) if at[i] == "."), ""]
            for scope in reversed(above):
                if scope not in numbered:
                    numbered[scope] = f"{(cls := found.scope[scope].cls)}_{counts[cls]}"
                    counts[cls] += 1
        (trace,) = read(path)
        modules = sorted((c for c in trace.calls if c.kind == "module"), key=lambda c: c.start)
        begun = {c.external: c.start for c in trace.calls if c.kind == "operator"}
        theirs: Counter[tuple[str, str]] = Counter()
        for work in (w for w in trace.work if w.external in begun):
            at = begun[work.external]
            inside = [c.name for c in modules if c.start <= at < c.end]
            theirs[work.name, inside[-1].replace("BertLMHeadModel", "BertForMaskedLM")] += 1
        ours: Counter[tuple[str, str]] = Counter()
        run = join(found, [trace])
        for event in (e for e in run.events if run.works(e)):
            if event.nodes:
                ours[event.name, numbered[found.node(event.nodes[0]).scope]] += event.count
        checked += ours.total()
        assert not ours - theirs
        assert (theirs - ours).total() == run_without(run)
    assert checked == 2685  # all


def run_without(run):
    return sum(e.count for e in run.events if run.works(e) and not e.nodes)


def bare(trace, *, replays=0):
    """The trace with its kernels and launches alone: no operator, no module, no number of one. With
    `replays` it is run so often again, launched at once as a CUDA graph."""
    begin, end = min(w.start for w in trace.work), max(w.start for w in trace.work) + 1000
    for again in range(1, replays + 1):
        number, later = 10**6 * again, (end - begin) * again
        at = min(x.start for x in trace.launches.values()) + later
        trace.launches[number] = Launch(at, at + 5, 1, None, "cudaGraphLaunch")
        trace.work += [Work(w.name, w.start + later, w.seconds, w.stream, w.kind, number)
                       for w in trace.work if w.start < end]  # fmt: skip
    if not replays:
        trace.calls.clear()
        for row in (*trace.work, *trace.launches.values()):
            row.external = None
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_kernels_without_operators_are_aligned_by_their_own_names(graph, name):
    found = graph(name.partition("-")[0])
    rows = []
    for trace in (read(DATA / "tracelens" / f"{name}.json.gz")[0], None):
        run = join(found, [trace or bare(read(DATA / "tracelens" / f"{name}.json.gz")[0])])
        kernels: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for event in (e for e in run.events if run.works(e)):
            kernels[event.name, event.nodes] += event.seconds
        rows.append(kernels)
    whole = rows[0].total()
    right = sum(min(s, rows[1][key]) for key, s in rows[0].items() if key[1])
    none = sum(s for key, s in rows[1].items() if not key[1])
    assert right / whole > 0.97
    assert 1 - (right + none) / whole < 0.002  # hardly any is on a wrong node


@pytest.mark.parametrize("eager", [True, False])
def test_each_launch_of_a_cuda_graph_is_a_run(graph, eager):
    (trace,) = read(DATA / "tracelens" / "bert-h100.json.gz")
    if not eager:  # recording began after the graph was captured
        bare(trace)
        trace.launches = {
            1: Launch(trace.work[0].start - 20, trace.work[0].start, 1, None, "cudaGraphLaunch")
        }
        for work in trace.work:
            work.correlation = 1
    else:
        trace.calls = [c for c in trace.calls if not c.name.startswith("ProfilerStep")]
    run = join(graph("bert"), [bare(trace, replays=2)])
    assert run.steps == 3
    assert run.attributed > 0.99
    assert run.work == pytest.approx(0.000309437)
