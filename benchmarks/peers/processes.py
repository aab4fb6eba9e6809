"""Whole processes from outside, as a person waits for them: opgraph's commands, and a script of four lines
for each peer that counts. The operating system's own accounting gives time and memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = {
    "opgraph --help": ["--help"],
    "opgraph profile resnet18": ["profile", "resnet18"],
    "opgraph profile bert-base-uncased": ["profile", "bert-base-uncased", "--seq-len", "128"],
    "opgraph profile Llama-3.1-405B": ["profile", "Llama-3.1-405B", "--seq-len", "4096"],
    "opgraph profile saved.json (405B)": ["profile", "saved.json"],
}
IMPORT = "python -c 'import torch'"
"""What every process with a model does first, without what torch does at the end of a process."""
BERT = "python -c 'import torch', and BERT's files"
IMPORTS = {
    IMPORT: "import os, torch; os._exit(0)",
    BERT: "import os, torch, transformers.models.bert.configuration_bert, "
    "transformers.models.bert.modeling_bert; os._exit(0)",
}
CACHED = {
    f"opgraph {name} bert-base-uncased (again)": [name, "bert-base-uncased", *rest]
    for name, rest in (
        ("profile", []), ("explore", []), ("draw", ["-o", "bert.svg"]), ("view", ["-o", "bert.html"]),
        ("compare", ["bert-base-uncased"]),
    )
}  # fmt: skip
"""What needs no torch, after a first time."""
MODELS = {
    "resnet18": "from torchvision.models import resnet18 as build; import torch\n"
    "model = build().eval(); x = torch.randn(1, 3, 224, 224)",
    "bert-base-uncased": "from transformers import BertConfig, BertModel; import torch\n"
    "model = BertModel(BertConfig()).eval(); x = torch.zeros(1, 128, dtype=torch.long)",
}
SCRIPTS = {
    "torchinfo": "from torchinfo import summary; summary(model, input_data=x)",
    "fvcore": "from fvcore.nn import FlopCountAnalysis; print(FlopCountAnalysis(model, x).total())",
    "thop": "from thop import profile; print(profile(model, inputs=(x,)))",
    "calflops": "from calflops import calculate_flops; calculate_flops(model, args=[x])",
    "DeepSpeed profiler": "from deepspeed.profiling.flops_profiler import get_model_profile\n"
    "get_model_profile(model, args=[x], warm_up=0)",
    "FlopCounterMode": "from torch.utils.flop_counter import FlopCounterMode\n"
    "with torch.no_grad(), FlopCounterMode(): model(x)",
    "torchlens": "import torchlens; print(torchlens.trace(model, [x]).total_macs_forward)",
}


def rows(done: list[dict[str, Any]], runs: int) -> Iterator[dict[str, Any]]:
    """A row for each command and script that is not there yet: medians of so many runs."""
    there = {r["command"] for r in done if r["kind"] == "process"}
    commands = {name: [sys.executable, "-c", code] for name, code in IMPORTS.items()}
    ours = COMMANDS | CACHED
    commands |= {name: [sys.executable, "-m", "opgraph", *rest] for name, rest in ours.items()}
    for model, build in MODELS.items():
        for tool, use in SCRIPTS.items():
            commands[f"{tool} on {model}"] = [sys.executable, "-c", f"{build}\n{use}"]
    waiting = {name: command for name, command in commands.items() if name not in there}
    if not waiting:
        return
    with tempfile.TemporaryDirectory() as folder:
        profile = COMMANDS["opgraph profile Llama-3.1-405B"]
        _process([sys.executable, "-m", "opgraph", *profile, "-o", "saved.json"], folder)
        first = ["profile", "bert-base-uncased"]
        _process([sys.executable, "-m", "opgraph", *first], folder, cache=f"{folder}/cache")
        measured: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in waiting}
        for _ in range(runs):  # in turn, so that what else the machine does meets all of them
            for name, command in waiting.items():
                cache = f"{folder}/cache" if name in CACHED else "0"
                measured[name].append(_process(command, folder, cache=cache))
        for name, found in measured.items():
            wall, cpu, memory, status = (statistics.median(c) for c in zip(*found, strict=True))
            row = {"wall": wall, "cpu": cpu, "memory": memory, "status": status}
            yield {"kind": "process", "command": name, **row, "runs": runs}


def _process(command: list[str], folder: str, cache: str = "0") -> tuple[float, float, int, int]:
    """Wall and CPU seconds, peak resident bytes, and exit status of one process."""
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": source, "OPGRAPH_CACHE": cache}
    # Compiled once, like all that is installed.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    told = subprocess.run(
        [sys.executable, "-S", "-c", _START, *command],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=True,
    )  # fmt: skip
    seconds, cpu, memory, status = json.loads(told.stdout)
    return seconds, cpu, memory, status


_START = """
import json, os, sys, time
start = time.perf_counter()
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - start
memory = usage.ru_maxrss * 1024
print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, memory, os.waitstatus_to_exitcode(status)]))
"""
"""A small process starts the one that is measured: the system counts the memory of the process that
forks as that of its child."""
