"""A fixed sample over all sources and families is traced, each model in a process of its own; the whole
zoo is benchmarks/zoo.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph.record.errors import ProfileError
from opgraph.sources import sources
from opgraph.survey import Limits, Trial, load_trials, run, save_trial

SAMPLE = (DATA / "sample.txt").read_text(encoding="utf-8").split()


@pytest.mark.slow
def test_the_sample_is_traced() -> None:
    limits = Limits(jobs=2, timeout=200, memory=8 * 2**30)
    trials = list(run(SAMPLE, limits, sources=frozenset(sources())))
    assert {t.name: t.reason for t in trials if not t.ok} == {}
    assert len(trials) == len(SAMPLE)
    assert {t.name: t.coverage for t in trials if t.coverage < 1} == {}
    assert all(t.flops and t.parameters for t in trials)


@pytest.mark.slow
def test_a_hang_costs_one_row() -> None:
    slow = next(run(["resnet18"], Limits(timeout=0.01)))
    assert (slow.ok, slow.stage) == (False, "process")
    assert slow.reason == "not done after 0.01 s"


def test_trials_are_kept_and_a_cut_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    trial = Trial("resnet18", ok=True, stage="trace", notes=("a note",))
    save_trial(path, trial)
    path.write_text(path.read_text() + '{"name": "gp')
    assert load_trials(path) == {"resnet18": trial}
    save_trial(path, Trial("gpt2"))
    save_trial(path, Trial("t5-small"))
    assert list(load_trials(path)) == ["resnet18", "gpt2", "t5-small"]


@pytest.mark.parametrize(
    "text", ["hello\nthere\n", "hello", '{"a": 1}', '{"name": "x", "precious": 1}']
)
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ProfileError, match="line 1"):
        load_trials(tmp_path / "x.jsonl")
