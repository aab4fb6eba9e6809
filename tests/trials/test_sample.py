"""A fixed sample over all sources and families is traced, each model in a process of its own; the whole
zoo is benchmarks/zoo.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from opgraph.errors import ProfileError
from opgraph.trials import Limits, Trial, load_trials, run, save_trial

SAMPLE = """
alexnet densenet121 efficientnet_b0 googlenet mobilenet_v3_small regnet_y_400mf swin_v2_t vit_b_32
fcn_resnet50 lraspp_mobilenet_v3_large r3d_18 raft_small quantized_resnet18 ssdlite320_mobilenet_v3_large
bert-base-uncased gpt2 t5-small facebook/bart-base openai/whisper-tiny facebook/wav2vec2-base
facebook/detr-resnet-50 google/vit-base-patch16-224 openai/clip-vit-base-patch32 Qwen/Qwen2.5-0.5B
Qwen/Qwen2-VL-2B-Instruct llava-hf/llava-1.5-7b-hf mistralai/Mixtral-8x7B-v0.1
yolov5n yolov8n yolov8n-seg yolov8n-pose yolov8n-cls yolov9t yolov10n yolo11n yolo12n rtdetr-l
timm:convnext_tiny timm:deit_tiny_patch16_224 timm:efficientnet_lite0 timm:mobilevit_xs timm:nfnet_f0
timm:eva02_tiny_patch14_224 timm:swinv2_tiny_window8_256 timm:coatnet_0_224 timm:levit_128s
hf-type:albert hf-type:clap hf-type:decision_transformer hf-type:encodec hf-type:layoutlm hf-type:mamba2
hf-type:modernbert hf-type:sam hf-type:segformer hf-type:siglip2 hf-type:videomae hf-type:vits
diffusers:unet/sd-1.5
""".split()


def test_the_sample_is_traced() -> None:
    trials = list(run(SAMPLE, Limits(jobs=2, timeout=200)))
    assert {t.name: t.reason for t in trials if not t.ok} == {}
    assert len(trials) == len(SAMPLE)


def test_a_hang_costs_one_row() -> None:
    slow = next(run(["resnet18"], Limits(timeout=0.01)))
    assert (slow.ok, slow.stage) == (False, "process")
    assert slow.reason == "not done after 0.01 s"


def test_trials_are_kept_and_a_cut_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    trial = Trial("resnet18", ok=True, stage="trace", notes=("a note",))
    save_trial(path, trial)
    path.write_text(path.read_text() + '{"name": "gp')
    assert load_trials(path) == {"resnet18": trial}


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\nthere\n")
    with pytest.raises(ProfileError, match="line 1"):
        load_trials(tmp_path / "x.jsonl")
