"""`Meter`: what the graphs of a training loop's calls need, over the time that they take."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.timing.prediction import predict
from opgraph.api.pipeline import complete, profile_model
from opgraph.hardware import Device, device
from opgraph.inputs.base import Example
from opgraph.measuring.recording import around
from opgraph.options import Options
from opgraph.record.errors import OpgraphError
from opgraph.record.profile import ModelInfo
from opgraph.record.turns import runs
from opgraph.sources.base import Model
from opgraph.sources.weightless import uncompiled

_SHAPES = 16
"""Shapes of a batch that are traced; those of others are taken in proportion to their elements."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What one call of a shape needs: FLOPs of its forward and backward, the predicted seconds, and the
    elements of its tensors."""

    flops: int
    seconds: float
    elements: int


class Meter:
    """Counts what a training loop needs, by the calls of its modules.

    `hardware` is a device's name, its file, or a `Device`; without one there is no MFU. `devices` are those
    that share a step. Each shape of a batch is traced once, which takes a moment and is not counted.
    All other time between two takes is: that of evaluating and saving, too.
    """

    def __init__(self, hardware: str | Device | None = None, devices: int = 1) -> None:
        self.device = device(hardware) if isinstance(hardware, str) else hardware
        self.devices = devices
        self.note = ""
        self._known: dict[Any, _Call] = {}
        self._depth = 0
        self._handles: list[Any] = []
        self._reset()

    def attach(self, modules: Iterable[nn.Module]) -> None:
        """Count the outermost calls of these modules, in training mode, until `detach`."""
        self.detach()
        self._runs = runs()  # around the loop; where there are more, it is not the loop that calls
        for module in modules:
            self._handles += around(module, self._called, self._returned)
        self._reset()

    def detach(self) -> None:
        """Count no more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def take(self) -> dict[str, float]:
        """The figures since they were last taken, by name; empty where nothing ran.

        `flops_per_second`, `samples_per_second`, for ids of tokens `tokens_per_second`, and on a device
        `mfu` and `predicted`, the predicted seconds over the measured ones.
        """
        seconds = time.perf_counter() - self._since - self._tracing
        found: dict[str, float] = {}
        if self._samples and seconds > 0:
            found["samples_per_second"] = self._samples / seconds
            if self._tokens:
                found["tokens_per_second"] = self._tokens / seconds
            if self._flops:
                found["flops_per_second"] = self._flops / seconds
            if self.device is not None and self._flops:
                peak = self.device.matrix_peak(self.device.multiplies(self._dtype))
                found["mfu"] = self._flops / seconds / (peak * self.devices)
                found["predicted"] = self._predicted / seconds
        self._reset()
        return found

    def _reset(self) -> None:
        self._since, self._tracing = time.perf_counter(), 0.0
        self._flops = self._samples = self._tokens = 0
        self._predicted = 0.0
        self._dtype = getattr(self, "_dtype", "float32")

    @uncompiled
    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if runs() != self._runs:
            return
        self._depth += 1
        trains = module.training and torch.is_grad_enabled() and not torch.jit.is_tracing()
        if self._depth > 1 or not trains:
            return
        tensors = [
            t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()
        ]
        if not tensors:
            return
        key = (id(module), *((tuple(t.shape), t.dtype) for t in tensors))
        if key not in self._known:
            begin = time.perf_counter()
            self._known[key] = self._traced(module, args, kwargs, sum(t.numel() for t in tensors))
            self._tracing += time.perf_counter() - begin
        call = self._known[key]
        self._flops += call.flops
        self._predicted += call.seconds
        self._samples += tensors[0].shape[0]
        ids = (t for t in tensors if t.dtype in (torch.int64, torch.int32) and t.dim() == 2)
        self._tokens += next(ids, torch.empty(0)).numel()

    @uncompiled
    def _returned(self, *_: Any) -> None:
        if runs() == self._runs:
            self._depth = max(0, self._depth - 1)  # a hook before this one's may have raised

    def _traced(self, module: nn.Module, args: Any, kwargs: Any, elements: int) -> _Call:
        """What a call needs, by its graph; in proportion to another's where there are too many."""
        if len(self._known) >= _SHAPES:
            near = min(self._known.values(), key=lambda c: abs(c.elements - elements))
            share = elements / near.elements if near.elements else 1.0
            return _Call(round(near.flops * share), near.seconds * share, elements)
        model = Model(module, ModelInfo(type(module).__name__))
        target = None if self.device is None else self.device.target
        try:
            options = Options(mode="train", target=target)
            profile = complete(profile_model(model, Example(args, kwargs), options))
        except OpgraphError as error:
            self.note = f"{type(module).__name__} cannot be traced: {error}"
            return _Call(0, 0.0, elements)
        graph = profile.graph
        self._dtype = CostedRecord(profile).multiplied
        flops = sum(n.flops for n in graph.nodes if n.phase != "recompute")
        seconds = 0.0 if self.device is None else predict(graph, self.device).seconds
        return _Call(flops, seconds, elements)
