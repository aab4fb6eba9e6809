"""The callback for the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from opgraph.hardware import Device
from opgraph.integrations.meter import Meter


class UtilizationCallback(TrainerCallback):
    """Adds to what the Trainer logs how fast it is, and how fast it could be.

    >>> trainer = Trainer(model, args, train_dataset=data)
    >>> UtilizationCallback("h100-sxm").attach(trainer)

    `opgraph/mfu`, `opgraph/tokens_per_second` … (see `Meter`) stand in each log of training. Attached so it
    comes before the callbacks that report; given as `callbacks=[…]` only the Trainer's history has them.
    Its hooks are at the model until training ends. The Trainer does not say that it failed: then they go
    as it trains again, or with `callback.meter.detach()`.
    """

    def __init__(self, hardware: str | Device | None = None) -> None:
        self._hardware = hardware
        self.meter: Meter | None = None

    def attach(self, trainer: Any) -> UtilizationCallback:
        """Be the first of the trainer's callbacks."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        self.on_train_end(args, state, control)  # of a training that failed
        self.meter = Meter(self._hardware, devices=max(1, args.world_size))
        self.meter.attach([model])

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if self.meter is None or logs is None or "loss" not in logs:
            return
        found = {f"opgraph/{k}": v for k, v in self.meter.take().items()}
        logs.update(found)
        if state.log_history:
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.meter is not None:
            self.meter.detach()
