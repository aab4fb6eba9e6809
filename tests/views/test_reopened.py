"""What was asked of a profile belongs to its file: opened again, every view shows the same figures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import opgraph
from opgraph import Profile
from opgraph.cli import main
from opgraph.hardware import device as named_device
from opgraph.record.quantization import Scheme
from opgraph.views import render, views_of
from opgraph.views.text.explain import facts_of


@cache
def decoding() -> Profile:
    return opgraph.profile("gpt2", mode="decode", context_len=64, model_args={"n_layer": 1})


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [{"run": "graphs"}, {"run": "engine", "weights": "int4", "kv_cache": "fp8"}],
)
def test_every_view_of_what_was_saved_shows_the_same(tmp_path, asked):
    """The page, tables, files and pictures; the device is named again."""
    file = tmp_path / "asked.json"
    saved, plain = decoding().on("h100-sxm", **asked), decoding().on("h100-sxm")
    saved.save(file)
    again = opgraph.load(file).on("h100-sxm")
    assert again.seconds == saved.seconds != plain.seconds
    assert Profile.from_dict(saved.to_dict()).on("h100-sxm").totals == saved.totals
    for view in views_of("costed"):
        assert render(view.name, again) == render(view.name, saved), view.name
    eager = opgraph.load(file).on("h100-sxm", run="eager")
    assert ("weights" in asked) or eager.totals == plain.totals


@pytest.mark.live
@pytest.mark.slow
def test_the_commands_take_a_way_of_running_and_heed_a_saved_one(tmp_path, capsys):
    """`view`, `draw`, `explore` and `explain` show the engine's graph, asked for or saved."""
    plain, file = tmp_path / "plain.json", tmp_path / "engine.json"
    decoding().save(plain)
    decoding().on("h100-sxm", run="engine").save(file)
    on = ["--hardware", "h100-sxm"]
    for command, suffix in (("view", ".html"), ("draw", ".svg"), ("explore", ".json")):
        wrote = []
        for model in ([str(plain)], [str(plain), "--run", "engine"], [str(file)]):
            out = tmp_path / f"out{suffix}"
            assert main([command, *model, *on, "-o", str(out), "-q"]) == 0
            wrote.append(out.read_bytes())
        assert wrote[0] != wrote[1] == wrote[2], command
    assert main(["explain", str(file)]) == 0
    assert "as an engine fuses" in capsys.readouterr().out
    assert main(["export", str(file), "-o", str(tmp_path / "layers.scalesim.csv")]) == 0
    assert "as it was traced, not as an engine fuses" in capsys.readouterr().err
    compared = opgraph.compare(opgraph.load(plain), opgraph.load(file), hardware="h100-sxm")
    assert list(compared.labels) == ["gpt2  eager", "gpt2  engine"]


@pytest.mark.parametrize(("target", "device"), [("cpu", "xeon-8480"), ("cuda", "h100-sxm")])
def test_a_device_that_is_advised_runs_the_kernels_of_the_target(saved, target, device):
    gpt2 = saved("gpt2")
    profile = replace(gpt2, target=replace(gpt2.target, name=target))
    assert facts_of(profile.on(), "gpt2")[-1].command.endswith(f"--hardware {device}")
    assert named_device(device).target.partition(":")[0] == target


def test_weights_as_they_compute_stay_so_where_others_are_published(saved, tmp_path):
    gpt2 = saved("gpt2")
    published = replace(gpt2, model=replace(gpt2.model, weights=Scheme("int8", published=True)))
    plain = published.on(weights="none")
    assert published.on().totals.weight_bytes < plain.totals.weight_bytes
    plain.save(tmp_path / "plain.json")
    assert opgraph.load(tmp_path / "plain.json").totals == plain.totals


def test_a_way_of_running_that_there_is_none_of(saved, tmp_path, capsys):
    file = tmp_path / "broken.json"
    saved("gpt2").save(file)
    text = file.read_text(encoding="utf-8")
    for run, said in (("warp", "broken"), ("engine", "mode infer"), ("compiled", "Inductor")):
        file.write_text(text.replace('"mode"', f'"run": "{run}",\n "mode"', 1), encoding="utf-8")
        assert main(["profile", str(file)]) == 2
        assert said in capsys.readouterr().err
