"""Files that are traces, cut-off ones, other profilers' and such as are none."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing

import pytest
from tests.traces.conftest import DATA

from opgraph.record.errors import ProfileError
from opgraph.traces import join, read, reading

BERT = DATA / "tracelens" / "bert-h100.json.gz"


@pytest.fixture(scope="module")
def whole():
    return read(BERT)[0]


@pytest.fixture(scope="module")
def data():
    found = json.loads(gzip.decompress(BERT.read_bytes()))
    found["traceEvents"][3]["args"]["odd"] = [{"a": "}, {"}, {"b": '"}, {"'}]
    found["after"] = found.pop("deviceProperties")  # what follows the events is read, too
    found["deviceProperties"] = found.pop("after")
    return found


def rows(trace):
    return len(trace.calls), len(trace.launches), len(trace.work), trace.device_name, trace.rank


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("piece", [97, 5_000, 2**23])
def test_a_trace_is_read_the_same_in_any_pieces(tmp_path, monkeypatch, whole, data, piece, indent):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(data, indent=indent))
    monkeypatch.setattr(reading, "_PIECE", piece)
    found = read(path)[0]
    assert rows(found) == rows(whole)
    assert found.work == whole.work


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(json.loads(gzip.decompress(BERT.read_bytes()))["traceEvents"]))
    assert rows(read(path)[0])[:3] == rows(read(BERT)[0])[:3]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_what_is_cut_off_is_read_up_to_there(graph, tmp_path, zipped, share):
    text = BERT.read_bytes() if zipped else gzip.decompress(BERT.read_bytes())
    path = tmp_path / "trace.json"
    path.write_bytes(text[: int(len(text) * share)])
    (trace,) = read(path)
    assert trace.cut
    assert 0 < len(trace.calls) <= len(read(BERT)[0].calls)
    assert (
        "the trace is cut off: what came after is not in it" in join(graph("bert"), [trace]).notes
    )


KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "tid": 7}


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{}", b"null", b"[1, 2]", b"not json", b'{"traceEvents": 3}', b'{"traceEvents": {}}',
        b"\x1f\x8b", b"\x1f\x8b" + bytes(40), b"SQLite format 3\0" + bytes(200), b'{"traceEvents": [}',
        b'{"traceEvents": [' + b"[" * 5000, b'{"traceEvents": [{"ph": ' + b"[" * 100_000,
        json.dumps({"traceEvents": [KERNEL | {"name": 3}]}).encode(),
        json.dumps({"traceEvents": [KERNEL | {"ts": "soon"}]}).encode(),
        json.dumps({"traceEvents": [KERNEL | {"ts": 1e400}]}).encode(),
        json.dumps({"traceEvents": [KERNEL | {"args": {"correlation": "x"}}]}).encode(),
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "\xff"}]}',
        b"PK\x03\x04" + bytes(100),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_one_error(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    with pytest.raises(ProfileError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"dur": -5}, {"ts": -1e300}, {"dur": 1e300}, {"ts": 1e300}, {"args": {"stream": "x"}}, {"tid": "a"},
        {"args": {"stream": 10**18, "correlation": -1}}, {"tid": 1.5}, {"args": {"Input Dims": {"a": [1]}}},
        {"cat": "cpu_op", "args": {"Input Dims": {"a": [1]}}},
        {"cat": "cpu_op", "args": {"Input Dims": [[[[]]]]}},
        {"name": "opgraph:node:99999999999,x", "cat": "cpu_op"}, {"name": "opgraph:step:", "cat": "cpu_op"},
        {"cat": "cuda_runtime"}, {"name": "ProfilerStep#1", "cat": "user_annotation", "dur": 0},
    ],
)  # fmt: skip
def test_odd_events_break_nothing(graph, tmp_path, change):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [KERNEL, KERNEL | change]}))
    try:
        run = join(graph("toy"), read(path))
    except ProfileError:
        return
    assert run.attributed == 0.0


def test_a_folder_needs_traces_of_different_ranks(tmp_path):
    with pytest.raises(ProfileError, match="has no trace"):
        read(tmp_path)
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "ts": 1, "dur": 2}
    for name, events in (("a.json", [event]), ("b.json", [event]), ("c.json", [])):
        (tmp_path / name).write_text(
            json.dumps({"traceEvents": events, "distributedInfo": {"rank": 3}})
        )
    with pytest.raises(ProfileError, match="no event in it is whole"):
        read(tmp_path / "c.json")
    (tmp_path / "c.json").unlink()
    with pytest.raises(ProfileError, match="two traces of one rank"):
        read(tmp_path)
    with pytest.raises(ProfileError, match="cannot read"):
        read(tmp_path / "none")


def exported(path, trace, processes=(0,)):
    """The same run as Nsight Systems would export it, under `emit_nvtx(record_shapes=True)`: of several
    processes, each on a device of its own, with the same numbers of launches."""
    texts = {name: i for i, name in enumerate(dict.fromkeys(
        [w.name for w in trace.work] + [x.name for x in trace.launches.values()]))}  # fmt: skip
    base = min(c.start for c in trace.calls)

    def ns(at):
        return round((at - base) * 1e3)

    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT)")
        db.execute("CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INT, name TEXT, label TEXT)")
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, streamId INT, "
                   "globalPid INT, deviceId INT, correlationId INT, demangledName INT, "
                   "shortName INT)")  # fmt: skip
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, streamId INT, "
                   "globalPid INT, deviceId INT, correlationId INT, copyKind INT)")  # fmt: skip
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, "
                   "correlationId INT, nameId INT)")  # fmt: skip
        db.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, globalTid INT, text TEXT, textId INT, "
                   "eventType INT)")  # fmt: skip
        db.execute("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (8, 'DTOD', 'Device-to-Device')")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in texts.items()])
        for device, process in enumerate(processes):
            whose = process << 24
            db.execute("INSERT INTO TARGET_INFO_GPU VALUES (?, 'NVIDIA H100')", (device,))
            for w in trace.work:
                row = (ns(w.start), ns(w.start) + round(w.seconds * 1e9), w.stream, whose, device,
                       w.correlation)  # fmt: skip
                if w.kind == "kernel":
                    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                               (*row, texts[w.name], texts[w.name]))  # fmt: skip
                else:
                    db.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, 8)", row
                    )
            for number, x in trace.launches.items():
                db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
                           (ns(x.start), ns(x.end), whose | 1, number, texts[x.name]))  # fmt: skip
            for i, c in enumerate(trace.calls):
                sizes = (
                    ""
                    if c.shapes is None
                    else f", sizes = {json.dumps([list(s) for s in c.shapes])}"
                )
                text = f"{c.name}, op_id = {i + 1}{sizes}" if c.kind == "operator" else c.name
                if c.kind != "module":
                    db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, 59)",
                               (ns(c.start), ns(c.end), whose | 1, text))  # fmt: skip


def test_devices_of_several_processes_are_ranks_of_their_own(graph, tmp_path):
    """As two processes under one `nsys profile` are: both count their launches from one."""
    (trace,) = read(BERT)
    path = tmp_path / "report.sqlite"
    exported(path, trace, (16777301, 16777302))
    found = read(path)
    assert [(t.rank, len(t.work), len(t.calls)) for t in found] == [
        (i, len(trace.work), sum(c.kind != "module" for c in trace.calls)) for i in (0, 1)
    ]
    run = join(graph("bert"), found)
    assert (run.ranks, run.attributed) == (2, 1.0)


def test_nsight_systems_leads_to_the_same_nodes(graph, tmp_path):
    (trace,) = read(BERT)
    path = tmp_path / "report.sqlite"
    exported(path, trace)
    (ours,) = read(path)
    assert (ours.source, ours.device_name) == ("Nsight Systems", "NVIDIA H100")
    first, second = (join(graph("bert"), [t]) for t in (trace, ours))

    def found(run):
        rows = (e for e in run.events if e.kind == "kernel")
        return sorted((e.name, e.nodes, e.count, round(e.seconds * 1e9)) for e in rows)

    assert second.attributed == first.attributed == 1.0
    assert found(first) == found(second)
