"""What an H100 ran, as benchmarks/gpu.py keeps it: the part of its score that traces nothing."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
from benchmarks import gpu

RECORDED = json.loads(gpu.KEPT.read_text("utf-8"))


def test_attention_ran_by_the_rules_that_torch_had_then():
    """Of 280 calls by torch 2.11, drawn by chance."""
    rows = [line.split("|") for line in gpu.of_attention(RECORDED["attention"]) if "| " in line]
    counts = [int(cells[2]) for cells in rows if cells[2].strip().isdigit()]
    assert counts == sorted(counts)  # each of the older rules explains some
    assert counts[-1] == len(RECORDED["attention"]) == 280


def test_what_is_recorded_is_written_as_it_was_read():
    assert json.loads(gpu.lines_of(RECORDED)) == RECORDED
    assert {row["key"] for row in RECORDED["measured"]} == set(gpu.CASES)
    assert {row["key"] for row in RECORDED["memory"]} == {"context", *gpu.STEPS}
