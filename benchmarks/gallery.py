"""Draws the pictures of docs/gallery.md: python benchmarks/gallery.py [NAME …]"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import opgraph

FOLDER = Path(__file__).parents[1] / "docs/gallery"

PICTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "resnet18": ("resnet18", {}, {}),
    "resnet152": ("resnet152", {}, {}),
    "bert": ("bert-base-uncased", {"seq_len": 128}, {}),
    "bert-right": ("bert-base-uncased", {"seq_len": 128}, {"direction": "right", "color_by": "op"}),
    "gpt2": ("gpt2", {"seq_len": 128}, {}),
    "gpt2-time": ("gpt2", {"seq_len": 128}, {"color_by": "time", "hardware": "h100-sxm", "theme": "dark"}),
    "t5": ("t5-small", {}, {}),
    "yolov8n": ("yolov8n.pt", {}, {}),
    "detr": ("facebook/detr-resnet-50", {}, {}),
    "whisper": ("openai/whisper-tiny", {}, {}),
    "mixtral": ("mistralai/Mixtral-8x7B-v0.1", {}, {}),
    "llama": ("meta-llama/Llama-3.1-405B", {}, {}),
    "densenet": ("densenet121", {}, {"color_by": "bytes"}),
    "part": (
        "bert-base-uncased", {"seq_len": 128},
        {"module": "encoder.layer.3.attention", "parameters": True, "color_by": "fusion"},
    ),
    "around": ("gpt2", {"seq_len": 128}, {"around": 32, "context": 6, "color_by": "flops"}),
}  # fmt: skip
"""For each picture: the model, how it is profiled, how it is drawn."""


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or list(PICTURES):
        model, sizes, options = PICTURES[name]
        opgraph.profile(model, **sizes).draw(FOLDER / f"{name}.svg", **options)
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
