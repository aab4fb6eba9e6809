"""Make the table of what is known of every name, from surveys of them.

    opgraph survey --models 'timm:*' -o zoo     (and the other sources)
    python benchmarks/known.py zoo

Names and families are those of the libraries that are installed. Tasks are the words of the Hugging Face
hub, from where a library keeps the model or the head that it has. Licences are what the libraries say of
their weights, or of themselves.
"""

from __future__ import annotations

import csv
import re
import sys
from importlib.metadata import metadata
from typing import Any

from opgraph.sources import catalogue
from opgraph.sources.known import FILE
from opgraph.sources.registry import Listing, listed
from opgraph.surveying import Atlas

HEADS = {
    "causal-lm": "text-generation",
    "seq2seq-lm": "text2text-generation",
    "masked-lm": "fill-mask",
    "pre-training": "fill-mask",
    "ctc": "automatic-speech-recognition",
    "speech-seq2seq": "automatic-speech-recognition",
    "semantic-segmentation": "image-segmentation",
    "universal-segmentation": "image-segmentation",
}
"""The tasks of transformers' heads, where they are called otherwise on the hub."""
FOLDERS = {
    "detection/keypoint_rcnn": "keypoint-detection",
    "detection/mask_rcnn": "instance-segmentation",
    "detection": "object-detection",
    "segmentation": "image-segmentation",
    "optical_flow": "optical-flow",
    "video": "video-classification",
}
"""The tasks of torchvision's folders; of all others, image-classification."""
ENDINGS = {
    "-seg": "instance-segmentation",
    "-cls": "image-classification",
    "-pose": "keypoint-detection",
    "-obb": "oriented-object-detection",
    "-sem": "image-segmentation",
    "-semseg": "image-segmentation",
    "-depth": "depth-estimation",
}
"""The tasks of Ultralytics' names by what they end in; of all others, object-detection."""


LIBRARIES = {"hf": "transformers", "hf-type": "transformers"}
"""The libraries of sources that are called otherwise."""
TEXTS = {"https://github.com/facebookresearch/SWAG/blob/main/LICENSE": "cc-by-nc-4.0"}
"""Licences that torchvision names by where they stand."""


def task(found: Listing, inputs: str) -> str:
    """What a model is for."""
    if found.source == "torchvision":
        fits = (t for f, t in FOLDERS.items() if found.family.startswith(f))
        return next(fits, "image-classification")
    if found.source == "ultralytics":
        fits = (t for e, t in ENDINGS.items() if re.search(rf"{e}(-|$|\d)", found.name))
        return next(fits, "object-detection")
    if found.source == "timm":
        import timm

        config = timm.get_pretrained_cfg(found.name, allow_unregistered=True)
        classes = config is None or config.num_classes
        return "image-classification" if classes else "image-feature-extraction"
    if found.source == "diffusers":
        return "autoencoding" if found.family == "vae" else "denoising"
    entry = catalogue.lookup(found.name, "transformers") if found.source == "hf" else None
    if entry is not None and entry.head != "base":
        return HEADS.get(entry.head, entry.head)
    return _by_inputs(inputs)


def _by_inputs(inputs: str) -> str:
    """The task of a model without a head: features of what it reads."""
    if not inputs:
        return ""
    of = {name.partition("=")[0] for name in inputs.split()}
    if of & {"pixel_values", "pixel_values_videos"} and "input_ids" not in of:
        return "image-feature-extraction"
    if of & {"input_features", "input_values"} and "input_ids" not in of:
        return "audio-feature-extraction"
    return "feature-extraction"


def licence(found: Listing) -> str:
    """What the library says of the weights, or else of its code."""
    if found.source == "timm":
        import timm

        config = timm.get_pretrained_cfg(found.name, allow_unregistered=True)
        if config is not None and config.license:
            return str(config.license)
    if found.source in ("hf", "diffusers"):
        entry = catalogue.lookup(found.name, LIBRARIES.get(found.source, found.source))
        if entry is not None and entry.licence:
            return entry.licence
    if found.source == "torchvision":
        from torchvision.models import get_model_weights

        weights = getattr(get_model_weights(found.name), "DEFAULT", None)
        said = None if weights is None else weights.meta.get("license")
        if said is not None:
            return TEXTS[said]
    if (
        found.source == "ultralytics"
    ):  # of what is trained with it, too: https://www.ultralytics.com/license
        return _code(found.source)
    return f"{_code(LIBRARIES.get(found.source, found.source))} (code)"


def _code(package: str) -> str:
    said = metadata(package)
    text = str(said.get("License-Expression") or said.get("License") or "")
    known = {"BSD": "BSD-3-Clause", "Apache": "Apache-2.0", "AGPL-3.0": "AGPL-3.0"}
    return next((v for k, v in known.items() if k.lower() in text.lower()), text)


def row(found: Listing, case: dict[str, Any] | None) -> list[object]:
    """One line of the table; what no survey has found is as it was, or open."""
    if case is None:
        was = found.facts
        return [found.source, found.name, found.family, was.task or task(found, was.inputs),
                was.parameters or "", was.flops or "", was.inputs, licence(found)]  # fmt: skip
    inputs = case["inputs"] or ""
    if len(inputs) > 160:
        inputs = f"{inputs[:160].rpartition(' ')[0]} …"
    parameters = case["parameters"] or ""
    flops = case["flops"] if case["coverage"] == 1 else ""
    return [found.source, found.name, found.family, task(found, inputs), parameters, flops, inputs,
            licence(found)]  # fmt: skip


def main() -> int:
    models = Atlas(*sys.argv[1:]).sql("select * from models").records()
    known = {m["spec"]: m for m in models}
    rows = [row(f, known.get(f.spec)) for f in listed()]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"wrote {FILE}: {len(rows)} names, {sum(bool(r[4]) for r in rows)} with figures")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
