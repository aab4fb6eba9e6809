"""Ultralytics models, from the YAML files in the package, at the scale that the name carries
(`yolov8n`, `yolo11s-seg`, `rtdetr-l`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError, UnknownModel
from opgraph.record.remarks import Remark
from opgraph.sources import known
from opgraph.sources.base import BuildOptions, Model, check_arguments
from opgraph.sources.libraries import Library

if TYPE_CHECKING:
    from torch import nn

ULTRALYTICS = Library("ultralytics", "yolo", ("ultralytics.nn.tasks",), (8, 4))

_SCALES = re.compile(r"^scales:.*\n((?:[ #].*\n|\n)+)", re.MULTILINE)
_SCALE = re.compile(r"^ +([a-z]):", re.MULTILINE)
_FAMILY = re.compile(r"^(yolo(?:e-)?v?\d+)")

# Which class wraps a YAML file follows from the module at its end, as in the package's own model classes.
_BY_HEAD = {
    "RTDETRDecoder": "RTDETRDetectionModel",
    "WorldDetect": "WorldModel",
    "YOLOEDetect": "YOLOEModel",
    "YOLOESegment": "YOLOESegModel",
    "YOLOESegment26": "YOLOESegModel",
}
_BY_TASK = {
    "detect": "DetectionModel",
    "segment": "SegmentationModel",
    "semantic": "SemanticSegmentationModel",
    "classify": "ClassificationModel",
    "pose": "PoseModel",
    "obb": "OBBModel",
    "depth": "DepthModel",
}


class UltralyticsSource:
    """Names of the package's YAML files, with their scales; `.pt` and `.yaml` may follow."""

    name = "ultralytics"
    library = ULTRALYTICS

    def claims(self, spec: str) -> bool:
        return _stem(spec) in (_files() or self.names())

    def names(self) -> Mapping[str, str]:
        found = {name: file.parent.name for name, (file, _) in _files().items()}
        return found or known.names(self.name)

    def build(self, spec: str, options: BuildOptions) -> Model:
        if not self.claims(spec):
            raise UnknownModel(f"{self.name} has no model {spec}")
        from ultralytics.nn import tasks
        from ultralytics.utils import YAML

        from opgraph.sources.building import assemble

        stem = _stem(spec)
        file, scale = _files()[stem]
        config = {**YAML.load(file), "scale": scale, "yaml_file": stem + ".yaml"}
        cls = getattr(tasks, _class_name(config, tasks.guess_model_task(config)))

        known = inspect.signature(cls.__init__).parameters
        check_arguments(options.arguments, known.keys() - {"self", "cfg", "verbose"}, spec)

        def construct() -> nn.Module:
            module: nn.Module = cls({**config}, verbose=False, **options.arguments)
            return module

        size = 224 if cls is tasks.ClassificationModel else 640
        return assemble(
            construct,
            name=spec,
            source=self.name,
            dtype=options.dtype,
            hints={"input_size": (config.get("channels", 3), size, size)},
            notes=(
                f"from {file.name}" + (f" at scale {scale}" if scale else ""),
                *_not_the_first(spec),
            ),
        )


def _class_name(config: dict[str, Any], task: str | None) -> str:
    head = config["head"][-1][2]
    if head in _BY_HEAD:
        return _BY_HEAD[head]
    if task not in _BY_TASK:
        raise SourceError(f"{config['yaml_file']} ends in {head}, which no model class takes")
    return _BY_TASK[task]


def _not_the_first(spec: str) -> tuple[Remark, ...]:
    """A remark where the name is that of older weights, for which the package has another head."""
    stem = re.sub(r"\.(pt|yaml|yml)$", "", spec)
    file, _ = _files()[_stem(spec)]
    if file.parent.name not in ("v3", "v5") or stem.endswith("u"):
        return ()
    text = f"this is {stem}u, with the anchor-free head of ultralytics, and not the first {stem}"
    return (Remark("other-variant", text),)


def _stem(spec: str) -> str:
    stem = re.sub(r"\.(pt|yaml|yml)$", "", spec)
    return re.sub(r"^(yolov5[nsmlx]6?)u$", r"\1", stem)


@cache
def _files() -> dict[str, tuple[Path, str]]:
    """Every name with its YAML file and scale. A file with scales is named once for each of them, and
    by its bare stem at the smallest."""
    root = ULTRALYTICS.folder
    found: dict[str, tuple[Path, str]] = {}
    if root is None:
        return found
    for file in sorted((root / "cfg" / "models").rglob("*.yaml")):
        table = _SCALES.search(file.read_text(encoding="utf-8") + "\n")
        scales = _SCALE.findall(table.group(1)) if table else []
        found.setdefault(file.stem, (file, scales[0] if scales else ""))
        for scale in scales:
            named = _FAMILY.sub(rf"\g<1>{scale}", file.stem)
            if named != file.stem:
                found.setdefault(named, (file, scale))
    return found
