"""Make the JSON Schemas of what `--json` prints, one for each command, from what it prints of real models.

    python benchmarks/schemas.py

Draft 2020-12, in src/opgraph/views/schemas. A key that every output has is required; others may come with
later versions (`additionalProperties`). `tests/views/test_schemas.py` holds other models to them.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from genson import SchemaBuilder

from opgraph.cli import main
from opgraph.surveying.sql import COLUMNS
from opgraph.surveying.table import CASES
from opgraph.views.schemas import FOLDER, VERSION

DATA = Path(__file__).parents[1] / "tests" / "data"
TRACES = DATA.parent / "traces" / "data"
SAVED = ("resnet18", "gpt2", "yolov8n", "bert-base-uncased")
FILES = [str(DATA / f"{name}.json") for name in SAVED]
RAN = str(DATA / "resnet18-run.json")
H100 = ["--hardware", "h100-sxm"]
FAILING = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(16, 8), nn.Linear(9, 4))
"""
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "tid": 1, "ts": 1, "dur": 2}
OUTPUTS: dict[str, list[list[str]]] = {
    "profile": [[RAN], [RAN, *H100],
                *([f] for f in FILES), *([f, *H100, "--memory", "--partition", "fuse"] for f in FILES),
                [FILES[1], *H100, "--tensor-parallel", "2"], ["gpt2", "--mode", "decode"],
                [FILES[1], *H100, "--run", "graphs"],
                ["HuggingFaceTB/SmolLM2-135M", "--mode", "decode"],
                ["resnet18", "--mode", "train"]],
    "explain": [*([f] for f in FILES), *([f, *H100] for f in FILES)],
    "explore": [[f, "--max-nodes", "50"] for f in FILES] + [[FILES[0], *H100], [RAN]],
    "compare": [[RAN, RAN, "--fail-if", "measured > +5%"],
                [FILES[0], FILES[1]], [FILES[0], FILES[1], *H100],
                [FILES[1], FILES[3], "--fail-if", "flops > +2%"]],
    "sweep": [["resnet18", "--batch-size", "1,2"], ["resnet18", "--batch-size", "1,2", *H100],
              ["resnet18", "--image-size", "32,1"], ["resnet18", "--symbolic"]],
    "check": [["resnet18", "--no-counters"], ["gpt2", "--tracer", "fx", "--no-counters"]],
    "fit": [["resnet18", *H100], ["gpt2", "--hardware", "t4"],
            ["HuggingFaceTB/SmolLM2-135M", *H100, "--mode", "decode", "--batch-size", "256"],
            ["gpt2", "--hardware", "t4", "--mode", "decode", "--batch-size", "2048"]],
    "plan": [["HuggingFaceTB/SmolLM2-135M", "--devices", "8xh100-sxm", "--global-batch", "16",
              "--seq-len", "256", "--tensor-parallel", "1", *more]
             for more in ([], ["--explain", "--fsdp", "8", "--micro-batches", "2"])]
            + [["gpt2", "--devices", "4xa10", "--mode", "decode", "--requests", "50", *more]
               for more in ([], ["--max-per-token", "9", "--request-rate", "8"],
                            ["--explain", "--data-parallel", "4"])],
    "models": [[]],
    "hardware": [[], ["h100-sxm"], ["epyc-7763"]],
    "serve": [["gpt2", "--hardware", "a10", "--request-rate", "8,inf", "--requests", "50"],
              ["gpt2", "--hardware", "a10", "--request-rate", "8", "--requests", "9",
               "--output-len", "1"]],
    "survey": [],
    "atlas": [],
    "cache": [[]],
}  # fmt: skip


def printed(command: str, arguments: list[str]) -> object:
    """What a command prints as JSON."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        main([command, *arguments, "--json"])
    return json.loads(text.getvalue())


def _surveyed() -> list[dict[str, object]]:
    """Rows with every type that a survey's columns have: it runs on a cluster, so none is made here."""
    examples = {"string": "", "int64": 1, "double": 0.5, "bool": True}
    kinds = {"source": "string", **COLUMNS["cases"]}
    full = {name: examples[kinds[name]] for name in CASES}
    always = ("spec", "source", "mode", "ok", "stage")
    return [full, {name: value if name in always else None for name, value in full.items()}]


def schema(command: str) -> dict[str, object]:
    """The schema of a command's output."""
    builder = SchemaBuilder("https://json-schema.org/draft/2020-12/schema")
    for arguments in OUTPUTS[command]:
        builder.add_object(printed(command, arguments))
    for row in _surveyed() if command == "survey" else ():
        builder.add_object([row])
    if command == "atlas":  # the columns are those of the question
        builder.add_schema({"type": "array", "items": {"type": "object"}})
    head = {"$id": f"https://opgraph.github.io/opgraph/schemas/{VERSION}/{command}.json",
            "title": f"What `opgraph {command} --json` prints"}  # fmt: skip
    found: dict[str, object] = _maps_opened(builder.to_schema())
    return head | found


MAPS = ("arguments", "attributes", "by_node", "host_by_node", "waits", "choices", "convention",
        "versions", "unknown", "sizes", "formulas", "modules", "kwargs", "limits", "settings",
        "held")  # fmt: skip
"""Objects whose keys are data: names, ids, options."""


def _maps_opened(node: Any, name: str = "") -> Any:
    """The same where the keys of maps are left open."""
    if isinstance(node, list):
        return [_maps_opened(item) for item in node]
    if not isinstance(node, dict):
        return node
    if name in MAPS and "properties" in node:
        return {"type": "object"}
    return {
        key: {n: _maps_opened(s, n) for n, s in value.items()}
        if key == "properties"
        else _maps_opened(value)
        for key, value in node.items()
    }


if __name__ == "__main__":
    scratch = Path(tempfile.mkdtemp())
    os.environ["OPGRAPH_CACHE"] = str(scratch / "cache")
    (scratch / "bert.json").write_bytes(gzip.decompress((TRACES / "bert.json.gz").read_bytes()))
    trace, joined = TRACES / "tracelens" / "bert-h100.json.gz", scratch / "joined.json"
    plain, nameless = scratch / "plain.json", scratch / "nameless.json"
    with redirect_stdout(io.StringIO()):
        main(["profile", "resnet18"])  # a cache with something in it
        main(["join", str(scratch / "bert.json"), str(trace), "-o", str(joined)])
        plain.write_text(json.dumps({"traceEvents": [EVENT]}))  # which names no device
        main(["join", str(scratch / "bert.json"), str(plain), "-o", str(nameless)])
        code, failed = scratch / "failing.py", scratch / "failed.json"
        code.write_text(FAILING)
        main(["profile", f"{code}:build", "--input-shape", "2x16", "-o", str(failed)])
        ran = scratch / "ran.json"  # with what it allocated
        main(["measure", "squeezenet1_1", "--image-size", "32", "--steps", "1", "-o", str(ran)])
    OUTPUTS["profile"] += [[str(joined)], [str(nameless)], [str(ran)]]
    for command in ("profile", "explain", "explore"):
        OUTPUTS[command] += [[str(failed)], [str(failed), *H100]]
    for name in sys.argv[1:] or OUTPUTS:
        file = FOLDER / f"{name}.json"
        file.write_text(json.dumps(schema(name), indent=1) + "\n", encoding="utf-8")
        sys.stderr.write(f"wrote {file}\n")
