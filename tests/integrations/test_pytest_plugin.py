"""The pytest plugin in a pytest of its own: it writes, holds, and shows what changed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.answering import answering

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


SESSION = """
import contextlib, io, os, sys
import pytest

sys.dont_write_bytecode = True  # a file of the same second and length would be taken for the one before

def answer(folder, *options):
    os.chdir(folder)
    there, path = set(sys.modules), list(sys.path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main(["-p", "opgraph.integrations.pytest_plugin", "-q", "--rootdir", folder, *options])
    for name in [n for n in sys.modules if n not in there and n.startswith("test_")]:
        del sys.modules[name]
    sys.path[:] = path
    return said.getvalue()
"""


@pytest.fixture(scope="module")
def pytests() -> Iterator[Callable[..., str]]:
    """`pytests(folder, *options)` is what a pytest says in a folder."""
    with answering(SESSION) as said:
        yield said


@pytest.fixture
def run(pytests: Callable[..., str], tmp_path: Path) -> Callable[..., tuple[dict[str, str], str]]:
    """What became of each test, and all that was said."""

    def found(width: int, *options: str) -> tuple[dict[str, str], str]:
        (tmp_path / "test_model.py").write_text(TEST.format(width=width))
        said = pytests(str(tmp_path), "-rA", *options)
        how = re.findall(r"^(PASSED|FAILED) test_model\.py::test_(\w+)", said, re.MULTILINE)
        return {name: became for became, name in how}, said

    return found


Run = Callable[..., tuple[dict[str, str], str]]


@pytest.mark.slow
@pytest.mark.live
def test_a_model_is_held_to_what_it_cost(tmp_path: Path, run: Run) -> None:
    names = ("same", "wider", "within", "beyond")
    found, said = run(16)
    assert found == dict.fromkeys(names, "FAILED"), said
    assert said.count("--opgraph-update writes it") >= len(names)
    became, said = run(16, "--opgraph-update")
    assert became == dict.fromkeys(names, "PASSED")
    assert f"opgraph: wrote {len(names)} profiles to opgraph-profiles, to be committed" in said
    assert {f.name for f in (tmp_path / "opgraph-profiles").iterdir()} == {
        f"test_model-test_{name}.json" for name in names
    }
    found, said = run(20)
    assert found == dict(zip(names, ("PASSED", "FAILED", "PASSED", "FAILED"), strict=True)), said
    wider, _, beyond = said.partition("test_beyond")
    for text in ("costs something else", "+25.0 %", "weight 20x8, was 16x8", "--opgraph-update"):
        assert text in wider, said
    assert "gate broken: flops > +2%" in beyond


NAMED = """
import pytest
import torch
from torch import nn

class TestOne:
    def test_it(self, opgraph_profile):
        opgraph_profile.check(opgraph_profile(nn.Linear(8, 2), torch.ones(4, 8)))

class TestOther:
    def test_it(self, opgraph_profile):
        opgraph_profile.check(opgraph_profile(nn.Linear(8, 3), torch.ones(4, 8)))

@pytest.mark.parametrize("width", [4, 5, 6, 7], ids=["a/b", "a-b", "a::b", "../b"])
def test_each(opgraph_profile, width):
    opgraph_profile.check(opgraph_profile(nn.Linear(8, width), torch.ones(4, 8)))
"""
UNREAD = """
import torch

def test_gate(opgraph_profile):
    opgraph_profile.check(opgraph_profile(torch.nn.ReLU(), torch.ones(4)), "flips > +2%")
"""


@pytest.mark.slow
@pytest.mark.live
def test_each_test_has_a_file_of_its_own(tmp_path: Path, run: Run) -> None:
    (tmp_path / "test_named.py").write_text(NAMED)
    run(16, "--opgraph-update", "test_named.py")
    kept = tmp_path / "opgraph-profiles"
    assert {f.name for f in kept.iterdir()} == {
        f"test_named-{name}.json"
        for name in ("TestOne.test_it", "TestOther.test_it", "test_each[a%2Fb]", "test_each[a-b]",
                     "test_each[a%3A%3Ab]", "test_each[..%2Fb]")
    }  # fmt: skip
    said = run(16, "test_named.py")[1]
    assert "6 passed" in said, said


@pytest.mark.slow
@pytest.mark.live
def test_a_gate_that_cannot_be_read_is_told_when_the_profile_is_written(
    tmp_path: Path, run: Run
) -> None:
    (tmp_path / "test_unread.py").write_text(UNREAD)
    said = run(16, "--opgraph-update", "test_unread.py")[1]
    assert "'flips' is no quantity" in said
    assert not (tmp_path / "opgraph-profiles").exists()


@pytest.mark.slow
def test_the_plugin_imports_nothing_of_torch() -> None:
    heavy = "{'torch', 'rich', 'msgspec'}"
    code = f"import sys, opgraph.integrations.pytest_plugin; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.live
def test_what_is_refused_is_said_at_the_line_of_the_test(
    tmp_path: Path, pytests: Callable[..., str]
) -> None:
    (tmp_path / "test_refused.py").write_text(
        "from torch import nn, ones\n\n"
        "def test_gate(opgraph_profile):\n"
        "    opgraph_profile.check(opgraph_profile(nn.Linear(4, 4), ones(1, 4)), 'flopz > +2%')\n\n"
        "def test_name(opgraph_profile):\n"
        "    opgraph_profile('resnet81')\n"
    )
    shown = pytests(str(tmp_path)).partition("short test summary")[0]
    assert "GateError: 'flopz' is no quantity" in shown
    assert "UnknownModel: no source knows a model resnet81" in shown
    assert re.findall(r"^(\S+\.py):\d+:", shown, re.MULTILINE) == ["test_refused.py"] * 2
