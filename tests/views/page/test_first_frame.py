"""What is seen before anything is clicked, and from afar: letters that can be read and lie on nothing,
boxes that stand apart, shares of the cost, the whole of what is cut under the pointer, and the sentence
that `profile` ends with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.views.conftest import TRACED
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.views.headline import headline

Shown = Callable[[str], Profile]
Browse = Callable[..., Any]

pytestmark = pytest.mark.slow

SIZES = ((1440, 900), (1920, 1080), (390, 844))
MODELS = (
    "resnet18", "bert-base-uncased", "gpt2", "yolov8n", *TRACED,
)  # fmt: skip

LARGE = ("gpt2", "resnet18")
"""Compared with Model Explorer, whose first frame has letters of 17 pixels."""

DRAWN = """const P = CanvasRenderingContext2D.prototype, before = [P.fillText, P.stroke];
const texts = [], lines = [];
const frame = () => new Promise(requestAnimationFrame);
P.fillText = function (text, x, y) {
  if (this.canvas.className === 'graph') {
    const m = this.getTransform(), px = Number(this.font.match(/([\\d.]+)px/)[1]);
    const w = this.measureText(text).width, align = {left: 0, right: 1, center: 0.5}[this.textAlign];
    texts.push({text, px: px * m.a, x: (x - align * w) * m.a + m.e, y: (y - 0.75 * px) * m.d + m.f,
                w: w * m.a, h: 0.8 * px * m.d});
  }
  return before[0].apply(this, arguments);
};
P.stroke = function (path) {
  if (path instanceof Path2D && this.canvas.className === 'graph') lines.push([path, this.getTransform()]);
  return before[1].apply(this, arguments);
};
app.emit('look'); await frame(); await frame();
[P.fillText, P.stroke] = before;
const c = app.camera;
const on = b => ({x: (b.x - c.x) * c.zoom, y: (b.y - c.y) * c.zoom, w: b.w * c.zoom, h: b.h * c.zoom});
const meet = (a, la, b, lb) => a + 0.5 < b + lb && b + 0.5 < a + la;
const over = (a, b) => meet(a.x, a.w, b.x, b.w) && meet(a.y, a.h, b.y, b.h);
"""
"""Every text that the graph is drawn with, in pixels of the screen, and the edges."""

SMALLEST = f"{DRAWN} return Math.min(...texts.filter(t => t.text).map(t => t.px));"

LARGEST = SMALLEST.replace("Math.min", "Math.max")

COLLISIONS = f"""{DRAWN}
const found = [];
texts.forEach((a, i) => texts.slice(i + 1).forEach(b => over(a, b) && found.push([a.text, b.text])));
const closed = app.scene.boxes.filter(b => !b.layout).map(on);
const ctx = new OffscreenCanvas(1, 1).getContext('2d');
for (const t of texts) {{
  const inside = closed.some(b => over(b, t) && b.y < t.y && t.y + t.h < b.y + b.h);
  if (inside || !/^(scalar|\\d+(×\\d+)*)$/.test(t.text)) continue;
  if (closed.some(b => over(b, t))) found.push([t.text, 'a box']);
  for (const [path, m] of lines) {{
    ctx.setTransform(m);
    ctx.lineWidth = 1 / m.a;
    for (let k = 0; k <= 40; k++) for (const y of [t.y, t.y + t.h / 2, t.y + t.h])
      if (ctx.isPointInStroke(path, t.x + t.w * k / 40, y)) found.push([t.text, 'an edge']);
  }}
}}
app.scene.boxes.forEach((a, i) => app.scene.boxes.slice(i + 1).forEach(b => {{
  if (a.parent === b.parent && over(a, b)) found.push([a.item.label, b.item.label]);
}}));
return found;"""
"""Texts that lie on one another, shapes that lie on an edge or a box, and boxes on their neighbours."""

CUT = """const root = document.querySelector('#opgraph').shadowRoot;
return [...root.querySelectorAll('*')].filter(e => e.clientWidth && !e.children.length &&
    e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'hidden' &&
    !['INPUT', 'SELECT'].includes(e.tagName) && !e.closest('[title]')).map(e => e.textContent);"""
"""Texts beside the graph that are cut, and of which nothing says the whole."""


COVERED = f"""{DRAWN}
const root = document.querySelector('#opgraph').shadowRoot;
const [map, graph] = ['.minimap', 'canvas.graph'].map(c => root.querySelector(c).getBoundingClientRect());
const at = {{x: map.x - graph.x, y: map.y - graph.y, w: map.width, h: map.height}};
return app.scene.boxes.filter(b => map.width && over(on(b), at)).map(b => b.item.label)
  .concat(texts.filter(t => map.width && over(t, at)).map(t => t.text));"""
"""What the overview lies on."""

SHAPE = re.compile(r"\d+(×\d+)+")

ASIDE = f"""{DRAWN} return app.scene.boxes.filter(b => !b.layout).map(b => [b.item.label, on(b)])
  .filter(([, b]) => b.x < 0 || b.x + b.w > app.size.width).map(([label]) => label);"""
"""Boxes that are cut at the left or right."""


def _check(page: Any, profile: Profile, size: tuple[int, int]) -> None:
    page.page.set_viewport_size({"width": size[0], "height": size[1]})
    page.page.reload()
    page.page.wait_for_selector("#opgraph[data-ready]")
    large = size == SIZES[0] and profile.model.name in LARGE and profile.mode == "infer"
    assert page.run(SMALLEST) >= (14 if large else 9) - 1e-6
    if large:
        assert page.run(LARGEST) >= 17 - 1e-6
    assert page.run(COLLISIONS) == []
    assert page.run(CUT) == []
    assert page.run(COVERED) == []
    assert page.run(ASIDE) == []
    assert any(SHAPE.fullmatch(text) for text in page.run(f"{DRAWN} return texts.map(t => t.text)"))
    seen = page.run(
        f"{DRAWN} return app.scene.boxes.map(on)"
        ".filter(b => b.x >= 0 && b.y >= 0 && b.y + b.h <= app.size.height).length"
    )
    assert seen >= 4
    row = page.page.locator(".parts-row").first.locator("button")
    assert row.count() >= 2
    assert row.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1)") == []
    assert sum(page.run("return app.row().map(([, share]) => share)")) == pytest.approx(1, abs=1e-6)
    assert page.page.locator(".sentence").inner_text() == headline(profile.on())[0]


@pytest.mark.parametrize("name", MODELS)
def test_the_first_frame_can_be_read(shown: Shown, browse: Browse, name: str) -> None:
    profile = shown(name)
    page = browse(profile, name)
    # What is traced for this alone is seen at one size here, and at all in docs/gallery.md.
    for size in SIZES[:1] if name in TRACED else SIZES:
        _check(page, profile, size)
    page.page.get_by_label("Device").select_option("h100-sxm", force=True)
    page.settle()
    assert page.page.locator(".sentence").inner_text() == headline(profile.on("h100-sxm"))[0]


def test_a_training_step_opens_on_the_model_going_forward(browse: Browse) -> None:
    profile = opgraph.profile("gpt2", mode="train")
    page = browse(profile, "gpt2-train")
    for size in SIZES:
        _check(page, profile, size)
        phases = "b => b.item.kind === 'phase'"
        assert page.run(
            f"return app.scene.boxes.filter({phases}).map(b => [b.item.label, !!b.layout])"
        ) == [["forward", True], ["backward", False], ["optimizer", False]]
        # The block that takes most of it is open, too.
        assert "transformer.h.0.mlp" in page.paths()
        # The row consists of modules, not of their operators.
        assert not {"mm", "mm_1"} & {*page.page.locator(".parts-row").first.inner_text().split()}


@pytest.mark.parametrize("name", ["gpt2", "openai/whisper-tiny"])
def test_no_name_stands_twice_in_the_row(browse: Browse, name: str) -> None:
    mode = "train" if name == "gpt2" else "infer"
    for size in (SIZES[0], SIZES[2]):
        page = browse(opgraph.profile(name, mode=mode), f"{mode}-row", size=size)
        for device in ("", "h100-sxm", "rtx-4090"):
            page.page.get_by_label("Device").select_option(device, force=True)
            page.settle()
            texts = page.page.locator(".parts-row").first.locator("button").all_inner_texts()
            named = [re.sub(r" [\d.]+ %$", "", t) for t in texts if t and "…" not in t]
            assert len(named) == len({*named}) > 0


def test_what_is_wider_than_a_telephone_begins_about_what_costs_most(browse: Browse) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branches = nn.ModuleList(nn.Linear(2**i, 8) for i in range(3, 7))

        def forward(self, *xs: torch.Tensor) -> torch.Tensor:
            return torch.cat([branch(x) for branch, x in zip(self.branches, xs, strict=True)])

    model, narrow = Branches(), (390, 844)
    inputs = [torch.randn(3, branch.in_features) for branch in model.branches]  # type: ignore[arg-type]
    for order in (1, -1):
        model.branches = model.branches[::order]
        page = browse(opgraph.profile(model, inputs=inputs[::order]), "branches", size=narrow)
        assert page.run("return app.scene.bounds.w * app.camera.zoom > app.size.width")
        x, _ = page.where(f"branches.{3 if order > 0 else 0}")
        half = page.run(
            "return app.scene.boxes.find(b => b.parent && !b.layout).w * app.camera.zoom / 2"
        )
        assert half <= x <= narrow[0] - half


def test_from_afar_boxes_say_their_name_in_letters_that_can_be_read(
    shown: Shown, browse: Browse
) -> None:
    page = browse(shown("llama-405b"), "llama-405b")
    page.run("await app.openAll(true, true); app.fit();")
    assert page.run("return app.camera.zoom") < 0.1
    said = page.run(f"{DRAWN} return texts.map(t => t.text)")
    assert {str(layer) for layer in range(126)} <= {*said}
    # Shown one by one, each layer has its own share, not that of all.
    layer = "app.tree.items.find(i => i.path === 'model.layers.7')"
    own, whole = page.run(
        f"return [app.colours.share({layer}), app.costs.share('flops', {layer}).share]"
    )
    assert own == pytest.approx(whole / 126)
    assert "0.8 %" in said
    for zoom in (None, 0.1, 0.3, 0.5, 0.8):
        if zoom:
            page.run(f"app.setCamera({{...app.camera, zoom: {zoom}}})")
        assert page.run(SMALLEST) >= 9 - 1e-6


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in (
            "自己注意機構の非常に長い名前を持つモジュール",
            "注意",
            "어텐션층입니다",
            "انتباه",
        ):
            self.add_module(name, nn.Sequential(nn.Linear(64, 64), nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, part in enumerate(self.children()):
            x = x + part(x) * i
        return x


def test_names_in_any_script_have_the_room_that_they_take(browse: Browse) -> None:
    profile = opgraph.profile(Named(), torch.ones(2, 64))
    page = browse(profile, "named")
    for size in SIZES:
        _check(page, profile, size)
        assert (
            "注意" in page.page.locator(".parts-row").first.locator("button").all_inner_texts()[1]
        )


class Passing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_forward_that_does_no_work_says_so(browse: Browse) -> None:
    profile = opgraph.profile(Passing(), torch.ones(1, 3))
    page = browse(profile, "passing")
    for device in ("", "h100-sxm"):
        page.page.get_by_label("Device").select_option(device)
        page.settle()
        said = page.page.locator(".sentence").inner_text()
        assert said == headline(profile.on())[0]
    assert "does no work" in said
    panel = page.page.locator(".panel").inner_text()
    assert "Hot spots" not in panel
    assert [b["label"] for b in page.run("return app.scene.boxes.map(b => b.item)")] == [
        "x",
        "output",
    ]


def test_what_is_cut_is_whole_under_the_pointer(shown: Shown, browse: Browse) -> None:
    page = browse(shown("yolov8n"), "yolov8n")
    page.page.mouse.move(*page.where("model.4"))
    page.page.wait_for_timeout(400)
    said = page.page.locator(".hover").inner_text().replace("\u00a0", " ")
    for what in (
        "model.4",
        "C2f",
        "1×64×80×80",
        "629.15 MFLOPs",
        "7.2 %",
        "of the FLOPs",
        "FLOPs/byte",
    ):
        assert what in said
    page.run("await app.toggle(app.scene.boxes.find(b => b.item.path === 'model.0'))")
    page.page.mouse.move(*page.where("model.0.conv"))
    page.page.wait_for_timeout(400)
    assert "conv.py:" in page.page.locator(".hover").inner_text()


GATED = '''
from torch import nn

class Gated(nn.Module):
    """Whose way depends on what comes in."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.light, self.heavy = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3)

    def forward(self, x):
        x = self.stem(x)
        return self.heavy(x) if x.mean() > -1 else self.light(x)
'''


def test_a_branch_that_data_took_is_marked(tmp_path: Path, browse: Browse) -> None:
    (tmp_path / "gated.py").write_text(GATED)
    profile = opgraph.profile(f"{tmp_path / 'gated.py'}:Gated", input_shape=(1, 3, 16, 16))
    page = browse(profile, "gated")
    assert "branch taken: True" in page.run(f"{DRAWN} return texts.map(t => t.text)")
    for size in SIZES:
        _check(page, profile, size)


def test_a_residual_says_so_on_its_line_and_beside_a_closed_block(
    shown: Shown, browse: Browse
) -> None:
    page = browse(shown("gpt2"), "gpt2-residuals")
    assert "residual" in page.run(f"{DRAWN} return texts.map(t => t.text)")
    assert "residual" in page.page.locator(".dock .legend").inner_text()
    page.run("await app.openAll(false)")
    x, y = page.where("h.0")
    page.page.mouse.move(x, y)
    page.page.wait_for_timeout(400)
    assert "2 residuals within" in page.page.locator(".hover").inner_text()
    small = browse(shown("gpt2"), "gpt2-small", size=(390, 844))
    assert "residual" in small.run(f"{DRAWN} return texts.map(t => t.text)")


def test_a_shortcut_with_a_frozen_normalization_is_a_residual(shown: Shown, browse: Browse) -> None:
    page = browse(shown("detr-resnet-50"), "detr-residuals")
    blocks = page.run(
        """return app.tree.items.filter(i => i.kind === 'module' && i.cls.endsWith('Bottleneck'))
        .map(i => app.view.residualsIn(i))"""
    )
    assert blocks == [1] * 16


def test_a_cache_is_one_cable(browse: Browse) -> None:
    profile = opgraph.profile("gpt2", mode="decode")
    page = browse(profile, "gpt2-decode")
    [group] = page.run(
        "return app.scene.root.children.filter(b => b.item.kind === 'group').map(b => b.item.cls)"
    )
    assert group == "24 inputs"
    page.run("await app.openAll(true, true); app.setCamera({x: 0, y: 0, zoom: 1})")
    ends = page.run(
        "return app.scene.boxes.concat(app.scene.root).map(b => b.edges.map(e => e.to + '.' + e.toPort))"
    )
    cables = [max(edges.count(e) for e in edges) for edges in ends if edges]
    assert max(cables) >= 12
