"""What loggers take: TensorBoard for real, others by a dictionary, a figure and a page."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.conftest import DATA

from opgraph import load
from opgraph.cli import main
from opgraph.integrations.loggers import figure, scalars, to_tensorboard
from opgraph.record.remarks import no_effect


def test_scalars_are_the_totals() -> None:
    found = scalars(load(DATA / "resnet18.json"))
    assert found["opgraph/flops"] == 3628146688
    assert found["opgraph/parameters"] == 11689512
    assert "opgraph/seconds" not in found
    timed = scalars(load(DATA / "resnet18.json").on("h100-sxm"))
    assert any(name not in found and value > 0 for name, value in timed.items())


@pytest.mark.slow
def test_a_figure_has_a_bar_for_each_costly_module() -> None:
    pytest.importorskip("matplotlib")
    drawn = figure(load(DATA / "gpt2.json"))
    labels = [t.get_text() for t in drawn.axes[0].get_yticklabels()]
    assert "h.[0-11].mlp.c_fc" in labels


@pytest.mark.slow
def test_tensorboard_reads_what_is_logged(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer_class = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    with writer_class(str(tmp_path)) as writer:
        to_tensorboard(writer, load(DATA / "resnet18.json"), step=3)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()
    assert "opgraph/flops" in tags["scalars"]
    assert "opgraph/costliest" in tags["images"]
    (point,) = events.Scalars("opgraph/parameters")
    assert (point.step, point.value) == (3, 11689512)


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("logger", ["tensorboard", "wandb", "mlflow"])
def test_the_lines_of_the_docs_log_the_figures_and_the_page(logger: str, tmp_path: Path) -> None:
    pytest.importorskip(logger, reason=f"{logger} is not installed (nox -s newest brings it)")
    page = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = blocks[0] + next(block for block in blocks[1:] if logger in block)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=env | {"WANDB_SILENT": "true", "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    kept = {
        file.suffix
        for file in tmp_path.rglob("*")
        if file.parent != tmp_path and file.stat().st_size
    }
    assert (
        kept
        >= {
            "tensorboard": {".0"},
            "wandb": {".wandb", ".png", ".html"},
            "mlflow": {".png", ".html"},
        }[logger]
    )
    if logger == "mlflow":
        with sqlite3.connect(tmp_path / "mlflow.db") as found:
            logged = dict(found.execute("select key, value from metrics"))
        assert logged["opgraph/flops"] == 3628146688


def test_a_card_has_metadata_that_hubs_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(DATA / "resnet18.json"), "--hardware", "l4"]) == 0
    _, head, body = capsys.readouterr().out.split("---\n", 2)
    about = yaml.safe_load(head)["opgraph"]
    assert about["flops"] == 3628146688
    assert about["inputs"] == ["x 1x3x224x224 float32"]
    assert 0 < about["predicted_seconds"]["l4"] < 1
    assert "## Computational cost" in body
    assert "| FLOPs | 3.63 GFLOPs" in body


def test_what_counted_stands_apart_from_the_remarks_of_a_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, file = load(DATA / "resnet18.json"), tmp_path / "noted.json"
    replace(found, model=found.model.noting(no_effect("seq_len", "from a test"))).save(file)
    assert main(["card", str(file)]) == 0
    assert "(`no-effect`)\n\nCounted by" in capsys.readouterr().out
