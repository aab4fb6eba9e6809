"""What commands print, at the width of a narrow and of a wide terminal, as a person sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conftest import DATA

from opgraph import Profile
from opgraph.analysis.check.agreement import Agreement, Reading, Trial
from opgraph.cli import hardware, main
from opgraph.hardware import device
from opgraph.views.text.check import check_text

RESNET, BERT, GPT2 = (str(DATA / f"{n}.json") for n in ("resnet18", "bert-base-uncased", "gpt2"))

COMMANDS = {
    "profile-hardware": ["profile", RESNET, "--hardware", "h100-sxm"],
    "profile-memory": ["profile", BERT, "--depth", "1", "--memory"],
    "profile-fused": ["profile", GPT2, "--depth", "1", "--partition", "fuse"],
    "profile-parallel": ["profile", GPT2, "--depth", "1", "--hardware", "h100-sxm",
                         "--tensor-parallel", "4", "--pipeline-parallel", "3"],
    "profile-quantized": ["profile", GPT2, "--depth", "1", "--hardware", "a100-sxm4-80gb",
                          "--weights", "fp8", "--activations", "fp8"],
    "compare-quantized": ["compare", GPT2, "--weights", "none", "--weights", "int4", "--group-size",
                          "32", "--hardware", "h100-sxm", "--by", "op"],
    "hardware-one": ["hardware", "h100-sxm"],
    "models-whisper": ["models", "openai/whisper*"],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_their_goldens(
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(COMMANDS[name]) == 0
    golden(capsys.readouterr().out, f"{name}-{width}.txt")


@pytest.mark.parametrize("width", [80, 140])
def test_the_list_of_devices_prints_its_golden(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Of a few that stand for all, so that another device breaks no golden."""
    monkeypatch.setenv("COLUMNS", str(width))
    few = tuple(device(name) for name in ("epyc-9654", "mi300x", "apple-m4", "h100-sxm", "tpu-v5p"))
    golden(hardware._list(few), f"hardware-{width}.txt")


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("width", [80, 140])
def test_generation_prints_its_golden(
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    decode = ["profile", "gpt2", "--mode", "decode", "--context-len", "64", "--depth", "1"]
    assert main([*decode, "--hardware", "h100-sxm"]) == 0
    text = capsys.readouterr().out
    facts = [line for line in text.splitlines() if line.startswith(("Mode", "Reads", "KV cache"))]
    table = text[text.index("Time per output token") :]
    golden("\n".join([*facts, "", table]), f"profile-decode-{width}.txt")


@pytest.mark.parametrize("width", [80, 140])
def test_a_check_prints_its_golden(
    saved: Callable[[str], Profile], golden: Callable[[str, str], None], width: int
) -> None:
    trials = (
        Trial("eager", saved("resnet18"), None, 0.31),
        Trial("fx", saved("resnet18"), None, 0.92),
        Trial("dynamo", saved("bert-base-uncased"), None, 4.5),
        Trial("export", None, "torch.export: Unsupported: generator", 1.25),
    )
    readings = (
        Reading("fvcore", "0.1.5", "MACs", 1_814_073_344, 11_689_512, ("aten::add_",), 0.2),
        Reading("calflops", "0.3.2", "FLOPs", error="KeyError: 'x'"),
    )
    golden(check_text(Agreement("resnet18", trials, readings), width=width), f"check-{width}.txt")
