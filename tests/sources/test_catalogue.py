"""Every model of the catalogue is built from its entry, without its weights, and has exactly the number
of parameters that its publisher gives."""

from __future__ import annotations

from collections import Counter

import pytest

from opgraph.sources import catalogue, resolve
from opgraph.sources.catalogue import Entry

PREFIX = {"transformers": "hf", "diffusers": "diffusers"}

ENTRIES = catalogue.entries().values()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_builds_the_published_model(entry: Entry) -> None:
    module = resolve(f"{PREFIX[entry.library]}:{entry.name}").module

    assert all(parameter.is_meta for parameter in module.parameters())
    assert sum(parameter.numel() for parameter in module.parameters()) == entry.parameters


def test_names_and_aliases_are_unique_even_in_lower_case() -> None:
    names = Counter(name.lower() for e in ENTRIES for name in (e.name, *e.aliases))

    assert [name for name, times in names.items() if times > 1] == []


def test_every_entry_says_where_its_configuration_stands() -> None:
    assert all(entry.source.startswith("https://") for entry in ENTRIES)


@pytest.mark.slow
def test_building_twice_from_one_entry_gives_the_same_model() -> None:
    first, second = (resolve("hf:google/gemma-3-4b-pt") for _ in range(2))

    assert first.config.to_dict() == second.config.to_dict()


def test_a_parameter_that_the_checkpoint_holds_apart_is_not_tied() -> None:
    module = resolve("hf:google/flan-t5-small").module

    assert module.lm_head.weight is not module.shared.weight


def test_a_value_that_toml_cannot_say_is_unset() -> None:
    assert resolve("hf:mistralai/Mistral-7B-v0.3").config.sliding_window is None
    assert resolve("hf:mistralai/Mistral-7B-v0.1").config.sliding_window == 4096


@pytest.mark.slow
def test_building_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    resolve("diffusers:vae/sd-1.5")
    resolve("hf:google/siglip-base-patch16-224")

    assert capfd.readouterr() == ("", "")
