"""What a reader of a profile's figures must know of how they came about: each remark has a code of a closed
table, given where it is made. docs/remarks.md is made from the table:
`python -m opgraph.record.remarks > docs/remarks.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import NamedTuple, Self

__all__ = ["CODES", "Code", "Remark", "apart", "coded", "idle", "leave", "left_behind", "no_effect"]


class Code(NamedTuple):
    """A kind of remark: what it means for the figures, and what to do about it."""

    meaning: str
    remedy: str


class Remark(str):
    """A text with its code: among a model's notes, what is no remark is a plain text."""

    code: str

    def __new__(cls, code: str, text: str) -> Self:
        if code not in CODES:
            raise KeyError(code)
        remark = super().__new__(cls, text)
        remark.code = code
        return remark

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.code, self.text

    @property
    def text(self) -> str:
        """What it says of this profile."""
        return str(self)

    def to_dict(self) -> dict[str, str]:
        """JSON-ready data."""
        return {"code": self.code, "text": self.text}


@contextmanager
def left_behind() -> Iterator[dict[Remark, None]]:
    """Within, what runs leave behind is noted, each once, whatever becomes of these runs: whether another
    attempt follows, or their graph is not wanted at all."""
    noted: dict[Remark, None] = {}
    token = _left.set(noted)
    try:
        yield noted
    finally:
        _left.reset(token)
        leave(noted)


def leave(remarks: Iterable[Remark]) -> None:
    """Note what a run leaves behind."""
    noted = _left.get()
    if noted is not None:
        noted.update(dict.fromkeys(remarks))


def apart() -> None:
    """From here on in this context, what runs leave behind is not noted: what a model profiles is told to
    the model, and its own run is looked at as a whole."""
    _left.set(None)


def is_apart(context: Context) -> bool:
    """Whether a context is that of a run, or was copied within one."""
    return context.get(_left, {}) is None


_left: ContextVar[dict[Remark, None] | None] = ContextVar("left behind", default=None)


CODES: dict[str, Code] = {
    "no-effect": Code(
        "An option was given that this model does not heed.",
        "Leave it out, or ask `opgraph profile --help-all` which one was meant.",
    ),
    "guessed-inputs": Code(
        "Nothing says which inputs this model takes; some were found that fit, or none were.",
        "Give them: `--input-shape`, `--input NAME=SHAPE`, or `inputs=` in Python.",
    ),
    "completed": Code(
        "The configuration leaves settings open without which there is no model; these were "
        "chosen.",
        "Give your own with `--model-arg`.",
    ),
    "other-head": Code(
        "The model has another head than the name says, since it needs one to run so.",
        "Choose one with `--head`.",
    ),
    "other-variant": Code(
        "The name is also that of another variant, which this is not.",
        "The remark names the variant, or the option.",
    ),
    "loss": Code(
        "What a step of training makes small was chosen here.",
        "Choose it with `--loss`.",
    ),
    "modes": Code(
        "The model was given in training mode, and parts of it in eval mode: these stayed so in the step.",
        "Call `model.train()` before, if they are to be trained as the rest is.",
    ),
    "made-up-data": Code(
        "The forward caught the error that it met where a value of the data was asked for, and "
        "may take another way with real data.",
        "Give typical inputs in Python, or compare with `--tracer eager` on real ones.",
    ),
    "real-tensors": Code(
        "On tensors without data the model fails, often because its path depends on values, so it ran on "
        "random weights and made-up inputs (or could not, which is said): its branches, and so its "
        "figures, may be others with yours.",
        "Give typical inputs in Python.",
    ),
    "gradients": Code(
        "The forward computes gradients itself (forces, for instance), so it ran with gradients on, as it "
        "does outside of `torch.no_grad()`; or could not, which is said.",
        "Call opgraph where the model itself would run.",
    ),
    "numpy": Code(
        "Values left torch as arrays, and arrays came back: what NumPy (or SciPy, or whoever has them) "
        "computes between is in no total.",
        "Write that part in torch (`torch.fft` for `numpy.fft`), or time it by itself.",
    ),
    "branch": Code(
        "Which branch runs depends on data or on random numbers; the one with more work is counted, or the "
        "remark says which.",
        "Profile each by itself where the difference matters.",
    ),
    "not-counted": Code(
        "Work outside of what a run can follow is in no total.",
        "Profile that part by itself.",
    ),
    "no-work": Code(
        "The call did not do what a forward does, so the totals say little.",
        "Give the arguments of a real call.",
    ),
    "state": Code(
        "Something that the forward changed outside of the model could not be brought back.",
        "Profile in a process of its own.",
    ),
    "host": Code(
        "Something is kept in the host's memory: of the link there, and of what the host computes, only "
        "peaks are known.",
        "Say what they reach in a copy of the device's file: `link` and `memory` under `[host]`.",
    ),
    "sharded": Code(
        "The weights are spread over several processes: parameters and memory are those of this one.",
        "Profile the model before it is wrapped, or one rank of the whole (`opgraph.ranks`).",
    ),
    "network": Code(
        "Ranks are taken to be placed node by node, and collectives of different groups do not slow each "
        "other down.",
        "Say what links your nodes: `--network 400Gb/s`, or a file.",
    ),
    "published-weights": Code(
        "The weights are in the fewer bits that the model is published in, or in a way that is not known "
        "here and is left out.",
        "`--weights none` shows the model as it computes.",
    ),
    "quantized": Code(
        "Weights, activations or the cache are in fewer bits as an option asked, and the kernels are those "
        "of such a scheme, by rule; no library was run.",
        "The remark says what stays as it was; docs/quantized.md what each scheme stores and runs.",
    ),
    "dequantized": Code(
        "Products do not run on units of fewer bits: the weights are made numbers again as they are read.",
        "Choose a device with such units, or `--dtype bfloat16` where it runs in 32 bits.",
    ),
    "autocast": Code(
        "The forward turns mixed precision on for a device that is not the target, so that it ran in the "
        "precision of its weights; or off, which `--autocast` does not heed.",
        "`--autocast bfloat16` costs all of the model in mixed precision.",
    ),
    "compiled-differs": Code(
        "The tracer's graph does other work than the model run plainly.",
        "`opgraph check MODEL` says where.",
    ),
    "unknown-operator": Code(
        "Operators whose cost is not known are in no total.",
        "Register a formula (`register_flop_formula`), or report it.",
    ),
    "failed": Code(
        "The graph ends where the forward raised: totals are of what ran.",
        "The error names the line; give inputs that fit.",
    ),
    "left-out": Code(
        "An input that the model can do without was not made, and what it leads to is not in the "
        "graph.",
        "Give it with `--input`.",
    ),
    "target": Code(
        "The trace has kernels that the device would not run, or a target's own kernels do other work.",
        "Profile it with `--target` of the device, or `--hardware` from the start.",
    ),
    "device": Code(
        "Nobody publishes a figure of the device that times or memory are reckoned with: its file says "
        "what is taken for it.",
        "Give your own in a file of the device: [docs/hardware.md](hardware.md).",
    ),
    "precision": Code(
        "Most products are in a dtype in which the device does not multiply: it would convert them, or the "
        "model would be given to it in another. Or torch multiplies float32 with fewer digits there.",
        "Profile it in one that the remark names: `--dtype`, or `--autocast`. Torch's own switches "
        "(`fp32_precision`) are heeded as they are when it is traced.",
    ),
    "recurrent": Code(
        "The time of a recurrent layer on an accelerator leaves out that its steps wait for one another.",
        "`opgraph measure` on the device says what it takes.",
    ),
    "routing": Code(
        "Which experts or items are chosen depends on data; each was taken equally often.",
        "Profile typical inputs on one device where the balance matters.",
    ),
    "compiled": Code(
        "What is taken to hold of a compiled run that is not measured, or that a part of one runs without "
        "a compiler.",
        "`opgraph measure` on the device says what it takes.",
    ),
    "engine": Code(
        "What is taken for granted of an inference engine: its kernels are not traced, but follow from the "
        "model's by rule.",
        "[docs/serving.md](serving.md) says how far predictions so made hold for published runs.",
    ),
}
"""Every code."""


def no_effect(option: str, why: str) -> Remark:
    """The remark that an option changes nothing of this model."""
    return Remark("no-effect", f"{option} changes nothing: {why}")


def idle(notes: Iterable[str]) -> tuple[Remark, ...]:
    """The remarks on options that change nothing."""
    return tuple(remark for remark in coded(notes) if remark.code == "no-effect")


def coded(texts: Iterable[str]) -> tuple[Remark, ...]:
    """The remarks among these texts, each once."""
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, Remark)))


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
