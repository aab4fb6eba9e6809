"""The GitHub Action's script in a repository of two commits, as its steps run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.conftest import DATA

ACTION = Path(__file__).parents[2] / "action"
MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(8, {width}), nn.ReLU(), nn.Linear({width}, 2))
"""


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One whose last commit makes the models wider, one as code and one as a saved profile, which is read
    in a tenth of the time; `opgraph` on the path is this one."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for width, depth in ((16, 18), (32, 50)):
        (folder / "model.py").write_text(MODEL.format(width=width))
        shutil.copy(DATA / f"resnet{depth}.json", folder / "cost.json")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"width {width}")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "opgraph").write_text(f'#!/bin/sh\nexec {sys.executable} -m opgraph "$@"\n')
    (tools / "opgraph").chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_head_is_held_to_its_base(repository: Path) -> None:
    out = repository.parent / "out"
    path = f"{repository.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"

    def guard(
        gate: str,
        models: str = "model.py:build --input-shape 4x8",
        to: str = str(out),
        base: str = "HEAD~1",
    ) -> tuple[int, str]:
        shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run(
            ["bash", str(ACTION / "guard.sh")], cwd=repository, capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": path, "MODELS": models, "FAIL_IF": gate,
                 "BASE": base, "OUT": to, "HARDWARE": ""},
        )  # fmt: skip
        return done.returncode, (out / "table.md").read_text()

    status, table = guard("flops > +150%")
    assert status == 0
    assert "model.py:build" in table
    assert "2.00×" in table or "+100 %" in table, table
    assert "**A** 1.base.json" in table
    assert (out / "1.html").stat().st_size > 100_000
    # The base runs elsewhere.
    status, table = guard("flops > +2%\ncoverage < 100%", "cost.json", to="../out")
    assert status == 1
    assert "cannot be profiled" not in table
    assert git(repository, "worktree", "list").count("\n") == 0
    status, table = guard("flips > +2%", "cost.json")
    assert (status, "It cannot be compared: `error: 'flips' is no quantity" in table) == (2, True)
    lines = (
        "nothing.json",
        "![x](http://a.example) @team <b>",
        "$(touch found)",
        "x; touch found",
        "--help",
    )
    status, table = guard("", "\n".join(lines))
    assert status == 2
    assert table.count("At head it cannot be profiled: `") == len(lines)
    assert all(f"\n## `{line}`\n" in table for line in lines)
    assert not [*repository.rglob("found")]
    status, table = guard("", "cost.json", base="nowhere")
    assert (status, "The base cannot be checked out: `" in table) == (2, True)


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("base", "grows"), [("", False), ("0" * 40, False), ("first", True)])
def test_the_step_finds_the_base(repository: Path, base: str, grows: bool) -> None:
    """In a clone of one commit, as hosted runners have; a branch that is new has the default one as its
    base."""
    first = git(repository, "rev-parse", "HEAD~1")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone, out = repository.parent / "clone", repository.parent / "out"
    git(repository.parent, "clone", "-q", "--depth", "1", f"file://{repository}", str(clone))
    (step,) = (
        step["run"]
        for step in yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]
        if step.get("id") == "guard"
    )
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step], cwd=clone,
        capture_output=True, text=True, check=False,
        env={**os.environ, "MODELS": "cost.json", "FAIL_IF": "flops > +2%", "HARDWARE": "",
             "PATH": f"{repository.parent / 'tools'}{os.pathsep}{os.environ['PATH']}",
             "BASE": first if base == "first" else base, "OUT": str(out),
             "DEFAULT": git(repository, "branch", "--show-current"),
             "GITHUB_ACTION_PATH": str(ACTION), "GITHUB_OUTPUT": str(repository.parent / "output"),
             "GITHUB_STEP_SUMMARY": str(repository.parent / "summary")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"status={int(grows)}" in (repository.parent / "output").read_text()
    assert "cannot be" not in (repository.parent / "summary").read_text()


@pytest.mark.thorough
@pytest.mark.live
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("before", "status", "says"),
    [
        (None, 0, "It is new"),
        (MODEL.format(width=16).replace("build", "other"), 0, "It is new"),
        (
            "import nothing_of_that_name",
            2,
            "At base it cannot be profiled: `error: added.py cannot be",
        ),
    ],
)
def test_a_model_that_is_new_is_told_from_a_base_that_is_broken(
    repository: Path, before: str | None, status: int, says: str
) -> None:
    if before is not None:
        (repository / "added.py").write_text(before)
        git(repository, "add", "-A")
    git(repository, "commit", "-qm", "before", "--allow-empty")
    (repository / "added.py").write_text(MODEL.format(width=16))
    out = repository.parent / "out"
    path = f"{repository.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(ACTION / "guard.sh")], cwd=repository, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": path, "MODELS": "added.py:build --input-shape 4x8", "FAIL_IF": "",
             "BASE": git(repository, "rev-parse", "HEAD"), "OUT": str(out), "HARDWARE": ""},
    )  # fmt: skip
    assert (done.returncode, says in (out / "table.md").read_text()) == (status, True)
