"""Profiles thousands of random models and checks what must hold of each (tests/hard/test_random_models.py),
from a seed that is printed, so that a run can be had again.

    python benchmarks/random_models.py [MODELS] [--costly MODELS] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=int, nargs="?", default=2_000)
    parser.add_argument("--costly", type=int, help="of them with every tracer and view; a quarter")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    args = parser.parse_args()
    costly = args.models // 4 if args.costly is None else args.costly
    print(f"{args.models} random models, {costly} with every tracer and view, seed {args.seed}")
    print(flush=True)
    start = time.perf_counter()
    status = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/hard/test_random_models.py", "-p", "no:cacheprovider",
         f"--hypothesis-seed={args.seed}", "--durations=9"],
        cwd=ROOT,
        env={**os.environ, "OPGRAPH_EXAMPLES": str(args.models), "OPGRAPH_COSTLY_EXAMPLES": str(costly)},
        check=False,
    ).returncode  # fmt: skip
    print(f"\n{time.perf_counter() - start:.0f} s, seed {args.seed}")
    return status


if __name__ == "__main__":
    sys.exit(main())
