"""The tables of a survey with their columns and types."""

from __future__ import annotations

STRINGS = "list<string>"
COLUMNS: dict[str, dict[str, str]] = {
    "cases": {
        **dict.fromkeys(("id", "spec", "name", "family", "task", "licence", "mode", "target",
                         "dtype"), "string"),
        "batch_size": "int64", "seq_len": "int64", "image_size": "string", "options": "string",
        "ok": "bool", "stage": "string", "reason": "string", "class": "string", "tracer": "string",
        "tensors": "string", "inputs": "string", "nodes": "int64", "kernels": "int64",
        "parameters": "int64", "weight_bytes": "int64", "flops": "int64", "macs": "int64",
        "other_flops": "int64", "bytes": "int64", "peak_memory": "int64", "intensity": "double",
        "coverage": "double", "remarks": STRINGS, "failures": STRINGS, "versions": "string",
        "seconds": "double", "cpu": "double", "memory": "int64",
    },
    "times": {
        "id": "string", "device": "string", "latency": "double", "low": "double", "high": "double",
        "throughput": "double", "memory_share": "double", "ridge": "double", "compute_bound": "double",
        "memory_bound": "double", "launch_bound": "double", "bottleneck": "string", "fits": "bool",
        "joules": "double", "reason": "string",
    },
    "kernels": {
        **dict.fromkeys(("id", "kernel", "category", "dtype", "shapes", "out_shapes", "cost"), "string"),
        **dict.fromkeys(("flops", "other_flops", "bytes_read", "bytes_written", "count"), "int64"),
    },
    "modules": {
        **dict.fromkeys(("id", "module", "class"), "string"),
        **dict.fromkeys(("depth", "calls", "parameters", "flops", "other_flops", "bytes"), "int64"),
    },
}  # fmt: skip
"""The tables with their columns and types, the same in every file. Sizes are in bytes, times in seconds."""

UNKNOWN = "unknown"
"""The source of names that no source has."""

SPENT = ("seconds", "cpu", "memory")
"""The columns of `cases` that say what finding out took; all others are the same in every run."""
