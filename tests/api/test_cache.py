"""Profiles of names are kept: the second command traces nothing, and what could differ is not kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import DATA

from opgraph import Profile
from opgraph.api import cache
from opgraph.cli import main
from opgraph.options import Options

Saved = Callable[[str], Profile]
WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; sys.argv = ['opgraph', *{!r}];"
    "from opgraph.cli import process; process()"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


def run(*arguments: str, torch: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["-m", "opgraph", *arguments] if torch else ["-c", WITHOUT_TORCH.format(arguments)]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
@pytest.mark.live
def test_the_second_command_needs_no_torch_and_says_the_same(folder: Path, tmp_path: Path) -> None:
    first = run("profile", "resnet18", "--batch-size", "2")
    assert first.returncode == 0, first.stderr
    assert len(cache.used()) == 1
    again = run("profile", "resnet18", "--batch-size", "2", torch=False)
    assert "from cache" in again.stderr
    assert again.stdout == first.stdout
    for command in (("draw", "-o", "a.svg"), ("view", "-o", "a.html"), ("explore",)):
        name, *rest = command
        rest = [str(tmp_path / word) if word.startswith("a.") else word for word in rest]
        found = run(name, "resnet18", "--batch-size", "2", *rest, torch=False)
        assert found.returncode == 0, found.stderr
    other = run("profile", "resnet18", "--batch-size", "3", torch=False)
    assert other.returncode == 2  # another size is another profile
    fresh = run("profile", "resnet18", "--batch-size", "2", "--no-cache", torch=False)
    assert fresh.returncode == 2
    assert "1 profile" in run("cache").stdout
    assert "1 profile removed" in run("cache", "--clear").stderr
    assert not cache.used()


def test_what_may_differ_has_another_place_or_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = cache.place("resnet18", Options())
    assert usual is not None
    assert usual == cache.place("resnet18", Options())
    places = {
        usual,
        cache.place("resnet34", Options()),
        cache.place("resnet18", Options(batch_size=2)),
        cache.place("resnet18", Options(mode="train")),
        cache.place("resnet18", Options(count={"attention": "causal"})),
    }
    assert len(places) == 5
    monkeypatch.setattr(cache, "__version__", "9")
    assert cache.place("resnet18", Options()) not in places
    own = tmp_path / "model.py"
    own.write_text("")
    assert cache.place(f"{own}:build", Options()) is None
    assert cache.place("gone.py:build", Options()) is None
    assert cache.place(str(tmp_path), Options()) is None
    assert cache.place("resnet18", Options(trust=True)) is None
    monkeypatch.setenv(cache.VARIABLE, "0")
    assert cache.place("resnet18", Options()) is None


def test_files_without_code_are_kept_by_what_is_in_them(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    places = set()
    for text in ("{}", '{"n_layer": 2}'):
        for file, spec in ((own / "config.json", own), (tmp_path / "a.pt2", tmp_path / "a.pt2")):
            file.write_text(text)
            places.add(cache.place(str(spec), Options()))
            assert cache.place(str(spec), Options(trust=True)) is None
    assert len(places) == 4
    assert None not in places


@pytest.mark.slow
@pytest.mark.live
def test_a_folder_is_traced_once_and_again_when_its_configuration_changes(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "config.json"
    for layers in (1, 2):
        file.write_text(f'{{"model_type": "gpt2", "n_layer": {layers}, "n_embd": 24}}')
        assert main(["profile", str(tmp_path), "--seq-len", "8"]) == 0
        first = capsys.readouterr()
        assert "from cache" not in first.err
        again = run("profile", str(tmp_path), "--seq-len", "8", torch=False)
        assert again.stdout == first.out
        assert "from cache" in again.stderr


def test_only_whole_profiles_of_configured_names_are_kept(folder: Path, saved: Saved) -> None:
    path = cache.place("resnet18", Options())
    assert path is not None
    record = saved("resnet18")
    for source in ("module", "code"):
        cache.keep(path, replace(record, model=replace(record.model, source=source)))
    hub = replace(record.model, source="hf", name="somebody/unheard-of")
    cache.keep(path, replace(record, model=hub))
    last = record.graph.nodes[-1]
    failed = replace(record.graph, nodes=(*record.graph.nodes[:-1], replace(last, error="no")))
    cache.keep(path, replace(record, graph=failed))
    assert not cache.used()
    cache.keep(path, record)
    found = cache.kept(path)
    assert found is not None
    assert found.graph == record.graph
    assert found.model == record.model


def test_a_broken_file_is_removed(folder: Path, saved: Saved) -> None:
    path = cache.place("resnet18", Options())
    assert path is not None
    cache.keep(path, saved("resnet18"))
    path.write_bytes(path.read_bytes()[:1000])
    assert cache.kept(path) is None
    assert not path.exists()


def test_the_folder_has_a_limit_and_loses_the_oldest(
    folder: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = saved("resnet18")
    paths = [cache.place("resnet18", Options(batch_size=n)) for n in range(1, 6)]
    for age, path in enumerate(paths):
        assert path is not None
        cache.keep(path, record)
        os.utime(path, (1e9 + age, 1e9 + age))
    monkeypatch.setattr(cache, "MOST", 3 * cache.used()[0].bytes)
    newest = cache.place("resnet18", Options(batch_size=9))
    assert newest is not None
    cache.keep(newest, record)
    assert [k.path for k in cache.used()] == [newest, paths[4], paths[3]]


def test_where_nothing_can_be_written_nothing_happens(
    tmp_path: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(file))
    path = cache.place("resnet18", Options())
    assert path is not None
    cache.keep(path, saved("resnet18"))
    assert cache.kept(path) is None
    monkeypatch.setenv(cache.VARIABLE, "/dev/full/opgraph")
    path = cache.place("resnet18", Options())
    assert path is not None
    cache.keep(path, saved("resnet18"))
    assert not cache.used()


@pytest.mark.slow
def test_many_that_keep_the_same_leave_one_whole(folder: Path, saved: Saved) -> None:
    path = cache.place("resnet18", Options())
    assert path is not None
    record = saved("resnet18")

    def both(_: int) -> bool:
        cache.keep(path, record)
        found = cache.kept(path)
        return found is not None and found.graph == record.graph

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(both, range(24)))
    assert [p.name for p in folder.rglob("*") if p.is_file()] == [path.name]
    shutil.rmtree(folder)
    assert cache.kept(path) is None


def test_the_models_that_are_kept_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "profiles").mkdir(parents=True)
    for name, data in (("a", "resnet18"), ("b", "resnet18"), ("c", "gpt2")):
        shutil.copy(DATA / f"{data}.json", folder / "profiles" / f"{name}.json")
    (folder / "profiles" / "d.json").write_text("no profile")
    assert main(["cache"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "4 profiles" in said[0]
    assert sorted(said[1:]) == ["  gpt2", "  resnet18 × 2", "  unknown"]
