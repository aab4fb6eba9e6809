"""What devices exchange, against what NCCL took: the fit of a link's figures, and how far they carry.

    python benchmarks/collectives.py fit --sources DIR      # the figures of `[link]` in device files
    python benchmarks/collectives.py score --sources DIR    # as shipped, in residuals.json, and by groups

`DIR` holds ai-dynamo/aiconfigurator (Apache-2.0), which measured all-reduces, gathers, scatters with sums
and exchanges of all with all in half precision, among 2, 4 and 8 devices of a node, of 512 B to 512 MiB.
Fitted are the A100 and the H100 with NCCL 2.27.3. Scored are those, with one kind of collective left out of
the fit, the H100 with other versions, and other devices with the figures that their files have. Between
nodes nothing was measured.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opgraph.analysis.timing.collectives import collective_seconds
from opgraph.analysis.timing.intervals import FILE
from opgraph.hardware import Device, Figure, device
from opgraph.record.graph import Collective
from opgraph.record.kinds import CollectiveKind

DATA = "aic-core/src/aiconfigurator_core/systems/data/{}/comm/nccl/{}/nccl_perf.parquet"
FITTED = {"h100-sxm": "h100_sxm", "a100-sxm4-80gb": "a100_sxm"}
VERSION = "2.27.3"
OTHERS = (
    ("h100-sxm", "h100_sxm", "2.23"), ("h100-sxm", "h100_sxm", "2.29.2"),
    ("h200", "h200_sxm", "2.29.2"), ("b200", "b200_sxm", VERSION), ("b300", "b300_sxm", "2.29.2"),
    ("gb200", "gb200", "2.29.2"), ("l40s", "l40s", VERSION),
    ("rtx-pro-6000", "rtx_pro_6000_server", "2.29.2"),
)  # fmt: skip
"""Devices and versions that nothing is fitted to."""
LARGE = 2**20
KEYS = ("start", "latency", "block_start", "reached", "multicast")
FROM = (8e-6, 0.7e-6, 2e-5, 0.65, 0.6)


@dataclass(frozen=True)
class Measured:
    """Collectives that were measured, with their seconds."""

    collectives: tuple[Collective, ...]
    seconds: np.ndarray

    def without(self, kind: CollectiveKind, kept: bool = False) -> Measured:
        """Those of other kinds, or of this one."""
        some = np.array([(c.kind is kind) == kept for c in self.collectives])
        few = (c for c, s in zip(self.collectives, some, strict=True) if s)
        return Measured(tuple(few), self.seconds[some])

    def ratios(self, on: Device) -> np.ndarray:
        """Measured by predicted seconds on a device."""
        return self.seconds / np.array([collective_seconds(c, on) for c in self.collectives])


def measured(sources: Path, folder: str, version: str) -> Measured:
    """The collectives of a device that AIConfigurator measured; those of equal sizes as their mean."""
    import pandas as pd
    from predict import show

    path = DATA.format(folder, version)
    frame = pd.read_parquet(io.BytesIO(show(sources / "aiconfigurator", path)))
    frame = frame[frame.nccl_dtype == "half"]
    keys = ["op_name", "num_gpus", "message_size"]
    rows = frame.groupby(keys, as_index=False).latency.mean()
    kinds = {"alltoall": CollectiveKind.ALL_TO_ALL}
    found = tuple(
        Collective(kinds.get(op) or CollectiveKind(op.replace("_", "-")), int(size) * 2, int(n))
        for op, n, size in zip(*(rows[k] for k in keys), strict=True)
    )
    return Measured(found, rows.latency.to_numpy() * 1e-3)


def with_link(on: Device, values: Any) -> Device:
    """The device with these figures of its link."""
    found = dict(zip(KEYS, map(float, values), strict=False))
    given = {f"link.{k}": Figure(v, "fit") for k, v in found.items()}
    return replace(on, figures={**on.figures, **given})


def fit(on: Device, seen: Measured) -> np.ndarray:
    """The figures of a link that are nearest to what was measured, by the logarithm of the time; errors
    beyond a tenth count less than by their squares."""
    from scipy.optimize import least_squares

    start = np.log(FROM if on.link_multicast else FROM[:-1])
    found = least_squares(
        lambda x: np.log(seen.ratios(with_link(on, np.exp(x)))), start, loss="soft_l1", f_scale=0.1,
    )  # fmt: skip
    return np.exp(found.x)


def rows(sources: Path) -> Iterator[tuple[str, str, Measured, np.ndarray]]:
    """What is scored: its name, how it was predicted, what was measured, and measured by predicted."""
    for name, folder in FITTED.items():
        on, seen = device(name), measured(sources, folder, VERSION)
        yield name, "fitted", seen, seen.ratios(on)
        left = []
        for kind in dict.fromkeys(c.kind for c in seen.collectives):
            one = seen.without(kind, kept=True)
            left.append((one, one.ratios(with_link(on, fit(on, seen.without(kind))))))
        whole = tuple(c for one, _ in left for c in one.collectives)
        times = np.concatenate([one.seconds for one, _ in left])
        ratios = np.concatenate([r for _, r in left])
        yield name, "kind left out", Measured(whole, times), ratios
    for name, folder, version in OTHERS:
        seen = measured(sources, folder, version)
        yield name, f"NCCL {version}, left out", seen, seen.ratios(device(name))


def score(sources: Path) -> None:
    """Print the errors of every row, and write the spread and the interval of what was left out on the
    fitted devices."""
    logs: list[float] = []
    print(
        "| device | | above 1 MiB: median | mean | worst | below: median | mean | worst | 9 of 10 |"
    )
    for name, how, seen, ratios in rows(sources):
        large = np.array([c.bytes >= LARGE for c in seen.collectives])
        off = np.abs(1 / ratios - 1)
        said = [
            f"{100 * f(off[k]):.0f} %"
            for k in (large, ~large)
            for f in (np.median, np.mean, np.max)
        ]
        low, high = np.quantile(ratios, [0.05, 0.95])
        print(
            f"| {name} | {how} | " + " | ".join(said) + f" | {low:.2f} to {high:.2f} |", flush=True
        )
        if how == "kind left out":
            logs += list(np.log(ratios))
    data = json.loads(FILE.read_text())
    low, high = np.quantile(logs, [0.05, 0.95])
    data["spread"] = dict(
        sorted({**data["spread"], "exchange": round(float(np.std(logs)), 3)}.items())
    )
    data["exchange"] = [round(float(low), 3), round(float(high), 3), len(logs)]
    FILE.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["fit", "score"])
    parser.add_argument("--sources", type=Path, required=True, help="where the repository is")
    args = parser.parse_args()
    if args.what == "score":
        score(args.sources)
        return
    for name, folder in FITTED.items():
        found = fit(device(name), measured(args.sources, folder, VERSION))
        print(name, ", ".join(f"{k} {v:.3g}" for k, v in zip(KEYS, found, strict=False)))


if __name__ == "__main__":
    main()
