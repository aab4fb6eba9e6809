"""What simulators of accelerators make of opgraph's workload files, and docs/workloads.md from it.

    python benchmarks/workloads.py --timeloop DIR --maestro FILE [--sources DIR] [--cycles IMAGE_SIZE]
    python benchmarks/workloads.py --every DATASET

SCALE-Sim and ZigZag (pinned, from PyPI) go into an environment of its own. Each model is written in all
formats, and each file is read back: by SCALE-Sim's and ZigZag's own parsers, by ONNX's checker and shape
inference, by Timeloop's own reader, which is built of its sources (`--timeloop`; it needs g++, libconfig++
and yaml-cpp), and by MAESTRO itself, as its SConstruct builds it, with a dataflow for each layer. The
multiply-accumulates that are in the file must be the graph's. SCALE-Sim then runs ResNet-18 (at 32 x 32
unless told) on an array of 32 x 32.

`--every` writes the files of all graphs that a survey kept, and counts what is in them.

`--sources` holds layer files of others: `topologies/` of SCALE-Sim and `layer_shapes/` of the Timeloop
exercises (both under their own licences; nothing of them is kept here). They are compared row by row.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import opgraph
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.layers import layers
from opgraph.record.loading import loaded
from opgraph.views.files.workloads import to_maestro, to_scalesim, to_timeloop, to_zigzag

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

TIMELOOP_READER = r"""
#include <iostream>
#include "compound-config/compound-config.hpp"
#include "workload/workload.hpp"
bool gResetOnStrideChange = true;
int main(int count, char** files) {
  for (int i = 1; i < count; i++) {
    config::CompoundConfig read(files[i]);
    problem::Workload workload;
    problem::ParseWorkload(read.getRoot().lookup("problem"), workload);
    unsigned long long points = 1;
    for (unsigned d = 0; d < workload.GetShape()->NumFlattenedDimensions; d++)
      points *= workload.GetFlattenedBound(d);
    std::cout << "points " << points << "\n";
  }
}
"""
TIMELOOP_FILES = (
    "workload/workload.cpp", "workload/shape-models/*.cpp", "workload/density-models/*.cpp",
    "compound-config/*.cpp", "loop-analysis/point*.cpp", "loop-analysis/aahr-carve.cpp",
    "loop-analysis/coordinate-space-tile-info.cpp", "util/numeric.cpp",
)  # fmt: skip

DATAFLOW = """
    Dataflow {
      SpatialMap(1,1) %s; TemporalMap(1,1) %s;
      TemporalMap(Sz(R),Sz(R)) R; TemporalMap(Sz(S),Sz(S)) S;
      TemporalMap(Sz(R),1) Y; TemporalMap(Sz(S),1) X;
    }"""
MACHINE = """num_pes: 256
l1_size_cstr: 100
l2_size_cstr: 3000
noc_bw_cstr: 1000
offchip_bw_cstr: 50
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
    parser.add_argument("--timeloop", type=Path, metavar="DIR", help="its sources")
    parser.add_argument("--maestro", type=Path, metavar="FILE", help="its program")
    parser.add_argument(
        "--every", type=Path, metavar="DATASET", help="count all graphs of a survey"
    )
    args = parser.parse_args()
    if args.every is not None:
        write(every(args.every), "every")
        return
    python = environment(args.environment)
    with tempfile.TemporaryDirectory() as folder:
        timeloop = None if args.timeloop is None else reader(args.timeloop, args.environment)
        lines = [
            *parsed(python, Path(folder), timeloop, args.maestro),
            "",
            *simulated(python, Path(folder), args.cycles),
        ]
    write(lines)
    if args.sources is not None:
        write(compared(args.sources), "others")


def reader(sources: Path, folder: Path) -> Path:
    """A program of Timeloop's own reader that prints the product of the loops of each problem."""
    program, main_file = folder / "timeloop-reader", folder / "reader.cpp"
    if not program.is_file():
        main_file.write_text(TIMELOOP_READER, "utf-8")
        files = [file for pattern in TIMELOOP_FILES for file in (sources / "src").glob(pattern)]
        built = ["-std=c++17", "-w", '-DBUILD_BASE_DIR="."', f"-I{sources / 'include'}"]
        subprocess.run(["g++", *built, main_file, *(f for f in files if "isl" not in f.name), "-o", program,
                        "-lconfig++", "-lyaml-cpp", "-lboost_serialization"], check=True)  # fmt: skip
    return program


def of_timeloop_file(file: Path, program: Path | None) -> int:
    """The MACs of a file for Timeloop: by Timeloop's own reader, or as YAML (which JSON is)."""
    with zipfile.ZipFile(file) as archive, tempfile.TemporaryDirectory() as place:
        rows = list(csv.DictReader(io.StringIO(archive.read("layers.csv").decode())))
        if program is None:
            problems = [json.loads(archive.read(r["file"]).partition(b":")[2]) for r in rows]
            points = [prod(p["instance"][d] for d in p["shape"]["dimensions"]) for p in problems]
        else:
            archive.extractall(place)
            said = subprocess.run([program, *(r["file"] for r in rows)], cwd=place, check=True,
                                  capture_output=True, text=True).stdout  # fmt: skip
            points = [int(n) for n in re.findall(r"^points (\d+)$", said, re.MULTILINE)]
    return sum(int(r["runs"]) * n for r, n in zip(rows, points, strict=True))


_MAESTRO = re.compile(r"Type: (\w+)\s+Stride \{ X: (\d+), Y: (\d+) \}\s+Dimensions \{ (.*) \}")


def of_maestro_file(file: Path, program: Path | None) -> int:
    """The MACs of a file for MAESTRO: what MAESTRO itself counts, or what its text says."""
    text = file.read_text("utf-8")
    if program is None:
        found = 0
        for _, sx, sy, dims in _MAESTRO.findall(text):
            d = {k: int(v) for k, v in (pair.split(": ") for pair in dims.split(", "))}
            y, x = ((d["Y"] - d["R"]) // int(sy) + 1, (d["X"] - d["S"]) // int(sx) + 1)
            found += d["N"] * d["K"] * d["C"] * d["R"] * d["S"] * y * x
        return found
    with tempfile.TemporaryDirectory() as place:
        mapped = _MAESTRO.sub(
            lambda m: m[0] + DATAFLOW % (("C", "K") if m[1] == "DSCONV" else ("K", "C")), text
        )
        (Path(place) / "x.m").write_text(mapped, "utf-8")
        (Path(place) / "machine.m").write_text(MACHINE, "utf-8")
        subprocess.run([program.resolve(), "--HW_file=machine.m", "--Mapping_file=x.m", "--print_res=false",
                        "--print_res_csv_file=true", "--print_log_file=false"],
                       cwd=place, check=True, capture_output=True)  # fmt: skip
        rows = list(csv.reader((Path(place) / "x.csv").read_text("utf-8").splitlines()))
    column = [head.strip() for head in rows[0]].index("Num MACs")
    return round(sum(float(row[column]) for row in rows[1:]))


def of_scalesim_file(text: str) -> int:
    """The MACs of a topology, as SCALE-Sim counts them."""
    found = 0
    for row in text.splitlines()[1:]:
        h, w, r, s, c, n, stride = map(int, row.split(",")[1:8])
        found += ((h - r) // stride + 1) * ((w - s) // stride + 1) * r * s * c * n
    return found


def of_zigzag_file(text: str) -> int:
    """The MACs of a workload of ZigZag, whose lines are JSON."""
    return sum(
        prod(json.loads(line[2:])["loop_sizes"]) for line in text.splitlines() if len(line) > 4
    )


def every(dataset: Path) -> list[str]:
    """Of all graphs that a survey kept: in how many files the MACs are the graph's."""
    counts: Counter[str] = Counter()
    other: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        zipped, network = Path(place) / "x.zip", Path(place) / "x.m"
        for path in sorted(dataset.rglob("graphs/*/*.zip")):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    costed = CostedRecord(loaded(gzip.decompress(archive.read(name))))
                    macs = costed.totals.macs - sum(n for _, n in layers(costed.graph).lost)
                    zipped.write_bytes(to_timeloop(costed))
                    network.write_text(to_maestro(costed), "utf-8")
                    read = {
                        "SCALE-Sim": of_scalesim_file(to_scalesim(costed)),
                        "Timeloop": of_timeloop_file(zipped, None),
                        "ZigZag": of_zigzag_file(to_zigzag(costed)),
                        "MAESTRO": of_maestro_file(network, None),
                    }
                    counts["graphs"] += 1
                    counts["whole"] += macs == costed.totals.macs
                    counts.update(tool for tool, n in read.items() if n == macs)
                    if set(read.values()) != {macs}:
                        other.append(f"{costed.profile.model.name}: {macs:,} and {read}")
                        print(other[-1], flush=True)
    tools = ", ".join(
        f"{tool} {counts[tool]:,}" for tool in ("SCALE-Sim", "Timeloop", "ZigZag", "MAESTRO")
    )
    return [
        f"Of the {counts['graphs']:,} graphs of the atlas at default sizes, so many files have the graph's "
        f"multiply-accumulates to the digit: {tools}; {counts['graphs'] - counts['whole']:,} graphs have "
        f"contractions whose loops are not known, which the command lists and this leaves out.",
        *other[:10],
    ]


def parsed(python: Path, folder: Path, timeloop: Path | None, maestro: Path | None) -> list[str]:
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
        read["timeloop"] = of_timeloop_file(Path(f"{base}.timeloop.zip"), timeloop)
        read["maestro"] = of_maestro_file(Path(f"{base}.maestro.m"), maestro)
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


def write(lines: list[str], what: str = "figures") -> None:
    """Put the figures between the marks of the page."""
    begin, end = f"<!-- {what} -->", "<!-- end -->"
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(begin)
    PAGE.write_text(
        "\n".join([head + begin, "", *lines, "", end + rest.partition(end)[2]]), "utf-8"
    )


if __name__ == "__main__":
    main()
