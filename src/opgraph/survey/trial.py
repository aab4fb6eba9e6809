"""The outcome of one trial, and the file of them that an interrupted run goes on from."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opgraph.record.errors import ProfileError, RenderError
from opgraph.record.files import dumps


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one model: where it stopped and why if it did, else its figures.

    `stage` is "build", "inputs", "trace" or, when its process died, "process". `inputs` are the arguments
    with their shapes. `coverage` is the share of kernels with a known cost, `memory` the most that the
    process had resident, in bytes. `seconds` went by on the clock, `cpu` are those that its process
    computed; of one that was killed, as many as went by. `failures` are the attempts before the one that
    got through, with their reasons.
    """

    name: str
    ok: bool = False
    stage: str = "build"
    reason: str | None = None
    source: str = ""
    cls: str = ""
    tracer: str = ""
    tensors: str = ""
    nodes: int = 0
    parameters: int = 0
    flops: int = 0
    coverage: float = 1.0
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    inputs: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def record(self) -> dict[str, Any]:
        """Its row in a table."""
        return {k: "; ".join(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trial:
        """From what `to_dict` gives. Raises `TypeError` or `AttributeError` when it is something else."""
        found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**found)


_BEGINNING = '{"name": '
"""What every line of a file of trials begins with."""


def save_trial(path: Path, trial: Trial) -> None:
    """Add a trial to a file, one JSON object a line; a line at its end that was cut short makes way.

    Raises `RenderError` when the file cannot be written.
    """
    line = dumps(trial.to_dict()) + "\n"
    try:
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line.encode())
    except OSError as error:
        raise RenderError(f"cannot write {path}: {error.strerror or error}") from error


def load_trials(path: Path) -> dict[str, Trial]:
    """The trials in a file by name, the last one of each; a line that was cut short is ignored.

    Raises `ProfileError` when the file cannot be read, or holds something else.
    """
    if not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read {path}: {error}") from error
    found: dict[str, Trial] = {}
    for number, line in enumerate(lines, start=1):
        try:
            trial = Trial.from_dict(json.loads(line))
        except (ValueError, TypeError, AttributeError) as error:
            # JSON that is whole was not cut short, whatever it begins with: the file is somebody else's.
            cut_short = isinstance(error, json.JSONDecodeError) and number == len(lines)
            if cut_short and _BEGINNING.startswith(line[: len(_BEGINNING)]):
                break
            raise ProfileError(f"{path} is not a file of trials (line {number})") from error
        found[trial.name] = trial
    return found
