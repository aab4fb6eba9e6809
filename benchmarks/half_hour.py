"""Walk docs/half_hour.md from an empty folder to the failing test at its end: every command as the page has
it, in its order, with the seconds that each takes.

    python benchmarks/half_hour.py            # what the commands say, and then the table
    python benchmarks/half_hour.py --write    # the table into the page, too

What is installed is this checkout's last commit, in an environment of its own. Of the shell's variables the
commands see `PATH` and `PIP_CACHE_DIR`, and `HOME` is a new folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "half_hour.md"
BEGIN, END = "<!-- made by benchmarks/half_hour.py -->\n", "<!-- half hour end -->\n"
LATER = "# once it is released"
MARK = "took\t"
_BLOCK = re.compile(r"^```(.*)\n((?s:.*?))^```$|^((?:    .+\n)+)", re.MULTILINE)
_TIMED = re.compile(r"(opgraph|python|pip|git) ")


def script() -> str:
    """All that the page runs, for bash, which says after each command how long it took."""
    lines = ["set -e"]
    for how, fenced, indented in _BLOCK.findall(PAGE.read_text(encoding="utf-8").split(BEGIN)[0]):
        if how and 'exec="1"' not in how:
            continue
        for line in fenced.splitlines() or [line[4:] for line in indented.splitlines()]:
            if line.endswith(LATER):
                continue
            for command in line.split(" && ") if _TIMED.match(line) else [line]:
                if _TIMED.match(command):
                    shown = re.split(r" +# | \| | 2>&1", command)[0]
                    took = f"{MARK}{shown}".replace("%", "%%") + "\t%R\t%U\t%S"
                    lines.append(f"TIMEFORMAT={shlex.quote(took)}\ntime {command}")
                else:
                    lines.append(command)
    return "\n".join(lines)


def walk(folder: Path) -> tuple[list[tuple[str, float, float]], str]:
    """Each command, the seconds until it was done, and those of processors; and what it ran with."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (home / ".gitconfig").write_text(
        f'[url "{ROOT}"]\n  insteadOf = https://github.com/opgraph/opgraph\n', encoding="utf-8"
    )
    kept = {name: os.environ[name] for name in ("PATH", "PIP_CACHE_DIR") if name in os.environ}
    shell = subprocess.Popen(
        ["bash", "-c", script()], cwd=work, env=kept | {"HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
    )  # fmt: skip
    assert shell.stdout
    found = []
    for line in shell.stdout:
        if line.startswith(MARK):
            _, command, real, user, system = line.rstrip("\n").split("\t")
            found.append((command, float(real), float(user) + float(system)))
            print(f"[{real} s] {command}\n", flush=True)
        else:
            print(line, end="", flush=True)
    if status := shell.wait():
        sys.exit(f"the walk ended with status {status}")
    (installed,) = (work / ".venv").glob("lib/*/site-packages")
    size = sum(file.lstat().st_blocks * 512 for file in installed.rglob("*"))
    torch = next(installed.glob("torch-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    return found, f"{installed.parent.name}, torch {torch}, {size / 1e9:.1f} GB installed"


def main() -> None:
    """Walk, and print the table; write it, if that is asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="half-hour-") as folder:
        rows, what = walk(Path(folder))
    rows.append(("all", sum(real for _, real, _ in rows), sum(used for _, _, used in rows)))
    table = [
        f"A machine of {os.cpu_count()} cores whose load was {os.getloadavg()[2]:.1f} ({what}):\n",
        "| command | seconds until it was done | seconds of processors |\n|---|---:|---:|",
        *(f"| `{command}` | {real:.1f} | {used:.1f} |" for command, real, used in rows),
        "",
    ]
    print("\n".join(table))
    if write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n".join(table) + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
