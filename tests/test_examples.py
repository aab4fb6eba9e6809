"""Each example runs, and shows what it says it shows."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

SHOWN = {
    "agreeing_cnn": ["conv2d batch_norm relu max_pool2d flatten linear"],
    "control_flow": ["fx: Gated cannot be traced", "a branch on the value of a tensor", "auto: "],
    "gated": ["FLOPs heavy.0"],
    "graph_breaks": ["break after fragment 3", "fragment 4  softmax"],
    "why_is_it_slow": ["<Measured ResNet on", "max_pool2d", "measured > +5%"],
    "experts_apart": [
        "33,619,968 parameters on this rank",
        "forward: 4 x all-to-all of 8,388,608 bytes",
    ],
    "sharded": ["forward: 6 x all-gather between 64 ranks", "exposed"],
    "tensor_and_sharded": ["forward: 8 x all-reduce (tp)", "exchange are exposed"],
    "quantized": ["weights int4", "NVIDIA H100 SXM5 80GB has no units for fp4"],
    "serving": ["requests a second within 0.1 s to the first token"],
    "pipelined": ["rank 0: ", "rank 3: ", "of the step is waiting"],
    "loop": ["4 calls of one layer", "272 parameters, 4096 FLOPs"],
}


def test_every_example_is_tested() -> None:
    assert sorted(p.stem for p in EXAMPLES.glob("*.py")) == sorted(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    text = capsys.readouterr().out
    for line in SHOWN[name]:
        assert line in text
    if name == "agreeing_cnn":
        assert len({row.partition(" ")[2].strip() for row in text.splitlines()}) == 1
