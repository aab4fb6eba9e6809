"""Whatever model it is: what is counted is what PyTorch counts, tracers agree, every view shows it, and
nothing is left behind."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, note
from tests.random_graphs import EXAMPLES, tried
from tests.random_models import (
    IN_THREADS,
    ODD_STEPS,
    SIDE_BY_SIDE,
    RandomModel,
    changing_models,
    models,
    picture,
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import opgraph
from opgraph import Profile
from opgraph.checking import check
from opgraph.record.verify import verify
from opgraph.views import render, views_of

COSTLY = int(os.environ.get("OPGRAPH_COSTLY_EXAMPLES", str(max(1, EXAMPLES // 5))))
"""How many of them with the checks that take a second each."""
PIXELS = ("png", "roofline-png")
"""Views that are drawn of models with one step alone: rasterizing takes longer than all the others, and the
SVG that they are made of is drawn of every model."""


def told(model: Any, kwargs: dict[str, Any]) -> None:
    note(f"{model.steps} {model.data} -> {model.output}, train={model.training}, {sorted(kwargs)}")


@pytest.mark.slow
@tried(EXAMPLES)
@given(models())
def test_any_model(example):
    model, args, kwargs = example
    told(model, kwargs)
    before, given = state(model), copy.deepcopy((args, kwargs))

    profile = opgraph.profile(model, inputs=args, kwargs=kwargs)
    again = opgraph.profile(model, inputs=args, kwargs=kwargs)

    assert same(state(model), before)
    assert same((args, kwargs), given)
    assert profile.graph.failed is None, profile.graph.failed
    assert profile.totals.coverage == 1.0, profile.totals.unknown
    assert profile.totals.parameters == sum(p.numel() for p in model.parameters())
    if SIDE_BY_SIDE.isdisjoint(s.kind for s in model.steps):  # else the order is the scheduler's
        assert untimed(again).to_json() == untimed(profile).to_json()
    assert again.totals.cost == profile.totals.cost
    assert profile.totals.flops == expected_flops(model.eval(), args, kwargs)

    verify(profile.graph)
    text = profile.to_json()
    loaded = Profile.from_dict(json.loads(text))
    assert loaded == profile
    assert loaded.to_json() == text


@pytest.mark.slow
@tried(EXAMPLES)
@given(changing_models())
def test_whatever_is_changed_is_as_before(example):
    model, args, kwargs = example
    note(f"{model.changes}, it {model.ending}; {model.inner.steps}")
    before, settings_before = picture(model.roots()), torch.get_rng_state()
    given = copy.deepcopy((args, kwargs))

    profile = opgraph.profile(model, inputs=args, kwargs=kwargs, partial=True)

    assert picture(model.roots()) == before
    assert torch.equal(torch.get_rng_state(), settings_before)
    assert same((args, kwargs), given)
    # All is as before: what runs now for real is what was counted, or is remarked on.
    try:
        flops = expected_flops(model.inner, args, kwargs, run=model.eval())
    except RuntimeError as error:
        assert profile.graph.failed is not None or profile.model.notes, error  # noqa: PT017
    else:
        assert profile.graph.failed is None or profile.model.notes, profile.graph.failed
        assert profile.totals.flops == flops or profile.model.notes, (profile.totals.flops, flops)


@pytest.mark.slow
@tried(COSTLY)
@given(models())
def test_outputs_are_the_same_after_it(example):
    model, args, kwargs = example
    told(model, kwargs)
    model.eval()
    with torch.no_grad():
        untouched = copy.deepcopy(model)(*copy.deepcopy(args), **kwargs)
    opgraph.profile(model, inputs=args, kwargs=kwargs)
    with torch.no_grad():
        found = model(*args, **kwargs)
    torch.testing.assert_close(found, untouched, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@tried(COSTLY)
@given(models())
def test_tracers_agree(example):
    model, args, kwargs = example
    # What a tensor is, where, and what it holds, symbols and compiled code answer otherwise.
    assume({s.kind for s in model.steps}.isdisjoint(ODD_STEPS))
    told(model, kwargs)
    torch.compiler.reset()
    before = state(model)
    found = check(model, args, kwargs, tracers=("auto", "fx", "dynamo"), counters=False)
    tracers = {t.tracer: t for t in found.trials}
    note(str([(t.tracer, t.error, t.profile and t.profile.totals.flops) for t in found.trials]))
    assert tracers["eager"].error is None
    assert tracers["dynamo"].error is None
    assert len({work(t.profile) for t in found.trials if t.whole}) == 1
    assert same(state(model), before)


@pytest.mark.slow
@tried(COSTLY)
@given(models())
def test_every_view_shows_it_the_same_each_time(example):
    model, args, kwargs = example
    told(model, kwargs)
    profile = opgraph.profile(model, inputs=args, kwargs=kwargs)
    loaded = Profile.from_dict(json.loads(profile.to_json()))
    for view in views_of("costed"):
        name = view.name
        hardware = "h100" if view.needs or name == "trace" else None
        if name in PIXELS and len(model.steps) > 1:
            continue
        first = render(name, profile.on(hardware))
        assert first, name
        assert render(name, loaded.on(hardware)) == first, name


def state(model: nn.Module) -> Any:
    """All that could be left behind in a model and in the process."""
    modules = list(model.modules())
    return copy.deepcopy((
        model.state_dict(),
        dict(model.named_buffers()),
        [(p.requires_grad, p.grad) for p in model.parameters()],
        [m.training for m in modules],
        [sorted(vars(m)) for m in modules],
        [[*m._forward_hooks, *m._forward_pre_hooks, *m._backward_hooks] for m in modules],
        [len(hooks) for name, hooks in vars(nn.modules.module).items() if name.endswith("_hooks")],
        torch.get_rng_state(),
    ))  # fmt: skip


def same(one: Any, two: Any) -> bool:
    """Whether nested data is equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def untimed(profile: Profile) -> Profile:
    """A profile without the seconds that tracing took."""
    attempts = tuple(replace(a, seconds=0.0) for a in profile.tracing.attempts)
    return replace(profile, tracing=replace(profile.tracing, attempts=attempts))


def oracle(model: nn.Module, args: Any, kwargs: Any) -> int:
    """FLOPs of a real forward by torch's counter, kept off the fused paths that it cannot see into. Before
    torch 2.15 it did not know attention on a CPU."""
    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.backends.mkldnn.flags(enabled=False),
            torch.no_grad(),
            FlopCounterMode(display=False, custom_mapping=mapping) as counter,
        ):
            model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops()


def attention(*args: Any, **kwargs: Any) -> int:
    """FLOPs of it by torch's formula."""
    return flop_registry[torch.ops.aten._scaled_dot_product_flash_attention](*args, **kwargs)


attention._get_raw = True  # it is given tensors, and not their shapes


def work(profile: Profile) -> tuple[int, int, int]:
    """FLOPs, others but those of constants, which symbolic tracing computes and does not record, and
    parameters."""
    constants = sum(n.other_flops for n in profile.graph.nodes if n.kind == "constant")
    totals = profile.totals
    return totals.flops, totals.other_flops - constants, totals.parameters


def expected_flops(model: RandomModel, args: Any, kwargs: Any, run: nn.Module | None = None) -> int:
    """Torch's count, and what torch does not know: products with a vector, of two vectors with a tensor of
    third order, that of a sparse matrix only what it stores is multiplied, and that a product of complex
    numbers is four of real ones."""
    unknown = 0
    for step, width in zip(model.steps, model.widths, strict=True):
        if step.kind == "mv":
            unknown += 2 * 5 * width
        if step.kind == "sparse":  # 5 ones of 5 x 5
            unknown -= args[0].shape[0] * 2 * (25 - 5) * width
        if step.kind == "complex_product":
            unknown += 3 * args[0].shape[0] * 2 * 25 * width
        if step.kind in IN_THREADS:  # which torch's counter does not follow: two products each
            images = model.data == "image"
            size = width * 6**3 if images else width * 5 * 5
            unknown += IN_THREADS[step.kind] * args[0].shape[0] * 2 * 2 * size
        if step.kind == "bilinear":
            unknown += args[0].shape[0] * 5 * 4 * (2 * width * width + 2 * width)
    return oracle(run or model, args, kwargs) + unknown
