"""Remarks: of a closed table, each once, in the table, on stderr, in JSON and in the documentation."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import DATA
from torch import nn

import opgraph
from opgraph import load
from opgraph.analysis.costed import CostedRecord
from opgraph.cli import main
from opgraph.record.profile import GUESSED
from opgraph.record.remarks import Remark, coded, idle, no_effect, page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_the_table() -> None:
    assert (DOCS / "remarks.md").read_text(encoding="utf-8") == page()


def test_a_remark_is_a_text_with_a_code_of_the_table() -> None:
    noted = no_effect("seq_len", "resnet18 takes no tokens")
    assert noted == "seq_len changes nothing: resnet18 takes no tokens"
    assert coded(["configuration from config.json", noted, noted]) == idle([noted]) == (noted,)
    assert idle([GUESSED]) == ()
    for copied in (pickle.loads(pickle.dumps(noted)), copy.deepcopy(noted)):
        assert (copied, copied.code) == (noted, "no-effect")
    with pytest.raises(KeyError, match="unheard"):
        Remark("unheard", "of")


def test_a_remark_is_shown_once_and_is_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(DATA / "resnet18.json")
    note = no_effect("seq_len", "resnet18 takes no tokens")
    file = tmp_path / "noted.json"
    found = replace(found, model=replace(found.model, notes=("from a test", note)))
    found.save(file)
    assert {"code": "no-effect", "text": note} in json.loads(file.read_text())["remarks"]
    assert load(file).model == found.model
    assert load(file).on(None).remarks == (note,)
    assert main(["profile", str(file)]) == 0
    said = capsys.readouterr()
    assert (said.out.count(note), said.err.count(note)) == (1, 0)
    assert "from a test" in said.out
    assert said.out.index(note) > said.out.index("Bottlenecks")
    assert main(["draw", str(file), "-o", str(tmp_path / "a.svg")]) == 0
    said = capsys.readouterr()
    assert f"note: {note} (no-effect)" in said.err
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["explore", str(file)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), max(map(len, lines)) <= 60) == (2, True)
    assert " ".join(line.strip() for line in lines) == f"note: {note} (no-effect)"


def test_real_tensors_and_a_failed_forward_are_remarks() -> None:
    found = load(DATA / "resnet18.json")
    attempt = replace(found.tracing.attempts[-1], tensors="real")
    fake = replace(attempt, tensors="fake", error="AssertionError: True != False")
    nodes = list(found.graph.nodes)
    nodes[-1] = replace(nodes[-1], error="RuntimeError: no")
    graph = replace(found.graph, nodes=tuple(nodes))
    profile = replace(found, tracing=replace(found.tracing, attempts=(fake, attempt)), graph=graph)
    found = CostedRecord(profile).remarks
    assert [r.code for r in found] == ["real-tensors", "failed"]
    assert found[0].endswith(fake.error)  # not that its path depends on values: nothing says so


class Forked(nn.Module):
    """Goes its way by what is in its input."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(4, 4), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x) if x.sum() > 0 else self.narrow(x)


@pytest.mark.live
def test_a_way_by_the_values_of_inputs_is_a_remark() -> None:
    for x, macs in ((torch.ones(2, 4), 64), (-torch.ones(2, 4), 32)):
        found = opgraph.profile(Forked(), inputs=(x,))
        assert found.totals.macs == macs
        assert [r.code for r in found.remarks] == ["branch"]


class Looking(nn.Module):
    """Goes its way by the tokens that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.narrow, self.wide = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 8)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        found = self.table(input_ids)
        if attention_mask.all():
            found = found + 1
        return self.wide(found) if (input_ids + 1 > 5).any() else self.narrow(found)


@pytest.mark.live
def test_a_way_by_the_values_of_made_up_integers_is_a_remark() -> None:
    made = opgraph.profile(Looking(), batch_size=1, seq_len=8)
    assert [(r.code, "random integers" in r) for r in made.remarks] == [("branch", True)]
    for ids, macs in ((torch.full((1, 8), 8), 256), (torch.zeros(1, 8, dtype=torch.int64), 128)):
        given = opgraph.profile(Looking(), inputs=(ids, torch.ones_like(ids)))
        assert (given.totals.macs, given.remarks) == (macs, ())


@pytest.mark.live
def test_tokens_that_are_looked_up_choose_no_way() -> None:
    assert opgraph.profile("gpt2", seq_len=4).remarks == ()


@pytest.mark.live
def test_a_check_has_those_of_its_tracers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "looking.py"
    file.write_text("import torch\nfrom torch import nn\n\n\n" + inspect.getsource(Looking))
    asked = ["check", f"{file}:Looking", "--seq-len", "8", "--tracer", "fx", "--no-counters"]
    assert main([*asked, "--json"]) == 0
    said = capsys.readouterr()
    assert [r["code"] for r in json.loads(said.out)["remarks"]] == ["branch"]
    assert said.err.count("(branch)") == 1


@pytest.mark.parametrize("arguments", [["explore"], ["explore", "--op", "conv2d"], ["compare"]])
def test_every_json_has_them_and_stderr_has_them_once(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, file = load(DATA / "resnet18.json"), tmp_path / "noted.json"
    noted = replace(found, model=found.model.noting(no_effect("seq_len", "from a test")))
    noted.save(file)
    command, *more = arguments
    assert (
        main([command, str(file), *more, *([str(file)] if command == "compare" else []), "--json"])
        == 0
    )
    said = capsys.readouterr()
    remarks = json.loads(said.out)["remarks"]
    each = remarks if command == "compare" else [remarks]
    assert [[r["code"] for r in found] for found in each] == [["no-effect"]] * len(each)
    assert said.err.count("(no-effect)") == 1


@pytest.mark.live
def test_a_sweep_has_those_of_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "quantized_shufflenet_v2_x0_5", "--batch-size", "1,2", "--json"]) == 0
    said = capsys.readouterr()
    assert [r["code"] for r in json.loads(said.out)["remarks"]] == ["other-variant"]
    assert said.err.count("(other-variant)") == 1


@pytest.mark.live
def test_the_time_of_a_recurrent_layer_has_a_remark_on_an_accelerator() -> None:
    found = opgraph.profile(nn.LSTM(4, 4), inputs=(torch.zeros(9, 1, 4),))
    assert [r.code for r in found.on("l4").remarks] == ["precision", "recurrent"]
    assert found.on().remarks == ()


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("mi300x", ["memory.context of AMD Instinct MI300X is nominal: by compute units"]),
        ("epyc-9654", ["memory.capacity of AMD EPYC 9654 is nominal: the most that can be fitted"]),
        ("h100-sxm", []),
    ],
)
def test_what_nobody_publishes_of_a_device_is_a_remark(device: str, says: list[str]) -> None:
    found = load(DATA / "gpt2.json").on(device).remarks
    said = [r for r in found if r.code == "device"]
    assert [r.text[: len(text)] for r, text in zip(said, says, strict=True)] == says
