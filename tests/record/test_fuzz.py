"""Profiles that were damaged in any way are refused with one clear error, or are still profiles."""

from __future__ import annotations

import json
import os
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import DATA

import opgraph
from opgraph import Profile
from opgraph.record.verify import verify

CASES = int(os.environ.get("OPGRAPH_EXAMPLES", "300"))
"""How many damages are tried; the benchmark tries 10,000."""

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([-1, 2**64, 10**30, 1e308, "", "\x1b[31m", "</script>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@cache
def sound() -> str:
    return (DATA / "resnet18.json").read_text()


class Damaged:
    """A profile in which one value, somewhere, is something else, or is gone."""

    def __init__(self) -> None:
        self.data = json.loads(sound())
        self.damage = ""

    def __repr__(self) -> str:
        return self.damage


@st.composite
def damaged(draw) -> Damaged:
    result = Damaged()
    here = result.data
    path = ""
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = draw(st.sampled_from(keys))
        below = here[key]
        path += f"[{key!r}]"
        if isinstance(below, (dict, list)) and below and draw(st.integers(0, 5)):
            here = below
            continue
        if draw(st.booleans()):
            here[key] = draw(anything)
            result.damage = f"{path} = {here[key]!r}"
        else:
            del here[key]
            result.damage = f"del {path}"
        return result


@pytest.mark.slow
@settings(max_examples=CASES, deadline=None)
@given(damaged())
def test_damaged_data(case):
    try:
        profile = Profile.from_dict(case.data)
    except opgraph.ProfileError:
        return
    verify(profile.graph)
    str(profile)


@pytest.mark.slow
@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=0, max_size=4), st.booleans())
def test_damaged_bytes(tmp_path_factory, position, insert, cut):
    content = sound().encode()
    position %= len(content)
    damaged = content[:position] + insert + (b"" if cut else content[position + 1 :])
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damaged)
    try:
        profile = opgraph.load(path)
    except opgraph.ProfileError:
        return
    verify(profile.graph)
    str(profile)
