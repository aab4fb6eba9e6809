"""The page of all options, one table for each stage:
`python -m opgraph.options.document > docs/options.md`."""

from __future__ import annotations

import sys

from opgraph.options.fields import OPTIONS
from opgraph.options.kinds import Choice, Flag
from opgraph.options.option import Option, Stage

_HEAD = """# Options

Made by `python -m opgraph.options.document > docs/options.md` from `src/opgraph/options/fields.py`,
where each is one field.

The name is that of the keyword in Python, the option that of the command line. A command takes the
options that it heeds (`opgraph COMMAND --help` lists them), and refuses, with exit status 2, one that
its output would not heed or that has no effect beside the others. Options for which pyproject.toml can have
a default, under `[tool.opgraph]`, are marked with \\*. A sweep takes several values, separated by commas
(in Python a list), of those marked with †.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for stage in Stage:
        listed = [o for o in OPTIONS.values() if o.stage is stage]
        parts.append(f"## {stage.value.partition(' (')[0].capitalize()}\n")
        parts.append("| option | in Python | values | default | what it says | goes with |")
        parts.append("|---|---|---|---|---|---|")
        parts += [_row(o) for o in listed]
        parts.append("")
    return "\n".join(parts)


def _row(option: Option) -> str:
    marks = ("\\*" if option.setting else "") + ("†" if option.axis else "")
    short = "".join(f"`{f}`, " for f in option.flags if not f.startswith("--"))
    spelled = "" if option.hidden else f"{short}`{option.flag}`"
    needs = " or ".join(
        f"`{other}={fit}`" if fit is not None else f"`{other}`"
        for other, fits in option.needs.items()
        if not OPTIONS[other].hidden
        for fit in (fits or (None,))
    )
    default = "" if option.default in (None, {}, (), False) else f"`{option.default}`"
    cells = (f"{spelled}{marks}", f"`{option.name}`", _values(option), default, option.help, needs)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(option: Option) -> str:
    if isinstance(option.kind, Flag):
        return "yes or no"
    if isinstance(option.kind, Choice):
        return ", ".join(f"`{v}`" for v in option.kind.values)
    return f"`{option.metavar}`"


if __name__ == "__main__":
    sys.stdout.write(page())
