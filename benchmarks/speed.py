"""How fast opgraph is, and in how much memory: `python benchmarks/speed.py [--runs N]`; the loops of small
calls beside another tree's: `python benchmarks/speed.py --loops --against OTHER/src`; what an operator of
each model of the peers' table takes, or of those named: `python benchmarks/speed.py --operators [NAME …]`,
beside another tree's, too.

Whole processes are timed from outside, by the operating system's own accounting. Inside of one process,
profiling is compared with plain forwards of the same model in turn, and the median ratio is given, so
that the figures mean something on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

COMMANDS = {
    "profile Llama-3.1-405B --seq-len 4096": ["profile", "Llama-3.1-405B", "--seq-len", "4096"],
    "profile bert-base-uncased": ["profile", "bert-base-uncased", "--seq-len", "128"],
    "profile resnet18": ["profile", "resnet18"],
    "profile saved.json (Llama-3.1-405B)": ["profile", "saved.json"],
    "--help": ["--help"],
}


def process(arguments: list[str], folder: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak resident memory (MB) of one process."""
    environment = {**os.environ, "OPGRAPH_CACHE": "0"}
    # Compiled once, like all that is installed.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "opgraph", *arguments], cwd=folder, stdout=subprocess.DEVNULL,
        env=environment,
    )  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"opgraph {' '.join(arguments)} ended with {child.returncode}")
    seconds = time.perf_counter() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def processes(runs: int, folder: str) -> None:
    print("| whole process | wall | CPU | peak memory |\n|---|---|---|---|")
    process(["profile", "Llama-3.1-405B", "--seq-len", "4096", "-o", "saved.json"], folder)
    for name, arguments in COMMANDS.items():
        rows = [process(arguments, folder) for _ in range(runs)]
        wall, cpu, memory = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| `opgraph {name}` | {wall:.2f} s | {cpu:.2f} s | {memory:.0f} MB |")


def forwards(runs: int) -> None:
    """BERT-base at 128 tokens: profiling against a forward on fake tensors and a real one."""
    import copy

    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    import opgraph
    from opgraph.sources import resolve

    torch.set_num_threads(1)
    model = resolve("bert-base-uncased")
    ids = torch.randint(0, 30_000, (1, 128))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = copy.deepcopy(model.module)
    for module in fake.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                stand_in = FakeTensor(mode, parameter.detach(), torch.device("cpu"))
                module._parameters[key] = torch.nn.Parameter(stand_in, requires_grad=False)
    real = model.materialize().eval()

    def seconds(function: Callable[[], object]) -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    steps: dict[str, Callable[[], object]] = {
        "opgraph.profile": lambda: opgraph.profile(model.module, inputs=ids),
        "forward on fake tensors": lambda: fake(ids),
        "real forward, one thread": lambda: real(ids),
    }
    with torch.no_grad():
        for step in [*steps.values(), *steps.values()]:
            step()
        rows = [[seconds(step) for step in steps.values()] for _ in range(3 * runs)]
    ours = [row[0] for row in rows]
    print("\n| BERT-base, 128 tokens | median | opgraph.profile takes |\n|---|---|---|")
    for position, name in enumerate(steps):
        column = [row[position] for row in rows]
        ratio = statistics.median(o / c for o, c in zip(ours, column, strict=True))
        print(f"| {name} | {statistics.median(column) * 1e3:.0f} ms | {ratio:.2f} of it |")


def operators(runs: int, names: list[str], against: str | None) -> None:
    """What an operator takes in a warm process, for the models that peers are compared on: the best of
    some profiles, each by the operators of its graph. Beside it, of a model that is run on real tensors,
    what an operator takes in the best of as many plain forwards of the same: no profile has less; and what
    a profile takes of that of another tree. Processes of the two trees take turns."""
    import warnings

    import torch

    from opgraph.tracing.base import arguments
    from opgraph.tracing.eager import materialized

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(
        "| model | tensors | operators | CPU of a profile | an operator | of a plain forward | of the "
        "other tree |\n|---|---|---:|---:|---:|---:|---:|"
    )
    for name in names or list(_prepared()):
        model, example = _prepared()[name]()
        took, profile = _best(runs, partial(_profiled, model, example))
        nodes, tensors = len(profile.nodes), profile.tracing.tensors
        beside = "–"
        if tensors == "real":
            args, kwargs = arguments(example, None)
            forward, _ = _best(runs, partial(materialized(model).eval(), *args, **kwargs))
            beside = f"{forward / nodes:.2f} ms"
        ratio = f"{_ratio(runs, name, against):.2f}" if against else "–"
        print(f"| `{name}` | {tensors} | {nodes:,} | {took:.1f} ms | {took / nodes:.2f} ms | "
              f"{beside} | {ratio} |", flush=True)  # fmt: skip


def _prepared() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """What makes the models of the peers' table and their inputs, by name."""
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    from models import entries, prepared

    return {entry.name: partial(prepared, entry, weights=False) for entry in entries()}


_IN_TURN = 10
"""Profiles in the turn of a process, of which the best counts: the first find nothing in the cache."""


def _ratio(runs: int, name: str, against: str) -> float:
    """The CPU time of a warm profile of that model, of what it takes in another tree."""
    with ExitStack() as stack:
        trees = (str(Path(__file__).parents[1] / "src"), against)
        workers = [stack.enter_context(_worker(tree)) for tree in trees]
        rows = [[_asked(w, f"{name}\tmodel") for w in workers] for _ in range(runs + 1)][1:]
    return statistics.median(here / there for here, there in rows)


def _profiled(model: Any, example: Any) -> Any:
    import opgraph
    from opgraph.api.pipeline import profile_model

    profile = opgraph.Profile.of(profile_model(model, example))
    _ = profile.totals
    return profile


def _best(runs: int, run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds of the fastest of some runs after a first one, and what that gave."""
    import torch

    taken: list[float] = []
    with torch.no_grad():
        for _ in range(runs + 1):
            start = time.process_time()
            result = run()
            taken.append(time.process_time() - start)
    return min(taken[1:]) * 1e3, result


CALLS = 2_000
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "x + 1": lambda x, _: x + 1,
    "a linear layer": lambda x, layer: layer(x),
    "x.relu()": lambda x, _: x.relu(),
    "x @ weight": lambda x, layer: x @ layer.weight,
    "x.add_(1)": lambda x, _: x.add_(1),
}
"""What is called in a loop, which no model's own work hides."""
WAYS = ("profile", "real", "fake")


def answer() -> None:
    """Say for each line that comes, a step and a way, how many microseconds of CPU a call takes: in a
    profile, on real tensors, or as torch's own fake call; or of a model's name, a profile."""
    import torch
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode

    import opgraph

    class Loop(nn.Module):
        def __init__(self, step: Callable[[Any, Any], Any]) -> None:
            super().__init__()
            self.layer, self.step = nn.Linear(8, 8), step

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step, layer = self.step, self.layer
            for _ in range(CALLS):
                x = step(x, layer)
            return x

    torch.set_num_threads(1)
    ways: dict[str, Callable[[], object]] = {}
    for name, step in STEPS.items():
        model, x = Loop(step).eval(), torch.zeros(2, 8)
        with FakeTensorMode() as mode:
            fake, given = Loop(step).eval(), mode.from_tensor(x)
        found = (partial(opgraph.profile, model, inputs=x), partial(model, x), partial(fake, given))
        ways |= {f"{name}\t{way}": run for way, run in zip(WAYS, found, strict=True)}
    with torch.no_grad():
        for line in sys.stdin:
            key = line.rstrip("\n")
            if key.endswith("\tmodel"):
                if key not in ways:
                    ways[key] = partial(_profiled, *_prepared()[key.partition("\t")[0]]())
                print(_best(_IN_TURN, ways[key])[0], flush=True)
                continue
            start = time.process_time()
            ways[key]()
            print((time.process_time() - start) / CALLS * 1e6, flush=True)


def loops(runs: int, against: str | None) -> None:
    """A long loop of small calls: what each takes, and what it takes beyond a real one beside another
    tree. Processes of the two trees take turns."""
    here = str(Path(__file__).parents[1] / "src")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(tree)) for tree in (here, against) if tree is not None
        ]
        print(f"\n| {CALLS:,} calls, CPU of each | opgraph.profile | real | torch's fake call | beyond a "
              "real one, of that of the other tree |\n|---|---|---|---|---|")  # fmt: skip
        for name in STEPS:
            rows = [
                [{way: _asked(worker, f"{name}\t{way}") for way in WAYS[:2]} for worker in workers]
                for _ in range(4 * runs + 1)
            ][1:]
            shown = [statistics.median(row[0][way] for row in rows) for way in WAYS[:2]]
            shown.append(_asked(workers[0], f"{name}\t{WAYS[2]}"))
            beyond = [[each["profile"] - each["real"] for each in row] for row in rows]
            ratio = f"{statistics.median(b[0] / b[-1] for b in beyond):.2f}" if against else "–"
            print(
                f"| `{name}` | {' | '.join(f'{v:.1f} µs' for v in shown)} | {ratio} |", flush=True
            )


def _worker(tree: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--answer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(tree).resolve()), "OPGRAPH_CACHE": "0"},
    )  # fmt: skip


def _asked(worker: subprocess.Popen[str], line: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    print(line, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loops", action="store_true", help="only the loops of small calls")
    parser.add_argument("--against", metavar="SRC", help="the src folder of another tree")
    parser.add_argument(
        "--operators", nargs="*", metavar="NAME", help="only what an operator takes"
    )
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:
        answer()
        return
    if args.operators is not None:
        operators(args.runs, args.operators, args.against)
        return
    if args.loops:
        loops(args.runs, args.against)
        return
    runs = args.runs
    with tempfile.TemporaryDirectory() as folder:
        processes(runs, folder)
    forwards(runs)
    loops(runs, args.against)


if __name__ == "__main__":
    main()
