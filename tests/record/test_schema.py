"""Profiles as files: what is saved is what is loaded, and what is broken is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opgraph
from opgraph.record.errors import ProfileError
from opgraph.record.verify import verify


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("name", ["resnet18", "bert", "gpt2", "yolov8n"])
def test_json_round_trips_byte_for_byte(name, request, tmp_path):
    profile = request.getfixturevalue(name)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    profile.save(first)
    loaded = opgraph.load(first)
    loaded.save(second)
    assert loaded == profile
    assert first.read_bytes() == second.read_bytes()
    verify(loaded.graph)


def broken(change):
    def make(profile):
        data = json.loads(profile.to_json())
        change(data)
        return data

    return make


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "not an opgraph profile"),
        (lambda d: d.update(schema_version=99), "schema version 99"),
        (lambda d: d.update(schema_version="1"), "no schema version"),
        (lambda d: d.pop("graph"), "broken"),
        (lambda d: d["graph"]["nodes"][3].update(id="3"), "nodes\\[3\\]"),
        (lambda d: d["graph"]["nodes"][3].update(colour="red"), "unknown field"),
        (lambda d: d["graph"]["nodes"][3].update(inputs=[99999]), "does not exist"),
        (lambda d: d["graph"]["nodes"][3].update(kernels=[99999]), "a kernel that is not there"),
        (
            lambda d: d["graph"]["nodes"][3].update(inputs=d["graph"]["nodes"][50]["outputs"]),
            "before it is made",
        ),
        (lambda d: d["graph"]["nodes"][3].update(scope="nowhere"), "does not exist"),
        (lambda d: d["graph"]["kernels"][0].update(flops=-1), "negative or out of range"),
        (lambda d: d["graph"]["kernels"][0].update(flops=10**30), "negative or out of range"),
        (lambda d: d["graph"]["values"][5].update(bytes=10**30), "out of range"),
        (lambda d: d["graph"]["values"][5].update(shape=[-1]), "values\\[5\\].shape"),
        (lambda d: d["graph"]["values"][5].update(shape=[10**30]), "values\\[5\\].shape"),
        (lambda d: d["graph"]["parameters"][0].update(numel=-1), "parameter"),
        (lambda d: d["graph"]["storages"][0].__setitem__(0, -4), "the storage 0 has a size"),
        (lambda d: d["tracing"][0].update(seconds=1e300), "seconds"),
        (lambda d: d.update(tracing=[]), "tracing"),
        (lambda d: d["graph"]["values"][5].update(alias_of=5), "not before it"),
        (lambda d: d["graph"]["scopes"][2].update(path="a.b"), "no parent|does not exist"),
        (lambda d: d["graph"].update(storages=[[1, 2]]), "storages\\[0\\]"),
        (
            lambda d: d["graph"].update(nodes={}),
            "Expected `array`, got `object` - at `\\$.graph.nodes`",
        ),
    ],
)
def test_broken_profiles_are_refused(change, message, saved, tmp_path):
    data = json.loads(saved("resnet18").to_json())
    change(data)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    with pytest.raises(opgraph.ProfileError, match=message):
        opgraph.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", '{"format": NaN}', "[" * 100_000])
def test_files_that_are_no_profiles_are_refused(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(opgraph.ProfileError):
        opgraph.load(path)


@pytest.mark.parametrize("name", ["nowhere.json", "no\0where.json", "n" * 5000, "."])
def test_a_file_that_is_not_there(name):
    with pytest.raises(opgraph.ProfileError, match="cannot read"):
        opgraph.load(name)


def test_the_configuration_of_a_model_is_named_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "bert"}')
    with pytest.raises(ProfileError, match="not an opgraph profile") as caught:
        opgraph.load(path)
    assert (caught.value.hint or "").endswith(f"named by its folder: {tmp_path}")
