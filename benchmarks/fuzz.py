"""Opens ten thousand hostile files (tests/hostile_files.py), each of which may work or be refused with an
`OpgraphError`, and nothing else: no other error, no code that runs, no file that is written, no hang, no
memory without bound.

    python benchmarks/fuzz.py [CASES] [--seed N] [--kind checkpoint] [--show]

Cases run in processes forked off this one, so that one that crashes or hangs costs itself alone. An audit
hook ends a process at once when it starts a program, opens a connection or writes a file.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hostile_files import KINDS, MARK, attempt, make

from opgraph.record.errors import OpgraphError

SHARES = {"profile-data": 30, "profile-bytes": 15, "checkpoint": 25, "program": 12, "device": 10,
          "configuration": 8}  # fmt: skip
PROCESSOR_SECONDS = 60
WALL_SECONDS = 400
MEMORY = 8 * 2**30
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen",
             "socket.connect", "os.remove", "os.rename", "os.rmdir", "shutil.",
             "webbrowser.open")  # fmt: skip

armed = False


def watch(event: str, args: Any) -> None:
    """The audit hook: what a file made happen, if it should not."""
    if not armed:
        return
    writes = (
        event == "open"
        and isinstance(args[2], int)
        and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        and str(args[0]) != os.devnull
    )
    if writes or event.startswith(FORBIDDEN):
        os.write(1, f"RAN {event} {args!r:.200}\n".replace("\n", " ").encode() + b"\n")
        os._exit(77)


def work(kind: str, numbers: list[int], folder: Path, pipe: int) -> None:
    """In a process of its own: open each, and say on the pipe what came of it."""
    global armed
    os.dup2(pipe, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    sys.addaudithook(watch)
    for number in numbers:
        os.write(1, f"start {number}\n".encode())
        path = make(kind, number, folder)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        armed = True
        try:
            attempt(kind, path, number)
            outcome = "opened"
        except OpgraphError as error:
            outcome = f"refused {error}"
        except BaseException as error:  # noqa: BLE001 - which is what is looked for
            outcome = f"RAISED {type(error).__name__}: {error}"
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        text = " ".join(outcome.encode("ascii", "replace").decode().split())
        os.write(1, f"end {number} {peak} {text[:300]}\n".encode())
    os._exit(0)


def run(kind: str, numbers: list[int], folder: Path) -> tuple[dict[int, str], int]:
    """The outcome of each case, and the most memory that a process had."""
    outcomes: dict[int, str] = {}
    peak = 0
    waiting = list(numbers)
    while waiting:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            try:
                work(kind, waiting[:250], folder, theirs)
            finally:  # whatever happens, a child does not become a parent
                os._exit(70)
        os.close(theirs)
        current: int | None = None
        why = ""
        with os.fdopen(ours, "rb") as stream:
            while True:
                if not select.select([stream], [], [], WALL_SECONDS)[0]:
                    why = f"HUNG for {WALL_SECONDS} s"
                    os.kill(child, signal.SIGKILL)
                line = stream.readline().decode("ascii", "replace").strip()
                if not line:
                    break
                word, _, rest = line.partition(" ")
                if word == "start":
                    current = int(rest)
                elif word == "end":
                    number, size, text = rest.split(" ", 2)
                    outcomes[int(number)] = text
                    peak, current = max(peak, int(size)), None
                else:
                    why = line
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if current is not None:
            hung = status == -signal.SIGPROF
            death = f"HUNG for {PROCESSOR_SECONDS} s of processor" if hung else f"DIED of {status}"
            outcomes[current] = why or death
        elif status and why:
            print(f"  outside a case: {why}")
        waiting = [n for n in waiting if n not in outcomes]
    return outcomes, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6) * 10**6)
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("--show", action="store_true", help="every distinct refusal")
    args = parser.parse_args()
    shares = {args.kind: 100} if args.kind else SHARES
    warnings.simplefilter("ignore")
    failures = total = 0
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        mark = folder / "ran"
        os.environ[MARK] = str(mark)
        warm(folder)
        for kind, share in shares.items():
            start = time.perf_counter()
            numbers = [args.seed + i for i in range(args.cases * share // 100)]
            outcomes, peak = run(kind, numbers, folder)
            words = Counter(text.partition(" ")[0] for text in outcomes.values())
            bad = {n: t for n, t in outcomes.items() if t.split()[0] not in ("opened", "refused")}
            failures, total = failures + len(bad), total + len(outcomes)
            spent = time.perf_counter() - start
            print(f"{kind:14} {len(outcomes):6,} cases: {words['refused']:6,} refused, "
                  f"{words['opened']:6,} opened, {len(bad)} failures; "
                  f"{spent:.0f} s, peak {peak / 2**20:,.0f} MiB", flush=True)  # fmt: skip
            for number, text in list(bad.items())[:40]:
                print(f"  {kind} {number}: {text}")
            if args.show:
                for text, count in Counter(outcomes.values()).most_common(60):
                    print(f"  {count:5} {text[:200]}")
        if mark.exists():
            failures += 1
            print("  code in a file has run")
    print(f"{total:,} hostile files, {failures} failures, seed {args.seed}")
    return 1 if failures else 0


def warm(folder: Path) -> None:
    """Open sound files once, so that what libraries do at their first use is done before the fork."""
    import torch
    from tests import hostile_files as made

    import opgraph

    torch.set_num_threads(1)
    (folder / "sound.pt").write_bytes(made.sound_checkpoint())
    (folder / "sound.pt2").write_bytes(made.sound_program())
    for name in ("sound.pt", "sound.pt2"):
        opgraph.profile(str(folder / name))
    for number, data in enumerate(made.CONFIGURATIONS):
        (folder / str(number)).mkdir()
        (folder / str(number) / "config.json").write_bytes(made.as_json(data))
        try:
            opgraph.profile(str(folder / str(number)))
        except OpgraphError:
            continue
    opgraph.load(made.DATA / "resnet18.json")


if __name__ == "__main__":
    sys.exit(main())
