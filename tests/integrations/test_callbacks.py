"""The callbacks, in the real trainers on tiny models: what they log is what the graph and a clock say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph.integrations.meter import Meter

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_meter_counts_each_call_by_its_graph() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    meter = Meter("h100-sxm")
    meter.attach([model, *model.children()])  # the outermost calls count, once
    for batch in (4, 4, 2):
        model(torch.randn(batch, 64)).sum().backward()
    forward = 2 * (64 * 64 + 64 * 8)
    backward = forward + 2 * 64 * 8  # of all weights, and of the second layer's input
    assert meter._flops == 10 * (forward + backward)
    assert meter._samples == 10
    found = meter.take()
    assert found["mfu"] == pytest.approx(
        found["flops_per_second"]
        / opgraph.profile(model, torch.randn(4, 64)).on("h100-sxm").device.matrix_peak("float32")
    )
    assert meter.take() == {}
    refused = model.register_forward_pre_hook(_raise, prepend=True)
    with pytest.raises(RuntimeError, match="a step that fails"):
        model(torch.randn(4, 64))
    refused.remove()
    meter.take()
    model(torch.randn(4, 64)).sum().backward()
    assert meter._flops == 4 * (forward + backward)
    meter.detach()
    assert not model._forward_pre_hooks


def _raise(*_: Any) -> None:
    raise RuntimeError("a step that fails")


def test_the_trainer_of_transformers_logs_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from opgraph.integrations.transformers import UtilizationCallback

    config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64, n_positions=16)
    ids = {"input_ids": list(range(16)), "labels": list(range(16))}
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, logging_steps=2, per_device_train_batch_size=2,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    seen: list[dict[str, float]] = []

    class Reporter(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            seen.append(dict(logs))

    model = transformers.GPT2LMHeadModel(config)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=[ids] * 8, callbacks=[Reporter()]
    )
    UtilizationCallback("h100-sxm").attach(trainer)
    trainer.train()
    logged = [log for log in seen if "loss" in log]
    assert len(logged) == 2
    for log in logged:
        assert 0 < log["opgraph/mfu"] < 1
        assert log["opgraph/tokens_per_second"] == pytest.approx(
            16 * log["opgraph/samples_per_second"]
        )
        step = opgraph.profile(
            model, kwargs={k: torch.tensor([v, v]) for k, v in ids.items()}, mode="train"
        )
        assert log["opgraph/flops_per_second"] == pytest.approx(
            step.totals.flops / 2 * log["opgraph/samples_per_second"]
        )
    assert trainer.state.log_history[0]["opgraph/mfu"] == logged[0]["opgraph/mfu"]

    broken = model.lm_head.register_forward_pre_hook(_raise)
    with pytest.raises(RuntimeError, match="a step that fails"):
        trainer.train()
    broken.remove()
    trainer.train()
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


@pytest.mark.filterwarnings(
    "ignore"
)  # Lightning warns of its own age beside torch, and of few workers
def test_lightning_logs_it(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from opgraph.integrations.lightning import UtilizationCallback

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(16, 4)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.body(batch).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.randn(16, 16), batch_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, log_every_n_steps=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[UtilizationCallback("h100-sxm")],
    )  # fmt: skip
    net = Net()
    trainer.fit(net, data)
    found = trainer.logged_metrics
    assert found["opgraph/samples_per_second"] > 0
    assert found["opgraph/flops_per_second"] == pytest.approx(
        2 * 2 * 16 * 4 * float(found["opgraph/samples_per_second"]), rel=1e-3
    )

    broken = net.body.register_forward_pre_hook(_raise)
    trainer.fit_loop.max_epochs = 2
    with pytest.raises(RuntimeError, match="a step that fails"):
        trainer.fit(net, data)
    broken.remove()
    assert not [m for m in net.modules() if m._forward_pre_hooks or m._forward_hooks]
