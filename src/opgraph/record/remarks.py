"""What a reader of a profile's figures must know of how they came about: each remark has a code of a closed
table. Whoever makes a remark writes a text with the code's sign in it, and it is told by that from what a
model only says of itself (where its configuration is from). docs/remarks.md is made from the table:
`python -m opgraph.record.remarks > docs/remarks.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CODES", "Code", "Remark", "coded", "remark_of"]


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of remark: the signs of its texts, what it means for the figures, and what to do about it."""

    signs: tuple[str, ...]
    meaning: str
    remedy: str


class Remark(NamedTuple):
    """A code with what it says of this profile."""

    code: str
    text: str


CODES: dict[str, Code] = {
    "no-effect": Code(
        ("changes nothing",),
        "An option was given that this model does not heed.",
        "Leave it out, or ask `opgraph profile --help-all` which one was meant.",
    ),
    "guessed-inputs": Code(
        (
            "guessed from",
            "tried ",
            "a batch of 2:",
        ),
        "Nothing says which inputs this model takes; some were found that fit, or none were.",
        "Give them: `--input-shape`, `--input NAME=SHAPE`, or `inputs=` in Python.",
    ),
    "completed": Code(
        ("completed with",),
        "The configuration leaves settings open without which there is no model; these were "
        "chosen.",
        "Give your own with `--model-arg`.",
    ),
    "other-head": Code(
        ("with the head",),
        "The model has another head than the name says, since it needs one to run so.",
        "Choose one with `--head`.",
    ),
    "other-variant": Code(
        (
            "and not the first",
            "in float32, as it is before",
        ),
        "The name is also that of another variant, which this is not.",
        "The remark names the variant, or the option.",
    ),
    "loss": Code(
        ("trained on",),
        "What a step of training makes small was chosen here.",
        "Choose it with `--loss`.",
    ),
    "made-up-data": Code(
        ("went on without a value",),
        "The forward caught the error that it met where a value of the data was asked for, and "
        "may take another way with real data.",
        "Give typical inputs in Python, or compare with `--tracer eager` on real ones.",
    ),
    "real-tensors": Code(
        (
            "ran on real tensors",
            "was not traced on real tensors",
        ),
        "The path depends on values of the data, so the model ran on random weights and made-up "
        "inputs (or could not, which is said): its branches, and so its figures, may be others "
        "with yours.",
        "Give typical inputs in Python.",
    ),
    "branch": Code(
        ("is counted with the branch",),
        "Which branch runs depends on data; the one with more work is counted.",
        "Profile each by itself where the difference matters.",
    ),
    "not-counted": Code(
        (
            "which is not counted",
            "ran in threads",
            "still ran when",
            "are left out",
        ),
        "Work outside of what a run can follow is in no total.",
        "Profile that part by itself.",
    ),
    "no-work": Code(
        (
            "reads none of the weights",
            "forward computes nothing",
        ),
        "The call did not do what a forward does, so the totals say little.",
        "Give the arguments of a real call.",
    ),
    "state": Code(
        (
            "as it was before the run",
            "cannot be taken back",
            "so it is in",
            "is still in",
        ),
        "Something that the forward changed outside of the model could not be brought back.",
        "Profile in a process of its own.",
    ),
    "network": Code(
        ("what ranks exchange",),
        "Collectives are timed over the link that the device's file gives, whether their ranks are in one "
        "node or in many, and those of different groups do not slow each other down.",
        "Write the link that your ranks share into a copy of the device's file.",
    ),
    "compiled-differs": Code(
        ("than a plain run",),
        "The tracer's graph does other work than the model run plainly.",
        "`opgraph check MODEL` says where.",
    ),
    "unknown-operator": Code(
        ("without a known cost",),
        "Operators whose cost is not known are in no total.",
        "Register a formula (`register_flop_formula`), or report it.",
    ),
    "failed": Code(
        ("the forward failed",),
        "The graph ends where the forward raised: totals are of what ran.",
        "The error names the line; give inputs that fit.",
    ),
    "left-out": Code(
        ("without ",),
        "An input that the model can do without was not made, and what it leads to is not in the "
        "graph.",
        "Give it with `--input`.",
    ),
}
"""Every code. A text has the first code that has a sign in it."""


def remark_of(text: str) -> Remark | None:
    """The remark that a text is; None where it is none."""
    for code, known in CODES.items():
        if any(sign in text for sign in known.signs):
            return Remark(code, text)
    return None


def coded(texts: Iterable[str]) -> tuple[Remark, ...]:
    """The remarks among these texts, each once."""
    return tuple(dict.fromkeys(found for text in texts if (found := remark_of(text)) is not None))


_HEAD = """# Remarks

Made by `python -m opgraph.record.remarks > docs/remarks.md` from `src/opgraph/record/remarks.py`.

A remark says what was assumed, or what the figures do not hold. `opgraph profile` ends with them, other
commands say them on stderr as `note:`, and `--json` has them under `remarks`, each with its code. Codes do
not change; new ones may be added.

| code | what it means | what to do |
|---|---|---|
"""


def page() -> str:
    """The table as Markdown."""
    rows = (f"| `{code}` | {c.meaning} | {c.remedy} |\n" for code, c in CODES.items())
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
