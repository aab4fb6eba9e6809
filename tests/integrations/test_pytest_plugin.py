"""The pytest plugin in a pytest of its own: it writes, holds, and shows what changed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import torch
from torch import nn

def model(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))

def held(opgraph_profile, width, *gates):
    p = opgraph_profile(model(width), torch.ones(4, 8))
    assert p.totals.parameters < 10_000
    opgraph_profile.check(p, *gates)

def test_same(opgraph_profile):
    held(opgraph_profile, 16)

def test_wider(opgraph_profile):
    held(opgraph_profile, {width})

def test_within(opgraph_profile):
    held(opgraph_profile, {width}, "flops > +30%")

def test_beyond(opgraph_profile):
    held(opgraph_profile, {width}, "flops > +2%")
"""


def run(folder: Path, width: int, *options: str) -> tuple[dict[str, str], str]:
    """What became of each test, and all that was said."""
    (folder / "test_model.py").write_text(TEST.format(width=width))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "opgraph.integrations.pytest_plugin", "-q", "-rA", *options],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    found = re.findall(r"^(PASSED|FAILED) test_model\.py::test_(\w+)", said, re.MULTILINE)
    return {name: how for how, name in found}, said


@pytest.mark.slow
@pytest.mark.live
def test_a_model_is_held_to_what_it_cost(tmp_path: Path) -> None:
    names = ("same", "wider", "within", "beyond")
    found, said = run(tmp_path, 16)
    assert found == dict.fromkeys(names, "FAILED"), said
    assert said.count("--opgraph-update writes it") >= len(names)
    assert run(tmp_path, 16, "--opgraph-update")[0] == dict.fromkeys(names, "PASSED")
    assert {f.name for f in (tmp_path / "opgraph-profiles").iterdir()} == {
        f"test_model-test_{name}.json" for name in names
    }
    found, said = run(tmp_path, 20)
    assert found == dict(zip(names, ("PASSED", "FAILED", "PASSED", "FAILED"), strict=True)), said
    wider, _, beyond = said.partition("test_beyond")
    for text in ("costs something else", "+25.0 %", "weight 20x8, was 16x8", "--opgraph-update"):
        assert text in wider, said
    assert "gate broken: flops > +2%" in beyond


@pytest.mark.slow
def test_the_plugin_imports_nothing_of_torch() -> None:
    heavy = "{'torch', 'rich', 'msgspec'}"
    code = f"import sys, opgraph.integrations.pytest_plugin; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
