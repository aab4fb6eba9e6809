"""What fits on a device, held to profiles of it and of the next larger size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.memory import fit
from opgraph.api.fitting import fitting
from opgraph.cli import main
from opgraph.hardware import Device, device
from opgraph.hardware.devices import Figure
from opgraph.record.errors import OpgraphError
from opgraph.views.text.explain import facts_of


def small(capacity: float) -> Device:
    """A device of so many bytes, of which nothing is the driver's."""
    known = device("jetson-orin-nano")
    changed = {"memory.capacity": Figure(capacity, "here"), "memory.context": Figure(0.0, "here")}
    return replace(known, figures={**known.figures, **changed})


def language(positions: int) -> nn.Module:
    """One layer with 8 KiB of cache a token: by rotation, or by so many learned positions."""
    import transformers

    if positions:
        config = transformers.GPT2Config(
            n_layer=1, n_embd=1024, n_head=8, n_positions=positions, vocab_size=512
        )
        with torch.device("meta"):
            return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=1024, num_hidden_layers=1, num_attention_heads=8,
        vocab_size=512, max_position_embeddings=100,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config)


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "sizes"),
    [
        (lambda: nn.Conv2d(3, 64, 3), {"mode": "infer", "image_size": 224}, ["batch_size"]),
        (lambda: nn.Linear(64, 64), {"input_shape": (2, 64)}, ["batch_size"]),
        (lambda: language(0), {"mode": "train"}, ["batch_size", "seq_len"]),
        (lambda: language(0), {"mode": "decode", "batch_size": 3}, ["batch_size", "context_len"]),
        (lambda: language(64), {"mode": "decode"}, ["batch_size", "context_len"]),
    ],
    ids=["batch", "shape", "length", "context", "positions"],
)
def test_the_answer_fits_and_the_next_does_not(model, options, sizes):
    there, model = small(2e8), model()
    found = fitting(model, hardware=there, **options)

    def needed(size: str, value: int) -> int:
        asked = {**options, size: value, "target": there.target}
        if "input_shape" in asked:
            asked["input_shape"] = (asked.pop("batch_size"), 64)
        return fit(opgraph.profile(model, **asked).graph, there).needed

    assert [each.size for each in found.largest] == sizes
    for each in found.largest:
        assert needed(each.size, each.value) == each.needed <= there.capacity
        if each.reason is None:
            assert needed(each.size, each.value + 1) == each.next_needed > there.capacity
        beyond = each.size != "batch_size" and each.value > 100
        assert each.positions == (100 if beyond else None)
        if each.reason is not None:  # learned positions end
            with pytest.raises(OpgraphError) as raised:
                needed(each.size, each.value + 1)
            assert str(raised.value).splitlines()[0] == each.reason
    assert found.fits


@pytest.mark.live
@pytest.mark.slow
def test_the_smallest_device_holds_it_by_its_own_kernels_and_the_next_smaller_does_not():
    """Each is traced for its own target: older ones keep the scores of attention in bfloat16."""
    options = {"mode": "train", "batch_size": 32, "seq_len": 256, "dtype": "bfloat16"}
    found = fitting("gpt2", hardware="h100-sxm", **options).smallest
    for name, needed, holds in (
        (found.device, found.needed, True),
        (found.smaller, found.smaller_needs, False),
    ):
        there = device(name)
        own = fit(opgraph.profile("gpt2", target=there.target, **options).graph, there)
        assert (own.needed, own.fits) == (needed, holds)


@pytest.mark.live
def test_what_does_not_fit_at_all():
    """1.6 GB of weights on half a GB: the smallest device that has them, and the fewest of this one."""
    tiny = small(5e8)
    eight = nn.Sequential(*(nn.Linear(7000, 7000, device="meta") for _ in range(8)))
    found = fitting(eight, hardware=tiny, batch_size=2)
    assert not found.fits
    assert all(each.value == 0 for each in found.largest)
    assert found.smallest is not None
    assert found.layout is not None
    assert found.layout.devices == 4  # two layers of 196 MB on each


def test_the_command_asks_for_a_device(capsys):
    assert main(["fit", "resnet18"]) == 2
    assert "--hardware" in capsys.readouterr().err


def test_a_search_that_ends_before_the_device_is_full_does_not_say_that_more_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opgraph.api.fitting._MOST", 16)
    found = fitting(nn.Linear(4, 4), hardware=small(2.0**30), input_shape=(1, 4))
    (batch,) = found.largest
    assert (batch.size, batch.value, batch.next_needed) == ("batch_size", 16, None)
    assert batch.reason == "more was not looked for"


@pytest.mark.slow
def test_all_say_the_same_of_whether_it_fits():
    """A batch whose weights and peak are less than there is, and all that a process needs is not."""
    answer = fitting("gpt2", hardware="l4")
    batch = next(each.value for each in answer.largest if each.size == "batch_size") + 1
    profile = opgraph.profile("gpt2", batch_size=batch)
    on = profile.on("l4")
    assert on.peak_memory < on.device.capacity
    said = fitting("gpt2", hardware="l4", batch_size=batch)
    assert (said.fits, on.fits) == (False, False)
    assert said.layout.tensor * said.layout.pipeline > 1
    swept = opgraph.sweep("gpt2", batch_size=[batch - 1, batch], hardware="l4")
    assert [p.values["memory_share"] > 1 for p in swept.points] == [False, True]
    assert opgraph.compare(profile, profile, hardware="l4", fail_if="memory_share > 100%").broken
    assert any("it does not fit" in fact.text for fact in facts_of(on, "gpt2"))
