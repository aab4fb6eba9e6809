"""Files are written whole or not at all: on full disks, in folders that take none, by two processes at
once, and by processes that are killed. What was there before is intact."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.faults.processes import GPT2, complaint, limit, linux, opgraph

from opgraph.record.files import write_atomically

pytestmark = linux

WRITING = [
    ("draw", "svg"), ("draw", "png"), ("view", "html"), ("explore", "md"), ("export", "csv"),
    ("export", "graphml"), ("profile", "json"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("command", "suffix"), WRITING)
def test_a_full_disk_leaves_what_was_there(command: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_text("before")
    # A limit on the size of files fails like a full disk: in the middle of writing.
    # What is imported is not compiled to files then, which would be broken for all after it.
    done = opgraph(command, GPT2, "-o", str(path), preexec_fn=limit(resource.RLIMIT_FSIZE, 1024),
                   env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip
    assert done.returncode == 2
    assert "cannot write" in complaint(done)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("command", "suffix"), [WRITING[0], pytest.param(*WRITING[-1], marks=pytest.mark.slow)]
)
def test_a_folder_that_takes_no_files(command: str, suffix: str) -> None:
    done = opgraph(command, GPT2, "-o", f"/proc/out.{suffix}")
    assert done.returncode == 2
    assert "cannot write" in complaint(done)


def heed_permissions() -> None:
    """Take from root what lets it write everywhere; of others nothing is taken."""
    drop_from_bounding_set, may_write_everywhere = 24, 1
    ctypes.CDLL(None).prctl(drop_from_bounding_set, may_write_everywhere, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new.svg", "old.svg"])
def test_a_read_only_folder(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "old.svg").write_text("before")
        folder.chmod(0o555)
        done = opgraph("draw", GPT2, "-o", str(folder / name), preexec_fn=heed_permissions)
        folder.chmod(0o755)
        assert done.returncode == 2
        assert "cannot write" in complaint(done)
        assert "Permission denied" in complaint(done)
        assert [path.read_text() for path in folder.iterdir()] == ["before"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_permissions_are_those_it_had_or_any_file_gets(
    unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:  # as on other systems
        monkeypatch.delattr(os, "O_TMPFILE")
    old, new, plain = (tmp_path / name for name in ("old", "new", "plain"))
    old.write_text("before")
    old.chmod(0o640)
    plain.touch()
    for path in (old, new):
        write_atomically(path, "after")
    assert old.read_text() == new.read_text() == "after"
    assert old.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == plain.stat().st_mode
    assert len(list(tmp_path.iterdir())) == 3


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        write_atomically(pipe, "passed on")
        assert read.result(timeout=30) == "passed on"
    assert pipe.is_fifo()


WRITER = """
import sys
from opgraph.record.files import write_atomically
path, letter = sys.argv[1:]
while True:
    write_atomically(path, letter * 3_000_000)
    print(flush=True)
"""


def whole(path: Path) -> None:
    content = path.read_text()
    assert len(content) == 3_000_000
    assert len(set(content)) == 1


@pytest.mark.slow
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


LOST = [
    (["export", "{own}:build", "--input-shape", "2x4", "-o", "{own}"], "is read, and would be lost"),
    (["compare", "{saved}", "{saved}", "-o", "{saved}"], "is read, and would be lost"),
    (["explore", "{saved}", "-o", "{saved}"], "is read, and would be lost"),
    (["export", "{saved}", "-o", "{saved}", "--format", "csv"], "is read, and would be lost"),
    (["sweep", "{own}:build", "--input-shape", "2x4", "-o", "{saved}"], "is a saved profile"),
    (["card", "{saved}", "-o", "{own}"], "card does not write .py"),
    (["card", "{saved}", "-o", "{readme}"], "opgraph did not make it"),
    (["export", "{own}:build", "--input-shape", "2x4", "-o", "{other_code}"], "did not make it"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("words", "why"), LOST)
def test_nothing_that_a_person_has_is_lost(words: list[str], why: str, tmp_path: Path) -> None:
    code = "import torch\n\ndef build():\n    return torch.nn.Linear(4, 4)\n"
    held = {"own": "own.py", "other_code": "other.py", "readme": "README.md", "saved": "saved.json"}
    files = {name: tmp_path / file for name, file in held.items()}
    for name in ("own", "other_code"):
        files[name].write_text(code)
    files["readme"].write_text("# mine\n")
    files["saved"].write_bytes(Path(GPT2).read_bytes())
    before = {name: file.read_bytes() for name, file in files.items()}
    done = opgraph(*(word.format(**files) for word in words))
    assert done.returncode == 2
    assert why in complaint(done)
    assert {name: file.read_bytes() for name, file in files.items()} == before


@pytest.mark.slow
def test_what_a_command_made_is_made_anew(tmp_path: Path) -> None:
    for words in (["card", GPT2, "-o", str(tmp_path / "card.md")],
                  ["export", "torch.nn:Linear", "--model-arg", "in_features=4", "--model-arg",
                   "out_features=4", "--input-shape", "2x4", "-o", str(tmp_path / "graph.py")],
                  ["profile", GPT2, "-o", str(tmp_path / "same.json")],
                  ["profile", str(tmp_path / "same.json"), "-o", str(tmp_path / "same.json")]):  # fmt: skip
        for _ in range(2):
            done = opgraph(*words)
            assert done.returncode == 0, done.stderr
