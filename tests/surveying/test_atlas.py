"""An atlas answers one SELECT about its datasets, and nothing else; what is in it stays text."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import opgraph
from opgraph.cli import main
from opgraph.record.errors import InputError, ProfileError
from opgraph.surveying.cases import Case, Group, Plan
from opgraph.surveying.dataset import opened
from opgraph.surveying.sql import latencies, latency
from opgraph.surveying.worker import Found, empty_row

pytest.importorskip("duckdb")

DOCS = Path(__file__).parents[2] / "docs"
HOSTILE = "x'; drop view cases; --<script>document.title='run'</script>\x1b[31m=1+1"


@cache
def asked_of(*folders: Path) -> opgraph.Atlas:
    """The atlas of some datasets, or that of opgraph: opened once."""
    return opgraph.atlas(*folders)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with a model of a hostile name, as a driver writes it."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("o'brien") / "zoo"
    cases = (Case(HOSTILE, "file"), Case("broken", "file"))
    row = {**empty_row(cases[0], "", "trace"), "ok": True, "reason": None, "flops": 7, "parameters": 2**70,
           "remarks": [HOSTILE], "mode": "infer", "task": "=1+1"}  # fmt: skip
    time = {"id": cases[0].key, "device": "l'4", "latency": 0.5}
    found = Found({"cases": [row, empty_row(cases[1], HOSTILE)]}, ([time],))
    plan = Plan({case.spec: case.source for case in cases})
    with opened(folder, plan, ("l'4",), frozenset(), {}) as data:
        data.write(Group("file", cases), found, True, data.stages, frozenset())
    return folder


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("copy cases to 'x.parquet'", "was asked for copy"),
        ("explain analyze copy cases to 'x.parquet'", "was asked for explain"),
        ("select 1; drop view cases", "was asked for select and drop"),
        ("set enable_external_access = true", "was asked for set"),
        ("attach 'x.db'", "was asked for attach"),
        ("install httpfs", "was asked for load"),
        ("pragma enable_profiling", "was asked for pragma"),
        ("", "was asked for nothing"),
        ("select * from read_text('/etc/passwd')", "Permission Error"),
        ("select * from '/etc/passwd'", "passwd"),
        ("select * from read_csv('https://example.org/x.csv')", "rror"),
        ("select * from glob('/etc/*')", "Permission Error"),
        ("select * from models where name = 'x", "unterminated"),
        ("select nme from models", "nme"),
        ("select * from os", "os"),
    ],
)
def test_what_is_no_question_about_the_dataset_is_refused(
    dataset: Path, sql: str, said: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        asked_of(dataset).sql(sql)
    assert "\n" not in str(refused.value)
    assert refused.value.hint
    assert not list(Path().glob("x.*"))


def test_names_are_text_wherever_they_end_up(dataset: Path, capsys: Any, tmp_path: Path) -> None:
    atlas = asked_of(dataset)
    (row,) = atlas.sql('select spec, parameters, "latency_l_4" from models').records()
    assert row == {"spec": HOSTILE, "parameters": None, "latency_l_4": 0.5}
    quoted = HOSTILE.replace("'", "''")
    assert atlas.sql(f"select flops from cases where spec = '{quoted}'").rows == ((7,),)
    assert main(["atlas", "--dataset", str(dataset), "select spec, task, remarks from cases"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    atlas.save(tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(encoding="utf-8") as file:
        assert next(csv.DictReader(file))["task"] == "'=1+1"
    atlas.save(tmp_path / "x.html")
    assert "<script>document" not in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        (
            "select name, params, flops from models where task='detection' order by latency_h100 limit 10",
            "select name, parameters, flops from models where task = 'object-detection' "
            "order by latency_h100_sxm limit 10",
        ),
        (
            "select max(m.Params) from models m where m.task in ('classification', 'x')",
            "select max(parameters) from models where task = 'image-classification'",
        ),
        (  # a name of the query's own, and texts that are compared with something else
            "with t as (select flops as params, 'detection' as it from models) "
            "select params from t where it = 'detection' order by params limit 3",
            "select flops from models order by flops limit 3",
        ),
    ],
)
def test_short_names_mean_the_whole_ones(short: str, whole: str) -> None:
    atlas = asked_of()
    assert atlas.sql(short).rows
    # Models that are as quick stand in any order, so that it is asked for, too.
    asked, meant = (each.replace(" limit 10", ", name limit 10") for each in (short, whole))
    assert atlas.sql(asked).rows == atlas.sql(meant).rows
    assert "params" in atlas.sql("select params from cases limit 1").columns
    with pytest.raises(InputError, match="latency_nosuch"):
        atlas.sql("select latency_nosuch from models")


@pytest.mark.slow
def test_a_compact_dataset_answers_alike(dataset: Path, tmp_path: Path) -> None:
    asked_of(dataset).save(tmp_path / "small")
    for query in ("select * from models", "select * from cases order by spec", "from times"):
        one, other = asked_of(dataset).sql(query), asked_of(tmp_path / "small").sql(query)
        assert one.columns == other.columns
        assert one.rows == other.rows
    assert len(asked_of(dataset, tmp_path / "small").sql("from cases").rows) == 2
    assert main(["atlas", "--dataset", str(tmp_path / "small"), "-o", str(tmp_path / "small")]) == 2


def test_a_case_of_several_datasets_is_that_of_the_last(dataset: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    case = Case("broken", "file")
    row = {**empty_row(case, "", "trace"), "ok": True, "reason": None, "flops": 9, "mode": "infer"}
    found = Found({"cases": [row]}, ([{"id": case.key, "device": "l'4", "latency": 0.25}],))
    with opened(later, Plan({case.spec: case.source}), ("l'4",), frozenset(), {}) as data:
        data.write(Group("file", (case,)), found, True, data.stages, frozenset())
    asked = "select spec, flops, latency from cases left join times using (id) order by latency"
    both = asked_of(dataset, later).sql(asked).rows
    assert both == (("broken", 9, 0.25), (HOSTILE, 7, 0.5))
    again = asked_of(later, dataset).sql(asked).rows  # the last one has no figures, and so no times
    assert again == ((HOSTILE, 7, 0.5), ("broken", None, None))


def test_what_holds_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="holds no survey"):
        asked_of(tmp_path)


def questions() -> list[tuple[str, str]]:
    text = (DOCS / "atlas.md").read_text(encoding="utf-8")
    return re.findall(r"```sql\n(.*?)\n```\n\n```text\n(.*?)\n```", text, re.DOTALL)


@pytest.mark.parametrize(("sql", "answer"), questions())
def test_the_questions_of_the_documentation(
    sql: str, answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["atlas", sql]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "\n".join(line.rstrip() for line in said).strip("\n") == answer


@pytest.mark.slow
def test_the_times_that_need_no_duckdb_are_those_of_the_atlas() -> None:
    atlas = asked_of()
    for device in atlas.devices:
        found = atlas.sql(f'select spec, "{latency(device)}" as latency from models').records()
        known = {row["spec"]: row["latency"] for row in found if row["latency"] is not None}
        assert latencies(device) == known, "python benchmarks/atlas.py writes them anew"


def test_the_atlas_agrees_with_what_is_known_and_is_small() -> None:
    from opgraph.sources.known import facts
    from opgraph.surveying.sql import BUILT_IN

    assert len(questions()) == 10
    assert sum(file.stat().st_size for file in BUILT_IN.iterdir()) < 5e6
    models = asked_of().sql("select source, name, parameters, flops, coverage from models").rows
    assert len(models) > 200
    for source, name, parameters, flops, coverage in models:
        known = facts(str(source), str(name))
        assert known.parameters in (None, parameters), name
        assert coverage != 1 or known.flops in (None, flops), name


HEAVY = {"torch", "numpy", "pandas", "pyarrow", "ray", "networkx", "duckdb", "_duckdb"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "loads"),
    [
        (("atlas", "select name, flops from models order by latency_l4 limit 3"), {"_duckdb"}),
        (("models", "--hardware", "l4", "--sort", "time", "--top", "3"), set()),
    ],
)
def test_a_question_takes_little_and_no_torch(command: tuple[str, ...], loads: set[str]) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from opgraph.cli import main\n"
        f"status = main({list(command)})\n"
        "print(*(name for name, module in sys.modules.items() if module)); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, text=True, capture_output=True)
    assert HEAVY.intersection(done.stdout.splitlines()[-1].split()) == loads
