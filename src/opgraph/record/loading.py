"""Profiles from files, which may come from anywhere: every type is checked, and what is broken is refused
with the place and the reason. Nothing here imports torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from opgraph.record.errors import ProfileError, beside
from opgraph.record.kinds import Mode, Run
from opgraph.record.profile import (
    FORMAT,
    SCHEMA_VERSION,
    Attempt,
    Compiled,
    KVCache,
    ModelInfo,
    ProfileRecord,
    Tracing,
    World,
)
from opgraph.record.remarks import CODES, Remark
from opgraph.record.schema import (
    GraphRecord,
    Malformed,
    PipelineFile,
    RunFile,
    decode,
    decode_pipeline,
    decode_run,
)
from opgraph.record.targets import Target
from opgraph.record.turns import uncollected
from opgraph.record.verify import InvariantError, verify

if TYPE_CHECKING:
    from opgraph.record.formulas import Formulas


def load(path: str | os.PathLike[str]) -> ProfileRecord:
    """Read a saved profile.

    Raises `ProfileError` when the file cannot be read, is not a profile, or is broken.
    """
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError for a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else None
        hint = beside(str(path)) if isinstance(error, FileNotFoundError) else None
        raise ProfileError(f"cannot read {path!s:.200}: {reason or error}", hint=hint) from error
    try:
        return loaded(text)
    except ProfileError as error:
        hint = error.hint
        if Path(path).name == "config.json":
            hint = f"it may be a model's configuration, which is named by its folder: {Path(path).parent}"
        raise ProfileError(f"{path}: {error}", hint=hint) from error


def loaded(text: bytes) -> ProfileRecord:
    """The profile that the bytes of a file hold. Raises `ProfileError` as `load` does."""
    with uncollected():
        return profile_from(partial(_parsed, text))


def is_saved_profile(spec: str) -> bool:
    """Whether what names a model is a saved profile: a file that ends in .json."""
    try:
        return spec.endswith(".json") and not Path(spec).is_dir()
    except OSError:  # a name that no folder can have
        return True


class _Record(msgspec.Struct):
    """A profile in a file: what is read of it."""

    format: Literal["opgraph-profile"]
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=SCHEMA_VERSION)]
    model: ModelInfo
    mode: Mode
    convention: dict[str, str]
    versions: dict[str, str]
    tracing: Annotated[tuple[Attempt, ...], msgspec.Meta(min_length=1)]
    graph: GraphRecord
    inductor: Compiled | None = None
    formulas: Any = None
    kv_cache: KVCache | None = None
    target: Target = Target()
    measured: RunFile | None = None
    world: World | None = None
    pipeline: PipelineFile | None = None
    run: Run = Run.EAGER
    remarks: tuple[dict[str, Any], ...] = ()


class _Head(msgspec.Struct):
    """What tells a profile, and of what schema, from other files."""

    format: Any = None
    schema_version: Any = None


def profile_from(read: Callable[..., Any]) -> ProfileRecord:
    """The profile that `read(type=…)` finds in a file or in data.

    Raises `ProfileError` when there is none, when it is of a newer schema, or broken.
    """
    try:
        record = read(type=_Record)
        codes = {r.get("text"): r.get("code") for r in record.remarks}
        graph, run = verify(decode(record.graph)), record.measured
        return ProfileRecord(
            graph=graph,
            model=replace(
                record.model, notes=tuple(_note(n, codes.get(n)) for n in record.model.notes)
            ),
            tracing=Tracing(record.tracing),
            mode=record.mode.value,
            convention=record.convention,
            versions=record.versions,
            formulas=_formulas(record.formulas),
            cache=record.kv_cache,
            target=record.target,
            compiled=_compiled(record.inductor, len(record.graph.nodes)),
            world=record.world,
            pipeline=None if record.pipeline is None else decode_pipeline(record.pipeline),
            run=record.run,
            measured=None if run is None else decode_run(run, len(graph.nodes)),
        )
    except msgspec.ValidationError as error:
        _look_at_head(read)
        raise ProfileError(f"this profile is broken: {error}") from error
    except (Malformed, InvariantError) as error:
        raise ProfileError(f"this profile is broken: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ProfileError(f"this profile is broken: {type(error).__name__} {error}") from error


def _look_at_head(read: Callable[..., Any]) -> None:
    """Raises `ProfileError` where what is wrong is not that a profile is broken."""
    try:
        head = read(type=_Head)
    except msgspec.ValidationError:
        head = _Head()
    if head.format != FORMAT:
        raise ProfileError("this is not an opgraph profile")
    version = head.schema_version
    if type(version) is not int or version < 1:
        raise ProfileError("this profile has no schema version")
    if version > SCHEMA_VERSION:
        raise ProfileError(
            f"this profile has schema version {version}; this opgraph reads up to {SCHEMA_VERSION}",
            hint="upgrade opgraph",
        )


def _parsed(text: bytes, type: Any) -> Any:  # noqa: A002 - as msgspec calls it
    """What JSON text says, as that type. Raises `ProfileError` for what is not JSON."""
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        # json takes halves of characters, as names of files can have them, and says in which line it fails.
        try:
            data = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ProfileError(f"this is not an opgraph profile: {error}") from error
        return msgspec.convert(data, type=type)


def _note(text: str, code: object) -> str:
    """A note of a model: a remark where the file gives it a code that there is."""
    return Remark(code, text) if isinstance(code, str) and code in CODES else text


def _compiled(found: Compiled | None, nodes: int) -> Compiled | None:
    """Kernels of the nodes that there are."""
    for kernel in () if found is None else found.kernels:
        if not all(1 <= i <= nodes for i in kernel.nodes):
            raise Malformed("its compiled kernels are not of its nodes")
    return found


def _formulas(data: Any) -> Formulas | None:
    if data is None:
        return None
    from opgraph.record.formulas import Formulas

    return Formulas.from_dict(data)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
