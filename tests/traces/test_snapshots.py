"""Snapshots of torch's caching allocator, written as torch writes them, and what is no such thing."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA

from opgraph.analysis.costed import costed
from opgraph.analysis.memory import memory
from opgraph.record.errors import ProfileError
from opgraph.record.graph import Graph
from opgraph.record.loading import load
from opgraph.traces import join, read

BLOCK = 512


def snapshot(graph: Graph, *, stacks: bool = True) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot` gives of a run of a graph, recorded once its weights and inputs
    are there: blocks of 512 bytes that are asked for and given back in the order of the graph's kernels."""
    kernels = [k for n in graph.nodes for k in n.kernels]
    kept = [p.bytes for p in graph.parameters]
    kept += [s.bytes for s in graph.storages if graph.was_there(s)]
    blocks, entries, address = [], [], 1 << 32

    def block(size: int) -> dict[str, Any]:
        nonlocal address
        found = {"address": address, "size": -(-size // BLOCK) * BLOCK, "requested_size": size,
                 "state": "active_allocated", "frames": []}  # fmt: skip
        address += found["size"]
        return found

    blocks += [block(size) for size in kept]
    live: dict[int, dict[str, Any]] = {}
    for at, kernel in enumerate(kernels):
        for i, storage in enumerate(graph.storages):
            if storage.died == at and i in live:
                gone = live.pop(i)
                gone["state"] = "inactive"
                for action in ("free_requested", "free_completed"):
                    entries.append(entry(action, gone, len(entries), []))
        for i, storage in enumerate(graph.storages):
            if storage.born == at and storage.bytes and not graph.was_there(storage):
                live[i] = block(storage.bytes)
                blocks.append(live[i])
                name = kernel.op.removeprefix("aten.").replace(".", "_")
                names = ["c10::cuda::malloc", f"at::_ops::{name}_Tensor::call(at::Tensor const&)"]
                entries.append(entry("alloc", live[i], len(entries), names if stacks else []))
    segment = {
        "device": 0, "address": 1 << 32, "total_size": address - (1 << 32), "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "requested_size": sum(b["requested_size"] for b in blocks), "blocks": blocks,
    }  # fmt: skip
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
    return {"segments": [segment], "device_traces": [entries, []], "allocator_settings": settings,
            "external_annotations": []}  # fmt: skip


def entry(action: str, block: dict[str, Any], at: int, names: list[str]) -> dict[str, Any]:
    frames = [{"name": name, "filename": "??", "line": 0} for name in names]
    return {"action": action, "addr": block["address"], "size": block["requested_size"], "stream": 0,
            "time_us": 1_748_729_391_819_440 + at, "frames": frames}  # fmt: skip


def written(path: Path, data: object) -> Path:
    path.write_bytes(pickle.dumps(data))
    return path


@pytest.mark.parametrize("stacks", [True, False])
def test_a_snapshot_of_a_run_is_the_traced_memory(tmp_path: Path, stacks: bool) -> None:
    profile = load(DATA / "bert-base-uncased.json")
    graph = profile.graph
    path = written(tmp_path / "snapshot.pickle", snapshot(graph, stacks=stacks))
    run = join(graph, read(path))
    assert (run.source, run.profiled, run.attributed) == ("torch.cuda.memory", (), 0.0)
    found = costed(replace(profile, measured=run), "h100-sxm").named_measurement().allocated
    assert found is not None
    assert found.measured == found.traced == memory(graph, before=False).peak
    assert found.before == found.traced_before
    assert found.node == found.traced_node
    if stacks:  # by sizes alone some of one size may be another's
        assert {row.difference for row in found.alive} == {0}
    assert sum(row.difference for row in found.alive) == 0


@pytest.mark.live
def test_torch_itself_draws_what_the_test_writes(tmp_path: Path) -> None:
    from torch.cuda import _memory_viz

    data = snapshot(load(DATA / "resnet18.json").graph)
    assert "segments: 1" in _memory_viz.segsum(data)
    assert "<html>" in _memory_viz.trace_plot(data).lower()


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def test_what_is_no_snapshot_is_refused_and_nothing_in_it_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = snapshot(load(DATA / "resnet18.json").graph)
    entries = whole["device_traces"][0]
    for data, why in [
        (Evil(), "wants posix.system"),
        ({**whole, "allocator_settings": Evil()}, "wants posix.system"),
        ([1, 2], "not a snapshot"),
        ({"segments": [], "device_traces": [[]]}, "has no allocation"),
        (
            {**whole, "device_traces": [[{**entries[0], "size": "large"}]]},
            "no time, address or size",
        ),
        ({**whole, "device_traces": [[{**entries[0], "addr": -1}]]}, "no time, address or size"),
        ({**whole, "segments": 7}, "not a snapshot"),
        (
            {"segments": [], "device_traces": [[entries[0]] * 2000] * 2000},
            "more entries than bytes",
        ),
    ]:
        with pytest.raises(ProfileError, match=why):
            read(written(tmp_path / "a.pickle", data))
    cut = pickle.dumps(whole)
    (tmp_path / "cut.pickle").write_bytes(cut[: len(cut) // 2])
    with pytest.raises(ProfileError, match="is broken"):
        read(tmp_path / "cut.pickle")
    assert not (tmp_path / "evil").exists()
