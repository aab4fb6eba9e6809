"""The options: each once, each in force, and what they need of one another."""

from __future__ import annotations

import argparse
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import opgraph
from opgraph.cli import whole_parser
from opgraph.options import NAMES, OPTIONS, Options
from opgraph.options.document import page
from opgraph.options.kinds import Choice
from opgraph.record.errors import InputError
from opgraph.results import Costed

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_made_from_them() -> None:
    """`python -m opgraph.options.document > docs/options.md` makes it anew."""
    assert (ROOT / "docs" / "options.md").read_text() == page()


def test_every_option_of_every_command_is_one_of_them() -> None:
    commands = next(a for a in whole_parser()._actions if isinstance(a, argparse._SubParsersAction))
    seen = set()
    for parser in commands.choices.values():
        for action in parser._actions:
            if action.option_strings and action.dest != "help":
                option = OPTIONS[action.dest]
                assert option.flag in action.option_strings
                assert f"--{option.name.replace('_', '-')}" in action.option_strings or (
                    option.spelled or option.default is True
                )
                seen.add(action.dest)
    assert seen == {o.name for o in OPTIONS.values() if not o.hidden}


def test_python_has_them_by_the_same_names() -> None:
    for function, more in (
        (opgraph.profile, ()),
        (opgraph.trace, ()),
        (opgraph.compare, ("hardware", "fail_if")),
        (opgraph.sweep, ("symbolic", "hardware")),
    ):
        parameters = inspect.signature(function).parameters
        assert set(parameters) >= {*NAMES, *more}
        assert parameters["mode"].default == "infer"
    assert {"tracer", "seq_len", "counters"} <= {*inspect.signature(opgraph.check).parameters}
    for drawn in (opgraph.Profile.draw, Costed.draw):
        assert {"depth", "color_by", "dpi"} <= {*inspect.signature(drawn).parameters}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"optimizer": "sgd"}, "optimizer has no effect where the mode is infer", "mode='train'"),
        ({"checkpointing": True}, "checkpointing has no effect", "mode='train'"),
        ({"context_len": 7}, "context_len has no effect", "mode='prefill' or mode='decode'"),
        (
            {"fullgraph": True},
            "fullgraph has no effect where the tracer is auto",
            "tracer='dynamo'",
        ),
        ({"fragment": 2}, "fragment has no effect where the tracer is auto", "tracer='fx'"),
        (
            {"concrete_args": {"a": 1}},
            "concrete_args has no effect where the tracer",
            "tracer='fx'",
        ),
        (
            {"warm_up": True, "mode": "train"},
            "warm_up has no effect where the mode",
            "mode='infer'",
        ),
        ({"mode": "decode", "tracer": "fx"}, "fx captures one forward", "leave out"),
        ({"inductor": True, "tracer": "fx"}, "TorchInductor compiles what Dynamo", "leave out"),
    ],
)
def test_what_means_nothing_to_the_others_is_refused(
    options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(InputError) as raised:
        Options(**options)
    assert str(raised.value).startswith(message)
    assert hint in str(raised.value.hint)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "mode": "train"},
        {"context_len": 7, "mode": "decode"},
        {"fullgraph": True, "tracer": "dynamo"},
        {"fullgraph": True, "inductor": True},
        {"fragment": 2, "tracer": "fx"},
    ],
)
def test_what_goes_together(options: dict[str, Any]) -> None:
    made = Options(**options)
    assert {name: getattr(made, name) for name in options} == options


@pytest.mark.live
def test_closed_sets_are_what_stands_behind_them() -> None:
    from opgraph.tracing import tracers
    from opgraph.tracing.modes.training import OPTIMIZERS, WAYS
    from opgraph.views.files.graphs import OVERLAYS
    from opgraph.views.picture.coloring import COLORINGS
    from opgraph.views.picture.scene import THEMES
    from opgraph.views.text.table import SORT_KEYS

    for name, behind in (
        ("tracer", tracers),
        ("optimizer", {*OPTIMIZERS, *(f"{o}-{way}" for o in OPTIMIZERS for way in WAYS)}),
        ("color_by", COLORINGS | OVERLAYS),
        ("sort", SORT_KEYS),
        ("theme", {"auto", *THEMES}),
    ):
        kind = OPTIONS[name].kind
        assert isinstance(kind, Choice)
        assert {*kind.values} == {*behind}


def test_the_room_stands_without_torch_and_what_is_above_it() -> None:
    code = (
        "import sys, opgraph.options.document; "
        "print([m for m in sys.modules if m == 'torch' or m.startswith('opgraph.') "
        "and m.split('.')[1] not in ('options', 'record', 'version')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
