"""The pytest plugin in a pytest of its own: it writes, holds, and shows what changed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TEST = """
import torch
from torch import nn

WIDTH = {width}

def model():
    return nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))

def test_cost(opgraph_profile):
    p = opgraph_profile(model(), torch.ones(4, 8))
    assert p.totals.parameters < 10_000
    opgraph_profile.check(p{gates})
"""


def run(folder: Path, width: int, gates: str, *options: str) -> tuple[int, str]:
    (folder / "test_model.py").write_text(textwrap.dedent(TEST).format(width=width, gates=gates))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "opgraph.integrations.pytest_plugin", "-q", *options],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.live
def test_a_model_is_held_to_what_it_cost(tmp_path: Path) -> None:
    assert "--opgraph-update writes it" in run(tmp_path, 16, "")[1]
    assert run(tmp_path, 16, "", "--opgraph-update")[0] == 0
    assert [f.name for f in (tmp_path / "opgraph-profiles").iterdir()] == [
        "test_model-test_cost.json"
    ]
    assert run(tmp_path, 16, "")[0] == 0
    status, said = run(tmp_path, 20, "")
    assert status == 1
    for text in ("costs something else", "1.25×", "weight 20x8, was 16x8", "--opgraph-update"):
        assert text in said, said
    assert run(tmp_path, 20, ', "flops > +30%"')[0] == 0
    status, said = run(tmp_path, 20, ', "flops > +2%"')
    assert status == 1
    assert "gate broken: flops > +2%" in said


@pytest.mark.slow
def test_the_plugin_imports_nothing_of_torch() -> None:
    heavy = "{'torch', 'rich', 'msgspec'}"
    code = f"import sys, opgraph.integrations.pytest_plugin; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
