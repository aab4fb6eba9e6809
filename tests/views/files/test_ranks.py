"""What files and texts say of one rank: what it exchanges, with whom, after what, and when."""

from __future__ import annotations

import io
import json
from itertools import pairwise

import pytest

from opgraph.record.graph import Collective
from opgraph.record.kinds import CollectiveKind
from opgraph.views.files.chakra import COLLECTIVE, COMPUTE, _messages, group_ranks, to_chakra
from opgraph.views.files.trace import to_trace
from opgraph.views.page.data import page_data
from opgraph.views.terminal import draw
from opgraph.views.text.device import queues_over_time


@pytest.mark.parametrize(
    ("each", "rank", "found"),
    [
        (Collective(CollectiveKind.ALL_REDUCE, 1, 4, 1), 6, (4, 5, 6, 7)),
        (Collective(CollectiveKind.ALL_REDUCE, 1, 4, 8), 9, (1, 9, 17, 25)),
        (Collective(CollectiveKind.ALL_REDUCE, 1, 2, 8), 26, (18, 26)),
        (Collective(CollectiveKind.ALL_REDUCE, 1, 3, 0, "", (0, 1, 5)), 1, (0, 1, 5)),
    ],
)
def test_the_ranks_of_a_group(each: Collective, rank: int, found: tuple[int, ...]) -> None:
    assert group_ranks(each, rank) == found


@pytest.fixture(scope="module")
def rank():
    """Rank 2 of 4 that train a layer of 64 x 64 in float32, on an H100."""
    torch = pytest.importorskip("torch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import opgraph

    with opgraph.ranks(4, rank=2):
        with torch.device("meta"):
            model = torch.nn.Linear(64, 64, bias=False)
        sharded = fully_shard(model, mesh=init_device_mesh("cuda", (4,)))
        found = opgraph.profile(sharded, torch.zeros(8, 64), mode="train", loss="sum")
    return found.on("h100-sxm")


@pytest.mark.live
def test_a_rank_gathers_before_it_computes(rank) -> None:
    """Each gives 4,096 bytes of 16,384 to the gather."""
    pytest.importorskip("google.protobuf")
    from google.protobuf.proto import parse_length_prefixed

    message, file = _messages(), io.BytesIO(to_chakra(rank))
    head = parse_length_prefixed(message["GlobalMetadata"], file)
    about = {a.name: a.string_val for a in head.attr}
    assert (about["rank"], about["world_size"]) == ("2", "4")
    assert about["group of 4"] == "[0, 1, 2, 3]"
    nodes = {}
    while (node := parse_length_prefixed(message["Node"], file)) is not None:
        nodes[node.id] = node
    gather, scatter = [n for n in nodes.values() if n.type == COLLECTIVE]
    for each, kind, given in ((gather, 2, 4096), (scatter, 7, 16384)):
        sizes = {a.name: a.int64_val for a in each.attr}
        assert (sizes["comm_type"], sizes["comm_size"]) == (kind, given)
        assert each.duration_micros >= 6
    before, todo = set[int](), [n.id for n in nodes.values() if n.name.endswith("linear")]
    while todo:
        if (one := todo.pop()) not in before:
            before.add(one)
            todo += nodes[one].data_deps
    assert gather.id in before
    assert {n.type for n in nodes.values()} == {COMPUTE, COLLECTIVE}


@pytest.mark.live
def test_queues_are_threads_and_lines(rank) -> None:
    """Kernels wait for all of the gather, which nothing else runs beside."""
    events = json.loads(to_trace(rank))["traceEvents"]
    threads = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert {"kernels", "group of 4", "waiting"} <= set(threads)
    of = {
        name: [e for e in events if e.get("tid") == tid and e["ph"] == "X"]
        for name, tid in threads.items()
    }
    gather = next(e for e in of["group of 4"] if e["name"] == "all-gather")
    wait = next(e for e in of["waiting"] if e["name"] == "exposed: all-gather")
    assert wait["ts"] + wait["dur"] == pytest.approx(gather["ts"] + gather["dur"])
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel")
    assert all(b[0] >= a[1] - 1e-3 for a, b in pairwise(kernels))
    end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert end == pytest.approx(rank.prediction.device_seconds * 1e6, abs=0.01)
    lanes = page_data(rank)["queues"]
    assert next(iter(lanes)) == "kernels"
    assert [row[3] for row in lanes["waiting"]] == [1] * len(of["waiting"])
    text = draw([queues_over_time(rank, 80)], 80, False)
    hosted = rank.prediction.limit == "host"  # then the run is longer than what the queues have
    assert ("The host takes" in text) == ("time of the device's work" in text) == hosted
    assert [line.split("  ")[0] for line in text.splitlines()[1:4]] == [
        "kernels",
        "group of 4",
        "exposed",
    ]
    assert max(map(len, text.splitlines())) <= 80
