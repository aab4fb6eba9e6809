"""The full-screen explorer, driven by its keys and its mouse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("textual")

from textual._styles_cache import StylesCache
from textual.pilot import Pilot
from textual.widgets import HelpPanel, Static, Tree

from opgraph import Profile
from opgraph.tui.app import Explorer

Saved = Callable[[str], Profile]

SVG = "{http://www.w3.org/2000/svg}"
CELL = 12.2
"""The width of a character in Textual's pictures of a screen."""


def drive(
    profile: Profile,
    script: Callable[[Explorer, Pilot[None]], Awaitable[None]],
    size: tuple[int, int] = (150, 42),
    hardware: str | None = None,
) -> None:
    """Run the explorer without a terminal, and a script against it."""

    async def run() -> None:
        app = Explorer(profile.on(hardware))
        async with app.run_test(size=size) as pilot:
            for _ in range(100):  # until all is drawn, also on a machine that is busy
                await pilot.pause(0.1)
                if "quit" in app.export_screenshot():
                    break
            await script(app, pilot)

    # In a thread of its own: tests of browsers leave an event loop running in this one.
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, run()).result()
    finally:
        # It keeps all that was drawn, and each search of all objects goes through that.
        StylesCache.get_inner_outer.cache_clear()


def words(app: Explorer, name: str) -> str:
    return str(app.query_one(name, Static).render())


@pytest.mark.slow
def test_moving_shows_the_node_at_the_right(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        assert "1  input" in words(app, "#details")
        await pilot.press(*["down"] * 14)
        text = words(app, "#details")
        assert "15  linear" in text
        assert "modeling_bert.py:175" in text
        assert "590,592" in text
        assert "a contraction with its epilogue" in text
        assert "ends: the next, scaled_dot_product_attention #24, starts an attention" in text

    drive(saved("bert-base-uncased"), script)


@pytest.mark.slow
def test_search_narrows_and_escape_shows_everything(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"gelu", "enter")
        await pilot.pause()
        assert [r.op for r in app.shown] == ["gelu"] * 12
        assert "matching “gelu”" in words(app, "#state")
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.shown) == 318

    drive(saved("bert-base-uncased"), script)


@pytest.mark.slow
def test_sorting_by_any_cost(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        keys: list[tuple[str, Callable[[int], float]]] = [
            ("FLOPs", lambda i: app.shown[i].flops),
            ("bytes", lambda i: app.shown[i].bytes),
            ("parameters", lambda i: app.shown[i].elements),
            ("intensity", lambda i: app.shown[i].arithmetic_intensity or 0.0),
        ]
        for name, value in keys:
            await pilot.press("s")
            assert f"by {name}" in words(app, "#state")
            assert value(0) == max(value(i) for i in range(71))
        await pilot.press("s")
        assert [r.id for r in app.shown] == list(range(1, 72))

    drive(saved("resnet18"), script)


@pytest.mark.slow
def test_jumping_along_edges_and_back(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press(*["down"] * 17)
        assert app.current == 18
        for key, there in (("i", 17), ("i", 16), ("u", 17), ("b", 16), ("b", 17), ("b", 18)):
            await pilot.press(key)
            await pilot.pause()
            assert app.current == there

    drive(saved("resnet18"), script)


@pytest.mark.slow
def test_a_jump_out_of_the_list_widens_it(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"scaled", "enter")
        await pilot.press("i")
        await pilot.pause()
        assert app.current == 17
        assert len(app.shown) == 318

    drive(saved("bert-base-uncased"), script)


@pytest.mark.slow
def test_a_module_of_the_tree_narrows_the_list(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        tree = app.query_one("#modules", Tree)
        labels = [str(node.label) for node in tree.root.children]
        assert [label.split()[0] for label in labels][:3] == ["conv1", "bn1", "relu"]
        tree.focus()
        await pilot.press("down")
        await pilot.pause()
        assert [r.id for r in app.shown] == [2]
        await pilot.click("#modules", offset=(8, 5))
        await pilot.pause()
        assert app.module.path == "layer1"
        assert {r.module.split(".")[0] for r in app.shown} == {"layer1"}

    drive(saved("resnet18"), script)


@pytest.mark.slow
def test_folding_lists_repeated_blocks_once_or_one_by_one(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        def paths() -> list[str]:
            found: list[str] = []
            pending = [app.query_one("#modules", Tree).root]
            while pending:
                node = pending.pop()
                found.append(app.calls.title(app.calls.items[node.data]))
                pending += node.children
            return found

        assert "encoder.layer.[0-11]" in paths()
        await pilot.press("f")
        assert "encoder.layer.[0-11]" not in paths()
        assert "encoder.layer.7.attention" in paths()

    drive(saved("bert-base-uncased"), script)


@pytest.mark.slow
def test_colours_are_switched_and_named(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        for name in ("operator", "fusion", "bottleneck"):
            await pilot.press("c")
            assert f"coloured by {name}" in words(app, "#state")

    drive(saved("resnet18"), script)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_it_fits_any_terminal_and_shows_its_keys(saved: Saved, size: tuple[int, int]) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        picture = app.export_screenshot().replace("&#160;", " ")
        for text in ("resnet18", "search", "sort", "quit", "conv2d"):
            assert text in picture

    drive(saved("resnet18"), script, size)


@pytest.mark.slow
def test_a_hundred_columns_show_names_and_the_keys(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        # The details are below, and the list is as wide as its figures and the beginnings of names.
        assert app.query_one("#side").region.y > app.query_one("#nodes").region.y
        assert app.query_one("#nodes").region.width > 70
        await pilot.press("question_mark")
        await pilot.pause(0.2)
        assert app.screen.query(HelpPanel)
        await pilot.press("question_mark")
        await pilot.pause(0.2)
        assert not app.screen.query(HelpPanel)

    drive(saved("resnet18"), script, size=(100, 30))


def test_what_a_model_calls_itself_is_only_text(saved: Saved) -> None:
    from dataclasses import replace

    profile = saved("resnet18")
    nodes = tuple(replace(n, name=f"[bold]{n.name}\x1b[31m") for n in profile.graph.nodes)
    hostile = replace(profile, graph=replace(profile.graph, nodes=nodes))

    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("down")
        assert "[bold]" in words(app, "#details")
        assert "\x1b" not in words(app, "#details")

    drive(hostile, script)


@pytest.mark.slow
def test_on_a_device_there_are_times_to_sort_by(saved: Saved) -> None:
    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press(*["s"] * 5)
        assert "by time" in words(app, "#state")
        times = [row.seconds or 0.0 for row in app.shown]
        assert times == sorted(times, reverse=True)
        assert times[0] > 0
        await pilot.press("u")
        assert "predicted" in words(app, "#details")

    drive(saved("resnet18"), script, hardware="h100-sxm")


def characters(app: Explorer) -> str:
    """What stands on the screen, line by line, without colours."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for element in ET.fromstring(app.export_screenshot()).iter(f"{SVG}text"):
        if "clip-path" in element.attrib:
            at = lines.setdefault(float(element.attrib["y"]), [])
            at.append((float(element.attrib["x"]), element.text or ""))
    return "".join(_line(lines[y]) + "\n" for y in sorted(lines))


def _line(pieces: list[tuple[float, str]]) -> str:
    line = ""
    for x, text in sorted(pieces):
        line = line.ljust(round(x / CELL)) + text.replace("\xa0", " ")
    return line.rstrip()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
@pytest.mark.parametrize("model", ["resnet18", "bert-base-uncased"])
def test_the_screen_looks_like_its_golden(
    saved: Saved, golden: Callable[[str, str], None], model: str, size: tuple[int, int]
) -> None:
    screens: list[str] = []

    async def script(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "s", "c")
        await pilot.pause(0.3)
        screens.append(characters(app))

    drive(saved(model), script, size, hardware="h100-sxm")
    golden(screens[0], f"{model}-{size[0]}x{size[1]}.txt")
