"""One model whose names, classes, docstrings and errors attack whatever shows them, through every view and
command: other programs read back what was meant, and nothing reaches a terminal but what can be read."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import unicodedata
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from tests.conftest import DATA
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.cli import main
from opgraph.views import render, views_of

PARTS = (
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b2J\x90q\x9c",
    "\u202e\u2066rtl\u2069\u200b",
    "two\nlines\r\x0b\x0c\x85\u2028\u2029",
    "half\ud83dsurrogate",
    "\x00\x08\x7f",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "<script>alert(1)</script>",
    "</script><!--<script>",
    "]]><x y='&amp;'>",
    "\"';--\\",
    "```\n| a | b |\n# h\n[x](javascript:alert(1)) ![i](http://e) <b> @user #1",
    "\\N\\G\\E\\l\\r {a|b} <f0>",
    "a end subgraph %%{init: {}}%% --> b; click a href",
    "$(id)`id`%n%s{0}",
    "\U000e0041\U000e0042",
)


def named(name: str) -> type[nn.Module]:
    """A module class with that name, and that text as its docstring."""

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    shown = (
        name.encode("utf-8", "replace").decode().replace("\0", "")
    )  # all that Python lets be a class
    return type(shown, (nn.Module,), {"forward": forward, "__doc__": shown, "__module__": shown})


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("".join(PARTS))


def build() -> nn.Module:
    model = nn.Sequential()
    for part in PARTS:
        model.add_module(part.replace(".", "·"), nn.Sequential(named(part)(), nn.Linear(4, 4)))
    model.add_module("raises", Raises())
    return model


@pytest.fixture(scope="module")
def hostile() -> Profile:
    return opgraph.profile(build(), torch.zeros(1, 4), partial=True)


@pytest.fixture(scope="module")
def file(hostile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.json"
    hostile.save(path)
    return path


def unreadable(text: str) -> list[str]:
    """What a terminal would act on, or a person would not see."""
    return [
        f"U+{ord(c):04X}"
        for c in text
        if c != "\n"
        and (unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp"))
    ]


def test_it_comes_back_from_json_as_it_was(hostile: Profile, file: Path) -> None:
    assert opgraph.load(file) == hostile
    assert not unreadable(file.read_text("utf-8"))


COMMANDS = (
    "profile {}", "profile {} --depth 9 --show-shapes -v", "profile {} --json", "profile {} --memory",
    "profile {} --partition fuse --hardware h100", "explore {}", "explore {} --json",
    "explore {} --start 1 --end 99", "explore {} --around 5", "explore {} --op mul",
    "compare {} {}", "compare {} {} --markdown", "compare {} {} --json", "compare {} RESNET",
    "compare RESNET {} --markdown", "compare RESNET {} --json",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_reaches_a_terminal_but_text(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resnet = DATA / "resnet18.json"
    words = command.format(file, file).replace("RESNET", str(resnet)).split()
    assert main(words) in (0, 1)
    captured = capsys.readouterr()
    assert captured.out
    assert not unreadable(captured.out)
    assert not unreadable(captured.err)
    assert all(len(line) < 10_000 for line in captured.err.splitlines())


@pytest.mark.slow
def test_complaints_are_one_clean_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in PARTS:
        if "\0" in word or "\ud83d" in word:
            continue
        for command in (["profile", word], ["explore", "x.json", "--op", word], [word],
                        ["compare", word, word], ["profile", "resnet18", "--hardware", word]):  # fmt: skip
            try:
                status = main([w if not w.startswith(("-", "+")) else f"x{w}" for w in command])
            except SystemExit as left:
                status = int(str(left.code))
            captured = capsys.readouterr()
            assert status == 2, command
            assert not unreadable(captured.out + captured.err), command
            lines = captured.err.splitlines()
            assert [line.partition(":")[0] for line in lines] in (["error"], ["error", "hint"])


@pytest.mark.slow
def test_the_views_of_text_hold_no_control_characters(hostile: Profile) -> None:
    for view in views_of("costed"):
        name = view.name
        content = render(name, hostile.on("h100" if view.needs or name == "trace" else None))
        if isinstance(content, str) and name not in ("csv", "html"):
            assert not unreadable(content), name
            content.encode()


def test_a_parser_of_html_finds_one_page(hostile: Profile) -> None:
    html5lib = pytest.importorskip("html5lib")
    page = str(render("html", hostile.on()))
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    scripts = tree.findall(".//script")
    assert len(scripts) == 2
    assert not [e for e in tree.iter() if any(str(a).startswith("on") for a in e.attrib)]
    data = json.loads(zlib.decompress(base64.b64decode(scripts[0].text)))
    assert Profile.from_dict(data["profile"]) == hostile
    body = page.replace(str(scripts[1].text), "")
    assert not unreadable(body.replace("\t", ""))


@pytest.mark.slow
def test_a_notebook_shows_only_text(hostile: Profile) -> None:
    html5lib = pytest.importorskip("html5lib")
    shown: Any = hostile._repr_mimebundle_()
    shown = shown[0] if isinstance(shown, tuple) else shown
    assert not unreadable(str(shown["text/plain"]))
    if "text/html" in shown:
        tree = html5lib.parseFragment(shown["text/html"], namespaceHTMLElements=False)
        assert not [e for e in tree.iter() if any(str(a).startswith("on") for a in e.attrib)]


def test_spreadsheets_get_no_formulas(hostile: Profile) -> None:
    rows = list(csv.reader(io.StringIO(str(render("csv", hostile.on())), newline="")))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 1 + len(hostile.graph.nodes)
    for cell in (c for row in rows[1:] for c in row):
        assert not re.match(r"[=@\t\r\n]|[+-](?![\d.]+$)", cell), cell
        assert not unreadable(cell), cell


def test_xml_is_well_formed_and_says_it(hostile: Profile) -> None:
    etree = pytest.importorskip("lxml.etree")
    for name in ("svg", "graphml"):
        root = etree.fromstring(str(render(name, hostile.on())).encode())
        assert "<script>alert(1)</script>" in "".join(root.itertext())
    networkx = pytest.importorskip("networkx")
    graph = networkx.parse_graphml(str(render("graphml", hostile.on())))
    assert graph.number_of_nodes() == len(hostile.graph.nodes)


@pytest.mark.slow
def test_graphviz_reads_the_boxes(hostile: Profile) -> None:
    pygraphviz = pytest.importorskip("pygraphviz")
    graph = pygraphviz.AGraph(string=str(render("dot", hostile.on())))
    svg = ET.fromstring(graph.draw(format="svg", prog="dot"))
    assert not [e for e in svg.iter() if e.tag.rpartition("}")[2] in ("script", "image", "use")]
    assert any("<script>" in (e.text or "") for e in svg.iter())


@pytest.mark.slow
@pytest.mark.parametrize("form", ["model-explorer", "model-explorer-overlay", "trace", "json"])
def test_json_of_others_carries_it(hostile: Profile, form: str) -> None:
    text = str(render(form, hostile.on("h100" if form == "trace" else None)))
    assert not unreadable(text)
    assert json.loads(text)


def test_markdown_has_the_tables_that_were_meant(hostile: Profile) -> None:
    report = str(render("markdown", hostile.on()))
    assert report.count("```") == 2
    rows = [line for line in report.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert widths <= {3, 5, 6, 12}
    outside = re.sub(r"```.*?```", "", report, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<(?!\!)[a-z/]", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)
