"""How much memory a process takes that profiles a model with a small `--memory-limit`: each in a process of
its own, forked from one that has imported the libraries.

    python benchmarks/memory.py            all that were ever tried on real tensors, and names by chance
    python benchmarks/memory.py NAME …     these
    python benchmarks/memory.py --foreign  the models of benchmarks/foreign, in their environment
    python benchmarks/memory.py -o FILE    and go on where the file ends

What holds: each ends with a profile or with an error of opgraph's, and at its peak has taken no more than
the limit beyond what it began with (for a model that was built before, as those of benchmarks/foreign are,
with it).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import opgraph
from opgraph.record.errors import OpgraphError, first_line
from opgraph.sources.registry import libraries, listed
from opgraph.surveying import Atlas

FOREIGN = Path(__file__).parent / "foreign"
GIB = 2**30
ROOM = 4.0
"""GiB beyond the limit at which a process is ended: so much is not to be taken by any of them, and the
machine is to live on. Of what is resident: a limit of the system is one on addresses, which weights that
nothing touches have, too."""


def sample(count: int, seed: int) -> list[str]:
    """All that the atlas of the package says were tried again, on real tensors above all, and
    names by chance."""
    names = sorted(found.spec for found in listed())
    again = "select spec from cases where tensors <> 'fake' or len(failures) > 0 order by spec"
    real = [str(row["spec"]) for row in Atlas().sql(again).records()]
    return list(dict.fromkeys([*real, *random.Random(seed).sample(names, count)]))


def resident(what: str, process: int | str = "self") -> int:
    """Bytes of a process: resident (VmRSS), or the most that were since they were forgotten (VmHWM); 0 of
    one that has ended."""
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what)), 0)


def foreign(name: str) -> Callable[..., Any]:
    """What profiles a model of benchmarks/foreign, which is built before."""
    from models import MODELS  # type: ignore[import-not-found]

    torch.manual_seed(0)
    model, args = MODELS[name][1]()
    model.eval()
    return lambda **options: opgraph.profile(model, inputs=args, name=name, **options)


TRIES = 6
"""How often it is tried: torch's engine of gradients aborts every third forked process ("Invalid thread
pool!", aten/src/ATen/ParallelOpenMP.cpp), as soon as it starts."""


def child(make: Callable[[], Callable[..., Any]], options: dict[str, Any]) -> dict[str, Any]:
    """What came of one model, in a process that has just been forked. Pages of libraries that only it reads
    count for it, too."""
    found: dict[str, Any] = {"tensors": "", "said": ""}
    begin, base = time.process_time(), 0
    try:
        run = make()
        base = resident("VmRSS:")
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        profile = run(**options)
        found["tensors"] = profile.tracing.tensors
        refused = [n for n in profile.model.notes if "on real tensors" in n]
        found["said"] = refused[-1] if refused else ""
        found["end"] = "profile"
    except OpgraphError as error:
        found |= {"end": "error", "said": f"{type(error).__name__}: {first_line(error)}"}
    except BaseException as error:  # noqa: BLE001 - whatever else it is does not hold
        found |= {"end": "broken", "said": f"{type(error).__name__}: {first_line(error)}"}
    return found | {
        "taken": (resident("VmHWM:") - base) / GIB, "cpu": round(time.process_time() - begin, 1),
    }  # fmt: skip


def forked(work: Callable[[], dict[str, Any]], timeout: int, room: float) -> dict[str, Any]:
    """What a process of its own gives back, or how it ended: by itself, or for it took more than `room`
    GiB."""
    base, taken = resident("VmRSS:"), 0
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout + 5))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(work()))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        while not select.select([pipe], [], [], 0.1)[0]:
            taken = max(taken, resident("VmRSS:", pid) - base)
            if taken > room * GIB:
                os.kill(pid, signal.SIGKILL)
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if text:
        return dict(json.loads(text))
    ended = os.waitstatus_to_exitcode(status)
    late = ended == -signal.SIGXCPU
    return {"end": "late" if late else "killed", "said": f"ended with {ended}", "tensors": "",
            "taken": taken / GIB, "cpu": 0.0}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--limit", type=float, default=2.0, help="GiB")
    parser.add_argument("--mode", default="infer")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument(
        "--timeout", type=int, default=300, help="seconds of processor time of a model"
    )
    parser.add_argument("--foreign", action="store_true")
    parser.add_argument("-o", type=Path, help="a file of JSON lines")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.foreign:
        sys.path.insert(0, str(FOREIGN))
        from models import MODELS

        names, make = asked.models or list(MODELS), foreign
    else:
        names = asked.models or sample(asked.count, asked.seed)

        def make(name: str) -> Callable[..., Any]:
            return lambda **options: opgraph.profile(name, **options)

        for library in libraries().values():
            for module in library.modules:
                with suppress(ImportError):
                    import_module(module)
    # Not in training: a process that was forked from one with threads of autograd cannot use any.
    opgraph.profile(torch.nn.Linear(2, 2), torch.ones(1, 2))
    import_module("opgraph.tracing.modes.training")
    gc.collect()
    gc.freeze()
    wrong, most = 0, 0.0
    done = asked.o.read_text("utf-8").splitlines() if asked.o and asked.o.exists() else []
    before = {json.loads(line)["name"] for line in done}
    names = [name for name in names if name not in before]
    print(f"{len(names)} models, limit {asked.limit:g} GiB")
    options = {"memory_limit": asked.limit, "mode": asked.mode}
    lines = asked.o.open("a") if asked.o else None
    ends: dict[str, int] = {}
    for name in names:
        for _ in range(TRIES):
            found = forked(lambda name=name: child(lambda: make(name), options), asked.timeout,
                           asked.limit + ROOM)  # fmt: skip
            if found["said"] != f"ended with {-signal.SIGABRT}":
                break
        ends[found["end"]] = ends.get(found["end"], 0) + 1
        fails = found["end"] not in ("profile", "error") or found["taken"] > asked.limit
        wrong += fails
        most = max(most, found["taken"])
        print(f"{'FAILS ' if fails else ''}{name:45}{found['taken']:6.2f} GiB {found['cpu']:6.1f} s "
              f"{found['end']} {found['tensors']} {found['said']}", flush=True)  # fmt: skip
        if lines is not None:
            print(json.dumps({"name": name, **found}), file=lines, flush=True)
    print(f"{ends}; the most taken {most:.2f} GiB; {wrong} beyond the limit or broken")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
