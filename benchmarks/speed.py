"""How fast opgraph is, and in how much memory: `python benchmarks/speed.py [--runs N]`.

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

COMMANDS = {
    "profile Llama-3.1-405B --seq-len 4096": ["profile", "Llama-3.1-405B", "--seq-len", "4096"],
    "profile bert-base-uncased": ["profile", "bert-base-uncased", "--seq-len", "128"],
    "profile resnet18": ["profile", "resnet18"],
    "profile saved.json (Llama-3.1-405B)": ["profile", "saved.json"],
    "--help": ["--help"],
}


def process(arguments: list[str], folder: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak resident memory (MB) of one process."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "opgraph", *arguments], cwd=folder, stdout=subprocess.DEVNULL,
        env={**os.environ, "OPGRAPH_CACHE": "0"},
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


def loops(runs: int, calls: int = 5_000) -> None:
    """A long loop of small calls, which no model's own work hides: what each call takes."""
    import torch
    from torch import nn

    import opgraph

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(calls):
                x = self.layer(x)
            return x

    torch.set_num_threads(1)
    model, x = Loop().eval(), torch.zeros(2, 8)

    def spent(function: Callable[[], object]) -> float:
        start = time.process_time()
        function()
        return (time.process_time() - start) / calls * 1e6

    with torch.no_grad():
        rows = [
            (spent(lambda: opgraph.profile(model, inputs=x)), spent(lambda: model(x)))
            for _ in range(runs + 1)
        ][1:]
    ours, plain = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"\n| {calls:,} calls of one small layer | CPU a call |\n|---|---|")
    print(f"| opgraph.profile | {ours:.1f} µs |\n| real forward | {plain:.1f} µs |")


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        processes(runs, folder)
    forwards(runs)
    loops(runs)


if __name__ == "__main__":
    main()
