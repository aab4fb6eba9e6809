"""What text views share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opgraph.views.terminal import Cut, fit, fit_tail

PATHS = ["model.4.m.[0-1].cv1.conv", "model.6.m.[0-1].cv1.conv", "model.22.cv2.0.conv"]


@pytest.mark.parametrize(
    ("path", "width", "cut"),
    [
        (PATHS[0], 24, PATHS[0]),
        (PATHS[0], 23, "….4.m.[0-1].cv1.conv"),
        (PATHS[0], 16, "model.4.….conv"),
        (PATHS[1], 16, "model.6.….conv"),
        (PATHS[2], 16, "….22.cv2.0.conv"),
        (PATHS[2], 10, "….0.conv"),
        (PATHS[0], 13, "….4.….conv"),
        (PATHS[0], 9, ""),
    ],
)
def test_a_path_is_cut_at_dots_as_no_other_one_could_be(path: str, width: int, cut: str) -> None:
    assert Cut(PATHS)(path, width) == cut


parts = st.sampled_from(["a", "b", "[0-1]", "conv", "attn itself"])
paths = st.lists(st.lists(parts, min_size=1, max_size=5).map(".".join), min_size=1, max_size=6)


@pytest.mark.slow
@given(paths, st.integers(1, 30))
def test_what_is_cut_tells_paths_apart_and_fits(paths: list[str], width: int) -> None:
    cut = Cut(paths)
    shown = {path: cut(path, width) for path in paths}
    said = [text for text in shown.values() if text]
    assert len(said) == len(set(said))
    assert all(len(text) <= width for text in said)
    for path, text in shown.items():
        head, tail = text.partition("…")[0], text.rpartition("…")[2]
        assert path.startswith(head)
        assert path.endswith(tail)
        assert text or width < cut.least
        assert len(fit_tail(path, width, cut)) == width


def test_what_has_no_dots_keeps_its_end() -> None:
    assert fit_tail("scaled_dot_product_attention", 12) == "…t_attention"


@pytest.mark.parametrize("width", [-4, 0])
def test_where_there_is_no_room_nothing_is_written(width: int) -> None:
    assert fit("x", width) == fit_tail("x", width) == fit_tail("model.layers.0", width) == ""
