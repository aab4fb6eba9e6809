"""A model served, as text and as a picture, of made figures."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from opgraph import RenderError
from opgraph.analysis.serving.curve import ServingPoint, ServingRecord, Spread
from opgraph.analysis.serving.engine import ASSUMED
from opgraph.views.picture.formats import curve_svg as svg
from opgraph.views.text.serving import serving_text


def point(rate: float, slow: float, **more) -> ServingPoint:
    spread = Spread(0.05 * slow, 0.04 * slow, 0.1 * slow, 0.4 * slow)
    token = Spread(0.01, 0.009, 0.012 * slow, 0.02 * slow)
    return ServingPoint(**{
        "rate": rate, "requests": 2000, "refused": 1, "seconds": 2000 / min(rate, 9.5),
        "requests_per_second": min(rate, 9.5), "output_tokens_per_second": 512 * min(rate, 9.5),
        "tokens_per_second": 2560 * min(rate, 9.5), "first_token": spread, "per_token": token,
        "between": token, "latency": spread, "occupancy": 0.03 * slow, "fullest": 0.05 * slow,
        "running": 2.5 * slow, "preemptions": int(slow), "steps": 20_000, **more,
    })  # fmt: skip


SERVED = ServingRecord(
    "meta-llama/Llama-3.1-70B", "NVIDIA H100 SXM5 80GB", 4, 1, {"weights": "fp8"}, 18_000_000_000,
    812_000, {"decode_1": 0.0101, "decode_32": 0.0124, "prefill": 0.132},
    (point(2.0, 1), point(8.0, 4), point(inf, 20, per_token=None)), (ASSUMED,),
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 140])
def test_it_looks_like_its_golden(golden, width):
    text = serving_text(SERVED, width=width)
    assert max(map(len, text.splitlines())) <= width
    crowded = replace(SERVED, points=(point(1.12e3, 9, requests_per_second=1.08e3, running=100.0),))
    assert "…" not in serving_text(crowded, width=width)
    golden(text, f"serving-{width}.txt")


def test_the_curve_names_every_rate():
    drawn = svg(SERVED, theme="light")
    for text in ("2/s", "8/s", "all at once", "output tokens a second", "4 x NVIDIA H100"):
        assert text in drawn
    with pytest.raises(RenderError, match="no request was served"):
        svg(ServingRecord("a", "b", 1, 1, {}, 0, 0, {}, ()))
