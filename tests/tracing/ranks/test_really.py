"""What a rank of a pretended world keeps and sends, against four processes that really exchange tensors."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.tracing.ranks.programs import (
    PIPELINES,
    PROGRAMS,
    WORLD,
    Context,
    batch_of_a_step,
    inputs,
    long_inputs,
)

import opgraph
from opgraph.record.graph import Graph

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four processes did, program by program; made once for all workers of a run of tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    folder = folder / "ranks"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _run(folder)
            (folder / "done").touch()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


def _run(folder: Path) -> None:
    script = str(Path(__file__).with_name("really.py"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, script, str(folder), *PROGRAMS, *PIPELINES, "context"],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those that wait for one that failed, too
        process.wait()
    assert process.returncode == 0, (folder / "log").read_text()[-2000:]


def moved(graph: Graph) -> list[tuple[str, int, int]]:
    found = [k.collective for n in graph.nodes for k in n.kernels]
    return [(str(c.kind), c.bytes, c.ranks) for c in found if c is not None]


@pytest.mark.parametrize("rank", [0, WORLD - 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_and_bytes_are_those_of_real_processes(
    real: list[dict[str, Any]], name: str, rank: int
) -> None:
    with opgraph.ranks(WORLD, rank):
        profile = opgraph.profile(
            PROGRAMS[name](), inputs(), mode="train", loss="sum", target="cpu"
        )
    _compared(profile, real[rank][name])


@pytest.mark.parametrize("rank", [0, WORLD - 1])
def test_tokens_are_split_and_go_round_as_in_real_processes(
    real: list[dict[str, Any]], rank: int
) -> None:
    profile = opgraph.profile(
        Context(), long_inputs(), mode="train", loss="sum", context_parallel=WORLD, rank=rank
    )
    _compared(profile, real[rank]["context"])


@pytest.mark.parametrize(
    ("name", "rank"), [*((n, 1) for n in PIPELINES), ("pipeline", 0), ("zero_bubble", WORLD - 1)]
)
def test_stages_send_and_keep_what_real_ones_do(
    real: list[dict[str, Any]], name: str, rank: int
) -> None:
    with opgraph.ranks(WORLD, rank):
        profile = opgraph.profile(
            PIPELINES[name](), batch_of_a_step(), {"target": batch_of_a_step()}, mode="train",
            target="cpu",
        )  # fmt: skip
    _compared(profile, real[rank][name])


def _compared(profile: opgraph.Profile, truth: dict[str, Any]) -> None:
    assert {p.name: [list(p.shape), p.bytes] for p in profile.graph.parameters} == truth["weights"]
    assert moved(profile.graph) == [tuple(m) for m in truth["moved"]]
    kept = [v for v in profile.graph.values if v.name in ("exp_avg", "exp_avg_sq")]
    assert sum(v.bytes for v in kept) == truth["state"]
