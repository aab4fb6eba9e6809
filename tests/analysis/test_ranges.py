"""The numbers that run over repeats, written as ranges from the lowest to the highest."""

import pytest

from opgraph.analysis.calls import with_ranges


@pytest.mark.parametrize(
    ("first", "second", "last", "expected"),
    [
        ("h.0.mlp", "h.1.mlp", "h.11.mlp", "h.[0-11].mlp"),
        ("h.0.mlp", "h.6.mlp", "h.30.mlp", "h.[0-30:6].mlp"),
        ("h.11.mlp", "h.10.mlp", "h.0.mlp", "h.[0-11].mlp"),
        ("h.10.mlp", "h.8.mlp", "h.0.mlp", "h.[0-10:2].mlp"),
        ("alpha", "beta", "delta", "alpha … delta"),
        ("at.q_proj.0", "at.k_proj.0", "at.v_proj.0", "at.q_proj … v_proj.0"),
        ("layer1.1.conv1", "layer1.0.conv1", "layer1.0.conv1", "layer1.[0-1].conv1"),
    ],
)
def test_a_range_goes_up_whichever_way_its_members_run(
    first: str, second: str, last: str, expected: str
) -> None:
    assert with_ranges(first, [(second, last)]) == expected
