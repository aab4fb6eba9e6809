"""The ten facts: each names a command, which prints its figures."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.conftest import DATA

from opgraph.analysis.costed import costed
from opgraph.cli import main
from opgraph.hardware import device
from opgraph.record.loading import load
from opgraph.views.text.explain import facts_of

FIGURE = re.compile(
    r"\b\d[\d,.]*(?: ?(?:%|[KMGT]?(?:FLOPs|MACs)\b(?!/)|[KMGT]iB|[mµ]?s\b|[KMGT]\b))?"
)


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased"])
@pytest.mark.parametrize("hardware", [None, "t4", "h100-sxm"])
def test_the_command_of_a_fact_prints_its_figures(
    name: str,
    hardware: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    file = str(DATA / f"{name}.json")
    found = costed(load(file), None if hardware is None else device(hardware))
    facts = facts_of(found, shlex.quote(file))
    assert len(facts) == 10
    for fact in facts:
        program, *arguments = shlex.split(fact.command)
        assert (program, main(arguments)) == ("opgraph", 0)
        said = re.sub(r"\s+", " ", "".join(capsys.readouterr()))
        figures = FIGURE.findall(fact.text.replace(name, ""))
        assert [f for f in figures if f.rstrip(".,") not in said] == [], fact


def test_weights_are_told_in_the_dtype_that_they_are_kept_in() -> None:
    """Whatever a device multiplies them in: convolutions of float32 are in TensorFloat-32 on an H100."""
    file = load(DATA / "resnet18.json")
    for hardware in (None, device("h100-sxm")):
        (fact,) = (f for f in facts_of(costed(file, hardware), "x") if f.fact == "parameters")
        assert fact.text.endswith(", mostly as float32")
