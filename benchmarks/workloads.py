"""What simulators of accelerators make of opgraph's workload files, and docs/workloads.md from it.

    python benchmarks/workloads.py [--environment DIR] [--sources DIR] [--cycles IMAGE_SIZE]

SCALE-Sim and ZigZag (pinned, from PyPI) go into an environment of its own. Each model is written in all
formats, and each file is read back: by SCALE-Sim's and ZigZag's own parsers, by ONNX's checker and shape
inference, and Timeloop's as YAML, since Timeloop is not on PyPI. The multiply-accumulates that are in the
file must be the graph's. SCALE-Sim then runs ResNet-18 (at 32 x 32 unless told) on an array of 32 x 32.

`--sources` holds layer files of others: `topologies/` of SCALE-Sim and `layer_shapes/` of the Timeloop
exercises (both under their own licences; nothing of them is kept here). They are compared row by row.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import opgraph
from opgraph.analysis.layers import layers

PACKAGES = ("scalesim==3.0.0", "zigzag-dse==3.9.1", "numpy==2.2.6", "six==1.17.0")
PAGE = Path(__file__).parents[1] / "docs" / "workloads.md"
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {}, "mobilenet_v2": {}, "googlenet": {}, "fcn_resnet50": {}, "yolov8n": {},
    "timm:efficientnet_b0": {}, "timm:convnext_tiny": {}, "swin_t": {}, "r3d_18": {},
    "bert-base-uncased": {"seq_len": 128}, "gpt2": {"seq_len": 128}, "t5-small": {"seq_len": 64},
    "facebook/detr-resnet-50": {}, "openai/whisper-tiny": {},
    "Qwen/Qwen1.5-MoE-A2.7B": {"seq_len": 64}, "meta-llama/Llama-3.1-405B": {"seq_len": 64},
    "resnet18, training": {"mode": "train"}, "gpt2, training": {"mode": "train", "seq_len": 64},
}  # fmt: skip
FORMATS = ("scalesim.csv", "timeloop.zip", "zigzag.yaml", "maestro.m", "shapes.onnx")

READ = r"""
import json, logging, math, sys
logging.disable(logging.CRITICAL)
base = sys.argv[1]
from scalesim.topology_utils import topologies
read = topologies()
read.load_arrays(base + ".scalesim.csv")
found = {"scalesim": 0, "rows": len(read.topo_arrays)}
for _, h, w, r, s, c, n, sh, sw, *_ in read.topo_arrays:
    found["scalesim"] += math.ceil((h - r + sh) / sh) * math.ceil((w - s + sw) / sw) * r * s * c * n
import yaml
from zigzag.parser.workload_validator import WorkloadValidator
from zigzag.parser.workload_factory import LayerNodeFactory
checked = WorkloadValidator(yaml.load(open(base + ".zigzag.yaml"), yaml.CSafeLoader))
assert checked.validate()
nodes = [LayerNodeFactory(data, None).create_node_attr() for data in checked.normalized_data]
found["zigzag"] = sum(math.prod(node.layer_dim_sizes.data.values()) for node in nodes)
import io, zipfile
found["timeloop"] = 0
with zipfile.ZipFile(base + ".timeloop.zip") as archive:
    import csv
    for row in csv.DictReader(io.StringIO(archive.read("layers.csv").decode())):
        problem = yaml.safe_load(archive.read(row["file"]))["problem"]
        sizes = [problem["instance"][name] for name in problem["shape"]["dimensions"]]
        found["timeloop"] += int(row["runs"]) * math.prod(sizes)
import re
found["maestro"] = 0
for sx, sy, dims in re.findall(r"Stride \{ X: (\d+), Y: (\d+) \}\s+Dimensions \{ (.*) \}",
                               open(base + ".maestro.m").read()):
    d = {k: int(v) for k, v in (pair.split(": ") for pair in dims.split(", "))}
    y, x = ((d["Y"] - d["R"]) // int(sy) + 1, (d["X"] - d["S"]) // int(sx) + 1)
    found["maestro"] += d["N"] * d["K"] * d["C"] * d["R"] * d["S"] * y * x
import onnx
from onnx import shape_inference
model = onnx.load(base + ".shapes.onnx")
onnx.checker.check_model(model)
shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
          for v in [*model.graph.input, *model.graph.output]}
found["onnx-shapes"] = 0
for node in model.graph.node:
    w, y = shapes[node.input[1]], shapes[node.output[0]]
    found["onnx-shapes"] += math.prod(y) * (math.prod(w[1:]) if node.op_type == "Conv" else w[-2])
print(json.dumps(found))
"""

RUN = r"""
import sys
from scalesim.scale_sim import scalesim
config, topology, layout, out = sys.argv[1:]
scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout,
         input_type_gemm=False).run_scale(top_path=out)
"""

CONFIG = """[general]
run_name = run
[architecture_presets]
ArrayHeight = 32
ArrayWidth = 32
IfmapSramSzkB = 512
FilterSramSzkB = 512
OfmapSramSzkB = 256
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = ws
Bandwidth = 10
ReadRequestBuffer = 32
WriteRequestBuffer = 32
[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


def environment(folder: Path) -> Path:
    """The Python of the environment, made where it is not there or its packages are others."""
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if not done.is_file() or done.read_text("utf-8") != "\n".join(PACKAGES):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        done.write_text("\n".join(PACKAGES), "utf-8")
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--environment", type=Path, default=Path(tempfile.gettempdir()) / "opgraph-workloads"
    )
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--cycles", type=int, default=32, metavar="IMAGE_SIZE")
    args = parser.parse_args()
    python = environment(args.environment)
    with tempfile.TemporaryDirectory() as folder:
        lines = [*parsed(python, Path(folder)), "", *simulated(python, Path(folder), args.cycles)]
        if args.sources is not None:
            lines += ["", *compared(args.sources)]
    write(lines)


def parsed(python: Path, folder: Path) -> list[str]:
    """A row a model: its layers, and whether the MACs that each tool reads are the graph's."""
    lines = [
        "| model | distinct layers | runs | MACs of the graph | SCALE-Sim rows | "
        "SCALE-Sim | Timeloop | ZigZag | MAESTRO | ONNX shapes |",
        "|---|---:|---:|---:|---:|---|---|---|---|---|",
    ]  # fmt: skip
    for label, options in MODELS.items():
        costed = opgraph.profile(label.partition(",")[0], **options).on(None)
        base = folder / re.sub(r"\W+", "_", label)
        for suffix in FORMATS:
            costed.save(f"{base}.{suffix}")
        done = subprocess.run(
            [python, "-c", READ, str(base)], capture_output=True, text=True, check=False
        )
        read = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        if not read:
            print(done.stderr[-2000:], file=sys.stderr)
        found, macs = layers(costed.graph), costed.totals.cost.macs
        names = ("scalesim", "timeloop", "zigzag", "maestro", "onnx-shapes")
        cells = ["equal" if read.get(n) == macs else f"{read.get(n, 'not read')}" for n in names]
        row = (label, len(found.layers), len(found.runs), f"{macs:,}", read.get("rows", ""), *cells)
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], flush=True)
    return lines


def simulated(python: Path, folder: Path, size: int) -> list[str]:
    """SCALE-Sim's cycles for ResNet-18."""
    config, layout, topology = folder / "run.cfg", folder / "layout.csv", folder / "r.scalesim.csv"
    config.write_text(CONFIG, "utf-8")
    layout.write_text("Layer name,\n", "utf-8")
    opgraph.profile("resnet18", image_size=size).save(topology)
    subprocess.run([python, "-W", "ignore", "-c", RUN, config, topology, layout, folder],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    with (folder / "run" / "COMPUTE_REPORT.csv").open(encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    cycles = [float(row[rows[0].index("Total Cycles")]) for row in rows[1:]]
    return [
        f"SCALE-Sim runs ResNet-18 at {size} x {size} on a weight-stationary array of 32 x 32: "
        f"{len(cycles)} layers, {sum(cycles):,.0f} cycles."
    ]


Row = tuple[int, ...]


def ours(model: str, **options: Any) -> Counter[Row]:
    """C, M, P, Q, R, S, groups and stride of every run."""
    found: Counter[Row] = Counter()
    for layer in layers(opgraph.profile(model, **options).graph).layers:
        n = layer.loops
        found[(n.channels, n.filters, *n.positions, *n.window, n.groups, *n.stride)] += layer.count
    return found


def of_timeloop(folder: Path) -> Counter[Row]:
    """The same of a folder of the exercises' layer shapes."""
    found: Counter[Row] = Counter()
    for path in folder.glob("*.yaml"):
        said = re.search(r"instance: \{(.*?)\}", path.read_text("utf-8"))
        if said is None:
            continue
        d = {k: int(v) for k, v in re.findall(r"(\w+): (\d+)", said[1])}
        sizes = [d.get(k, 1) for k in ("C", "M", "P", "Q", "R", "S", "G")]
        found[(*sizes, d.get("HStride", 1), d.get("WStride", 1))] += 1
    return found


def of_scalesim(path: Path) -> Counter[Row]:
    """The same of a topology: its input has no padding, so that the result's sizes are what that gives."""
    found: Counter[Row] = Counter()
    for row in csv.reader(path.read_text("utf-8-sig").splitlines()[1:]):
        cells = [c.strip() for c in row[1:8]]
        if not all(c.isdigit() for c in cells) or len(cells) < 7:
            continue
        h, w, r, s, c, n, stride = map(int, cells)
        found[(c, n, (h - r) // stride + 1, (w - s) // stride + 1, r, s, 1, stride, stride)] += 1
    return found


def compared(sources: Path) -> list[str]:
    """A row a file of others: how many of its layers are ours, and its MACs over the graph's."""
    lines = [
        "| file of others | model | its layers | equal to ours | its MACs / the graph's | "
        "the first that differ |",
        "|---|---|---:|---:|---:|---|",
    ]  # fmt: skip
    shapes = next(sources.rglob("layer_shapes"))
    topologies = next(sources.rglob("conv_nets"))
    cases = [
        *(
            (f"Timeloop {name}", of_timeloop(shapes / name), model, more)
            for name, model, more in TIMELOOP
        ),
        *(
            (f"SCALE-Sim {name}", of_scalesim(topologies / name), model, {})
            for name, model in SCALESIM
        ),
    ]
    for label, theirs, model, options in cases:
        mine = ours(model, **options)
        same = sum((theirs & mine).values())
        macs = [sum(prod(k[:7]) * n for k, n in rows.items()) for rows in (theirs, mine)]
        other = list((theirs - mine).items())[:2]
        row = (label, model, sum(theirs.values()), same, f"{macs[0] / macs[1]:.3f}",
               "; ".join(f"{words(k)} × {n}" for k, n in other))  # fmt: skip
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], flush=True)
    return lines


def words(row: Row) -> str:
    c, m, p, q, r, s, _, stride, _ = row
    return f"{c}→{m} to {p}×{q}, {r}×{s} /{stride}"


TIMELOOP: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("resnet18", "resnet18", {}), ("alexnet", "alexnet", {}), ("vgg16", "vgg16", {}),
    ("densenet201", "densenet201", {}), ("mobilenet_v3", "mobilenet_v3_large", {}),
    ("vision_transformer", "vit_b_16", {}), ("gpt2", "gpt2-medium", {"seq_len": 256}),
)  # fmt: skip
SCALESIM = (("Resnet18.csv", "resnet18"), ("Resnet50.csv", "resnet50"), ("alexnet.csv", "alexnet"),
            ("Googlenet.csv", "googlenet"), ("mobilenet.csv", "timm:mobilenetv1_100"))  # fmt: skip


def write(lines: list[str]) -> None:
    """Put the figures between the marks of the page."""
    begin, end = "<!-- figures -->", "<!-- end -->"
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(begin)
    PAGE.write_text(
        "\n".join([head + begin, "", *lines, "", end + rest.partition(end)[2]]), "utf-8"
    )


if __name__ == "__main__":
    main()
