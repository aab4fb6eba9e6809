"""Streams that are closed or full, little memory, no home: a clear message, or the result all the same."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from tests.cli.faults.processes import GPT2, OPGRAPH, complaint, limit, linux, opgraph, surroundings

pytestmark = linux


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "message"), [("> /dev/full", "No space left"), (">&-", "closed")]
)
def test_a_stdout_that_takes_nothing(redirection: str, message: str) -> None:
    script = f"{' '.join(OPGRAPH)} profile {GPT2} {redirection}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in complaint(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "micro"), [("ascii", " ?s "), ("cp1252", " µs "), ("utf-8", " µs ")]
)
def test_a_stdout_of_fewer_characters(encoding: str, micro: str) -> None:
    surrounded = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [*OPGRAPH, "profile", GPT2, "--hardware", "h100"],
        capture_output=True, encoding=encoding, check=False, env=surrounded,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert micro in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", ">&- 2>/dev/full"])
def test_files_are_written_without_a_place_for_remarks(redirection: str, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    script = f"{' '.join(OPGRAPH)} draw {GPT2} -o {path} {redirection}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert path.read_text().startswith("<svg")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["profile {} --json", "explore {} --start 1 --end 500"])
def test_a_reader_that_has_read_enough(command: str) -> None:
    script = f"{' '.join(OPGRAPH)} {command.format(GPT2)} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["profile GPT2 --hardware h100", "explore GPT2", "draw GPT2 -o OUT.svg", "view GPT2 -o OUT.html",
     "compare GPT2 GPT2", "export GPT2 -o OUT.csv", "hardware"],
)  # fmt: skip
def test_saved_profiles_open_in_512_megabytes(words: str, tmp_path: Path) -> None:
    words = words.replace("GPT2", GPT2).replace("OUT", str(tmp_path / "out"))
    done = opgraph(*words.split(), preexec_fn=limit(resource.RLIMIT_AS, 512 * 2**20))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_tracing_in_512_megabytes_says_that_it_is_too_little() -> None:
    done = opgraph("profile", "resnet18", preexec_fn=limit(resource.RLIMIT_AS, 512 * 2**20))
    assert done.returncode == 2
    assert "not enough memory" in complaint(done)


@pytest.mark.slow
def test_no_home_at_all(tmp_path: Path) -> None:
    done = opgraph("explore", GPT2, env=surroundings(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["yolov8n.pt", "distilgpt2"])
def test_a_home_that_cannot_be_written(model: str, tmp_path: Path) -> None:
    done = opgraph(
        "profile", model, "--depth", "0", env=surroundings(HOME="/proc/1/no"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
