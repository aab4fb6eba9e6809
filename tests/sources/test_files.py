"""Files are opened without trusting them: a pickle gets only the classes that checkpoints need."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import opgraph
from opgraph.inputs import make_inputs
from opgraph.record.errors import SourceError, UntrustedFile
from opgraph.sources import BuildOptions, resolve


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x)


class Calls:
    """A pickle that calls a function when it is opened."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def saved(folder: Path, content: Any) -> str:
    path = folder / "model.pt"
    torch.save(content, path)
    return str(path)


@pytest.mark.slow
def test_a_whole_module_is_taken(tmp_path: Path) -> None:
    model = resolve(saved(tmp_path, torchvision.models.resnet18()))
    assert type(model.module) is torchvision.models.resnet.ResNet
    assert model.info.source == "file"


@pytest.mark.slow
def test_an_ultralytics_checkpoint_is_taken_at_its_own_size(tmp_path: Path) -> None:
    from ultralytics.nn.tasks import DetectionModel

    detector = DetectionModel("yolov8n.yaml", verbose=False)
    detector.args = {"imgsz": 320}
    model = resolve(saved(tmp_path, {"model": detector.half(), "ema": None, "epoch": -1}))
    assert type(model.module) is DetectionModel
    assert sum(p.numel() for p in model.module.parameters()) == 3_157_200
    assert make_inputs(model).args[0].shape == (1, 3, 320, 320)
    assert make_inputs(model).args[0].dtype is torch.float32


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(UntrustedFile, match=r"(posix|nt)\.system"):
        resolve(saved(tmp_path, {"model": Calls(os.system, f"touch {mark}")}))
    assert not mark.exists()


def test_constructors_that_evaluate_text_cannot_be_called(tmp_path: Path) -> None:
    from ultralytics.nn.tasks import DetectionModel

    mark = tmp_path / "ran"
    yaml = {
        "activation": f"__import__('os').system('touch {mark}')",
        "nc": 80, "backbone": [[-1, 1, "Conv", [16, 3, 2]]], "head": [],
    }  # fmt: skip
    with pytest.raises(UntrustedFile, match="constructor of DetectionModel"):
        resolve(saved(tmp_path, Calls(DetectionModel, yaml)))
    assert not mark.exists()


def test_unknown_classes_need_trust(tmp_path: Path) -> None:
    path = saved(tmp_path, Mine())
    with pytest.raises(UntrustedFile, match="Mine") as caught:
        resolve(path)
    assert "--trust" in (caught.value.hint or "")
    assert type(resolve(path, BuildOptions(trust=True)).module) is Mine


def test_a_trusted_pickle_finds_the_code_beside_which_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from torch import nn\nclass Net(nn.Linear):\n    pass\n"
    (tmp_path / "own_code_of_it.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_code_of_it")
    path = saved(tmp_path, own.Net(3, 4))
    monkeypatch.undo()
    del sys.modules["own_code_of_it"]
    trusting = BuildOptions(trust=True)
    with pytest.raises(SourceError, match="No module named 'own_code_of_it'") as caught:
        resolve(path, trusting)
    assert "from which own_code_of_it is imported" in (caught.value.hint or "")
    monkeypatch.chdir(tmp_path)
    assert type(resolve(path, trusting).module).__name__ == "Net"


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"state_dict": w, "epoch": 3}])
def test_a_state_dict_is_recognized(tmp_path: Path, wrap: Any) -> None:
    with pytest.raises(SourceError, match="state_dict"):
        resolve(saved(tmp_path, wrap(Mine().state_dict())))


def archive() -> bytes:
    """What torch.save writes of a module."""
    buffer = io.BytesIO()
    torch.save(Mine(), buffer)
    return buffer.getvalue()


def old() -> bytes:
    buffer = io.BytesIO()
    torch.save(Mine(), buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def damaged() -> bytes:
    content = bytearray(archive())
    start = content.index(b"data.pkl") + 60
    content[start : start + 100] = b"?" * 100
    return bytes(content)


OTHERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"no model", "torch.{}save("),
    "noise": (lambda: bytes(range(256)) * 9, "torch.{}save("),
    "nothing": (lambda: b"", "empty"),
    "a half": (lambda: archive()[:900], "cut off at its 900 bytes"),
    "all but the end": (lambda: archive()[:-30], "cut off at its"),
    "changed": (damaged, "damaged"),
    "a pointer": (
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "git lfs pull",
    ),
    "a page": (lambda: b"<!DOCTYPE html><html></html>", "web page"),
    "tensors": (lambda: b"\x09" + bytes(7) + b'{"a":{}}x', "safetensors"),
    "a number": (lambda: pickle.dumps(3), "torch.{}save("),
    "of another time": (old, "--trust"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_file_that_is_something_else_says_what_to_do(
    tmp_path: Path, name: str, kind: str
) -> None:
    content, hint = OTHERS[kind]
    (tmp_path / name).write_bytes(content())
    with pytest.raises(SourceError, match="is not") as caught:
        resolve(str(tmp_path / name))
    assert hint.format("export." * name.endswith("2")) in (caught.value.hint or "")
    assert ". This is an internal" not in str(caught.value)


@pytest.mark.parametrize("content", [3, [torch.ones(2)], {"epoch": 3}, None])
def test_a_checkpoint_without_a_model_says_what_to_do(tmp_path: Path, content: Any) -> None:
    with pytest.raises(SourceError, match="holds no module, but") as caught:
        resolve(saved(tmp_path, content))
    assert "torch.save(model, FILE)" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("content", "hint"),
    [(lambda: pickle.dumps(3), "torch.save("), (lambda: old()[:300], "cut off at its 300 bytes")],
)
def test_a_trusted_file_that_is_something_else_says_what_to_do(
    tmp_path: Path, content: Callable[[], bytes], hint: str
) -> None:
    (tmp_path / "model.pt").write_bytes(content())
    with pytest.raises(SourceError, match="cannot be opened") as caught:
        resolve(str(tmp_path / "model.pt"), BuildOptions(trust=True))
    assert hint in (caught.value.hint or "")


EXPORTS = """
import sys, torch
from transformers import BertConfig, BertModel
small = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
program = torch.export.export(BertModel(small).eval(), (torch.ones(1, 8, dtype=torch.long),), strict=False)
torch.export.save(program, sys.argv[1])
"""
OPENS = """
import sys, opgraph
print(opgraph.profile(sys.argv[1]).totals.flops)
"""


@pytest.mark.slow
def test_a_program_that_gives_what_a_library_has_a_type_for(tmp_path: Path) -> None:
    """It is opened where nobody has imported that library."""
    path = str(tmp_path / "bert.pt2")
    subprocess.run([sys.executable, "-c", EXPORTS, path], check=True)
    opened = subprocess.run([sys.executable, "-c", OPENS, path], check=True, capture_output=True)
    layer, pooler = 2 * 8 * 16 * 16 * 6 + 2 * 2 * 8 * 8 * 16, 2 * 16 * 16
    assert int(opened.stdout) == layer + pooler


@dataclass
class Given:
    """What torch was told of as a tree, in this process."""

    y: torch.Tensor


class Gives(nn.Module):
    def forward(self, x: torch.Tensor) -> Given:
        return Given(x + 1)


def test_a_program_of_types_that_nobody_tells_of(tmp_path: Path) -> None:
    torch.export.register_dataclass(Given, serialized_type_name="mine.Given")
    program = torch.export.export(Gives(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "mine.pt2")
    assert resolve(str(tmp_path / "mine.pt2")).info.name == "mine.pt2"
    tree = torch.utils._pytree
    told = tree.SERIALIZED_TYPE_TO_PYTHON_TYPE.pop("mine.Given")
    with pytest.raises(SourceError, match=r"gives mine\.Given") as caught:
        resolve(str(tmp_path / "mine.pt2"))
    assert "import what registers it" in (caught.value.hint or "")
    tree.SERIALIZED_TYPE_TO_PYTHON_TYPE["mine.Given"] = told


class Attends(nn.Module):
    """A module by the name of `self`, as BERT's attention has, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.self, self.output = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: torch.Tensor, *, factor: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.output(self.self(x)) * factor + self.output(x)}


@pytest.mark.slow
@pytest.mark.parametrize("tracer", ["eager", "dynamo", "export", "fx"])
def test_an_exported_program_has_the_modules_it_was_exported_from(
    tmp_path: Path, tracer: str
) -> None:
    model, given = Attends().eval(), {"factor": torch.ones(1)}
    whole = opgraph.profile(model, torch.ones(2, 4), given)
    torch.export.save(
        torch.export.export(model, (torch.ones(2, 4),), given), tmp_path / "model.pt2"
    )
    found = opgraph.profile(str(tmp_path / "model.pt2"), tracer=tracer)
    assert found.totals.flops == whole.totals.flops
    assert found.totals.parameters == whole.totals.parameters
    kinds = {scope.path: scope.cls for scope in found.graph.scopes}
    assert kinds == {scope.path: scope.cls for scope in whole.graph.scopes}
    linears = [n.scope for n in found.graph.nodes if n.op == "linear"]
    assert linears == ["self", "output.0", "output.0"]
    assert "x 2x4" in str(found)
    assert "factor 1" in str(found)


def test_an_exported_program_brings_its_inputs(tmp_path: Path) -> None:
    program = torch.export.export(Mine().eval(), (torch.randn(2, 3),))
    torch.export.save(program, tmp_path / "mine.pt2")
    model = resolve(str(tmp_path / "mine.pt2"))
    assert make_inputs(model).args[0].shape == (2, 3)


CODE = """
import torch
class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return self.linear(x)
def build(**arguments):
    return Net(**arguments)
number = 3
"""


@pytest.mark.parametrize(("name", "width"), [("build", 16), ("Net", 16)])
def test_code_of_the_users_own(tmp_path: Path, name: str, width: int) -> None:
    (tmp_path / "net.py").write_text(CODE)
    options = BuildOptions(arguments={"width": width})
    model = resolve(f"{tmp_path / 'net.py'}:{name}", options)
    assert make_inputs(model).args[0].shape == (1, width)
    assert next(model.module.parameters()).is_meta


@pytest.mark.parametrize(("name", "message"), [("bild", "has no bild"), ("number", "not a module")])
def test_code_that_is_no_model(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "net.py").write_text(CODE)
    with pytest.raises(SourceError, match=message):
        resolve(f"{tmp_path / 'net.py'}:{name}")
