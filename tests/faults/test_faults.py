"""What goes wrong around a process: signals, full disks, closed pipes, little memory, no home. Whatever was
there before is intact, the message is one line, and the exit status says it. All are real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data"
GPT2 = str(DATA / "gpt2.json")
OPGRAPH = (sys.executable, "-m", "opgraph")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")


def opgraph(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OPGRAPH, *args], capture_output=True, text=True, check=False, timeout=300, **options
    )


def limit(kind: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (size, size))


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that an error is."""
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] in (["error"], ["error", "hint"]), done.stderr
    assert "not expected" not in done.stderr
    return lines[0]


# Files

WRITING = [
    ("draw", "svg"), ("draw", "png"), ("view", "html"), ("explore", "md"), ("export", "csv"),
    ("export", "graphml"), ("profile", "json"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "suffix"), WRITING)
def test_a_full_disk_leaves_what_was_there(command: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_text("before")
    # A limit on the size of files fails like a full disk: in the middle of writing.
    done = opgraph(command, GPT2, "-o", str(path), preexec_fn=limit(resource.RLIMIT_FSIZE, 1024))
    assert done.returncode == 2
    assert "cannot write" in complaint(done)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("command", "suffix"), WRITING[:1] + WRITING[-1:])
def test_a_folder_that_takes_no_files(command: str, suffix: str) -> None:
    done = opgraph(command, GPT2, "-o", f"/proc/out.{suffix}")
    assert done.returncode == 2
    assert "cannot write" in complaint(done)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    done = opgraph("draw", GPT2, "-o", str(tmp_path / "out.svg"))
    assert done.returncode == 2
    assert "Permission denied" in complaint(done)


WRITER = """
import sys
from opgraph.files import write_atomically
path, letter = sys.argv[1:]
while True:
    write_atomically(path, letter * 3_000_000)
    print(flush=True)
"""


def whole(path: Path) -> None:
    content = path.read_text()
    assert len(content) == 3_000_000
    assert len(set(content)) == 1


def test_a_file_is_whole_whenever_its_writers_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    for turn in range(6):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), letter], stdout=subprocess.PIPE
            )
            for letter in "ab"
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(0.01 * turn)
        whole(path)
        for writer in writers:
            writer.kill()
            writer.communicate()
        whole(path)


# Streams


@pytest.mark.parametrize(
    ("redirection", "message"), [("> /dev/full", "No space left"), (">&-", "closed")]
)
def test_a_stdout_that_takes_nothing(redirection: str, message: str) -> None:
    script = f"{' '.join(OPGRAPH)} profile {GPT2} {redirection}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in complaint(done)


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", ">&- 2>/dev/full"])
def test_files_are_written_without_a_place_for_remarks(redirection: str, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    script = f"{' '.join(OPGRAPH)} draw {GPT2} -o {path} {redirection}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert path.read_text().startswith("<svg")


@pytest.mark.parametrize("command", ["profile {} --json", "explore {} --start 1 --end 500"])
def test_a_reader_that_has_read_enough(command: str) -> None:
    script = f"{' '.join(OPGRAPH)} {command.format(GPT2)} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Memory and surroundings


@pytest.mark.parametrize(
    "words",
    ["profile GPT2 --hardware h100", "explore GPT2", "draw GPT2 -o OUT.svg", "view GPT2 -o OUT.html",
     "compare GPT2 GPT2", "export GPT2 -o OUT.csv", "hardware"],
)  # fmt: skip
def test_saved_profiles_open_in_512_megabytes(words: str, tmp_path: Path) -> None:
    words = words.replace("GPT2", GPT2).replace("OUT", str(tmp_path / "out"))
    done = opgraph(*words.split(), preexec_fn=limit(resource.RLIMIT_AS, 512 * 2**20))
    assert done.returncode == 0, done.stderr


def test_tracing_in_512_megabytes_says_that_it_is_too_little() -> None:
    done = opgraph("profile", "resnet18", preexec_fn=limit(resource.RLIMIT_AS, 512 * 2**20))
    assert done.returncode == 2
    assert "not enough memory" in complaint(done)


def surroundings(**changes: str) -> dict[str, str]:
    """The environment without a home and its caches."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "LANG")}
    return {**kept, **changes}


def test_no_home_at_all(tmp_path: Path) -> None:
    done = opgraph("explore", GPT2, env=surroundings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", ["yolov8n.pt", "distilgpt2"])
def test_a_home_that_cannot_be_written(model: str, tmp_path: Path) -> None:
    done = opgraph(
        "profile", model, "--depth", "0", env=surroundings(HOME="/proc/1/no"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


# Signals

SLOW = """
import pathlib, time, torch
class Slow(torch.nn.Module):
    def forward(self, x):
        pathlib.Path("started-%d" % __import__("os").getpid()).touch()
        time.sleep(600)
        return x
def build():
    return Slow()
"""


def started(folder: Path, process: subprocess.Popen[str]) -> int:
    """The process that runs the slow forward, when it has begun to."""
    for _ in range(1200):
        found = list(folder.glob("started-*"))
        if found:
            return int(found[0].name.partition("-")[2])
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise TimeoutError


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(200):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


def launch(folder: Path, *args: str) -> subprocess.Popen[str]:
    (folder / "slow.py").write_text(SLOW)
    return subprocess.Popen(
        [*OPGRAPH, *args], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_an_interrupt_while_a_model_is_traced(tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    path.write_text("before")
    child = launch(tmp_path, "draw", "slow.py:build", "--input", "x=2x2", "-o", path.name)
    started(tmp_path, child)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors.splitlines() == ["error: interrupted"]
    assert path.read_text() == "before"
    assert {p.name.partition("-")[0] for p in tmp_path.iterdir()} <= {
        path.name, "slow.py", "started", "__pycache__"
    }  # fmt: skip


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_trials_end_with_the_command(how: signal.Signals, tmp_path: Path) -> None:
    done = {"name": "done", "ok": True}
    (tmp_path / "done.jsonl").write_text(json.dumps(done) + "\n")
    child = launch(
        tmp_path, "models", "--try", "slow.py:build", "--input", "x=2x2", "--resume", "done.jsonl"
    )
    worker = started(tmp_path, child)
    child.send_signal(how)
    _, errors = child.communicate(timeout=60)
    if how is signal.SIGINT:
        assert child.returncode == 130
        assert errors.splitlines()[-1] == "error: interrupted"
    assert gone(worker)
    assert [json.loads(line) for line in (tmp_path / "done.jsonl").open()] == [done]
