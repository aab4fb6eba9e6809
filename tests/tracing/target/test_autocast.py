"""Mixed precision that a forward asks for on a GPU is followed on the tensors that stand for its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import opgraph
from opgraph.tracing.target.autocast import TURNED_OFF


class Mixed(nn.Module):
    """Attends in mixed precision, and projects outside of it."""

    def __init__(self, device: str = "cuda", **how: Any) -> None:
        super().__init__()
        self.layer, self.norm, self.device, self.how = (
            nn.Linear(64, 64),
            nn.LayerNorm(64),
            device,
            how,
        )

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device, **self.how):
            y = self.layer(self.layer(x))
            y = functional.scaled_dot_product_attention(y, x, y)
            with torch.autocast(x.device.type, enabled=False):
                return self.layer(self.norm(y.float()))


def products(profile: Any) -> list[tuple[str, str]]:
    kernels = [k for n in profile.graph.nodes for k in n.kernels if k.bytes]
    return [(k.op.removeprefix("aten."), k.dtype) for k in kernels if k.flops or "copy" in k.op]


def remarks(profile: Any) -> list[str]:
    return [r.text for r in profile.remarks if r.code == "autocast"]


X = torch.zeros(2, 4, 16, 64)


def test_it_is_followed_where_the_target_is_that_device() -> None:
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    found = opgraph.profile(Mixed(), X, target="cuda")
    copied = ("_to_copy", "float32")
    assert products(found) == [
        copied, copied, copied, ("addmm", "float16"),  # what weights are in it is kept
        ("addmm", "float16"), copied, ("_scaled_dot_product_flash_attention", "float16"),
         ("_to_copy", "float16"), ("addmm", "float32"),
    ]  # fmt: skip
    assert remarks(found) == [TURNED_OFF]
    assert before == (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))


@pytest.mark.parametrize(
    "tracer", [pytest.param("dynamo", marks=pytest.mark.slow), pytest.param("auto", id="real")]
)
def test_it_is_followed_by_other_tracers_and_on_real_tensors(tracer: str) -> None:
    class Chooses(Mixed):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y + 1 if tracer == "auto" and y.sum().item() > 0 else y

    found = opgraph.profile(Chooses(dtype=torch.bfloat16), X, target="cuda", tracer=tracer)
    assert [d for op, d in products(found) if op == "addmm"] == ["bfloat16", "bfloat16", "float32"]
    assert remarks(found) == [TURNED_OFF]


class Told(nn.Sequential):
    """Told by a decorator, and in a part once more."""

    @torch.autocast("cpu", torch.bfloat16)
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            x = self[0](x)
        with torch.autocast("cuda", torch.float16):
            x = self[1](x)
        return self[2](x)


@pytest.mark.parametrize("tracer", ["fx", pytest.param("export", marks=pytest.mark.slow)])
def test_contexts_that_a_graph_has_no_nodes_for(tracer: str) -> None:
    model = Told(*(nn.Linear(64, 64) for _ in range(3)))
    for target, dtypes in (
        ("cuda", ["float32", "float16", "bfloat16"]),
        ("cpu", ["float32", "bfloat16", "bfloat16"]),
    ):
        found = opgraph.profile(model, X, target=target, tracer=tracer)
        assert [d for op, d in products(found) if op == "addmm"] == dtypes
        assert products(found) == products(opgraph.profile(model, X, target=target))


@pytest.mark.parametrize("tracer", ["auto", pytest.param("dynamo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.slow
def test_what_is_on_around_a_profile_holds_in_it(target: str, tracer: str) -> None:
    def now() -> list[Any]:
        return [
            (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
        ]

    with torch.autocast("cpu", torch.float16):
        before = now()
        found = opgraph.profile(nn.Linear(64, 64), X, target=target, tracer=tracer)
        assert now() == before
    assert [d for op, d in products(found) if op == "addmm"] == ["float16"]


class Decorated(nn.Linear):
    """Was told so where there was no GPU."""

    forward = torch.autocast("cuda", enabled=False)(nn.Linear.forward)


@pytest.mark.parametrize(
    ("model", "target", "said"),
    [
        (Mixed("mps"), "cuda", "forward enters autocast for mps, which does nothing here"),
        (Mixed(), "cpu", "forward enters autocast for cuda, which does nothing here"),
        (Decorated(64, 64), "cuda", "autocast for cuda was made before the run"),
        (Mixed(enabled=False), "cuda", TURNED_OFF),
    ],
)
def test_what_is_not_followed_is_said(model: nn.Module, target: str, said: str) -> None:
    found = opgraph.profile(model, X, target=target)
    assert {dtype for _, dtype in products(found)} == {"float32"}
    assert remarks(found)[0].startswith(said)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_that_is_off_around_a_profile(device: str) -> None:
    """As training loops have it (`enabled=args.amp`): one for a GPU may be off for want of one."""
    with torch.autocast(device, torch.bfloat16, enabled=False):
        found = opgraph.profile(nn.Linear(64, 64), X)
    assert len(remarks(found)) == (device == "cuda")
