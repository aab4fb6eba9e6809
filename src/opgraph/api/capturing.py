"""The forward of a profiled model as torch's own compilers capture it, within reach of who explores or
compiles: nothing is captured until it is asked for."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from opgraph.api.pipeline import prepared
from opgraph.exporting.captured import capture, fragments
from opgraph.options import Options
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.remarks import left_behind
from opgraph.tracing.base import Stage, staged
from opgraph.tracing.parts import parameters_of
from opgraph.tracing.replay.export import exported
from opgraph.tracing.state.process import put_back


class Captured:
    """Captures of one forward, for the arguments of a profile.

    Weights are the model's own, or fake where it was built without. A module that was given is not kept
    alive by this, and a copy or a file of a profile has none. A capture raises `TraceError` where torch
    does not get through, and warns of what could not be restored afterwards.
    """

    def __init__(
        self, model: Any = None, inputs: Any = None, kwargs: Mapping[str, Any] | None = None,
        options: Options | None = None,
    ) -> None:  # fmt: skip
        given = isinstance(model, nn.Module)
        self._model: Callable[[], Any] = weakref.ref(model) if given else lambda: model
        self._call, self._options = (inputs, kwargs), options or Options()

    def __reduce__(self) -> tuple[type[Captured], tuple[()]]:
        return Captured, ()

    def __repr__(self) -> str:
        return "<Captured: .export, .dynamo, .fx>"

    @cached_property
    def export(self) -> torch.export.ExportedProgram:
        """The program of `torch.export`, before decomposition."""
        with self._staged() as (module, stage), stage.guard.listening():
            return exported(module, stage.args, stage.kwargs)

    @cached_property
    def dynamo(self) -> list[fx.GraphModule]:
        """What Dynamo hands to a compiler, one graph for each fragment in order."""
        with self._staged(stance="default") as (module, stage):
            return fragments(module, stage)

    @cached_property
    def fx(self) -> fx.GraphModule:
        """What `torch.fx` traces."""
        with self._staged() as (module, stage):
            found = capture(module, stage, "fx")
            return fx.GraphModule(found.root, found.graph)

    @contextmanager
    def _staged(self, stance: str = "force_eager") -> Iterator[tuple[nn.Module, Stage]]:
        model = self._model()
        if model is None:
            raise InputError("the model is not at hand: it is gone, or this profile is a copy",
                             hint="opgraph.profile(MODEL) captures it")  # fmt: skip
        if self._options.mode != "infer" or self._options.laid_out or self._options.world_size:
            raise InputError("one forward is captured, and not another mode or a layout",
                             hint="profile the model itself")  # fmt: skip
        with left_behind() as left, put_back():
            built, example = prepared(model, *self._call, self._options)
            real = not any(p.is_meta for p in parameters_of(built.module))
            try:
                with staged(built.module, example, real=real, stance=stance) as stage:
                    yield built.module, stage
            except (TraceError, InputError):
                raise
            except Exception as error:
                raise TraceError(f"torch does not get through: {first_line(error)}") from error
        for remark in left:
            warnings.warn(remark, stacklevel=5)
