"""What Python calls: a model in, a result out. The stages are composed here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opgraph.options import Options, checked, named_options, targeted
from opgraph.record.errors import InputError, TraceError
from opgraph.record.loading import is_saved_profile
from opgraph.record.profile import GUESSED
from opgraph.results import Costed, Profile, load

if TYPE_CHECKING:
    from torch import nn

    from opgraph.hardware import Device
    from opgraph.record.graph import Graph
    from opgraph.results import Comparison
    from opgraph.sources.base import Model

__all__ = ["compare", "load", "profile", "trace"]


@named_options()
def profile(
    model: str | nn.Module | Model,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    partial: bool = False,
    **options: Any,
) -> Profile:
    """Trace a model once and cost every operator.

    `model` is a name (`"resnet18"`, `"bert-base-uncased"`, `"yolov8n.pt"`) or any `nn.Module`, whose
    parameters may be real, fake or on the meta device; a `Model` is one that is resolved already.
    `inputs` (a tensor, a tuple of positional arguments, or a dictionary of those by keyword; arrays are
    taken as tensors) and `kwargs` are the arguments of one call; without them they are made from the
    model's signature and configuration, at the sizes asked for. `name` is what the profile is called.
    `options` are those of `opgraph.options.Options`: `seq_len=128`, `mode="train"`, `tracer="dynamo"` …
    The model is left as it was.

    Raises `SourceError`, `InputError` or `TraceError`. A forward that raises is a `TraceError` whose
    `profile` holds the graph up to there; with `partial` that profile is returned instead, and
    `graph.failed` is the node where it stopped.
    """
    from dataclasses import replace

    from opgraph.api.pipeline import profiled

    asked = Options(**checked(options, Options.__dataclass_fields__, "profile"))
    found = Profile.of(profiled(model, inputs, kwargs, asked))
    from opgraph.api.capturing import Captured  # needs torch, which the line above asks for

    if name is not None:
        found = replace(found, model=replace(found.model, name=name))
    vars(found)["captured"] = Captured(model, inputs, kwargs, asked)
    failed = found.graph.failed
    if failed is None or partial:
        return found
    where = f" at {failed.file}:{failed.line}" if failed.file else ""
    if GUESSED in found.model.notes:
        tried = "".join(f" ({n})" for n in found.model.notes if n.startswith("tried "))
        raise InputError(
            f"no inputs were found that {found.model.name} takes: its {failed.part} failed{where}: "
            f"{found.failure}{tried}",
            hint="give them (inputs=, kwargs=); partial=True returns the graph up to there",
        )
    error = TraceError(
        f"the {failed.part} of {found.model.name} failed{where}: {found.failure}",
        hint="error.profile holds the graph up to there; partial=True returns it",
    )
    error.profile = found
    raise error


@named_options()
def trace(
    model: str | nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """The operator graph of a model.

    It is what `profile` finds, with the same `options`, without the rest. Raises what `profile` raises.
    """
    return profile(model, inputs, kwargs, **options).graph


@named_options()
def compare(
    first: Profile | Costed | str | nn.Module,
    *others: Profile | Costed | str | nn.Module,
    fail_if: str | Sequence[str] = (),
    hardware: str | Device | None = None,
    **options: Any,
) -> Comparison:
    """Compare a model with others: what changed, and what it costs.

    Each is a `Profile`, a `Costed`, the path of a saved profile, or whatever `profile` takes, with the same
    `options`. With `hardware` the predicted time is compared, too. `fail_if` is a gate (`"flops > +2%"`) or
    several, whose verdicts are in `Comparison.broken`. Raises what `profile` and `load` raise,
    and `RenderError` for a gate that cannot be read.

    >>> print(opgraph.compare("resnet18", "resnet50"))
    """

    given = checked(options, Options.__dataclass_fields__, "compare")

    def traced(model: object) -> bool:
        return not isinstance(model, Profile | Costed | str) or (
            isinstance(model, str) and not is_saved_profile(model)
        )

    if given and not any(map(traced, (first, *others))):
        raise InputError(f"{', '.join(given)} cannot be met: each of these is traced already",
                         hint="name a model")  # fmt: skip

    from opgraph.hardware import device
    from opgraph.results import compared

    on = device(hardware) if isinstance(hardware, str) else hardware

    def found(model: Profile | Costed | str | nn.Module) -> Costed:
        if isinstance(model, Costed):
            if on is not None:
                raise InputError("a Costed has its device", hint="leave out hardware=")
            return model
        if isinstance(model, str) and is_saved_profile(model):
            return load(model).on(on)
        if not isinstance(model, Profile):
            model = profile(model, **(options if on is None else targeted(options, on.target)))
        return model.on(on)

    return compared([found(model) for model in (first, *others)], fail_if=fail_if)
