"""The callback for Lightning's Trainer."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from opgraph.hardware import Device
from opgraph.integrations.meter import Meter


class UtilizationCallback(Callback):
    """Logs how fast training is, and how fast it could be.

    >>> trainer = Trainer(callbacks=[UtilizationCallback("h100-sxm")])

    `opgraph/mfu`, `opgraph/samples_per_second` … (see `Meter`) are logged as often as the Trainer logs.
    What counts are the calls of the module itself, or of those in it that its training step calls.
    """

    def __init__(self, hardware: str | Device | None = None) -> None:
        self._hardware = hardware
        self.meter: Meter | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.meter = Meter(self._hardware, devices=max(1, trainer.world_size))
        self.meter.attach([pl_module, *pl_module.children()])

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        every = max(1, trainer.log_every_n_steps)
        if self.meter is None or trainer.global_step % every:
            return
        found = {f"opgraph/{k}": v for k, v in self.meter.take().items()}
        pl_module.log_dict(found)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.meter is not None:
            self.meter.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)
