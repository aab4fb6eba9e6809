"""Files made of the model itself: each gives what the model gives, where opgraph is not even installed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.answering import answering
from tests.apart import thorough
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import opgraph
from opgraph.api.pipeline import prepared
from opgraph.cli import main
from opgraph.exporting import exporter_for
from opgraph.exporting.python import to_python
from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError
from opgraph.sources import resolve
from opgraph.tracing.base import arguments
from opgraph.tracing.eager import materialized
from opgraph.tracing.replay.replay import plain_result

RUN = """
import sys, torch
from torch.utils._pytree import tree_leaves

def answer(folder):
    sys.path.insert(0, folder)
    from graph import load
    result = load(folder + "/weights.pt")(*torch.load(folder + "/inputs.pt"))
    torch.save([t for t in tree_leaves(result) if isinstance(t, torch.Tensor)], folder + "/result.pt")
    del sys.modules["graph"], sys.path[0]
    return "opgraph" in sys.modules
"""


def tensors(thing: Any) -> list[Tensor]:
    return [t for t in tree_leaves(plain_result(thing)) if isinstance(t, Tensor)]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[[str], bool]]:
    """Runs the graph.py of a folder in a process that does not import opgraph, or says that it did."""
    with answering(RUN, {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}) as run:
        yield run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tracer"),
    [
        ("resnet18", "fx"),
        *thorough(
            ("resnet18", "export"),
            ("bert-base-uncased", "export"),
            ("yolov8n.pt", "export"),
            ("distilbert-base-uncased", "dynamo"),
        ),
    ],
)
def test_the_python_file_gives_what_the_model_gives(
    elsewhere: Callable[[str], bool], name: str, tracer: str, tmp_path: Path
) -> None:
    model, example = prepared(name)
    (tmp_path / "graph.py").write_bytes(to_python(model, example, tracer).content)
    real = materialized(model).eval()
    args, kwargs = arguments(example, None)
    with torch.no_grad():
        expected = tensors(real(*args, **kwargs))
    torch.save(real.state_dict(), tmp_path / "weights.pt")
    torch.save(
        [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)], tmp_path / "inputs.pt"
    )
    assert not elsewhere(str(tmp_path))
    found = list(torch.load(tmp_path / "result.pt"))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


class Talkative(nn.Linear):
    def __repr__(self) -> str:
        return "Linear(__import__('os').abort(), 4)"


def test_what_a_model_prints_is_never_run() -> None:
    model = nn.Sequential(Talkative(4, 4))
    Talkative.__module__ = "torch.nn.modules.linear"  # what makes a module a leaf to torch.fx
    with pytest.raises(opgraph.TraceError, match="does not print how it is made"):
        to_python(resolve(model), Example((torch.ones(1, 4),)), "fx")


def test_a_broken_graph_is_not_written() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(opgraph.TraceError):
        to_python(resolve(Broken()), Example((torch.ones(1, 4),)), "dynamo")


@pytest.mark.slow
def test_a_program_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    assert main(["export", "resnet18", "-o", str(path)]) == 0
    found = opgraph.profile(str(path))
    assert (found.totals.flops, found.totals.parameters) == (3628146688, 11689512)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.pt2", "x.onnx", "x.py"])
def test_what_is_left_behind_is_said_with_the_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noting.py").write_text(
        "import pathlib, torch\n"
        "class Noting(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        f"        pathlib.Path({str(tmp_path / 'note')!r}).touch()\n"
        "        return super().forward(x)\n"
        "def build():\n"
        "    return Noting(4, 4)\n"
    )
    given = [f"{tmp_path}/noting.py:build", "--trust", "--input-shape", "2x4"]
    assert main(["export", *given, "-o", str(tmp_path / name)]) == 0
    assert f"{tmp_path}/note" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.slow
def test_onnx_is_checked_and_run(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    exporter = exporter_for("model.onnx")
    assert exporter is not None
    made = exporter.run(resolve(model), Example((torch.randn(1, 3, 8, 8),)), "export")
    onnx.checker.check_model(onnx.load_from_string(made.content))
    assert made.remarks[0] == "onnx.checker accepts it"


@pytest.mark.parametrize(
    ("arguments_", "message"),
    [
        (["resnet18.json", "-o", "graph.py"], "needs the model itself"),
        (["resnet18", "--format", "onnx"], "is written to a file"),
        (["resnet18", "-o", "model.onnx", "--tracer", "fx"], "is not written from fx"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    arguments_: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *arguments_]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.live
def test_stablehlo_takes_weights_as_arguments_and_keeps_constants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every product is there at its sizes, no weight is in the file, and nothing is made of memory."""
    pytest.importorskip("torch_mlir")
    file = tmp_path / "gpt2.mlir"
    options = ["--seq-len", "8", "--model-arg", "n_layer=1", "--head", "base"]
    assert main(["export", "gpt2", *options, "-o", str(file)]) == 0
    assert "16 weights are arguments, named at its head" in capsys.readouterr().err
    text = file.read_text()
    heads = re.findall(r"^// %arg(\d+): (.*)$", text, re.MULTILINE)
    assert [int(i) for i, _ in heads] == list(range(18))  # token ids and a mask behind them
    assert [name for _, name in heads][:2] == ["wte.weight", "wpe.weight"]
    macs = 0
    some = r"tensor<([\dx]+)xf32>"
    product = rf"stablehlo\.dot_general .*?: \({some}, {some}\) -> {some}"
    for left, _, out in re.findall(product, text):
        macs += math.prod(map(int, out.split("x"))) * int(left.split("x")[-1])
    profile = opgraph.profile("gpt2", seq_len=8, model_args={"n_layer": 1}, head="base")
    assert macs == profile.totals.macs
    assert len(text) < 100_000

    class Written(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = x.new_zeros(3, 5)
            mask[-1:, :-2] = 3.0  # an open end was counted to until no memory was left
            return torch.nn.functional.interpolate(x + mask, scale_factor=2)

    written, example = prepared(Written(), torch.zeros(1, 2, 3, 5))
    made = exporter_for("x.mlir").run(written, example, "export").content.decode()
    assert re.search(r"func\.func @main\(.*\) -> tensor<1x2x6x10xf32>", made)

    class Unknown(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(x)

    model, example = prepared(Unknown(), torch.zeros(3))
    with pytest.raises(TraceError, match="torch-mlir does not get through: it makes no StableHLO"):
        exporter_for("x.mlir").run(model, example, "export")


def test_a_program_that_torch_does_not_write_is_an_error_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thin.py").write_text(
        "import torch\n\n\nclass Thin(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.eye(8).to_sparse())\n\n"
        "    def forward(self, x):\n        return self.weight @ x\n"
    )
    model, file = f"{tmp_path}/thin.py:Thin", str(tmp_path / "thin.pt2")
    assert main(["export", model, "--input-shape", "8x8", "-o", file]) == 2
    assert "error: torch.export does not write it: " in capsys.readouterr().err
