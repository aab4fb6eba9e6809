"""opgraph and its peers on the same models: `python benchmarks/peers [--resume FILE] [--only MODEL …]`.

Every tool runs on every model in a process of its own, one after the other; a row is kept for each, so
that an interrupted run goes on from the file. Then docs/benchmarks.md is written, with its plots.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import time
import traceback
import warnings
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

import growth
import processes
import report
from adapters import OURS, PEERS
from measure import measured
from models import entries

LIBRARIES = ("torchvision", "transformers", "timm", "ultralytics", "diffusers")
WARM = (
    "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "torchvision", "timm", "ultralytics.nn.tasks",
    "diffusers", "transformers.modeling_utils", "transformers.models.auto.modeling_auto", "scipy.optimize",
    "opgraph.tracing", "opgraph.inputs",
)  # fmt: skip
"""What everybody needs, imported before the processes are forked: their times are after imports."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--resume", type=Path, default=Path("peers.jsonl"), metavar="FILE")
    parser.add_argument("--only", nargs="*", metavar="MODEL")
    parser.add_argument("--tools", nargs="*", metavar="TOOL")
    parser.add_argument(
        "--timeout", type=int, default=180, help="CPU seconds for a tool on a model"
    )
    parser.add_argument("--memory", type=float, default=8.0, metavar="GiB")
    parser.add_argument("--runs", type=int, default=5, help="runs of a whole process")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    rows = _read(args.resume)
    if not args.report:
        rows += _machine(rows, args.resume)
        rows += _peers(rows, args)
        if not args.only:
            for part in (growth.rows, processes.rows):
                for row in part(rows, args.runs):
                    rows.append(_kept(args.resume, row))
    page = report.write(rows, entries())
    print(f"wrote {page}")
    return 0


def _peers(rows: list[dict[str, Any]], args: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    done = {(r["tool"], r["model"]) for r in rows if r["kind"] == "peer"}
    chosen = [e for e in entries() if not args.only or e.name in args.only]
    wanted = {
        e.name: [t for t in (OURS, *PEERS) if not args.tools or t in args.tools] for e in chosen
    }
    waiting = {
        e.name: [t for t in wanted[e.name] if (t, e.name) not in done] for e in chosen
    }  # fmt: skip
    if any(waiting.values()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in (*WARM, *(peer.package for peer in PEERS.values())):
                try:
                    import_module(module)
                except ImportError as error:
                    print(f"{module} cannot be imported: {error}", file=sys.stderr)
    found: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        found.append(_kept(args.resume, {"kind": "peer", **row}))
        what = row.get("error") or f"{row.get('value')} in {row.get('first', 0):.2f} s"
        print(f"{row['model']} {row['tool']}: {what}"[:150], file=sys.stderr)

    for entry in chosen:
        if waiting[entry.name]:
            child = os.fork()  # so that nothing of one model stays for the next
            if not child:
                try:
                    measured(
                        entry, waiting[entry.name], args.timeout, int(args.memory * 2**30), keep
                    )
                except BaseException:  # noqa: BLE001 - nothing may go on in this process
                    traceback.print_exc()
                os._exit(0)
            os.waitpid(child, 0)
    return [r for r in _read(args.resume) if r["kind"] == "peer" and r not in rows]


def _machine(rows: list[dict[str, Any]], file: Path) -> list[dict[str, Any]]:
    """What the figures hold for, once a file."""
    if any(r["kind"] == "machine" for r in rows):
        return []
    names = [OURS, "torch", *LIBRARIES, *(p.distribution for p in PEERS.values())]
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    model = next((x.partition(":")[2].strip() for x in text.splitlines() if "model name" in x), "")
    row = {
        "kind": "machine",
        "cpu": model or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in dict.fromkeys(names)},
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "began": time.time(),
    }
    return [_kept(file, row)]


def _version(distribution: str) -> str:
    if distribution == OURS:
        from opgraph.version import __version__

        return __version__
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def _kept(file: Path, row: dict[str, Any]) -> dict[str, Any]:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")
    return row


if __name__ == "__main__":
    raise SystemExit(main())
