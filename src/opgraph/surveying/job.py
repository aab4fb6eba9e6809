"""`survey`: many models, sizes, modes and devices in one job, into a dataset."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opgraph.options import NAMES, OPTIONS, QUANTIZED, Options, checked, named_options
from opgraph.options.fields import several
from opgraph.record.errors import InputError, SourceError, UnknownModel
from opgraph.record.quantization import scheme_of
from opgraph.record.versions import installed
from opgraph.surveying.cases import AXES, Case, Plan
from opgraph.surveying.dataset import opened
from opgraph.surveying.engine import Limits, Rate, run
from opgraph.surveying.sql import Atlas


@named_options((*NAMES, "hardware", *QUANTIZED))
def survey(
    models: str | Iterable[str],
    output: str | os.PathLike[str],
    *,
    recost: bool = False,
    derive: bool = False,
    hardware: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    jobs: int | None = None,
    timeout: float = 300.0,
    address: str | None = None,
    progress: Rate | None = None,
    **options: Any,
) -> Atlas:
    """Profile many models, at every combination of the options given, and cost them on devices.

    `models` are names, patterns (`"timm:vit_*"`) and files with one of either a line. `options` are
    those of `profile`; of those in a sweep's axes, and of `mode` and `target`, there can be several
    values. `weights`, `group_size`, `activations` and `kv_cache` keep every case in fewer bits. What is
    found goes into the folder `output`, with a row for each case (also for one that failed) and one for
    each case on each device of `hardware`; `keep` can add its "kernels", "modules" and "graphs". The same
    call goes on with a folder that is not finished, and with more devices adds them, from saved graphs
    where they were kept. With `recost` the times of all cases that the folder has graphs of are made anew;
    no models and options are given then. With `derive` the smallest and the largest batch are traced, and
    those between are worked out from two that were, where everything in them is a line in the batch.

    The cases run on Ray, on this machine (`jobs` at a time) or on the cluster at an `address`, none for
    longer than `timeout` seconds or with more than `memory_limit` GiB. `progress` is called with a
    `Progress`.

    Raises `UnknownModel` where no name fits, `InputError` for options that mean nothing together,
    `ProfileError` where the folder holds something else or is being written, and `MissingDependency`.
    """
    from opgraph.hardware import device

    kept = frozenset(OPTIONS["keep"].check(keep))
    devices = [d if d.endswith(".toml") else device(d).id for d in _listed(hardware)]
    if recost and (models or options or kept):
        raise InputError("times are made anew of the models and options that the folder has",
                         hint="leave others out")  # fmt: skip
    plan = None if recost else planned(models, options, derive=derive)
    memory = None if plan is None else plan.options.get("memory_limit")
    limits = Limits(jobs, timeout, None if memory is None else int(memory * 2**30), address)
    with opened(Path(output), plan, devices, kept, _versions()) as dataset:
        run(dataset, limits, progress or (lambda _: None))
        dataset.finish()
    return Atlas(output)


def planned(
    models: str | Iterable[str], options: Mapping[str, Any], *, derive: bool = False
) -> Plan:
    """What is gone over: every model at every combination of the options that can have several values.
    Where batches are to be derived they come one after the other, those at the ends first.

    Raises what `survey` raises for what cannot be.
    """
    axes = several(options, AXES)
    others = {n: v for n, v in options.items() if n not in AXES}
    shared = checked(others, (*Options.__dataclass_fields__, *QUANTIZED), "survey")
    shared = {n: v for n, v in shared.items() if v != OPTIONS[n].default}
    if callable(shared.get("loss")):
        raise InputError(
            "a survey writes its options down, and a function cannot be", hint="loss='sum'"
        )
    if derive:
        first, *more = sorted(axes.pop("batch_size", (None,)), key=lambda batch: batch or 0)
        if len(more) < 2:
            raise InputError("batches are derived between two that are traced",
                             hint="give three or more: --batch-size 1,8,32,128")  # fmt: skip
        axes["batch_size"] = (first, more[-1], *more[:-1])
    plan = Plan(_named(models), axes, shared, derive)
    scheme_of(shared.get("weights"), shared.get("group_size"), shared.get("activations"), None)
    for combination in plan.combinations():
        Options(**Case("", "", combination).traced)
    return plan


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _named(models: str | Iterable[str]) -> dict[str, str]:
    """The models with their sources, in order, each once."""
    from opgraph.sources.registry import find, is_pattern, listed

    found: dict[str, str] = {}
    given = [models] if isinstance(models, str) else models
    for text in (each for texts in given for each in _apart(texts)):
        for word in _in_file(text):
            if is_pattern(word):
                fit = {f.spec: f.source for f in listed((word,))}
                if not fit:
                    raise UnknownModel(f"no name fits {word}", hint="`opgraph models` lists all")
                found |= fit
                continue
            try:
                found[word] = find(word)[0].name
            except SourceError:
                if word is text:
                    raise
                found.setdefault(word, "")  # one of a list is a row that says why
    if not found:
        raise UnknownModel("a survey of nothing", hint="give names, or a pattern such as 'resnet*'")
    return found


def _apart(text: str) -> list[str]:
    """The names of a list with commas; a path that exists is one."""
    return [text] if Path(text).exists() else [name for name in text.split(",") if name]


def _in_file(text: str) -> list[str]:
    """The words of a file of names, one a line, with remarks behind #; any other text as it is."""
    if not text.endswith(".txt"):
        return [text]
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read {text}: {error}") from error
    return [word for line in lines for word in shlex.split(line, comments=True)]


def _versions() -> dict[str, str]:
    """The versions of what works on every case; its row has those of its library."""
    from opgraph.version import __version__

    there = {package: installed(package) for package in ("torch", "ray")}
    return {"opgraph": __version__, **{p: v for p, v in there.items() if v is not None}}
