"""A survey writes every case once, whatever becomes of it, of its worker, of the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA
from tests.surveying.conftest import MODELS, Cluster, small

import opgraph
from opgraph.cli import main
from opgraph.record.errors import InputError, ProfileError, UnknownModel
from opgraph.surveying import worker
from opgraph.surveying.cases import GROUP, Case, Plan
from opgraph.surveying.dataset import opened
from opgraph.surveying.job import planned
from opgraph.surveying.sql import SPENT
from opgraph.surveying.worker import Task, work

SIXTY = [*small("Small", "Broken", shapes="2x8"), "--dtype", "float32,float64,bfloat16",
         "--mode", "infer,train", "--target", "cpu,cuda,mps,cuda:8.0,cuda:9.0"]  # fmt: skip


def test_a_plan_goes_over_everything_once_and_in_groups_of_one_source() -> None:
    plan = planned(
        ["resnet18", "resnet1*", "gpt2"], {"batch_size": [1, 2, 4], "mode": ["infer", "train"]}
    )
    groups = list(plan.groups())
    keys = [case.key for group in groups for case in group.cases]
    assert len(set(keys)) == len(keys) == len(plan) == 6 * len(plan.models)
    assert max(len(g.cases) for g in groups) <= GROUP
    assert all({c.source for c in g.cases} == {g.source} for g in groups)
    again = planned(
        ["resnet18", "resnet1*", "gpt2"], {"batch_size": (1, 2, 4), "mode": ("infer", "train")}
    )
    assert [g.key for g in again.groups()] == [g.key for g in groups]


def test_times_made_anew_are_of_the_models_that_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for given in (["--models", "gpt2"], ["--batch-size", "2"], ["--keep", "kernels"]):
        assert main(["survey", "--recost", "-o", "zoo", *given]) == 2
        assert f"{given[0]} changes nothing of times made anew" in capsys.readouterr().err
    with pytest.raises(InputError, match="that the folder has"):
        opgraph.survey("gpt2", "zoo", recost=True)
    assert main(["survey", "--recost"]) == 2


@pytest.mark.parametrize(
    ("models", "options", "error", "said"),
    [
        ("nosuch", {}, UnknownModel, "no source knows a model nosuch"),
        ("nosuch*", {}, UnknownModel, "no name fits nosuch"),
        ([], {}, UnknownModel, "a survey of nothing"),
        ("gpt2", {"optimizer": "sgd"}, InputError, "optimizer has no effect"),
        ("gpt2", {"batch_size": [1, 0]}, InputError, "batch_size: 0"),
        ("gpt2", {"batchsize": 1}, InputError, "survey does not take batchsize"),
        ("gpt2", {"mode": "train", "loss": len}, InputError, "writes its options down"),
    ],
)
def test_what_cannot_be_asked_of_any_case(models: Any, options: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        planned(models, options)


def test_names_are_a_list_with_commas() -> None:
    assert list(planned("resnet18,gpt2", {}).models) == ["resnet18", "gpt2"]
    assert planned(["resnet18", "gpt2"], {}).models == planned("resnet18,gpt2,", {}).models
    with pytest.raises(UnknownModel, match="nosuchmodel"):
        planned("resnet18,nosuchmodel", {})


def test_a_list_is_a_file(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text(
        "resnet18  # the usual one\n\nsqueezenet1_*\nno/such:thing\n", encoding="utf-8"
    )
    found = planned(str(names), {}).models
    assert list(found) == ["resnet18", "squeezenet1_0", "squeezenet1_1", "no/such:thing"]


def test_a_folder_is_for_one_survey_and_one_driver(tmp_path: Path) -> None:
    folder, plan = tmp_path / "zoo", planned("resnet18", {})
    with opened(folder, plan, ("l4",), frozenset(), {}) as first:
        assert first.stages == (("l4",),)
        with (
            pytest.raises(ProfileError, match="another survey is writing"),
            opened(folder, plan, (), frozenset(), {}),
        ):
            pass
    with opened(folder, plan, ("h100-sxm", "l4"), frozenset(), {}) as again:
        assert again.stages == (("l4",), ("h100-sxm",))
    with (
        pytest.raises(ProfileError, match="holds another survey"),
        opened(folder, planned("gpt2", {}), (), frozenset(), {}),
    ):
        pass
    both, turned = (planned(names, {}) for names in (["gpt2", "resnet18"], ["resnet18", "gpt2"]))
    with opened(tmp_path / "two", both, (), frozenset(), {}):
        pass
    with (  # its groups would hold other cases
        pytest.raises(ProfileError, match="holds another survey"),
        opened(tmp_path / "two", turned, (), frozenset(), {}),
    ):
        pass
    for asked, said in ((folder, "keeps no graphs"), (tmp_path / "nothing", "holds no survey")):
        with (
            pytest.raises(ProfileError, match=said),
            opened(asked, None, (), frozenset(), {}),
        ):
            pass
    with (
        pytest.raises(ProfileError, match="holds something else"),
        opened(DATA, plan, (), frozenset(), {}),
    ):
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("checked", [1, 10**30])
def test_batches_that_are_derived_are_those_that_are_traced(
    checked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each is traced all the same to check it."""
    monkeypatch.setattr(worker, "CHECKED", checked)
    asked = {"batch_size": [4, 1, 8, 2], "mode": ["infer", "train"]}
    plan = planned("timm:test_vit", asked, derive=True)
    cases = [case for group in plan.groups() for case in group.cases]
    assert [c.options["batch_size"] for c in cases[:4]] == [1, 8, 2, 4]

    def rows(derive: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]], set[str]]:
        found = work(Task(tuple(cases), stages=(("l4", "xeon-8480"),), derive=derive))
        told = [
            {k: row[k] for k in row if k not in (*SPENT, "tracer")} for row in found.tables["cases"]
        ]
        return told, found.times[0], {row["tracer"] for row in found.tables["cases"]}

    *derived, how = rows(derive=True)
    *traced, _ = rows(derive=False)
    assert derived == traced
    assert how == ({"eager"} if checked == 1 else {"eager", "derived"})
    with pytest.raises(InputError, match="between two that are traced"):
        planned("timm:test_vit", {"batch_size": [1, 8]}, derive=True)


@pytest.mark.slow
@pytest.mark.live
def test_a_case_is_not_counted_with_what_earlier_ones_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is half as large as a case may be hands its cases back, but for its first one."""
    for name, value in (("_begun", 0), ("_spoiled", False)):
        monkeypatch.setattr(worker, name, value)
    cases = (Case("no/such:1", "file"), Case("no/such:2", "file"))
    now = worker._resident("VmRSS:")
    if now is None:
        pytest.skip("the system does not say what a process takes")
    found = work(Task(cases, graphs={c.key: b"" for c in cases}, memory=now))
    assert [row["id"] for row in found.tables["cases"]] == [cases[0].key]
    assert found.left == 1


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_sizes_of_a_model_are_traced_with_one_that_is_built_once(mode: str, tmp_path: Path) -> None:
    """The rows are those of a model that is built anew for each."""
    (tmp_path / "models.py").write_text(MODELS)
    spec, sizes = f"{tmp_path}/models.py:Small", [(2, 8), (4, 8), (8, 3, 8)]
    cases = [Case(spec, "file", {"mode": mode, "input_shape": size}) for size in sizes]

    def rows(*asked: Case) -> list[dict[str, Any]]:
        found = work(Task(asked, stages=(("l4",),)))
        return [{k: row[k] for k in row if k not in SPENT} for row in found.tables["cases"]]

    together = rows(*cases)
    assert len(worker._built) == 1
    alone = []
    for case in cases:
        worker._built.clear()
        alone += rows(case)
    assert together == alone
    assert all(row["ok"] for row in alone)


def test_a_plan_of_a_million_cases_is_small() -> None:
    import tracemalloc

    sizes = tuple(range(1, 1001))
    plan = Plan({f"m{i}": "hf" for i in range(10)}, {"batch_size": sizes, "seq_len": sizes[:100]})
    assert len(plan) == 10**6
    tracemalloc.start()
    count = sum(1 for _, _ in zip(plan.groups(), range(300), strict=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 300
    assert peak < 2**20


# What follows runs on Ray.


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """A table of a dataset without what finding it out took, in one order."""
    found = opgraph.atlas(folder).sql(f"select * from {table}").records()
    return sorted(({k: v for k, v in r.items() if k not in SPENT} for r in found), key=str)


@pytest.mark.slow
@pytest.mark.live
def test_each_case_has_a_row_and_says_why_it_has_no_figures(cluster: Cluster, folder: Path) -> None:
    names = ("Small", "Broken", "Hanging", "Deadly", "Hungry", "Missing")
    status, found, _ = cluster.survey(
        folder,
        *small(*names),
        "--timeout",
        "10",
        "--memory-limit",
        "8",
        "-o",
        "zoo",
        "--hardware",
        "l4",
    )
    said = {
        row["spec"].partition(":")[2]: (row["ok"], row["stage"], row["reason"]) for row in found
    }
    assert status == 1
    assert said["Small"] == (True, "trace", None)
    assert said["Broken"][:2] == (False, "trace")
    assert "it never ran" in said["Broken"][2]
    assert said["Hanging"] == (False, "process", "not done after 10 s")
    assert said["Deadly"][:2] == (False, "process")
    assert said["Deadly"][2].endswith("3 times")
    assert said["Hungry"] == (False, "trace", "MemoryError")
    assert said["Missing"][:2] == (False, "build")
    assert [t["device"] for t in rows(folder / "zoo", "times")] == ["l4"]
    assert "memory_limit" not in str({row["options"] for row in rows(folder / "zoo", "cases")})


@pytest.mark.thorough
@pytest.mark.live
def test_further_devices_come_from_saved_graphs_without_torch(
    cluster: Cluster, folder: Path
) -> None:
    asked = [*small("Small", "Broken"), "--keep", "graphs", "--keep", "kernels", "--keep", "modules",
             "-o", "zoo"]  # fmt: skip
    cluster.survey(folder, *asked, "--hardware", "l4")
    (folder / "models.py").write_text("raise ImportError('it was traced again')", encoding="utf-8")
    cluster.survey(folder, *asked, "--hardware", "h100-sxm,l4")
    times = rows(folder / "zoo", "times")
    assert sorted(t["device"] for t in times) == ["h100-sxm", "l4"]
    assert all(t["latency"] for t in times)
    assert {r["kernel"] for r in rows(folder / "zoo", "kernels")} >= {"aten.addmm", "aten.relu"}
    # Times made anew by a driver that was killed on the way: it goes on.
    files = {path.stat().st_ino for path in (folder / "zoo" / "times").rglob("*.parquet")}
    (folder / "zoo" / "times").rename(folder / "zoo" / "times.before")
    status, found, _ = cluster.survey(folder, "--recost", "-o", "zoo", "--hardware", "t4")
    assert (status, len(found)) == (1, 2)
    assert [t for t in rows(folder / "zoo", "times") if t["device"] != "t4"] == times
    assert files.isdisjoint(p.stat().st_ino for p in (folder / "zoo" / "times").rglob("*.parquet"))
    assert not (folder / "zoo" / "times.before").exists()
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\nimport zipfile\n"
        "from opgraph.surveying.cases import Case\n"
        "from opgraph.surveying.worker import Task, work\n"
        "file = zipfile.ZipFile(next(Path('zoo/graphs').rglob('*.zip')))\n"
        "case = Case('models.py:Small', 'file', {'input_shape': (2, 8)})\n"
        "graphs = {case.key: file.read(file.namelist()[0])}\n"
        "print(work(Task((case,), False, (('b200',),), graphs=graphs)).times[0][0]['latency'] > 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=False, text=True, capture_output=True
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.slow
@pytest.mark.live
def test_what_is_killed_loses_nothing_and_writes_nothing_twice(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.add_node()
    driver = cluster.driver(folder, *SIXTY, "-o", "zoo")
    until(lambda: workers() or driver.poll() is not None)
    for process in workers():
        os.kill(process, signal.SIGKILL)
    until(lambda: any((folder / "zoo" / "cases").rglob("*.parquet")) or driver.poll() is not None)
    cluster.nodes.remove_node(node, allow_graceful=False)
    driver.kill()
    driver.communicate(timeout=300)
    status, found, _ = cluster.survey(folder, *SIXTY, "-o", "zoo")
    assert (status, len(found)) == (1, 60)
    assert not [p for p in (folder / "zoo").rglob(".*") if p.name != ".lock"]

    monkeypatch.chdir(folder)  # the same in one process that nothing disturbs
    sizes = {"dtype": ["float32", "float64", "bfloat16"], "mode": ["infer", "train"]}
    targets = ["cpu", "cuda", "mps", "cuda:8.0", "cuda:9.0"]
    plan = planned(
        ["models.py:Small", "models.py:Broken"], {**sizes, "target": targets, "input_shape": (2, 8)}
    )
    with opened(folder / "undisturbed", plan, (), frozenset(), {}) as dataset:
        for group in plan.groups():
            dataset.write(group, work(Task(group.cases)), True, (), frozenset())
    assert rows(folder / "zoo", "cases") == rows(folder / "undisturbed", "cases")


def until(holds: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def workers() -> list[int]:
    """The processes of Ray's that are at work on a case."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::file: models.py"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.live
def test_without_an_address_ray_is_started_and_ended(folder: Path) -> None:
    asked = [sys.executable, "-m", "opgraph", "survey", *small("Small"), "--jobs", "1", "-q"]
    done = subprocess.run(
        asked, cwd=folder, check=False, text=True, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 1 case with a result" in done.stdout


@pytest.mark.slow
@pytest.mark.live
def test_cases_in_fewer_bits() -> None:
    """Rows have the figures of the scheme, devices what they have units for; bad ones are refused."""
    one = {"mode": "decode", "model_args": {"n_layer": 1}}
    plan = planned("gpt2", {**one, "weights": "fp8", "activations": "fp8"})
    (group,) = Plan.of(plan.to_dict()).groups()
    found = work(Task(group.cases, stages=(("h100-sxm", "a100-sxm-80gb"),)))
    (row,) = found.tables["cases"]
    profile = opgraph.profile("gpt2", **one)
    for on in found.times[0]:
        kept = profile.on(on["device"], weights="fp8", activations="fp8")
        assert (on["latency"], on["joules"]) == (kept.seconds, kept.energy.joules)
        assert on["memory_share"] == kept.fit.needed / kept.fit.capacity
        assert kept.fit.weights < 0.9 * profile.on(on["device"]).fit.weights
    assert row["bytes"] == profile.on(weights="fp8", activations="fp8").totals.bytes
    assert "'weights': 'fp8'" in row["options"]
    with pytest.raises(InputError, match="no kernel multiplies weights in nf4"):
        planned("gpt2", {"weights": "nf4", "activations": "fp8"})
