"""`measure`: run a model for real, and give the time to its nodes; `join` does so with somebody's trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opgraph.analysis.costed import terms
from opgraph.api.pipeline import as_it_was, complete, prepared, profile_model, told
from opgraph.options import Options, checked, named_options
from opgraph.options.fields import OPTIMIZERS
from opgraph.record import units
from opgraph.record.errors import InputError, OpgraphError, TraceError, first_line
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark, leave
from opgraph.record.run import RunRecord
from opgraph.results import Costed, Measured, Profile, load

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

    from opgraph.hardware import Device
    from opgraph.inputs.base import Example
    from opgraph.measuring.recording import Follower
    from opgraph.sources.base import Model
    from opgraph.tracing.state.guard import Guard


@named_options()
def measure(
    model: str | nn.Module | Model,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    steps: int | None = None,
    hardware: str | Device | None = None,
    **options: Any,
) -> Measured:
    """Run a model on a device at hand, and say which node takes how long.

    `model`, `inputs`, `kwargs` and `options` are those of `profile`; a name gets random weights, and a
    module is copied, so that it stays as it was. `device` is "cpu", "cuda", "mps", "xpu" … (the accelerator
    that there is, if not given). It runs until the median is steady, or `steps` times; `hardware` is what
    the prediction beside it is for. Raises what `profile` raises, and `InputError` for a device that is not
    there, or whose memory does not hold the run.
    """
    asked = Options(**checked(options, Options.__dataclass_fields__, "measure"))
    if hardware is not None and isinstance(hardware, str):
        from opgraph.hardware import device as named

        hardware = named(hardware)
    return _faced(measured_profile(model, inputs, kwargs, asked, device, steps), hardware)


@told
@as_it_was
def measured_profile(
    model: str | nn.Module | Model,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
    device: str | None = None,
    steps: int | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> ProfileRecord:
    """The profile of a model with what a run of it took (see `measure`)."""
    import torch

    from opgraph.measuring import measured, step_of
    from opgraph.tracing.base import GRADED, compiling, uncommented
    from opgraph.tracing.state.guard import COPYING, guarded

    asked = options or Options()
    if asked.inductor or asked.tracer not in ("auto", "eager"):
        made = "TorchInductor makes of it" if asked.inductor else f"{asked.tracer} captures"
        raise InputError(
            f"what runs is the model itself, and not what {made}",
            hint=f"leave out {'inductor' if asked.inductor else 'the tracer'}",
        )
    where = place(device)
    asked = replace(asked, target=asked.target or _target(where))
    tell("tracing …")
    built, example = prepared(model, inputs, kwargs, asked)
    profile = complete(profile_model(built, example, asked))
    notes = (note for note in profile.model.notes if isinstance(note, Remark))
    leave(note for note in notes if note.code == "state")  # where the copy fails, too
    _refuse_what_does_not_fit(profile, where, asked.memory_limit)
    tell("making weights …")
    example = replace(example, beside=asked.called)
    reached = [built.module, *example.given]  # a copy of it refers to all that it does

    def ran(guard: Guard) -> RunRecord:  # with it the copy of the model ends, while that is heard
        with uncommented(), compiling("force_eager"), guard.listening(guard.is_new):
            step = step_of(built, example, asked, where, gradients=GRADED in profile.model.notes)
            tell("running …")
            step.ready(None)()  # what it writes to that is not its own is copied before
        if guard.met and steps is None:
            raise TraceError(
                f"{profile.model.name} exchanges tensors with other ranks, and each would stop when "
                "its own median is steady",
                hint="measure as many steps on every rank (steps=20)",
            )
        return measured(profile, step, where, steps)

    with (
        guarded(reached, heard=False, device=where.type, called=COPYING) as guard,
        torch.inference_mode(mode=False),
        torch.enable_grad(),  # whatever is on around: the step says what it does without
    ):
        try:
            run = ran(guard)
        except OpgraphError:
            raise
        except Exception as error:
            raise TraceError(
                f"{profile.model.name} was traced, and the copy of it that is to be measured failed: "
                f"{first_line(error)}"
            ) from error
    return replace(profile, measured=run)


class Recording:
    """What is recorded of a loop: `measured`, once the loop has run."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    @property
    def measured(self) -> Measured:
        """What was measured. Raises `TraceError` where the model was not called, or cannot be traced."""
        return _faced(self._follower.profile)

    @property
    def profile(self) -> Profile:
        """The profile with what was measured, to be put `on` a device."""
        return Profile.of(self._follower.profile)


@contextmanager
def recording(model: nn.Module) -> Iterator[Recording]:
    """Measure a model within somebody's own loop.

    What its calls take between here and the end, forward, backward and optimizer, is given to its nodes.
    Half of the first steps run under the profiler, there without what is compiled or fused, which may round
    otherwise. `run.measured` holds what was found; where a call cannot be traced, it raises why.

    Raises `InputError` for what is no module, or one that takes no hooks (scripted ones).

    >>> with opgraph.recording(model) as run:
    ...     for batch in loader:
    ...         model(batch)
    """
    from torch import nn

    if not isinstance(model, nn.Module):
        raise InputError(
            f"a loop calls a torch.nn.Module, which is recorded, and not {type(model).__name__}",
            hint="opgraph.measure takes names and functions, too",
        )
    from opgraph.measuring.recording import Follower
    from opgraph.record.profile import ModelInfo
    from opgraph.sources.base import Model as Built
    from opgraph.tracing.parts import parameters_of

    def trace(example: Example, mode: str, optimizer: str) -> ProfileRecord:
        known = optimizer.lower() if optimizer.lower() in OPTIMIZERS else "adamw"
        train: dict[str, Any] = {"mode": mode, "optimizer": known} if mode == "train" else {}
        where = next((p.device for p in parameters_of(model)), None)
        target = "cpu" if where is None else _target(where)
        built = Built(model, ModelInfo(type(model).__name__))
        return complete(profile_model(built, example, Options(target=target, **train)))

    follower = Follower(model, trace)
    follower.start()
    try:
        yield Recording(follower)
    finally:
        follower.stop()


def join(
    profile: ProfileRecord | str | os.PathLike[str],
    trace: str | os.PathLike[str],
    *,
    hardware: str | Device | None = None,
) -> Measured:
    """Give what a trace says to the nodes of a profile, or of a saved one.

    `trace` is a file of torch.profiler (also gzipped or cut off), a folder of such files, one a rank, what
    Nsight Systems exports as sqlite, or a snapshot of torch.cuda.memory. Raises `ProfileError` for what
    is none of these.
    """
    from opgraph.traces import joined

    found = profile if isinstance(profile, ProfileRecord) else load(profile)
    return _faced(replace(found, measured=joined(found, trace)), hardware)


def _faced(profile: ProfileRecord, hardware: str | Device | None = None) -> Measured:
    return Measured(*terms(profile, hardware))


def place(device: str | None) -> torch.device:
    """A device at hand, by its name; the accelerator that there is, else the CPU.

    Raises `InputError` for one that is not there.
    """
    import torch

    if device is None:
        there = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if there is None else there
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"there is no device {device!r} here: {str(error).splitlines()[0]}", hint="cpu"
        ) from error
    return found


def _target(device: torch.device) -> str:
    """Whose kernels a trace is made of that is run there."""
    import torch

    from opgraph.record.targets import TARGETS

    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        arch = getattr(torch.cuda.get_device_properties(device), "gcnArchName", "").partition(":")[
            0
        ]
        exact = f"cuda:{arch if torch.version.hip else f'{major}.{minor}'}"
        return exact if exact in TARGETS else "cuda"
    return device.type if device.type in TARGETS else "cpu"


def _refuse_what_does_not_fit(
    profile: ProfileRecord, device: torch.device, limit: float | None
) -> None:
    """Raise `InputError` where a run needs more memory than there is, with both figures."""
    import torch

    from opgraph.tracing.state.memory import free_bytes

    needed = Costed(profile).peak_memory
    if limit is not None:
        there, whose = int(limit * 2**30), "allowed (--memory-limit)"
    elif device.type == "cuda":
        there, whose = torch.cuda.mem_get_info(device)[0], f"free on {device}"
    else:
        there, whose = free_bytes(), "free"
    if needed > there:
        raise InputError(
            f"a run of {profile.model.name} needs {units.size(needed)}, "
            f"and {units.size(there)} are {whose}",
            hint="a smaller batch takes less; opgraph profile predicts it without running it",
        )
