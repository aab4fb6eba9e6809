"""How a survey behaves on this machine and how it would scale, to docs/survey_scale.md.

    python benchmarks/survey.py                 overhead here, ten kills, and the model of scale
    python benchmarks/survey.py --kills 0 --models      the model alone; what was measured stays as it is

Overhead: the processor time of Ray and the driver beside that of a worker. Kills: a worker, a node or the
driver at a moment drawn by chance, of sixty small cases on two nodes; the dataset is held against that of a
run that nothing disturbed. Scale: a simulation of one driver and up to 256 nodes, whose times of tasks are
drawn from the atlas, and whose driver takes what was measured here for each group.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from opgraph.surveying import atlas
from opgraph.surveying.cases import GROUP, Plan
from opgraph.surveying.dataset import opened
from opgraph.surveying.worker import Found, empty_row

sys.path.insert(0, str(Path(__file__).parent.parent))

PAGE = Path(__file__).parent.parent / "docs" / "survey_scale.md"
CORES = 32
"""Cores of a node of the model."""
STARTING = 12.0
"""Seconds for a worker to start and import torch and a library."""


def overhead(models: Sequence[str]) -> tuple[int, float, float, float, float]:
    """Cases of a survey with one worker after its first group, the processor seconds of the worker for
    them, those of all else in that time (the driver and the processes of Ray), the seconds on the clock,
    and those of them in which the worker waited for a processor that others had."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "x"
        asked = [word for model in models for word in ("--models", model)]
        driver = subprocess.Popen(
            [sys.executable, "-m", "opgraph", "survey", *asked, "--jobs", "1", "-q", "-o", folder],
            stdout=subprocess.DEVNULL,
        )
        spent: dict[int, tuple[bool, float, float]] = {}
        first, begun, start = (0.0, 0.0, 0.0), False, 0.0
        while driver.poll() is None:
            spent |= _spent(driver.pid)
            inside, outside = (
                sum(s for own, s, _ in spent.values() if own is worker) for worker in (True, False)
            )
            now = (inside, outside, sum(w for own, _, w in spent.values() if own))
            if not begun and any((folder / "cases").rglob("*.parquet")):
                first, begun, start = now, True, time.monotonic()
            time.sleep(1)
        ((cases,),) = atlas(folder).sql("select count(*) from cases").rows
        return (
            int(str(cases)) - GROUP,
            now[0] - first[0],
            now[1] - first[1],
            time.monotonic() - start,
            now[2] - first[2],
        )


def _spent(root: int) -> dict[int, tuple[bool, float, float]]:
    """Whether each process below one is a worker, the processor seconds that it has taken, and those that
    it waited for a processor."""
    children: dict[int, list[int]] = {}
    taken: dict[int, tuple[bool, float, float]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes()
            waited = int((path / "schedstat").read_text().split()[1]) / 1e9
        except OSError:
            continue
        worker = command.startswith(b"ray::") and b"Agent" not in command
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        taken[int(path.name)] = (worker, seconds, waited)
        children.setdefault(int(fields[1]), []).append(int(path.name))
    below = [root]
    for process in below:
        below += children.get(process, [])
    return {process: taken[process] for process in below if process in taken}


def driver_seconds(groups: int = 200) -> float:
    """Processor seconds that a driver takes for a group: to make it, and to encode and write what is
    found."""
    plan = Plan({f"m{i}": "hf" for i in range(groups * GROUP)})
    with (
        tempfile.TemporaryDirectory() as place,
        opened(Path(place) / "x", plan, ("l4",), frozenset(), {}) as dataset,
    ):
        start = time.process_time()
        for group in plan.groups():
            rows = [empty_row(case, "a reason") for case in group.cases]
            times = [{"id": case.key, "device": "l4", "latency": 1.0} for case in group.cases]
            missing = dataset.missing(group)
            assert missing is not None
            dataset.write(group, Found({"cases": rows}, (times,)), *missing)
        return (time.process_time() - start) / groups


def simulated(nodes: int, cases: int, seconds: list[float], driver: float, seed: int = 0) -> float:
    """Seconds for so many cases on so many nodes: groups of cases go to the worker that is free first,
    as the one driver hands them out and takes them back, one at a time."""
    draw = random.Random(seed)
    sums = [sum(draw.choices(seconds, k=GROUP)) for _ in range(4096)]
    free = [STARTING] * (nodes * CORES)
    heapq.heapify(free)
    at = end = 0.0
    for _ in range(cases // GROUP):
        at = max(at + driver, heapq.heappop(free))
        done = at + draw.choice(sums)
        end = max(end, done)
        heapq.heappush(free, done)
    return max(end, cases / GROUP * driver)


def kills(count: int) -> list[tuple[str, float, bool]]:
    """What was killed, after how many seconds, and whether the dataset is that of an undisturbed run."""
    from tests.surveying.conftest import MODELS, Cluster
    from tests.surveying.test_survey import SIXTY, rows, workers

    cluster, found = Cluster(), []
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "models.py").write_text(MODELS, encoding="utf-8")
            start = time.monotonic()
            cluster.survey(folder, *SIXTY, "-o", "undisturbed")
            took = time.monotonic() - start
            right = rows(folder / "undisturbed", "cases")
            for i in range(count):
                what = ("worker", "node", "driver")[i % 3]
                node = cluster.add_node()
                driver = cluster.driver(folder, *SIXTY, "-o", f"run{i}")
                moment = random.uniform(0.2, 1.0) * took
                time.sleep(moment)
                if what == "worker":
                    for process in workers():
                        os.kill(process, signal.SIGKILL)
                elif what == "driver":
                    driver.kill()
                else:
                    cluster.nodes.remove_node(node, allow_graceful=False)
                driver.communicate(timeout=600)
                if driver.returncode != 1:  # 1: some cases have no result, as they should
                    cluster.survey(folder, *SIXTY, "-o", f"run{i}")
                found.append((what, moment, rows(folder / f"run{i}", "cases") == right))
                print(found[-1], file=sys.stderr)
                if what != "node":
                    cluster.nodes.remove_node(node)
    finally:
        cluster.nodes.shutdown()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument(
        "--models", nargs="*", default=["torchvision:*net*"], help="for the overhead"
    )
    args = parser.parse_args()
    parts = [
        "# How a survey scales\n",
        f"Made by `python benchmarks/survey.py` on {os.cpu_count()} cores.\n",
    ]
    before = {p.partition(".**")[0]: p + "\n" for p in PAGE.read_text().split("\n\n")}
    if not args.models:
        parts += [before[p] for p in before if p == "**Overhead"]
    else:
        cases, inside, engine, clock, waited = overhead(args.models)
        parts.append(
            f"**Overhead.** While one worker took {inside:.0f} s of processor time for {cases} cases "
            f"(`{'`, `'.join(args.models)}`) and {clock:.0f} s on the clock, in {waited:.0f} s of which "
            f"others had its processor, the driver and all other processes of Ray took {engine:.1f} s, "
            f"beside what starting them takes: {100 * engine / clock:.1f} % of a core. Nearly all of it "
            f"goes with the clock, whatever is done: with a processor of its own the worker needs "
            f"{clock - waited:.0f} s, and that is {100 * engine * (1 - waited / clock) / inside:.1f} % of "
            f"its time ({100 * engine / inside:.1f} % as it was).\n"
        )
    if not args.kills:
        parts += [before[p] for p in before if p == "**Kills"]
    else:
        killed = kills(args.kills)
        right = sum(same for *_, same in killed)
        parts.append(
            f"**Kills.** Of {len(killed)} runs of sixty cases in which a worker, a node or the driver was "
            f"killed at a moment drawn by chance ({', '.join(f'{w} {m:.0f} s' for w, m, _ in killed)}), "
            f"{right} gave the dataset of an undisturbed run; a dead driver's command was given again.\n"
        )
    driver = driver_seconds()
    seconds = [float(s) for (s,) in atlas().sql("select cpu from cases where cpu is not null").rows]
    mean = sum(seconds) / len(seconds)
    parts += [
        f"**Scale, simulated.** {len(seconds):,} measured times of cases ({mean:.2f} s each on average), "
        f"groups of {GROUP}, {1e3 * driver:.1f} ms of the driver a group, {CORES} cores a node, "
        f"{STARTING:.0f} s to start a worker; a million cases:\n",
        "| nodes | hours | cases a second | efficiency |",
        "|---:|---:|---:|---:|",
    ]
    alone = mean * 1e6 / CORES
    for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        took = simulated(nodes, 10**6, seconds, driver)
        parts.append(
            f"| {nodes} | {took / 3600:.2f} | {1e6 / took:,.0f} | {100 * alone / nodes / took:.0f} % |"
        )
    most = GROUP / driver
    parts.append(
        f"\nThe one driver hands out and writes {most:,.0f} cases a second at most: beyond "
        f"{most * mean / CORES:,.0f} nodes more of them change nothing.\n"
    )
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print("\n".join(parts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
