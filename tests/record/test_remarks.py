"""Remarks: of a closed table, each once, in the table, on stderr, in JSON and in the documentation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph import load
from opgraph.analysis.costed import CostedRecord
from opgraph.cli import main
from opgraph.options import NO_EFFECT
from opgraph.record.profile import GUESSED
from opgraph.record.remarks import CODES, coded, page, remark_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_the_table() -> None:
    assert (DOCS / "remarks.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"seq_len {NO_EFFECT}: resnet18 takes no tokens", "no-effect"),
        (GUESSED, "guessed-inputs"),
        ("completed with vocab_size=10", "completed"),
        ("went on without a value, perhaps not as with real data: GuardOnDataDependent", "made-up-data"),
        ("2 operators without a known cost: aten.x", "unknown-operator"),
        ("without images: RuntimeError", "left-out"),
        ("configuration from https://example.org/config.json", None),
        ("as ResNet18_Weights.IMAGENET1K_V1 describes it", None),
    ],
)  # fmt: skip
def test_a_text_has_the_code_of_its_sign(text: str, code: str | None) -> None:
    found = remark_of(text)
    assert (found and found.code) == code


def test_every_sign_leads_to_its_own_code() -> None:
    for code, known in CODES.items():
        for sign in known.signs:
            assert coded([sign, sign]) == ((code, sign),)


def test_a_remark_is_shown_once_and_is_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = load(DATA / "resnet18.json")
    note = f"seq_len {NO_EFFECT}: resnet18 takes no tokens"
    file = tmp_path / "noted.json"
    found = replace(found, model=replace(found.model, notes=("from a test", note)))
    found.save(file)
    assert {"code": "no-effect", "text": note} in json.loads(file.read_text())["remarks"]
    assert main(["profile", str(file)]) == 0
    said = capsys.readouterr()
    assert (said.out.count(note), said.err.count(note)) == (1, 0)
    assert "from a test" in said.out
    assert said.out.index(note) > said.out.index("Bottlenecks")
    assert main(["draw", str(file), "-o", str(tmp_path / "a.svg")]) == 0
    said = capsys.readouterr()
    assert f"note: {note} (no-effect)" in said.err


def test_real_tensors_and_a_failed_forward_are_remarks() -> None:
    found = load(DATA / "resnet18.json")
    attempt = replace(found.tracing.attempts[-1], tensors="real")
    nodes = list(found.graph.nodes)
    nodes[-1] = replace(nodes[-1], error="RuntimeError: no")
    graph = replace(found.graph, nodes=tuple(nodes))
    profile = replace(found, tracing=replace(found.tracing, attempts=(attempt,)), graph=graph)
    assert [r.code for r in CostedRecord(profile).remarks] == ["real-tensors", "failed"]
