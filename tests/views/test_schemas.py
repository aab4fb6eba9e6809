"""What `--json` prints fits the published schemas, also for models from which these were not made; and what
does not is found."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import DATA
from torch import nn

import opgraph
from opgraph.cli import COMMANDS, main, whole_parser
from opgraph.views.schemas import FOLDER, schema

jsonschema = pytest.importorskip("jsonschema_rs")

OTHER = str(DATA / "distilbert-base-uncased.json")
TRACES = Path(__file__).parents[1] / "traces" / "data"
CHANGED = str(DATA / "resnet18-changed.json")
RUNS = [
    ["profile", OTHER],
    ["profile", OTHER, "--hardware", "t4", "--memory", "--partition", "fuse"],
    ["profile", str(DATA / "resnet18-formulas.json")],
    ["explain", OTHER, "--hardware", "rtx-4090"],
    ["explore", OTHER, "--op", "linear"],
    ["compare", OTHER, CHANGED, "--hardware", "t4"],
    ["profile", str(DATA / "resnet18-run.json"), "--hardware", "t4"],
    ["models", "bert*"],
    ["hardware"],
    ["hardware", "t4"],
    ["cache"],
]


@pytest.mark.parametrize("arguments", RUNS, ids=lambda a: " ".join(a)[:40])
def test_what_is_printed_fits_its_schema(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 0
    jsonschema.validate(schema(arguments[0]), json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("command", ["profile", "explain", "explore"])
@pytest.mark.parametrize("more", [[], ["--hardware", "t4"]], ids=["", "device"])
def test_a_failed_forward_fits_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, more: list[str]
) -> None:
    file, broken = tmp_path / "failed.json", nn.Sequential(nn.Linear(4, 8), nn.Linear(9, 4))
    opgraph.profile(broken, torch.zeros(2, 4), partial=True).save(file)
    assert main([command, str(file), *more, "--json"]) == 1
    jsonschema.validate(schema(command), json.loads(capsys.readouterr().out))


def test_a_join_in_three_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, trace = tmp_path / "bert.json", TRACES / "tracelens" / "bert-h100.json.gz"
    model.write_bytes(gzip.decompress((TRACES / "bert.json.gz").read_bytes()))
    asked = ["join", str(model), str(trace), "--format"]
    for form, sign in (("markdown", "| "), ("csv", "measured"), ("json", '"measured"')):
        assert main([*asked, form]) == 0
        said = capsys.readouterr().out
        assert sign in said
    jsonschema.validate(schema("join"), json.loads(said))
    plain = tmp_path / "plain.json"  # as one that is cut off: it names neither device nor versions
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "tid": 1, "ts": 1, "dur": 2}
    plain.write_text(json.dumps({"traceEvents": [event]}))
    assert main(["join", str(model), str(plain), "--json"]) == 0
    jsonschema.validate(schema("join"), json.loads(capsys.readouterr().out))


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(
    "arguments",
    [["profile", "squeezenet1_1", "--mode", "train"], ["check", "squeezenet1_1", "--no-counters"],
     ["sweep", "squeezenet1_1", "--batch-size", "1,3"], ["fit", "squeezenet1_1", "--hardware", "l4"],
     ["measure", "squeezenet1_1", "--image-size", "32", "--steps", "1"]],
    ids=" ".join,
)  # fmt: skip
def test_what_traces_fits_its_schema(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*arguments, "--json"])
    jsonschema.validate(schema(arguments[0]), json.loads(capsys.readouterr().out))


def test_the_rows_of_a_survey_fit_their_schema() -> None:
    pytest.importorskip("duckdb")
    from opgraph.surveying import atlas
    from opgraph.surveying.table import cases

    rows = cases(atlas())
    jsonschema.validate(schema("survey"), rows)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(schema("survey"), [{**rows[0], "nodes": "many"}])
    answer = atlas().sql("select name, flops, latency_l4 from models limit 2").records()
    jsonschema.validate(schema("atlas"), answer)


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != key}


def test_a_missing_key_and_a_wrong_type_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", OTHER, "--json"])
    data = json.loads(capsys.readouterr().out)
    for wrong in (without(data, "totals"), {**data, "totals": {**data["totals"], "flops": "many"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(schema("profile"), wrong)


def test_every_command_that_prints_json_has_a_schema() -> None:
    (commands,) = (a for a in whole_parser()._actions if a.dest == "command")
    printing = [name for name in COMMANDS if "--json" in commands.choices[name].flags]
    assert len(printing) > 14
    for name in printing:
        assert schema(name)


def test_every_schema_is_one_and_says_its_version() -> None:
    for file in FOLDER.glob("*.json"):
        found = schema(file.stem)
        jsonschema.meta.validate(found)
        assert found["$id"] == f"https://opgraph.github.io/opgraph/schemas/1/{file.stem}.json"


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
@pytest.mark.parametrize(
    "arguments",
    [["profile", OTHER], ["compare", OTHER, CHANGED], ["explain", OTHER], ["hardware"],
     ["explore", OTHER, "--op", "linear"], ["hardware", "t4"], ["models", "resnet18"]],
    ids=lambda a: a[0],
)  # fmt: skip
def test_every_table_has_three_forms(
    arguments: list[str], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--format", form]) == 0
    said = capsys.readouterr().out
    assert {"markdown": "|", "csv": ",", "json": "{"}[form] in said
    if form == "json":
        json.loads(said)
