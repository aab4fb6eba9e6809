"""Twelve of the models that `python benchmarks/foreign` tries: all that is held of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "foreign"))

SMALL = (
    "vit_plain", "simple_vit", "cait", "maxvit", "linformer", "nystromformer", "mixer", "g_mlp", "siren",
    "conformer", "timesformer", "neural_ode",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("name", SMALL)
def test_a_model_that_nobody_tuned_for(name: str) -> None:
    from checks import CHECKS, MODELS, check

    package = MODELS[name][0]
    pytest.importorskip(
        package.replace("-", "_"), reason=f"{package} is not installed (pip install -e '.[dev]')"
    )
    found = check(name)
    assert found["wrong"] == dict.fromkeys(CHECKS, "")
