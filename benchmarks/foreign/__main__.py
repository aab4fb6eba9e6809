"""Models of packages that nobody tuned opgraph for: what is held of each, and docs/foreign.md from it.

    python benchmarks/foreign [MODEL …] [--environment DIR] [--timeout SECONDS] [--resume FILE]

The packages of requirements.txt (PyPI alone, pinned, without their dependencies; some 400 MB) go into an
environment of its own outside of the repository, which sees the packages of the running one behind its
own, so that torch is the one at hand. Each model runs in a process of its own, one after the other.
Without names all are run, and the page is written. An interrupted run goes on from the file of `--resume`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from checks import CHECKS
from models import MODELS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "foreign.md"
ENVIRONMENT = Path(tempfile.gettempdir()) / "opgraph-foreign"
WORDS = {
    "flops": "FLOPs of a real forward", "parameters": "parameters", "coverage": "every operator has a cost",
    "state": "state and results to the bit", "draw": "drawn", "view": "page", "explore": "explored",
    "save": "saved and opened again",
}  # fmt: skip


def environment(folder: Path) -> Path:
    """The Python of the environment, which is made where it is not there or the list has changed."""
    wanted = (HERE / "requirements.txt").read_text("utf-8")
    done = folder / "installed.txt"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if done.is_file() and done.read_text("utf-8") == wanted:
        return python
    if folder.exists():
        if not (folder / "pyvenv.cfg").is_file():
            raise SystemExit(f"error: {folder} is no environment of this benchmark")
        shutil.rmtree(folder)
    uv = shutil.which("uv")
    venv.create(folder, with_pip=uv is None)
    install = (
        [uv, "pip", "install", "--python", str(python)]
        if uv
        else [str(python), "-m", "pip", "install"]
    )
    subprocess.run(
        [*install, "--quiet", "--no-deps", "-r", str(HERE / "requirements.txt")], check=True
    )
    purelib = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    behind = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    Path(purelib, "behind.pth").write_text("\n".join(behind) + "\n", "utf-8")
    done.write_text(wanted, "utf-8")
    return python


def run(names: list[str], python: Path, timeout: float) -> Iterator[dict[str, Any]]:
    """What came of each model, as it is known."""
    source = str(HERE.parents[1] / "src")
    process = subprocess.Popen(
        [str(python), str(HERE / "checks.py"), str(timeout), *names], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    with process as running:
        yield from map(json.loads, running.stdout or ())
    if running.returncode:
        raise SystemExit(f"error: checks.py ended with {running.returncode}")


def problems(found: dict[str, Any]) -> list[str]:
    """What is wrong with a model, in words."""
    if "error" in found:
        return [f"not profiled: {found['error']}"]
    wrong = [f"{WORDS[k]}: {found['wrong'][k]}" for k in CHECKS if found["wrong"][k]]
    unclear = not found["without"].startswith(("runs", "refused"))
    return [*wrong, *([f"without inputs: {found['without']}"] if unclear else [])]


def page(results: list[dict[str, Any]]) -> str:
    """The page: what holds of how many, and each model."""
    good = [r for r in results if "error" not in r]
    packages = dict(
        line.split("==")
        for line in (HERE / "requirements.txt").read_text("utf-8").splitlines()
        if "==" in line
    )
    used = dict.fromkeys(r["package"] for r in results)
    versions = ", ".join(f"{p} {packages[_plain(p, packages)]}" for p in used)
    held = [
        ("profiled with given inputs", len(good)),
        *((WORDS[c], sum(not r["wrong"][c] for r in good)) for c in CHECKS),
    ]
    without = Counter(r["without"].partition(" ")[0].rstrip(":") for r in good)
    unclear = len(good) - without["runs"] - without["refused"]
    better = Counter[str]()
    for r in good:
        better.update(r["better"].keys())
    lines = [
        "# Models that nobody tuned for\n",
        f"Made by `python benchmarks/foreign`: {len(results)} models of {len(used)} packages of PyPI, each "
        f"in a process of its own, with Python {platform.python_version()} and torch {version('torch')}. "
        "They are built at sizes of a moment, with random weights.\n",
        "| what must hold | of how many |",
        "|---|---:|",
        *(f"| {what} | {count} of {len(results)} |" for what, count in held),
        f"| without inputs: runs | {without['runs']} of {len(results)} |",
        f"| without inputs: refused in a sentence | {without['refused']} of {len(results)} |",
        f"| without inputs: anything else | {unclear} |",
        "",
        "FLOPs are those that `torch.utils.flop_counter` counts in a real forward, to the digit; products "
        "of sparse tensors by the values that they store, where it counts them as dense. "
        + (
            f"It has no formula for {', '.join(f'`{op}`' for op in sorted(better))}, which opgraph adds: "
            "those are given apart, and not compared.\n"
            if better
            else "\n"
        ),
        "State is a hash of every parameter and buffer before and after, and of what a forward gives with "
        "the same seed.\n",
        "| model | package | FLOPs | of them unknown to torch | parameters | nodes | tensors "
        "| without inputs | wrong |",
        "|---|---|---:|---:|---:|---:|---|---|---|",
        *map(_row, results),
        "",
        f"Versions: {versions}.",
    ]
    return "\n".join(lines) + "\n"


def _plain(name: str, packages: dict[str, str]) -> str:
    """The name as the list spells it."""
    wanted = name.lower().replace("_", "-")
    return next(p for p in packages if p.lower().replace("_", "-") == wanted)


def _row(found: dict[str, Any]) -> str:
    wrong = "; ".join(problems(found)).replace("|", "\\|").replace("<", "&lt;")
    if "error" in found:
        return f"| {found['name']} | {found['package']} | | | | | | | {wrong} |"
    without = found["without"].partition(":")[0]
    figures = (found["flops"], sum(found["better"].values()), found["parameters"], found["nodes"])
    shown = " | ".join(f"{n:,}" for n in figures)
    return (
        f"| {found['name']} | {found['package']} | {shown} | {found['tensors']} "
        f"| {without if without.startswith(('runs', 'refused')) else 'fails'} | {wrong} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("models", nargs="*", help="default: all, to the page")
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for each model")
    parser.add_argument("--resume", type=Path, help="a file of what is done already, one line each")
    args = parser.parse_args()
    if unknown := set(args.models) - MODELS.keys():
        raise SystemExit(f"error: there is no model {', '.join(sorted(unknown))}")
    python = environment(args.environment)
    results: list[dict[str, Any]] = []
    if args.resume is not None and args.resume.is_file():
        results += map(json.loads, args.resume.read_text("utf-8").splitlines())
    done = {r["name"] for r in results}
    names = [n for n in args.models or MODELS if n not in done]
    for found in run(names, python, args.timeout) if names else ():
        results.append(found)
        if args.resume is not None:
            with args.resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(results[-1]) + "\n")
        print(f"{found['name']}: {'; '.join(problems(found)) or 'all holds'} "
              f"({found.get('without', '')})", flush=True)  # fmt: skip
    results.sort(key=lambda r: [*MODELS].index(r["name"]))
    if not args.models:
        PAGE.write_text(page(results), encoding="utf-8")
    bad = sum(bool(problems(r)) for r in results)
    print(f"{len(results)} models, {bad} of which something does not hold", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
