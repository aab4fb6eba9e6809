"""Profiles thousands of random models and checks what must hold of each
(tests/tracing/hard/test_random_models.py), from a seed that is printed, so that a run can be had
again. Each hundred has a seed and a process of its own: the outcome of those that are done is known
when a run is cut short.

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
CHUNK = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=int, nargs="?", default=2_000)
    parser.add_argument("--costly", type=int, help="of them with every tracer and view; a quarter")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    args = parser.parse_args()
    costly = args.models // 4 if args.costly is None else args.costly
    print(f"{args.models} random models, {costly} with every tracer and view, seed {args.seed}")
    failures = 0
    for done in range(0, args.models, CHUNK):
        count = min(CHUNK, args.models - done)
        # The costly checks are spread over all chunks.
        share = costly * (done + count) // args.models - costly * done // args.models
        failures += chunk(args.seed + done // CHUNK, count, share)
        print(f"{done + count:,} models: {failures} chunks with failures", flush=True)
    return 1 if failures else 0


def chunk(seed: int, models: int, costly: int) -> bool:
    """Whether something failed; then it is printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/tracing/hard/test_random_models.py",
         "-p", "no:cacheprovider", "--disable-warnings"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "OPGRAPH_SEED": str(seed), "OPGRAPH_EXAMPLES": str(models),
             "OPGRAPH_COSTLY_EXAMPLES": str(max(1, costly))},
    )  # fmt: skip
    failed = done.returncode != 0
    print(f"seed {seed}: {models} models, {costly} with all checks, "
          f"{'FAILED' if failed else 'passed'} in {time.perf_counter() - start:.0f} s")  # fmt: skip
    if failed:
        print(done.stdout[-20_000:], done.stderr[-2_000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
