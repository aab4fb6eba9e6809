"""`Atlas`: the datasets of surveys, asked in SQL. DuckDB answers, in a process that it lets read those
datasets and nothing else: no other file, no network, no extension, and no statement but a SELECT."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from math import frexp, isfinite, ldexp
from pathlib import Path
from typing import Any

from opgraph.record import units
from opgraph.record.errors import (
    InputError,
    MissingDependency,
    OpgraphError,
    ProfileError,
    RenderError,
    one_of,
)

BUILT_IN = Path(__file__).with_name("data")
"""The atlas that comes with opgraph."""
_LATENCIES = "latencies.csv"
"""The file beside it with the times of its `models`, for whoever has no DuckDB."""

_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN",
          "list<string>": "VARCHAR[]"}  # fmt: skip
_ABOUT = ("name", "source", "family", "task", "licence", "class", "dtype", "inputs", "nodes", "kernels",
          "parameters", "weight_bytes", "flops", "macs", "other_flops", "bytes", "peak_memory",
          "intensity", "coverage")  # fmt: skip
"""The columns of `cases` that a row of `models` has, beside `latency_…` for each device."""
_SORTED = "c.source, c.family, c.spec, c.mode, c.batch_size, c.id"
"""The order of a compact dataset's rows: what is alike stands together."""
_BITS = {**dict.fromkeys(("latency", "throughput", "intensity", "memory_share"), 11),
         **dict.fromkeys(("low", "high", "joules", "seconds", "cpu"), 9)}  # fmt: skip
"""The binary digits behind the first that a figure has in a compact dataset: times, which are known to a
fifth, are as good to one part in 4,096, others to one in 1,024. Counts are exact."""
_STEP = 1 / 512
"""What the shares of a time are multiples of there."""
_PACKED = ("format parquet, parquet_version v2, compression zstd, compression_level 19, "
           "dictionary_size_limit 300")  # fmt: skip
"""Bytes of figures that are as significant stand together (BYTE_STREAM_SPLIT), and a dictionary is only for
what has few values."""
_ALIKE = {"times": "id, device"}
_LAST = " qualify place = max(place) over (partition by {})"

SHORT = {"params": "parameters"}
"""Columns by the short names that they are asked for with, too: those of `models --max-params`, and beside
them `latency_` with any name of a device (`latency_h100`)."""
SHORT_TASKS = {"classification": "image-classification", "detection": "object-detection",
               "segmentation": "image-segmentation"}  # fmt: skip
"""Tasks by the short names that a query may compare `task` with."""

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Answer:
    """The rows that a query gives, with the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """The rows as dictionaries."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`. Raises `MissingDependency` without pandas."""
        from opgraph.views.tables import frame

        return frame(self.records())

    def __repr__(self) -> str:
        return f"<{units.plural(len(self.rows), 'row')} of {', '.join(self.columns)}>"


class Atlas:
    """What surveys found, as tables: `models`, `cases`, `times`, and where they were kept `kernels` and
    `modules`.

    `models` has a row for each model that runs at its usual sizes, with `latency_DEVICE` in seconds;
    `cases` one for each model, mode and size, `times` one for each case and device.

    >>> opgraph.atlas().sql("select name, flops from models order by flops limit 3")
    """

    def __init__(self, *folders: str | os.PathLike[str]) -> None:
        self.folders = tuple(Path(f).resolve() for f in folders or (BUILT_IN,))
        for folder, given in zip(self.folders, folders or (BUILT_IN,), strict=True):
            if not _files(folder, "cases"):
                raise ProfileError(
                    f"{given} holds no survey", hint="opgraph survey -o FOLDER makes one"
                )

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices on which there are times."""
        return _devices(self._connection)

    def sql(self, query: str) -> Answer:
        """The answer to one SELECT.

        Raises `InputError` for what is no SELECT, or cannot be answered, and `MissingDependency` without
        DuckDB.
        """
        duckdb = _duckdb()
        connection = self._connection
        try:
            statements = connection.extract_statements(query)
            kinds = [s.type.name for s in statements]
            if kinds != ["SELECT"]:  # an EXPLAIN ANALYZE runs what it explains
                said = " and ".join(k.lower().replace("_", " ") for k in kinds) or "nothing"
                raise InputError(f"an atlas answers one select, and was asked for {said:.80}",
                                 hint="select name, flops from models limit 10")  # fmt: skip
            found = connection.execute(_meant(connection, query, self.devices))
            columns = tuple(column[0] for column in found.description)
            return Answer(columns, tuple(tuple(map(_cell, row)) for row in found.fetchall()))
        except duckdb.Error as error:
            first, *more = [line for line in str(error).splitlines() if line.strip()]
            hint = next(
                (line.strip() for line in more if "Candidate" in line or "mean" in line), None
            )
            raise InputError(first, hint=hint or "tables: " + ", ".join(self.tables)) from error

    def to_pandas(self, query: str = "select * from models") -> Any:
        """The answer to a query, or all models, as a `pandas.DataFrame`."""
        return self.sql(query).to_pandas()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all models to a file, as its suffix says (.csv, .json, .md, .html: a page to search and
        plot them), or, to a path without one, all tables as one Parquet file each: a dataset like those
        read, and smaller.

        Raises `RenderError` where it cannot be written.
        """
        from opgraph.record.files import write_atomically

        suffix = Path(path).suffix.lower()
        if not suffix:
            self._compact(Path(path))
        elif suffix == ".html":
            from opgraph.views.page.html import atlas_html

            rows = self.sql("select * from models order by name, source").records()
            write_atomically(path, atlas_html(rows, {d: latency(d) for d in self.devices}))
        else:
            write_answer(self.sql("select * from models order by name, source"), path)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that there are."""
        kept = (t for t in COLUMNS if t in ("cases", "times") or self._files(t))
        return ("models", *kept)

    def _files(self, table: str) -> list[Path]:
        return [file for folder in self.folders for file in _files(folder, table)]

    @cached_property
    def _connection(self) -> Any:
        """A database in memory with the tables as views, which may read the datasets and nothing else."""
        connection = _duckdb().connect(":memory:")
        for table in self.tables[1:]:
            connection.execute(f"create view {table} as {self._read(table)}")
        connection.execute(_models(_devices(connection)))
        places = "', '".join(str(f).replace("'", "''") for f in self.folders)
        for setting in (f"allowed_directories = ['{places}']", "enable_external_access = false",
                        "python_enable_replacements = false", "lock_configuration = true"):  # fmt: skip
            connection.execute(f"set {setting}")
        return connection

    def _read(self, table: str) -> str:
        """The query that reads a table: of surveys, whose folders say the source, and compact ones. Of a
        case that several datasets have, the last one's rows."""
        parts = []
        for place, files in enumerate(_files(folder, table) for folder in self.folders):
            surveys = [file for file in files if file.parent.name.startswith("source=")]
            compact = [file for file in files if file not in surveys]
            parts += [f"select *, {place} as place from read_parquet({_listed(some)}, "
                      f"hive_partitioning = {some is surveys}, union_by_name = true)"
                      for some in (surveys, compact) if some]  # fmt: skip
        if parts:
            last = "" if len(self.folders) == 1 else _LAST.format(_ALIKE.get(table, "id"))
            if last and table != "cases":  # where the last one has no figures, there are none
                last = f" where id in (select id from ({self._read('cases')}) where ok){last}"
            return f"select * exclude (place) from ({' union all by name '.join(parts)}){last}"
        columns = ", ".join(f'null::{_TYPES[k]} as "{n}"' for n, k in COLUMNS[table].items())
        return f"select {columns}, null::varchar as source where false"

    def _compact(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise RenderError(f"{folder} is not empty", hint="name a folder that is not there")
        except OSError as error:
            raise RenderError(f"cannot write {folder}: {error.strerror or error}") from error
        connection = _duckdb().connect(":memory:")
        for table in self.tables[1:]:
            doubles = [n for n, k in COLUMNS[table].items() if k == "double"]
            short = f"replace ({', '.join(map(_short, doubles))})" if doubles else ""
            more = ", t.device" if table == "times" else ""
            target = str(folder / f"{table}.parquet").replace("'", "''")
            connection.execute(
                f"copy (select t.* {short} from ({self._read(table)}) t "
                f"left join ({self._read('cases')}) c using (id) order by {_SORTED}{more}) "
                f"to '{target}' ({_PACKED})"
            )

    def __repr__(self) -> str:
        ((count, good),) = self.sql("select count(*), count(*) filter (where ok) from cases").rows
        devices = units.plural(len(self.devices), "device")
        return f"<Atlas: {count:,} cases, {good:,} with a result, on {devices}>"


def _short(name: str) -> str:
    """A column with the digits that a compact dataset keeps of it."""
    if name.endswith("_bound"):
        return f"(round(t.{name} / {_STEP}) * {_STEP})::float as {name}"
    if name not in _BITS:
        return f"t.{name}::float as {name}"
    scale = f"pow(2, {_BITS[name]} - floor(log2(abs(t.{name}))))"
    finite = f"isfinite(t.{name}) and t.{name} <> 0"
    kept = f"case when {finite} then round(t.{name} * {scale}) / {scale} else t.{name} end"
    return f"({kept})::float as {name}"


def _duckdb() -> Any:
    """DuckDB's extension by itself where it can be had: `import duckdb` adds what builds queries in Python
    and takes seven times as long, which is most of what a question takes."""
    for module in ("_duckdb", "duckdb"):
        with suppress(ImportError):
            return import_module(module)
    raise MissingDependency("duckdb", "atlas")


def _files(folder: Path, table: str) -> list[Path]:
    """The Parquet files of a table, of a survey or of a compact dataset."""
    whole = folder / f"{table}.parquet"
    return [whole] if whole.is_file() else sorted((folder / table).glob("*/*.parquet"))


def _listed(files: Sequence[Path]) -> str:
    return "[" + ", ".join("'" + str(f).replace("'", "''") + "'" for f in files) + "]"


def latency(device: str) -> str:
    """The column of `models` with the predicted seconds on a device."""
    return "latency_" + "".join(c if c.isalnum() else "_" for c in device)


def _devices(connection: Any) -> tuple[str, ...]:
    rows = connection.execute("select distinct device from times order by 1").fetchall()
    return tuple(name for (name,) in rows)


def latencies(device: str) -> dict[str, float]:
    """The predicted seconds on a device of the models of the atlas that comes with opgraph, by what is
    typed; read without DuckDB. Raises `RenderError` for a device that it has no times on."""
    with (BUILT_IN / _LATENCIES).open(encoding="utf-8", newline="") as file:
        _, *devices = next(rows := csv.reader(file))
        if device not in devices:
            raise RenderError(f"the atlas has no times on {device}", hint=one_of(device, devices))
        at = devices.index(device) + 1
        found = {row[0]: frexp(float(row[at])) for row in rows if row[at]}
    digits = _BITS["latency"] + 1  # as exact as the tables of the atlas, and no more
    return {spec: ldexp(round(ldexp(m, digits)), e - digits) for spec, (m, e) in found.items()}


def write_latencies(atlas: Atlas, folder: Path = BUILT_IN) -> None:
    """Write what `latencies` reads."""
    columns = ", ".join(f'"{latency(d)}"' for d in atlas.devices)
    found = atlas.sql(f"select spec, {columns} from models order by spec")
    with (folder / _LATENCIES).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("spec", *atlas.devices))
        rows.writerows(
            (s, *("" if v is None else f"{v:.5g}" for v in row)) for s, *row in found.rows
        )


def _models(devices: Sequence[str]) -> str:
    times = "".join(
        f", max(t.latency) filter (where t.device = '{d.replace(chr(39), chr(39) * 2)}') as "
        f'"{latency(d)}"'
        for d in devices
    )
    about = ", ".join(f'any_value(c."{name}") as "{name}"' for name in _ABOUT)
    return (
        f"create view models as select {about}{times}, c.spec as spec, c.id as id "
        "from cases c left join times t on t.id = c.id where c.ok and c.mode = 'infer' and "
        "c.options is null and c.target is null and c.batch_size is null and c.seq_len is null "
        "and c.image_size is null group by c.id, c.spec"
    )


def _meant(connection: Any, query: str, devices: Sequence[str]) -> str:
    """A SELECT in which every short name of a column or a task is replaced by the one in the tables; a
    name that the query itself gives to something stays."""
    if not re.search(rf"latency_|{'|'.join((*SHORT, *SHORT_TASKS))}", query, re.IGNORECASE):
        return query
    (text,) = connection.execute("select json_serialize_sql(?::varchar)", [query]).fetchone()
    tree = json.loads(text)
    if tree["error"]:
        return query
    columns = connection.execute(
        "select lower(column_name) from duckdb_columns() where not internal"
    ).fetchall()
    known = {name for (name,) in columns} | {
        n["alias"].lower() for n in _parts(tree) if "alias" in n
    }
    changed = False
    for part in _parts(tree):
        if part.get("class") == "COLUMN_REF":
            *table, name = part["column_names"]
            if name.lower() not in known and (column := _column(name, devices)) is not None:
                part.update(column_names=[*table, column], alias=part["alias"] or name)
                changed = True
        elif part.get("class") in ("COMPARISON", "OPERATOR"):
            compared = [part[side] for side in ("left", "right") if side in part] + part.get(
                "children", []
            )
            if any(c.get("column_names", [""])[-1].lower() == "task" for c in compared):
                for c in compared:
                    if (task := SHORT_TASKS.get(c.get("literal", {}).get("text"))) is not None:
                        c["literal"]["text"] = task
                        changed = True
    if not changed:
        return query
    asked = [json.dumps(tree)]
    (found,) = connection.execute("select json_deserialize_sql(?::json)", asked).fetchone()
    return str(found)


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a parsed query."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _parts(part)


def _column(name: str, devices: Sequence[str]) -> str | None:
    """The column that a short name stands for: `latency_` with any name of one of these devices."""
    if name.lower().startswith("latency_"):
        from opgraph.hardware import device

        for each in devices:
            with suppress(OpgraphError):
                known = device(each)
                if name.lower() in (latency(n).lower() for n in (known.name, *known.aliases)):
                    return latency(each)
    return SHORT.get(name.lower())


def _cell(value: Any) -> Cell:
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def write_answer(answer: Answer, path: str | os.PathLike[str]) -> None:
    """Write the rows of an answer to a file, as its suffix says. Raises `RenderError`."""
    from opgraph.record.files import suffix_of, write_atomically
    from opgraph.views.tables import parquet_bytes, written

    suffix = suffix_of(path, (".csv", ".json", ".md", ".parquet"), "an atlas")
    if suffix == ".parquet":
        write_atomically(path, parquet_bytes(answer.records(), {}))
        return
    write_atomically(path, written(answer.records(), suffix[1:].replace("md", "markdown")))


def atlas(*datasets: str | os.PathLike[str]) -> Atlas:
    """The atlas that comes with opgraph, or the datasets of surveys.

    Raises `ProfileError` for a folder without any.

    >>> opgraph.atlas().to_pandas()
    >>> opgraph.atlas("zoo/").sql("select spec, reason from cases where not ok")
    """
    return Atlas(*datasets)


# The tables of a survey with their columns and types.


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
