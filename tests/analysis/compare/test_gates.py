"""Gates are read as they are meant, and break when they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opgraph import Profile
from opgraph.analysis.compare.comparison import GateError, judge, parse_gate
from opgraph.hardware import device

Saved = Callable[[str], Profile]

# resnet18: 3,628,146,688 FLOPs, 46,758,048 bytes of weights; resnet50: 8,178,368,512 and 102,228,128.


@pytest.mark.parametrize(
    ("gate", "broken"),
    [
        ("flops > +2%", True),
        ("flops > +126%", False),
        ("flops > +125%", True),
        ("flops<+125%", False),
        ("flops < -1%", False),
        ("flops > 8.1G", True),
        ("flops >= 8178368512", True),
        ("flops == 8178368512", True),
        ("flops != 8178368512", False),
        ("flops > +4.6G", False),
        ("flops > +4.5 G", True),
        ("weight_bytes > +52MiB", True),
        ("weight_bytes > +53MiB", False),
        ("weight_bytes > 102 MB", True),
        ("weight_bytes > 102228127B", True),
        ("weight_bytes > 102228128 b", False),
        ("parameters > 0.02B", True),
        ("coverage < 100%", False),
        ("coverage <= 100%", True),
        ("coverage > +0%", False),
        ("FLOPS > +1e1 %", True),
        ("intensity < 19.4", True),
        ("nodes > 1k", False),
    ],
)
def test_verdicts(saved: Saved, gate: str, broken: bool) -> None:
    (verdict,) = judge([parse_gate(gate)], [saved("resnet18").on(), saved("resnet50").on()])
    assert verdict.broken is broken


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ("flops", "is not a gate"),
        ("flops > ", "is not a gate"),
        ("flops > two", "is not a gate"),
        ("speed > 3", "'speed' is no quantity: one of parameters"),
        ("flops > 2%", "percent of what"),
        ("flops > 2 parsecs", "'parsecs' is no unit"),
        ("latency > 1m", "'m' is no unit of latency"),
        ("flops > 1s", "'s' is no unit of flops"),
        ("parameters > 1MiB", "'MiB' is no unit of parameters"),
        ("weight_bytes > 1ms", "'ms' is no unit of weight_bytes"),
        ("coverage < 1k", "'k' is no unit of coverage"),
    ],
)
def test_what_is_no_gate_is_refused(gate: str, why: str) -> None:
    with pytest.raises(GateError, match=why):
        parse_gate(gate, device("h100-sxm") if "latency" in gate else None)


def test_a_time_is_in_its_unit() -> None:
    limits = [parse_gate(f"latency > {t}", device("h100-sxm")).limit for t in ("2s", "2ms", "2 µs")]
    assert limits == [2, 2e-3, 2e-6]


def test_every_profile_is_judged_against_the_first(saved: Saved) -> None:
    names = ("resnet18", "resnet18-changed", "resnet50")
    profiles = [saved(name).on() for name in names]
    verdicts = judge([parse_gate("flops > +20%")], profiles)
    assert [(v.position, v.broken) for v in verdicts] == [(1, False), (2, True)]
