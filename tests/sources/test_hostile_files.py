"""Hostile files: whatever is in them, nothing runs, and there is one clear error or a sound result."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import DATA
from tests.hostile_files import KINDS, MARK, attempt, make, sound_checkpoint, sound_program
from torch import nn

import opgraph
from opgraph.cli import main
from opgraph.record.errors import OpgraphError, SourceError, UntrustedFile

CASES = int(os.environ.get("OPGRAPH_HOSTILE_FILES", "8"))
"""How many of each kind are tried here; benchmarks/fuzz.py tries 10,000."""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there when code in a hostile file has run."""
    monkeypatch.setenv(MARK, str(tmp_path / "ran"))
    return tmp_path / "ran"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_the_fuzzed(kind: str, tmp_path: Path, mark: Path) -> None:
    for number in range(CASES):
        path = make(kind, number, tmp_path)
        with suppress(OpgraphError):
            attempt(kind, path, number)
        assert not mark.exists(), number


def edited(path: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """An exported program with something else in its description."""
    sound = path.with_suffix(".sound")
    sound.write_bytes(sound_program())
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                told = json.loads(data)
                edit(told)
                data = json.dumps(told).encode()
            new.writestr(name, data)
    return path


def renamed(told: dict[str, Any], code: str) -> None:
    text = json.dumps(told).replace('"x"', json.dumps(f"x={code}"))
    told.update(json.loads(text.replace('"p_linear_weight"', json.dumps(f"w={code}"))))


def imported(told: dict[str, Any], code: str) -> None:
    context = {"default_factory_module": "this", "default_factory_name": "d", "dict_context": []}
    spec = [
        1,
        {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []},
    ]
    told["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps(spec)


def sized(told: dict[str, Any], code: str) -> None:
    told["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = code


def reading(told: dict[str, Any], code: str) -> None:
    told["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"


@pytest.mark.parametrize("edit", [renamed, imported, sized, reading])
def test_a_program_that_would_run_code(
    edit: Callable[[dict[str, Any], str], None], tmp_path: Path, mark: Path
) -> None:
    path = edited(tmp_path / "a.pt2", lambda told: edit(told, f"open({str(mark)!r}, 'w')"))
    with pytest.raises(UntrustedFile, match="more than a graph"):
        opgraph.profile(str(path))
    assert not mark.exists()


@pytest.mark.slow
def test_guards_of_a_program_never_run(tmp_path: Path, mark: Path) -> None:
    code = f"open({str(mark)!r}, 'w') is None"
    path = edited(tmp_path / "a.pt2", lambda told: told.update(guards_code=[code]))
    assert opgraph.profile(str(path)).totals.flops == 2 * 2 * 3 * 4
    assert not mark.exists()


@pytest.mark.slow
def test_names_of_modules_in_a_program_never_run(tmp_path: Path, mark: Path) -> None:
    """They stand in what is noted at nodes. Where they are no plain names, there are no modules."""
    sound = opgraph.profile(str(edited(tmp_path / "sound.pt2", lambda told: None)))
    assert [n.scope for n in sound.graph.nodes if n.op == "linear"] == ["linear"]

    def renamed(told: dict[str, Any]) -> None:
        for node in told["graph_module"]["graph"]["nodes"]:
            stack = node["metadata"]["nn_module_stack"]
            code = f'linear") or __import__("pathlib").Path({str(mark)!r}).touch() or ("'
            node["metadata"]["nn_module_stack"] = stack.replace(",linear,", f",{code},")

    path = edited(tmp_path / "a.pt2", renamed)
    profile = opgraph.profile(str(path))
    assert profile.totals == sound.totals
    assert {n.scope for n in profile.graph.nodes} == {""}
    assert not mark.exists()


def test_sizes_that_take_for_ever(tmp_path: Path) -> None:
    path = edited(tmp_path / "a.pt2", lambda told: sized(told, "10**10**10"))
    with pytest.raises(UntrustedFile):
        opgraph.profile(str(path))


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "sound"), [(".pt", sound_checkpoint), (".pt2", sound_program)])
def test_archives_that_unpack_to_far_more(
    suffix: str, sound: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(sound())
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data/99", "w") as member,
    ):
        for _ in range(128):
            member.write(bytes(2**20))
    with pytest.raises(SourceError, match="far more than it is"):
        opgraph.profile(str(path))


def cyclic() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model._modules["self"] = model
    return model


def grown() -> nn.Module:
    model = nn.Linear(2, 2)
    model.weight = nn.Parameter(torch.zeros(1).half().expand(10**5, 10**6))
    return model


def hooked() -> nn.Module:
    model = nn.Linear(2, 2)
    model._forward_hooks[0] = nn.Linear(1, 1).load_state_dict  # type: ignore[assignment]
    return model


def filled() -> nn.Module:
    model = nn.Sequential()
    model._modules["0"] = 3  # type: ignore[assignment]
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [(cyclic, "recursion"), (grown, "memory of a smaller one"), (hooked, "load_state_dict"),
     (filled, "broken")],
)  # fmt: skip
def test_modules_that_are_not_sound(
    build: Callable[[], nn.Module], message: str, tmp_path: Path
) -> None:
    torch.save(build(), tmp_path / "a.pt")
    with pytest.raises(SourceError, match=message):
        opgraph.profile(str(tmp_path / "a.pt"))


def test_a_fused_checkpoint_keeps_its_forward(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.forward = model.forward  # type: ignore[method-assign]
    torch.save(model, tmp_path / "a.pt")
    assert opgraph.profile(str(tmp_path / "a.pt"), torch.ones(1, 2)).totals.flops == 8


@pytest.mark.parametrize(
    "text",
    ['{"model_type": "bert", "num_hidden_layers": 1000000000}', '{"model_type": []}',
     '{"model_type": "bert", "architectures": 3, "hidden_size": -1}', "[" * 100_000,
     '{"model_type": "bert", "hidden_size": NaN}', '{"auto_map": {"AutoModel": "x.Y"}}', "\0", "3"],
)  # fmt: skip
def test_configurations_that_cannot_be(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["profile", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(("error: ", "hint: "))
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert "not expected" not in lines[-1]


def huge(data: dict[str, Any]) -> None:
    node = data["graph"]["nodes"][1]
    data["graph"]["nodes"] += [{**node, "id": i} for i in range(20_000)]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["graph"]["nodes"][3].update(inputs=[10**9]), "does not exist"),
        (lambda d: d["graph"]["nodes"][3].update(inputs=d["graph"]["nodes"][9]["outputs"]), "before"),
        (lambda d: d["graph"]["values"][3].update(alias_of=3), "not before it"),
        (lambda d: d["graph"]["values"][3].update(bytes=10**400), "out of range"),
        (lambda d: d["graph"]["values"][3].update(bytes=float("nan")), "NaN"),
        (lambda d: d["graph"]["values"][3].update(bytes="4"), "got `str` - at `$.graph.values[3].bytes`"),
        (lambda d: d.update(graph=[]), "Expected `object`, got `array`"),
        (lambda d: d.update(schema_version=99), "schema version 99"),
        (huge, "has the id"),
    ],
)  # fmt: skip
def test_profiles_that_contradict_themselves(
    edit: Callable[[Any], None], message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data = json.loads((DATA / "resnet18.json").read_text())
    edit(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert main(["profile", str(tmp_path / "a.json")]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
