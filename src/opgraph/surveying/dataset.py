"""A dataset of a survey: a folder of Parquet files that one driver writes and everybody reads.

    survey.json                          the plan, the stages of devices, what is kept, versions
    cases/source=timm/GROUP.parquet      one row a case: figures, remarks, and why there are none
    times/source=timm/GROUP-STAGE.parquet  one row a case and device
    kernels/…, modules/…                 where they were asked for, as cases
    graphs/source=timm/GROUP.zip         where they were asked for: the profile of each case (.json.gz)

A file appears whole or not at all, and its name says which cases are in it: what is there is done, and
a case cannot be written twice. The lock is the system's, which takes it back from a driver that
dies."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from opgraph.options.fields import KEPT
from opgraph.record.errors import MissingDependency, ProfileError, RenderError
from opgraph.record.files import dumps, write_atomically
from opgraph.surveying.cases import Group, Plan
from opgraph.surveying.sql import COLUMNS, STRINGS, UNKNOWN
from opgraph.surveying.worker import Found, Row

FORMAT, VERSION = "opgraph-survey", 1


def encoded(table: str, rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file. Whole numbers that 64 bits cannot hold are unknown there."""
    pa, parquet = _pyarrow()
    kinds = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(),
             STRINGS: pa.list_(pa.string())}  # fmt: skip
    columns = {
        name: pa.array([_cell(row.get(name), kind) for row in rows], kinds[kind])
        for name, kind in COLUMNS[table].items()
    }
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out, compression="zstd")
    return out.getvalue()


def _cell(value: Any, kind: str) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if kind == STRINGS and value is not None:
        return [str(v).encode("utf-8", "replace").decode() for v in value]
    return None if kind == "int64" and value is not None and abs(value) >= 2**63 else value


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "survey") from None
    return pa, parquet


class Dataset:
    """The folder of a survey, open for the one driver that writes it."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        keep: frozenset[str],
        stages: Stages,
        *,
        recost: bool = False,
    ) -> None:
        self.folder, self.plan, self.keep, self.stages = folder, plan, keep, stages
        self.recost = recost

    def missing(self, group: Group) -> tuple[bool, Stages, frozenset[str]] | None:
        """What of a group is not there: its figures, stages of devices, and what is kept; None if all is.
        Where times are made anew, those are all that is wanted, of groups that were traced."""
        figures = not self._file("cases", group).exists()
        stages = tuple(s for s in self.stages if not self._file("times", group, s).exists())
        keep = frozenset(k for k in self.keep if not self._file(k, group).exists())
        if self.recost:
            figures, stages, keep = (
                False,
                () if figures or "graphs" in keep else stages,
                frozenset(),
            )
        return (figures, stages, keep) if figures or stages or keep else None

    def finish(self) -> None:
        """Remove the times before those that were made anew."""
        shutil.rmtree(self.folder / _BEFORE, ignore_errors=True)

    def graphs(self, group: Group) -> dict[str, bytes]:
        """The saved graphs of a group, by case."""
        path = self._file("graphs", group)
        if not path.exists():
            return {}
        with zipfile.ZipFile(path) as file:
            return {n.partition(".")[0]: file.read(n) for n in file.namelist()}

    def failed(self, group: Group) -> frozenset[str]:
        """The cases of a group that are known to have no figures: there is nothing to cost."""
        path = self._file("cases", group)
        if not path.exists():
            return frozenset()
        _, parquet = _pyarrow()
        rows = parquet.ParquetFile(path).read(["id", "ok"]).to_pylist()
        return frozenset(row["id"] for row in rows if not row["ok"])

    def write(
        self, group: Group, found: Found, figures: bool, stages: Stages, keep: frozenset[str]
    ) -> None:
        """Write what was missing of a group, each file whole. Raises `RenderError`."""
        tables = (["cases"] if figures else []) + [k for k in KEPT if k in keep and k != "graphs"]
        for table in tables:
            self._put(self._file(table, group), encoded(table, found.tables[table]))
        for stage, rows in zip(stages, found.times, strict=True):
            self._put(self._file("times", group, stage), encoded("times", rows))
        if "graphs" in keep:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as file:
                for case, graph in found.graphs.items():
                    file.writestr(zipfile.ZipInfo(f"{case}.json.gz"), graph)
            self._put(self._file("graphs", group), packed.getvalue())

    def _file(self, table: str, group: Group, stage: tuple[str, ...] = ()) -> Path:
        of = f"-{sha256(' '.join(stage).encode()).hexdigest()[:8]}" if stage else ""
        suffix = "zip" if table == "graphs" else "parquet"
        return (
            self.folder / table / f"source={group.source or UNKNOWN}" / f"{group.key}{of}.{suffix}"
        )

    def _put(self, path: Path, content: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RenderError(f"cannot write {path}: {error.strerror or error}") from error
        write_atomically(path, content)


Stages = tuple[tuple[str, ...], ...]


_BEFORE = "times.before"
"""Where times are until others are made of the same graphs. While it is there that goes on."""


@contextmanager
def opened(
    folder: Path,
    plan: Plan | None,
    devices: Sequence[str],
    keep: frozenset[str],
    versions: Mapping[str, str],
) -> Iterator[Dataset]:
    """The folder for a survey, made if it is not there, or to go on with if it holds the same plan. Devices
    that were not asked for before are one more stage. Without a plan it is one that is there, whose times
    are made anew.

    Raises `ProfileError` where it holds another survey or another driver is at work, `RenderError` where it
    cannot be written.
    """
    recost = plan is None
    plan = _kept_plan(folder) if plan is None else plan
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RenderError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        _lock(handle, folder)
        yield _begun(folder, plan, devices, keep, versions, recost=recost)
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        raise ProfileError(
            f"another survey is writing {folder}", hint="wait for it, or name another folder"
        ) from None


def _kept_plan(folder: Path) -> Plan:
    """The plan of a survey that keeps graphs. Raises `ProfileError` for any other folder."""
    about = about_of(folder)
    if about is None:
        raise ProfileError(f"{folder} holds no survey", hint="opgraph survey -o FOLDER makes one")
    if "graphs" not in about["keep"]:
        raise ProfileError(f"{folder} keeps no graphs from which times could be made anew",
                           hint="the survey's own command with --keep graphs traces them")  # fmt: skip
    return Plan.of(about["plan"])


def _begun(
    folder: Path,
    plan: Plan,
    devices: Sequence[str],
    keep: frozenset[str],
    versions: Mapping[str, str],
    *,
    recost: bool,
) -> Dataset:
    asked = plan.to_dict()
    about = about_of(folder)
    if about is None:
        if any(p.name != ".lock" for p in folder.iterdir()):
            raise ProfileError(
                f"{folder} holds something else", hint="name a folder that is not there"
            )
        about = {"format": FORMAT, "version": VERSION, "plan": asked, "stages": [], "keep": []}
    elif about["plan"] != asked:
        raise ProfileError(f"{folder} holds another survey",
                           hint="the same models, sizes and options go on with it")  # fmt: skip
    stages = [tuple(s) for s in about["stages"]]
    known = {device for stage in stages for device in stage}
    new = tuple(dict.fromkeys(d for d in devices if d not in known))
    if new:
        stages.append(new)
    if recost and not stages:
        raise ProfileError(f"{folder} has times on no device", hint="--hardware h100-sxm,l4")
    keep |= frozenset(about["keep"])
    now = {**about, "stages": [list(s) for s in stages], "keep": sorted(keep),
           "versions": {**about.get("versions", {}), **versions}}  # fmt: skip
    if now != about:
        write_atomically(folder / "survey.json", dumps(now, indent=1) + "\n")
    if recost and (folder / "times").exists() and not (folder / _BEFORE).exists():
        (folder / "times").rename(folder / _BEFORE)
    return Dataset(folder, plan, keep, tuple(stages), recost=recost)


def about_of(folder: Path) -> dict[str, Any] | None:
    """What `survey.json` of a folder says; None where there is none. Raises `ProfileError` for another
    file."""
    path = folder / "survey.json"
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT or found["version"] > VERSION:
            raise ValueError(f"version {found['version']} of {found['format']}")
        found["plan"], found["stages"], found["keep"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProfileError(f"{path} is not that of a survey: {error}") from error
    return found
