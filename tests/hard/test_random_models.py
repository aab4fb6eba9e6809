"""Whatever model it is: what is counted is what PyTorch counts, and nothing is left behind."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, given, note, settings
from tests.random_models import RandomModel, models
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import opgraph
from opgraph.checking import check
from opgraph.document import Profile
from opgraph.graph import verify
from opgraph.views import render, views

EXAMPLES = int(os.environ.get("OPGRAPH_EXAMPLES", "100"))
"""How many models are tried; benchmarks/random_models.py tries 2,000."""
COSTLY = int(os.environ.get("OPGRAPH_COSTLY_EXAMPLES", str(max(1, EXAMPLES // 10))))
"""How many of them with the checks that take a second each."""


def oracle(model: nn.Module, args, kwargs) -> int:
    """FLOPs of a real forward by torch's counter, kept off the fused paths that it cannot see into."""
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.backends.mkldnn.flags(enabled=False),
            torch.no_grad(),
            FlopCounterMode(display=False) as counter,
        ):
            model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops()


def tried(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


def told(model: Any, kwargs: dict[str, Any]) -> None:
    note(f"{model.steps} {model.data} -> {model.output}, train={model.training}, {sorted(kwargs)}")


@tried(EXAMPLES)
@given(models())
def test_any_model(example):
    model, args, kwargs = example
    told(model, kwargs)
    before = copy.deepcopy(model.state_dict())
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    modes = [m.training for m in model.modules()]
    attributes = [set(vars(m)) for m in model.modules()]
    state = torch.get_rng_state()

    profile = opgraph.profile(model, inputs=args, kwargs=kwargs)

    assert profile.graph.failed is None, profile.graph.failed
    assert profile.totals.coverage == 1.0, profile.totals.unknown
    assert profile.totals.parameters == sum(p.numel() for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(torch.equal(b, buffers[k]) for k, b in model.named_buffers())
    assert modes == [m.training for m in model.modules()]
    assert attributes == [set(vars(m)) for m in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    again = opgraph.profile(model, inputs=args, kwargs=kwargs)
    assert again.graph == profile.graph
    assert profile.totals.flops == expected_flops(model.eval(), args, kwargs)

    verify(profile.graph)
    text = profile.to_json()
    loaded = Profile.from_dict(json.loads(text))
    assert loaded == profile
    assert loaded.to_json() == text
    assert render("table", profile) == render("table", loaded)


@tried(COSTLY)
@given(models())
def test_outputs_are_the_same_after_it(example):
    model, args, kwargs = example
    told(model, kwargs)
    model.eval()
    with torch.no_grad():
        untouched = copy.deepcopy(model)(*copy.deepcopy(args), **kwargs)
    given = copy.deepcopy(args)
    opgraph.profile(model, inputs=args, kwargs=kwargs)
    assert torch.equal(args[0], given[0])
    with torch.no_grad():
        found = model(*args, **kwargs)
    torch.testing.assert_close(found, untouched, rtol=0, atol=0, equal_nan=True)


@tried(COSTLY)
@given(models())
def test_tracers_agree(example):
    model, args, kwargs = example
    told(model, kwargs)
    torch.compiler.reset()
    found = check(model, args, kwargs, tracers=("auto", "fx", "dynamo"), peers=False)
    tracers = {t.tracer: t for t in found.trials}
    note(str([(t.tracer, t.error, t.profile and t.profile.totals.flops) for t in found.trials]))
    assert tracers["eager"].error is None
    assert tracers["dynamo"].error is None
    assert found.agree


@tried(COSTLY)
@given(models())
def test_every_view_shows_it_the_same_each_time(example):
    model, args, kwargs = example
    told(model, kwargs)
    profile = opgraph.profile(model, inputs=args, kwargs=kwargs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.json"
        profile.save(path)
        loaded = opgraph.load(path)
    for name, view in views().items():
        options = {"hardware": "h100"} if "hardware" in view.needs else {}
        first = render(name, profile, **options)
        assert first, name
        assert render(name, loaded, **options) == first, name


def expected_flops(model: RandomModel, args: Any, kwargs: Any) -> int:
    """Torch's count, and what torch does not know: products with a vector, and of two vectors with a
    tensor of third order."""
    unknown = 0
    for step, width in zip(model.steps, model.widths, strict=True):
        if step.kind == "mv":
            unknown += 2 * 5 * width
        if step.kind == "bilinear":
            unknown += args[0].shape[0] * 5 * 4 * (2 * width * width + 2 * width)
    return oracle(model, args, kwargs) + unknown
