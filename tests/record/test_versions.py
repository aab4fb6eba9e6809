"""Without torch, or with one that is too old, what traces says so in one line before anything else."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import opgraph.sources.libraries as libraries_module
from opgraph.cli import main
from opgraph.record.errors import MissingDependency, SourceError
from opgraph.record.versions import OLDEST, require_torch

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def torch_of(version: str) -> ModuleType:
    module = ModuleType("torch")
    module.__version__ = version  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("version", ["2.13.0+cu121", "1.13.0"])
def test_a_torch_that_is_too_old_is_named_with_what_brings_a_newer_one(
    version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(version))
    assert main(["profile", "bert-base-uncased"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: opgraph traces with torch 2.14 or newer, and here is torch {version}"
    assert hint == "hint: pip install -U 'opgraph[transformers]' brings a newer one"
    with pytest.raises(SourceError, match="here is torch"):
        require_torch()


@pytest.mark.parametrize("version", ["2.14.0", "2.15.0a0+git1234", "3.0", "unknown"])
def test_a_torch_that_is_not_known_to_be_too_old_is_taken(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(version))
    require_torch()


@pytest.mark.parametrize("model", ["bert-base-uncased", "model.py:build", "resnet18"])
def test_without_torch_tracing_says_what_to_install(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("build = None")
    monkeypatch.setattr("opgraph.record.versions._installed", lambda: None)
    for arguments in (["profile", model], ["check", model]):
        assert main(arguments) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert error == "error: torch is not installed"
        assert re.fullmatch(r"hint: pip install 'opgraph\[\w+\]' brings it", hint)
    with pytest.raises(MissingDependency):
        require_torch()


@pytest.mark.parametrize(
    ("package", "model", "oldest", "extra"),
    [
        ("transformers", "bert-base-uncased", "5.21", "transformers"),
        ("torchvision", "resnet18", "0.29", "torchvision"),
        ("timm", "timm:vit_tiny_patch16_224", "1.0.20", "timm"),
        ("ultralytics", "yolov8n", "8.4", "yolo"),
        ("diffusers", "diffusers:unet/sd-1.5", "0.37", "diffusers"),
    ],
)
def test_a_library_that_is_too_old_is_one_line(
    package: str, model: str, oldest: str, extra: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(libraries_module, "installed", {package: "0.28.9"}.get)
    assert main(["profile", model]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert (
        error
        == f"error: opgraph traces with {package} {oldest} or newer, and here is {package} 0.28.9"
    )
    assert hint == f"hint: pip install -U 'opgraph[{extra}]' brings a newer one"


def test_the_bounds_of_libraries_are_those_of_the_extras() -> None:
    from opgraph.sources.registry import libraries

    for library in libraries().values():
        bound = f"{library.package}>={'.'.join(map(str, library.oldest))}"
        assert bound in PROJECT["optional-dependencies"][library.extra]


def test_what_can_trace_carries_the_same_bound() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras["torch"][0] == f"torch>={'.'.join(map(str, OLDEST))}"
    assert not any("torch" in needed for needed in PROJECT["dependencies"])

    def brings(extra: str) -> set[str]:
        found = {extra}
        for needed in extras[extra]:
            inner = re.match(r"opgraph\[(.+)\]", needed)
            found |= {e for name in inner[1].split(",") for e in brings(name)} if inner else set()
        return found

    from opgraph.sources.registry import libraries

    for library in libraries().values():
        assert "torch" in brings(library.extra), library.extra
