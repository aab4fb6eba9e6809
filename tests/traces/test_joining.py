"""Traces of real devices, by others (AMD-AGI/TraceLens, MIT), on the graphs of their models; and what our
own marks say. The graphs were traced with the same version of transformers as the traces."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from opgraph.record.loading import load
from opgraph.record.profile import ProfileRecord
from opgraph.traces import join, read

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory):
    known: dict[str, ProfileRecord] = {}

    def of(name: str) -> ProfileRecord:
        if name not in known:
            path = tmp_path_factory.mktemp("graphs") / f"{name}.json"
            path.write_bytes(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
            known[name] = load(path)
        return known[name]

    return of


@pytest.mark.parametrize(
    ("model", "device", "kernels", "aligned"),
    [
        ("bert", "h100", 309.437, 1.0),
        ("bert", "mi300", 390.748, 1.0),
        ("vit", "h100", 1225.31, 1.0),
        ("vit", "mi300", 1716.301, 1.0),
        ("qwen", "h100", 31905.473, 0.9998),
        ("qwen", "mi300", 29743.938, 0.9998),
    ],
)
def test_kernels_of_others_stand_on_nodes(profile, model, device, kernels, aligned):
    run = join(profile(model).graph, read(DATA / "tracelens" / f"{model}-{device}.json.gz"))
    assert run.steps == run.ranks == 1
    assert run.work * 1e6 == pytest.approx(kernels, abs=0.01)
    assert run.attributed > 0.99
    strict = sum(e.seconds for e in run.events if run.works(e) and e.link == "alignment")
    assert strict / run.work >= aligned
