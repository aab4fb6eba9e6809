"""Names become modules: the published parameter count is the proof, and no weight is allocated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import DATA
from torch import nn

from opgraph.inputs import make_inputs
from opgraph.record.errors import SourceError, UnknownModel
from opgraph.sources import BuildOptions, resolve
from opgraph.sources.registry import sources


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "source", "parameters"),
    [
        ("resnet18", "torchvision", 11_689_512),
        ("bert-base-uncased", "hf", 109_482_240),
        ("gpt2", "hf", 124_439_808),
        ("meta-llama/Llama-3.1-405B", "hf", 405_853_388_800),
        ("yolov8n.pt", "ultralytics", 3_157_200),
    ],
)
def test_a_name_gives_the_published_model(spec: str, source: str, parameters: int) -> None:
    model = resolve(spec)
    assert model.info.source == source
    assert sum(p.numel() for p in model.module.parameters()) == parameters
    assert not model.module.training
    assert make_inputs(model)


@pytest.mark.slow
def test_the_callers_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    resolve("yolov8n")
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve("resnet81")
    assert "resnet18" in (caught.value.hint or "")


def test_what_a_default_configuration_lacks_is_completed_and_said() -> None:
    model = resolve("hf-type:time_series_transformer")
    assert model.config.prediction_length == 24
    assert "completed with prediction_length=24" in model.info.notes
    own = resolve(
        "hf-type:time_series_transformer", BuildOptions(arguments={"prediction_length": 7})
    )
    assert own.config.prediction_length == 7


def test_model_types_are_listed_that_a_model_takes() -> None:
    listed = sources()["hf-type"].names()
    assert {"siglip", "vitpose_backbone"} <= set(listed)
    assert "siglip_text_model" not in listed
    with pytest.raises(SourceError, match="siglip_text_model is a configuration that no model"):
        resolve("hf-type:siglip_text_model")


def test_a_default_vocabulary_holds_the_placeholders_of_images() -> None:
    model = resolve("hf-type:llava")
    assert model.config.text_config.vocab_size == model.config.image_token_index + 1 == 32001
    assert "completed with text_config.vocab_size=32001" in model.info.notes


@pytest.mark.slow
def test_a_configuration_with_several_texts_is_built() -> None:
    assert resolve("hf-type:musicgen").config.model_type == "musicgen"


@pytest.mark.slow
def test_a_model_without_a_forward_says_so() -> None:
    with pytest.raises(SourceError, match="BarkModel has no forward"):
        resolve("hf-type:bark")


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("torchvision:resnet81", "torchvision:resnet18"),
        ("timm:resnet81", "timm:resnet18"),
        ("timm:resnet18.onnx", "timm:resnet18"),
        ("ultralytics:yolov88n", "ultralytics:yolov8n"),
        ("diffusers:unet/sdx", "diffusers:unet/sdxl"),
        ("hf-type:bret", "hf-type:bert"),
        ("hf:mixtral", "hf:mistralai/Mixtral-8x7B-v0.1"),
    ],
)
def test_a_source_suggests_its_own_names(spec: str, near: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve(spec)
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize("tag", ["onnx", "a9_in1k", ""])
def test_a_tag_that_an_architecture_does_not_have(tag: str) -> None:
    with pytest.raises(UnknownModel, match="no source knows") as caught:
        resolve(f"resnet18.{tag}")
    assert "resnet18" in (caught.value.hint or "")
    assert resolve("resnet18.a1_in1k").info.source == "timm"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("notes.txt", ".pt2"),
        ("picture.png", "config.json"),
        ("resnet18.onnx", "saved profiles"),
        ("folder/notes", ".pth"),
        ("model.py", "model.py:build"),
    ],
)
def test_a_file_that_holds_no_model(name: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\x89PNG")
    with pytest.raises(SourceError, match=f"{name} is no file that holds a model") as caught:
        resolve(str(file))
    assert hint in (caught.value.hint or "")


def test_what_a_file_defines_is_said_where_a_model_is_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text("import torch\nfrom torch import nn\n\nclass Net(nn.Module): ...\n\n"
                               "def build(): return Net()\n")  # fmt: skip
    for spec in ("nets.py", "nets.py:Nowt"):
        with pytest.raises(SourceError) as caught:
            resolve(spec)
        assert "it has Net, build" in (caught.value.hint or "")


def test_a_function_that_returns_a_model_among_others(tmp_path: Path) -> None:
    file = tmp_path / "several.py"
    file.write_text("from torch import nn\n\n\ndef build():\n    return None, nn.Linear(2, 2)\n")
    with pytest.raises(SourceError, match="returned tuple") as caught:
        resolve(f"{file}:build")
    assert caught.value.hint == "write a function that returns build()[1]"


def test_a_file_in_the_current_folder_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="no file that holds a model"):
        resolve("owner/name")


@pytest.mark.parametrize("suffix", ["", ".pt", "/name"])
def test_a_name_longer_than_any_file_can_have(suffix: str) -> None:
    with pytest.raises(UnknownModel, match="too long"):
        resolve("x" * 5000 + suffix)


@pytest.mark.parametrize(
    ("spec", "why", "hint"),
    [
        (nn.ReLU, "ReLU is a class", "ReLU()"),
        (None, "None is of the type NoneType", "torch.nn.Module"),
        ("", "a model without a name", "opgraph models"),
        (str(DATA / "resnet18.json"), "no file that holds a model", "opgraph.load("),
    ],
)
def test_what_is_no_model(spec: Any, why: str, hint: str) -> None:
    with pytest.raises(SourceError, match=why) as caught:
        resolve(spec)
    assert hint in (caught.value.hint or "")


def test_arguments_are_values(tmp_path: Path) -> None:
    code = tmp_path / "wide.py"
    code.write_text("from torch import nn\ndef build(width): return nn.Linear(width, 1)\n")
    model = resolve(f"{code}:build", BuildOptions(arguments={"width": 64}))
    assert model.module.in_features == 64


def test_a_head_is_refused_where_there_are_none() -> None:
    with pytest.raises(SourceError, match="no heads") as caught:
        resolve("resnet18", BuildOptions(head="causal-lm"))
    assert "hf-type" in (caught.value.hint or "")


def test_a_folder_without_a_configuration_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no config\.json"):
        resolve(str(tmp_path))


@pytest.mark.slow
def test_names_of_a_library_that_is_absent_are_known_all_the_same() -> None:
    code = (
        "import sys; sys.modules['ultralytics'] = sys.modules['torchvision'] = None\n"
        "from opgraph.sources.registry import find, suggestion\n"
        "print(find('yolov8n.pt')[0].name, find('resnet18')[0].name, find('alexnet')[0].name)\n"
        "print(suggestion('yolov8nn'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # timm has a resnet18, too, and is there.
    assert done.stdout.splitlines()[0] == "ultralytics timm torchvision"
    assert "yolov8n" in done.stdout.splitlines()[1]


@pytest.mark.parametrize(
    ("name", "arguments", "blocks"),
    [
        ("gpt2", {"n_layer": 2}, "h.1"),
        ("gpt2", {"num_hidden_layers": 2}, "h.1"),
        ("bert-base-uncased", {"num_hidden_layers": 2}, "encoder.layer.1"),
    ],
)
def test_arguments_change_a_published_configuration(
    name: str, arguments: dict[str, int], blocks: str
) -> None:
    model = resolve(name, BuildOptions(arguments=arguments))
    paths = {path for path, _ in model.module.named_modules()}
    assert blocks in paths
    assert blocks.replace("1", "2") not in paths
    assert f"with {next(iter(arguments))}=2" in model.info.notes


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("gpt2", "gpt2 takes no n_layers", "n_layer"),
        ("yolov8n", "yolov8n takes no n_layers", ""),
        ("resnet18", "unexpected keyword argument 'n_layers'", ""),
        ("timm:resnet18", "unexpected keyword argument 'n_layers'", ""),
    ],
)
def test_arguments_that_nothing_takes_are_refused(name: str, message: str, hint: str) -> None:
    with pytest.raises(SourceError, match=message) as raised:
        resolve(name, BuildOptions(arguments={"n_layers": 2}))
    assert hint in (raised.value.hint or "")


def test_how_to_give_arguments_that_are_missing_is_said() -> None:
    with pytest.raises(SourceError, match="missing 2 required") as raised:
        resolve("torch.nn:Linear", BuildOptions())
    hint = "--model-arg in_features=VALUE --model-arg out_features=VALUE"
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BuildOptions(dtype="bfloat16"), "has the dtype of its own parameters, not bfloat16"),
        (BuildOptions(arguments={"width": 1}), "takes no arguments, and width was given"),
    ],
)
def test_a_module_that_is_built_takes_no_options_of_building(
    options: BuildOptions, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        resolve(torch.nn.Linear(2, 2), options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build():\n    return helper()\n\ndef helper():\n    raise ValueError('no')\n",
         r"mine\.py:build cannot be built \(mine\.py:5\): ValueError: no$"),
        ("x = 1\nraise ValueError('no')\n", r"mine\.py cannot be imported \(mine\.py:2\): ValueError"),
        ("x = (\n", r"mine\.py cannot be imported: SyntaxError.*line 1"),
    ],
)  # fmt: skip
def test_where_code_raises_that_should_build_a_model(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text)
    with pytest.raises(SourceError, match=message):
        resolve("mine.py:build", BuildOptions())


def test_what_is_there_and_no_file_on_a_disk(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "model.json")
    with pytest.raises(SourceError, match="there is no file") as raised:
        resolve(str(pipe), BuildOptions())
    assert "is there, but no file on a disk" in str(raised.value.hint)
