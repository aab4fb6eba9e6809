"""The comparison with other tools still runs: a row of opgraph's own, as benchmarks/peers makes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
CODE = """
import json, torch
from measure import measured
from models import entries

torch.set_num_threads(1)
entry = next(e for e in entries() if e.local == "quantized")
measured(entry, ["opgraph"], 60, 8 * 2**30, lambda row: print(json.dumps(row)))
"""


@pytest.mark.slow
@pytest.mark.live
def test_a_row_of_ones_own_has_its_figures() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], cwd=PEERS, capture_output=True,
                          text=True, check=True)  # fmt: skip
    row = json.loads(done.stdout.splitlines()[-1])
    assert "error" not in row, row
    assert row["value"] == 16 * 2 * (256 * 1024 + 1024 * 256)
    assert row["seconds"] > 0
