"""Whatever model it is: what is counted is what PyTorch counts, and nothing is left behind."""

from __future__ import annotations

import copy
import json
import os

import torch
from hypothesis import HealthCheck, given, note, settings
from tests.random_models import models
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import opgraph
from opgraph.document import Profile
from opgraph.graph import verify
from opgraph.views import render

EXAMPLES = int(os.environ.get("OPGRAPH_EXAMPLES", "100"))
"""How many models are tried; the benchmark tries 2,000."""


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


@settings(
    max_examples=EXAMPLES, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(models())
def test_any_model(example):
    model, args, kwargs = example
    note(f"{model.steps} image={model.image} output={model.output} train={model.training}")
    before = copy.deepcopy(model.state_dict())
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()

    profile = opgraph.profile(model, inputs=args, kwargs=kwargs)

    assert profile.graph.failed is None, profile.graph.failed
    assert profile.totals.coverage == 1.0, profile.totals.unknown
    assert profile.totals.parameters == sum(p.numel() for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert modes == [m.training for m in model.modules()]
    assert torch.equal(state, torch.get_rng_state())
    assert opgraph.profile(model, inputs=args, kwargs=kwargs).graph == profile.graph
    assert profile.totals.flops == expected_flops(model.eval(), args, kwargs)

    verify(profile.graph)
    text = profile.to_json()
    again = Profile.from_dict(json.loads(text))
    assert again == profile
    assert again.to_json() == text
    assert render("table", profile)


def expected_flops(model: nn.Module, args, kwargs) -> int:
    vectors = sum(  # products with a vector, which torch's counter does not know
        2 * 5 * model.widths[i] for i, s in enumerate(model.steps) if s.kind == "mv"
    )
    return oracle(model, args, kwargs) + vectors
