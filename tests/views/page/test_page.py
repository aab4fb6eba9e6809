"""The page in a real browser, as a person uses it. The pictures it keeps are there to be looked at."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import opgraph
from opgraph import Profile
from opgraph.analysis.memory import memory
from opgraph.analysis.selection import heaviest_path
from opgraph.analysis.timing.prediction import predict
from opgraph.analysis.tree import build_tree
from opgraph.hardware import device
from opgraph.record import units
from opgraph.views import render
from opgraph.views.headline import headline

Browse = Callable[..., Any]
Saved = Callable[[str], Profile]
MODELS = ("resnet18", "bert-base-uncased", "yolov8n", "gpt2")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens(saved: Saved, browse: Browse, name: str, scheme: str) -> None:
    page = browse(saved(name), name, color_scheme=scheme)
    assert page.page.title() == saved(name).model.name
    assert page.run("return app.scene.boxes.length") > 4
    assert page.run("return app.dark") is (scheme == "dark")
    page.keep(scheme)


def test_a_click_opens_and_a_second_opens_all_beneath(saved: Saved, browse: Browse) -> None:
    page = browse(saved("resnet18"), "resnet18")
    page.run("await app.openAll(false); app.fit();")
    x, y = page.where("layer2")
    page.page.mouse.click(x, y)
    page.page.wait_for_timeout(500)
    page.settle()
    assert set(page.paths()) >= {"layer2.0", "layer2.1"}
    assert "layer2.0.conv1" not in page.paths()
    assert page.page.locator(".panel h2").inner_text() == "layer2"
    # What was clicked has not moved: its header is where the card was.
    assert page.where("layer2", header=True)[1] == pytest.approx(y, abs=30)
    page.run("await app.openAll(false); app.fit();")
    page.page.mouse.dblclick(*page.where("layer2"))
    page.settle()
    assert {"layer2.0.conv1", "layer2.0.downsample.0", "layer2.1.bn2"} <= set(page.paths())


def test_everything_can_be_done_from_the_keyboard(saved: Saved, browse: Browse) -> None:
    page = browse(saved("resnet18"), "resnet18")
    press = page.page.keyboard.press
    press("c")
    page.settle()
    assert "layer1.0" not in page.paths()
    press("ArrowDown")
    assert page.run("return app.selected.label") == "x"
    for _ in range(5):
        press("ArrowDown")
    assert page.run("return app.selected.path") == "layer1"
    press("Enter")
    page.settle()
    press("ArrowRight")
    assert page.run("return app.selected.kind") == "fold"
    press("ArrowLeft")
    assert page.run("return app.selected.path") == "layer1"
    zoom = page.run("return app.camera.zoom")
    press("+")
    page.page.wait_for_timeout(400)
    assert page.run("return app.camera.zoom") > zoom
    press("f")
    assert page.run("return app.following")
    press("h")
    spots = build_tree(saved("resnet18").graph).hot_spots(10)
    assert page.run("return app.lit.reduce((a, b) => a + b)") == sum(s.nodes for s in spots)
    press("Escape")
    assert page.run("return app.lit") is None


def test_a_fold_shows_any_of_its_members(saved: Saved, browse: Browse) -> None:
    page = browse(saved("bert-base-uncased"), "bert-base-uncased")
    page.run("await app.select(app.scene.boxes.find(b => b.item.kind === 'fold').item)")
    page.page.get_by_role("button", name="Next").click()
    page.settle()
    assert "encoder.layer.1.attention" in page.paths()
    page.page.get_by_role("button", name="Show all 12").click()
    page.settle()
    assert {f"encoder.layer.{i}" for i in range(12)} <= set(page.paths())
    page.run("app.fit()")
    page.keep("unfolded")


def test_search_lights_and_steps(saved: Saved, browse: Browse) -> None:
    page = browse(saved("gpt2"), "gpt2")
    page.page.keyboard.press("/")  # as it opens: nothing has the focus
    page.page.keyboard.type("op:layer_norm")
    page.page.wait_for_timeout(300)
    found = [n for n in saved("gpt2").nodes if n.op == "layer_norm"]
    # Both norms of a block are drawn once for twelve, beside the last.
    assert page.page.locator(".hits").inner_text() == f"{len(found)} in 3 boxes"
    assert page.lit() == [n.id for n in found]
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Enter")
    page.page.wait_for_timeout(400)
    assert page.run("return app.selected.node + 1") == found[1].id
    assert page.page.locator(".hits").inner_text() == f"2 of {len(found)}"
    page.keep("search")


def test_the_filter_lights_what_passes(saved: Saved, browse: Browse) -> None:
    profile = saved("resnet18")
    page = browse(profile, "resnet18")
    page.page.get_by_role("button", name="Filter", exact=True).click()
    page.page.locator(".option", has_text="max_pool2d").click()
    assert page.lit() == [n.id for n in profile.nodes if n.op == "max_pool2d"]
    page.page.get_by_role("button", name="Clear the filter").click()
    assert page.lit() == []
    page.page.get_by_label("Least share").fill("63")
    page.page.get_by_label("Least share").dispatch_event("change")
    floor = 10 ** (-4 + 0.63 * 4) * profile.totals.flops
    assert page.lit() == [n.id for n in profile.nodes if n.flops >= floor]
    page.keep("filter")


def test_graph_and_table_are_in_step(saved: Saved, browse: Browse) -> None:
    page = browse(saved("resnet18"), "resnet18")
    page.run("await app.openAll(false)")
    page.page.locator(".row", has_text="layer4").first.click()
    page.settle()
    assert page.run("return app.selected.path") == "layer4"
    x, y = page.where("layer4", header=True)
    assert 0 < x < 1440
    assert 0 < y < 900
    page.run("await app.openAll(true, true)")
    page.page.mouse.click(*page.where("layer2.0.conv2"))
    page.settle()
    chosen = page.page.locator(".row.chosen")
    assert chosen.inner_text().startswith("conv2")
    assert chosen.is_visible()
    # Scrolling the table moves the graph; moving the graph scrolls the table.
    page.page.mouse.move(200, 500)
    before = page.run("return app.camera")
    page.page.mouse.wheel(0, 900)
    page.page.wait_for_timeout(300)
    assert page.run("return app.camera") != before
    top = page.run(
        "return document.querySelector('#opgraph').shadowRoot.querySelector('.table-body').scrollTop"
    )
    page.page.wait_for_timeout(700)
    page.run("app.setCamera({x: 0, y: 0, zoom: 1})")
    page.page.wait_for_timeout(400)
    assert (
        page.run(
            "return document.querySelector('#opgraph').shadowRoot.querySelector('.table-body').scrollTop"
        )
        < top
    )


def test_the_table_sorts_and_is_copied(saved: Saved, browse: Browse) -> None:
    profile = saved("resnet18")
    page = browse(profile, "resnet18")
    page.page.get_by_role("button", name="All nodes").click()
    page.page.locator(".table-head .cell", has_text="FLOPs").click()
    page.page.get_by_role("button", name="Copy as CSV").click()
    page.page.wait_for_timeout(200)
    text = page.run("return navigator.clipboard.readText()")
    rows = list(csv.DictReader(io.StringIO(text)))
    flops = [int(r["flops"]) for r in rows]
    assert flops == sorted((n.flops for n in profile.nodes), reverse=True)
    assert len(rows) == len(profile.nodes)


def test_colours_follow_the_choice(saved: Saved, browse: Browse) -> None:
    page = browse(saved("gpt2"), "gpt2")
    seen = set()
    choice = page.page.get_by_label("Colour by")
    for mode in page.run("return app.modes().map(m => m[0])"):
        choice.select_option(mode)
        page.settle()
        if mode == "time":
            page.page.get_by_label("Device").select_option("h100-sxm")
        legend = page.page.locator(".legend").inner_text()
        assert legend
        seen.add(
            page.run(
                "return document.querySelector('#opgraph').shadowRoot"
                ".querySelector('canvas.graph').toDataURL()"
            )
        )
        page.keep(f"by-{mode}")
    assert len(seen) == 8


def test_a_ramp_follows_the_share_that_is_written_beside_it(saved: Saved, browse: Browse) -> None:
    costed = saved("bert-base-uncased").on("rtx-4090")
    page = browse(str(render("html", costed)), "ramp", color_scheme="dark")
    closed = page.run(
        """app.setMode('time');
        return app.scene.boxes.filter(b => !b.layout)
          .map(b => [app.colours.share(b.item), app.colours.look(b.item).colour])"""
    )
    assert len({colour for _, colour in closed}) > 4
    # In the dark a ramp grows lighter; one of twelve layers is open, so one takes a twelfth of its share.
    light = [sum(bytes.fromhex(colour[1:])) for _, colour in sorted(closed)]
    assert light == sorted(light)
    assert costed.prediction is not None
    said = page.page.locator(".dock .legend").inner_text()
    assert units.seconds(max(closed)[0] * costed.prediction.device_seconds) in said


@pytest.mark.parametrize("name", ["h100-sxm", "rtx-4090", "epyc-9654"])
def test_the_device_is_chosen_in_the_page(saved: Saved, browse: Browse, name: str) -> None:
    profile = saved("yolov8n")
    page = browse(profile, "yolov8n")
    page.page.get_by_label("Device").select_option(name)
    machine = device(name)
    expected = predict(profile.graph, machine)
    total = page.run("return app.costs.total('time')")
    assert total == pytest.approx(expected.device_seconds, rel=1e-8)
    assert page.run("return app.device.seconds") == pytest.approx(expected.seconds)
    times = page.run("return app.model.graph.nodes.map((_, n) => app.costs.node('time', n))")
    assert times == pytest.approx([expected.by_node.get(n.id, 0) for n in profile.nodes], abs=1e-12)
    assert page.run("return app.costs.ridge") == pytest.approx(machine.ridge_point("float32"))
    weights = [expected.by_node.get(n.id, 0) for n in profile.graph.nodes]
    heaviest = heaviest_path([profile.graph.reads(n) for n in profile.graph.nodes], weights)
    assert page.run("return app.costliestPath().map((n) => n + 1)") == heaviest
    assert machine.name in page.page.locator(".panel").inner_text()


def test_sizes_follow_the_formulas(saved: Saved, browse: Browse) -> None:
    profile = saved("resnet18-formulas")
    formulas = profile.formulas
    assert formulas is not None
    page = browse(profile, "sizes")
    page.page.get_by_role("button", name="Sizes").click()
    said = page.page.get_by_role("button", name="B = 8 ")
    said.click()
    expected = formulas.at(B=8)
    assert expected["flops"] is not None
    assert units.flops(expected["flops"]) in said.inner_text()
    measures = page.run("return ['flops', 'otherFlops', 'bytes'].map(m => app.costs.total(m))")
    assert measures == pytest.approx([expected[q] for q in ("flops", "other_flops", "bytes")])
    layer = page.run(
        "return app.costs.item('flops', app.tree.items.find(i => i.path === 'layer3'))"
    )
    assert layer == pytest.approx(formulas.modules["layer3"]["flops"](formulas.point(B=8)))
    page.keep("light")
    page.page.get_by_role("button", name="As profiled").click()
    assert page.run("return app.costs.total('flops')") == profile.totals.flops


def test_the_peak_lights_what_is_alive_then(saved: Saved, browse: Browse) -> None:
    profile = saved("resnet18")
    page = browse(profile, "resnet18")
    page.page.get_by_role("button", name="Memory", exact=True).click()
    page.page.get_by_role("button", name="Go to the peak").click()
    expected = memory(profile.graph)
    assert page.run("return [app.memory.peak, app.memory.peakAt]") == [
        expected.peak,
        expected.peak_kernel,
    ]
    assert page.run("return Array.from(app.memory.live)") == list(expected.live)
    at = expected.peak_kernel
    assert at is not None
    alive = {
        s.node
        for s in profile.graph.storages
        if s.bytes and s.node and s.born <= at and (s.died is None or at < s.died)
    }
    assert page.lit() == sorted(alive)
    page.keep("peak")
    box = page.page.locator("canvas.plot").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.page.wait_for_timeout(100)
    assert "live" in page.page.locator(".plot-box .tip").inner_text()


PLOTTED = """const P = CanvasRenderingContext2D.prototype, before = P.fillText, texts = [];
P.fillText = function (text, x, y) {
  const w = this.measureText(text).width, align = {left: 0, right: 1, center: 0.5}[this.textAlign];
  if (this.canvas.className === 'plot') texts.push({text, x: x - align * w, y: y - 9, w, h: 9});
  return before.apply(this, arguments);
};
app.emit('look');
await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);
P.fillText = before;
const {clientWidth: width, clientHeight: height} =
  document.querySelector('#opgraph').shadowRoot.querySelector('.plot-box');
const over = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
const wrong = texts.filter(t => t.x < 0 || t.y < 0 || t.x + t.w > width || t.y + t.h > height)
  .map(t => t.text);
texts.forEach((a, i) => texts.slice(i + 1).forEach(b => over(a, b) && wrong.push([a.text, b.text])));
return [texts.map(t => t.text), wrong];"""
"""The texts of a chart, and those of them that are cut or lie on one another."""


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
@pytest.mark.parametrize(
    ("name", "costly"), [("gpt2", "mlp.c_fc"), ("yolov8n", "conv"), ("bert-base-uncased", "query")]
)
def test_names_in_the_roofline_lie_on_nothing(
    saved: Saved, browse: Browse, name: str, costly: str, size: tuple[int, int]
) -> None:
    page = browse(saved(name), name, "#device=h100-sxm", size=size)
    page.page.get_by_role("button", name="Roofline").click()
    texts, wrong = page.run(PLOTTED)
    assert wrong == []
    assert any(text.endswith(costly.rpartition(".")[2]) for text in texts)
    assert "FLOPs per byte" in texts


def test_a_click_in_the_roofline_chooses_a_subgraph(saved: Saved, browse: Browse) -> None:
    page = browse(saved("resnet18"), "resnet18", "#device=a10")
    page.page.get_by_role("button", name="Roofline").click()
    page.page.wait_for_timeout(300)
    # A dot is where the chart has a colour.
    x, y = page.run(
        """const c = document.querySelector('#opgraph').shadowRoot.querySelector('canvas.plot');
        const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const coloured = i => p[i + 3] > 100 &&
          Math.max(p[i], p[i + 1], p[i + 2]) - Math.min(p[i], p[i + 1], p[i + 2]) > 90;
        const at = p.findIndex((_, i) => i % 4 === 0 && coloured(i)) / 4, r = c.getBoundingClientRect();
        return [r.left + at % c.width, r.top + Math.floor(at / c.width) + 2];"""
    )
    page.page.mouse.click(x, y)
    page.settle()
    assert page.run("return app.selected.node") >= 0
    assert "Fused subgraph" in page.page.locator(".panel").inner_text()
    page.keep("roofline")


PIXELS = """const c = document.querySelector('#opgraph').shadowRoot.querySelector('canvas.graph');
const frame = () => new Promise(requestAnimationFrame);
const pixels = async () => {
  await frame(); await frame();
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');
  copy.drawImage(c, 0, 0);
  return copy.getImageData(0, 0, c.width, c.height).data;
};"""


def test_the_timeline_has_what_is_predicted_beside_what_was_measured(
    saved: Saved, browse: Browse
) -> None:
    costed = saved("resnet18-run").on("rtx-4090")
    page = browse(str(render("html", costed)), "timeline")
    assert page.page.locator(".sentence").inner_text() == headline(costed)[0]
    assert page.run("return app.colours.mode") == "measured"
    page.page.get_by_role("button", name="Timeline", exact=True).click()
    page.settle()
    prediction, chart = costed.prediction, page.page.locator(".plot-box")
    assert prediction is not None

    def at(share: float, y: float) -> str:
        """What the note says at a share of the longest lane, `y` pixels below the chart's rim."""
        box = chart.bounding_box()
        page.page.mouse.move(box["x"] + 84 + share * (box["width"] - 102), box["y"] + y)
        page.settle()
        return str(chart.locator(".tip").inner_text())

    assert "predicted" in at(0.0001, 40)
    assert "host" in at(0.0001, 40)
    said = at(0.1, 170)
    assert said.startswith("maxpool")
    assert "thread 0, measured" in said
    page.page.mouse.down()
    page.page.mouse.up()
    assert page.run("return app.selected.path") == "maxpool"
    page.keep("dock")
    page.page.get_by_label("Device").select_option("")
    assert at(0.1, 40).startswith("maxpool")


@pytest.mark.parametrize("zoom", [0.3, 1.3])
def test_what_is_drawn_while_panning_is_what_is_drawn_at_once(
    saved: Saved, browse: Browse, zoom: float
) -> None:
    page = browse(saved("resnet18"), "resnet18")
    differing = page.run(
        f"""{PIXELS}
        await app.openAll(true);
        await app.select(app.tree.leaf[9]);
        const {{ w, h }} = app.scene.root;
        app.setCamera({{x: w / 3, y: h / 3, zoom: {zoom}}});
        for (let i = 0; i < 12; i++) {{
          await frame();
          app.setCamera({{...app.camera, x: app.camera.x + 161.37 * Math.cos(i / 3),
            y: app.camera.y + 141.9 * Math.sin(i / 2)}});
        }}
        const panned = await pixels();
        app.emit('look');
        const fresh = await pixels();
        let differing = 0;
        panned.forEach((v, i) => differing += Math.abs(v - fresh[i]) > 64 ? 1 : 0);
        return differing;"""
    )
    assert differing == 0


def test_the_address_holds_the_view(saved: Saved, browse: Browse) -> None:
    profile = saved("bert-base-uncased")
    page = browse(profile, "bert-base-uncased")
    page.run(
        """await app.select(app.tree.items.find(i => i.path === 'encoder.layer.3.output.dense'), true);
        app.setMode('operator'); app.setDevice('a10'); app.setTheme('dark'); app.search('dense');
        app.setDock('memory'); app.setCamera({x: 10, y: 20, zoom: 0.5});"""
    )
    page.page.wait_for_timeout(600)
    state = """return [app.selected.path, app.colours.mode, app.device.id, app.dark, app.query, app.dock,
        app.camera, [...app.view.open].sort(), [...app.view.shown], app.scene.boxes.length]"""
    fragment = page.run("return location.hash")
    again = browse(profile, "again", fragment)
    again.page.wait_for_timeout(300)
    assert again.run(state) == page.run(state)
    # Going back to a bare address is going back to the beginning.
    again.run("location.hash = ''")
    again.page.wait_for_timeout(500)
    assert again.run("return [app.selected, app.colours.mode, app.device]") == [
        None,
        "bottleneck",
        None,
    ]


@pytest.mark.parametrize(
    "fragment",
    [
        "open=zzzz*zzzzzz&item=99999&at=a~b~c&device=x&colour=y&least=flops~-1&moment=1e9&shown=1.9_x",
        "item=__proto__&colour=constructor&device=toString&sizes=1~2~3&find=%00%ff&all=1.1*zzzzzz",
        "at=1e308~-1e308~1e9",
    ],
)
def test_a_fragment_that_makes_no_sense_does_no_harm(
    saved: Saved, browse: Browse, fragment: str
) -> None:
    page = browse(saved("resnet18"), "resnet18", f"#{fragment}")
    assert page.run("return app.scene.boxes.length") > 0
    # And something of the graph is in sight.
    x, y, width, height = page.run(
        """const {x, y, zoom} = app.camera;
        return [x, y, app.size.width / zoom, app.size.height / zoom];"""
    )
    right, bottom = page.run("return [app.scene.bounds.w, app.scene.bounds.h]")
    assert max(0, x) < min(right, x + width)
    assert max(0, y) < min(bottom, y + height)


def test_pictures_are_exported(saved: Saved, browse: Browse, tmp_path: Any) -> None:
    page = browse(saved("resnet18"), "resnet18")
    signatures = {"SVG": b"<svg", "PNG": b"\x89PNG"}
    for form, what in product(signatures, ("what is seen", "the whole graph")):
        signature = signatures[form]
        _, content = page.export(form, what, tmp_path)
        assert content.startswith(signature)
        if signature == b"<svg":
            root = ET.fromstring(content.decode())
            texts = {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}
            assert {"layer2", "conv1"} <= texts
        else:
            assert len(content) > 20_000


def test_a_difference_is_shown(saved: Saved, browse: Browse, resnet18: Profile) -> None:
    from opgraph.views import render

    larger = opgraph.profile("resnet34")
    page = browse(str(render("html", larger.on(), against=resnet18.on())), "difference")
    changes = page.run("return app.model.graph.nodes.map((n, i) => app.difference.change(i))")
    assert changes.count("added") == len(larger.nodes) - len(resnet18.nodes)
    assert set(changes) == {"added", "same"}
    more = "app.difference.more('flops', i)"
    folds = page.run("return app.tree.items.filter(i => i.kind === 'fold').map(i => "
                     f"[{more}, i.children.map(i => {more})])")  # fmt: skip
    assert any(all_of for all_of, _ in folds)
    assert all({all_of} == {*each} for all_of, each in folds)
    assert "Against resnet18" in page.page.locator(".panel").inner_text()
    page.keep("light")


def test_what_is_gone_is_drawn_where_it_stood(
    browse: Browse, resnet18: Profile, tmp_path: Path
) -> None:
    from opgraph.views import render

    larger = opgraph.profile("resnet34")
    page = browse(str(render("html", resnet18.on(), against=larger.on())), "removed")
    gone = page.run("return app.model.graph.nodes.filter(n => n.removed).map(n => n.id)")
    assert len(gone) == len(larger.nodes) - len(resnet18.nodes)
    # It is beside what is, not part of it: neither the figures nor the numbers of nodes change.
    assert page.run("return app.costs.total('flops')") == resnet18.totals.flops
    assert page.run("return app.model.graph.own") == len(resnet18.nodes)
    page.page.get_by_label("Device").select_option("a10")
    expected = predict(resnet18.graph, device("a10")).device_seconds
    assert page.run("return app.costs.total('time')") == pytest.approx(expected, rel=1e-8)
    conv = next(n for n in resnet18.nodes if n.name == "layer4.0.conv1")
    page.run("await app.select(app.tree.items.find(i => i.path === 'layer4.0.conv1'), true)")
    assert f"node {conv.id}\n" in page.page.locator(".panel").inner_text()
    # From the list in the panel to the picture.
    page.run("await app.select(null)")
    page.page.get_by_role("button", name="− layer3.2.conv1").click()
    page.settle()
    assert page.run("return app.model.graph.nodes[app.selected.node].removed")
    # In its block: the way in to two nodes, a chain of seven, and the way out.
    assert page.run("return app.box(app.selected).parent.edges.length") == 2 + 6 + 1
    removed = next(n.id for n in larger.nodes if n.name == "layer3.2.conv1")
    assert f"removed: node {removed} of resnet34" in page.page.locator(".panel").inner_text()
    assert page.page.locator(".legend-entry", has_text="removed").is_visible()
    page.keep("light")
    _, picture = page.export("SVG", "the whole graph", tmp_path)
    assert b"stroke-dasharray" in picture


def test_a_phone_shows_the_graph_first(saved: Saved, browse: Browse) -> None:
    page = browse(saved("bert-base-uncased"), "phone", size=(390, 780))
    page.page.wait_for_timeout(300)
    assert not page.page.locator(".panel").is_visible()
    assert page.page.locator("canvas.graph").bounding_box()["height"] > 400
    page.keep("graph")
    page.page.get_by_role("button", name="Details").click()
    assert page.page.locator(".panel").is_visible()
    page.keep("panel")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
