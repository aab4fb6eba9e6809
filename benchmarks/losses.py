"""Train models by name without a word about labels, and write into docs/costs.md which loss each is
trained on.

    python benchmarks/losses.py            all of them, some minutes
    python benchmarks/losses.py NAME ...   these, printed only
"""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version
from pathlib import Path

import opgraph

PAGE = Path(__file__).parent.parent / "docs" / "costs.md"
BEGIN, END = "<!-- losses: made by benchmarks/losses.py -->\n", "<!-- losses end -->\n"

NAMES = {
    "classification": "resnet18 googlenet inception_v3 vit_b_16 r3d_18 timm:convnextv2_atto "
    "timm:mobilenetv4_conv_small hf:resnet-18 vit-base-patch16-224 dinov2-small "
    "ast-finetuned-audioset-10-10-0.4593 yolov8n-cls",
    "causal language models": "gpt2 opt-125m bloom-560m pythia-70m SmolLM2-135M gemma-3-270m mamba-130m",
    "masked language models": "bert-base-uncased ModernBERT-base deberta-v3-small "
    "electra-small-discriminator albert-base-v2",
    "sequence to sequence": "t5-small bart-base nllb-200-distilled-600M whisper-tiny "
    "blip-image-captioning-base",
    "detection": "fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn "
    "ssdlite320_mobilenet_v3_large fcos_resnet50_fpn keypointrcnn_resnet50_fpn detr-resnet-50 "
    "conditional-detr-resnet-50 deformable-detr rtdetr_r18vd yolos-tiny yolov8n yolo11n "
    "yolo26n yolov8n-obb yolov8n-pose rtdetr-l",
    "segmentation": "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large "
    "maskrcnn_resnet50_fpn segformer-b0-finetuned-ade-512-512 mask2former-swin-tiny-coco-instance "
    "yolo11n-seg yolo26n-sem",
    "others": "clip-vit-base-patch32 vit-mae-base wav2vec2-base-960h grounding-dino-tiny sam-vit-base "
    "depth-anything-small-hf raft_small",
}  # fmt: skip


def trained(name: str) -> str:
    """The loss that a name is trained on, in words."""
    profile = opgraph.profile(name, mode="train")
    if profile.graph.failed is not None:
        raise RuntimeError(f"{name}: {profile.graph.failed.failure}")
    batch = ", batch of 2" * any(note.startswith("a batch of 2") for note in profile.model.notes)
    return profile.convention["loss"] + batch


def section() -> str:
    """The table: what is trained, by its loss."""
    rows, summed, all_names = [], 0, 0
    for task, names in NAMES.items():
        found: dict[str, list[str]] = {}
        for name in names.split():
            outcome = trained(name)
            print(f"{name:45}{outcome}", flush=True)
            found.setdefault(outcome, []).append(name)
            all_names += 1
            summed += outcome.startswith("the sum")
            gc.collect()
        rows += [
            f"| {task} | {', '.join(f'`{n}`' for n in group)} | {loss} |"
            for loss, group in found.items()
        ]
    libraries = ("torch", "torchvision", "transformers", "timm", "ultralytics")
    return "\n".join([
        f"`python benchmarks/losses.py` trains {all_names} models by name, with "
        f"{', '.join(f'{n} {version(n)}' for n in libraries)}: {all_names - summed} have a loss, and the "
        f"outputs of {summed} are added up, which is said.\n",
        "| | models | loss |", "|---|---|---|", *rows, "",
    ])  # fmt: skip


def main() -> int:
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            print(f"{name:45}{trained(name)}")
        return 0
    text = section()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + text + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
