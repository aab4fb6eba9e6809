"""Foreign models, each in a process of its own, in the environment that has their packages: everything that
is held of each, and what became of it, as a line of JSON.

    python benchmarks/foreign/checks.py SECONDS NAME …
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from select import select as ready
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from models import MODELS
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import opgraph
from opgraph.analysis.selection import Filter, Range, select
from opgraph.views import render
from opgraph.views.text.explore import node_list

CHECKS = ("flops", "parameters", "coverage", "state", "draw", "view", "explore", "save")
"""What is held of a profile with given inputs, beside that it is made."""

FORMS = ("svg", "pdf", "dot", "mermaid")


def check(name: str) -> dict[str, Any]:
    """Everything of one model: for each check "" where it holds, else what is wrong."""
    package, make = MODELS[name]
    torch.manual_seed(0)
    model, args = make()
    model.eval()
    before, expected = state_of(model), output_of(model, args)
    truth = flops_of(model, args)
    torch.manual_seed(1)
    start = time.process_time()
    profile = opgraph.profile(model, inputs=args, name=name)
    seconds = time.process_time() - start
    found: dict[str, Any] = {
        "name": name, "package": package, "seconds": round(seconds, 3), "tensors": profile.tracing.tensors,
        "flops": profile.totals.flops, "parameters": profile.totals.parameters,
        "nodes": len(profile.graph.nodes), "notes": list(profile.model.notes), "better": better(profile),
    }  # fmt: skip
    costed = profile.on()

    def flops() -> Iterator[str]:
        counted = profile.totals.flops
        # A product with a vector runs as one of matrices where no gradient is asked for: torch knows that.
        if truth not in (counted, counted - sum(found["better"].values())):
            yield f"{counted:,} where a real forward has {truth:,}"

    def parameters() -> Iterator[str]:
        there = sum(p.numel() for p in model.parameters())
        if profile.totals.parameters != there:
            yield f"{profile.totals.parameters:,} of {there:,}"

    def coverage() -> Iterator[str]:
        if profile.totals.coverage < 1:
            unknown = ", ".join(op for op, *_ in sorted(profile.totals.unknown))
            yield f"{profile.totals.coverage:.1%}: {unknown}"

    def state() -> Iterator[str]:
        if state_of(model) != before:
            yield "parameters or buffers are others than before"
        if output_of(model, args) != expected:
            yield "a forward gives something else than before"

    def draw() -> Iterator[str]:
        for form in FORMS:
            for depth in (None, 1, 99):
                if not render(form, costed, depth=depth):
                    yield f"an empty {form}"

    def view() -> Iterator[str]:
        if "</html>" not in str(render("html", costed)):
            yield "no page"

    def explore() -> Iterator[str]:
        for where in (Range(), Range(1, 20), Range(around=len(profile.graph.nodes) // 2 + 1)):
            if not node_list(costed, select(costed, where, Filter(), limit=None)):
                yield "nothing"

    def save() -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            profile.save(path)
            if opgraph.load(path).to_json() != profile.to_json():
                yield "another profile"

    held: tuple[Callable[[], Iterator[str]], ...] = (
        flops, parameters, coverage, state, draw, view, explore, save,
    )  # fmt: skip
    found["wrong"] = {h.__name__: tried(h) for h in held}
    found["without"] = without_inputs(model)
    return found


def tried(check: Callable[[], Iterator[str]]) -> str:
    """What a check finds wrong, one after the other."""
    try:
        return "; ".join(check())
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is wrong
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def state_of(model: nn.Module) -> dict[str, str]:
    """A hash of each parameter and buffer, kept or not."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: _hash(tensor) for name, tensor in tensors.items()}


def output_of(model: nn.Module, args: tuple[Any, ...]) -> list[str]:
    """Hashes of what a copy of a model gives for copies of its arguments."""
    torch.manual_seed(1)
    with torch.no_grad():
        result = copy.deepcopy(model)(*copy.deepcopy(args))
    leaves = tree_leaves(result)
    if not any(isinstance(x, torch.Tensor) for x in leaves):  # a distribution, a named result
        leaves = [v for x in leaves for v in getattr(x, "__dict__", {}).values()]
    return [_hash(x) for x in leaves if isinstance(x, torch.Tensor)]


def _hash(tensor: torch.Tensor) -> str:
    whole = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    data = whole.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()


def flops_of(model: nn.Module, args: tuple[Any, ...]) -> int:
    """FLOPs of a real forward by torch's counter, kept off the fused paths that it cannot see into."""
    torch.manual_seed(1)
    torch.backends.mha.set_fastpath_enabled(False)
    with (
        torch.backends.mkldnn.flags(enabled=False), torch.no_grad(),
        FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mm: _met, **ATTENTION}) as counter,
    ):  # fmt: skip
        copy.deepcopy(model).requires_grad_(requires_grad=False)(*copy.deepcopy(args))
    torch.backends.mha.set_fastpath_enabled(True)
    return int(counter.get_total_flops())


def _attention(*args: Any, **kwargs: Any) -> int:
    return int(flop_registry[torch.ops.aten._scaled_dot_product_flash_attention](*args, **kwargs))


_attention._get_raw = True  # type: ignore[attr-defined]  # it is a formula of torch's that is given tensors
ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}
"""What torch's counter did not know of a CPU before torch 2.15."""


def _met(a: torch.Tensor, b: torch.Tensor, **_: Any) -> int:
    """FLOPs of a product, with sparse tensors by the values that they store, which torch counts as dense:
    how many of them meet, counted by a product of ones."""
    return 2 * int((_there(a) @ _there(b)).sum())


_met._get_raw = True  # type: ignore[attr-defined]  # it is given tensors, and not their shapes


def _there(tensor: torch.Tensor) -> torch.Tensor:
    """1 where a value is stored."""
    if tensor.layout is torch.strided:
        return torch.ones(tensor.shape, dtype=torch.float64)
    stored = tensor.to_sparse_coo().coalesce()
    ones = torch.ones(stored._nnz(), dtype=torch.float64)
    return torch.sparse_coo_tensor(stored.indices(), ones, stored.shape).to_dense()


def better(profile: opgraph.Profile) -> dict[str, int]:
    """FLOPs of the operators that torch's counter has no formula for, by operator."""
    known = {f"aten.{str(packet).rpartition('.')[2]}" for packet in (*flop_registry, *ATTENTION)}
    found = Counter[str]()
    for node in profile.graph.nodes:
        for kernel in node.kernels:
            if kernel.op not in known:
                found[kernel.op] += kernel.flops
            elif kernel.dtype.startswith("complex"):  # four products of real numbers, for torch one
                found[f"{kernel.op} (complex)"] += kernel.flops * 3 // 4
    return {op: count for op, count in found.items() if count}


def without_inputs(model: nn.Module) -> str:
    """What a profile without inputs gives: "runs", "refused: …", or what else was raised."""
    try:
        profile = opgraph.profile(model)
    except opgraph.InputError as error:
        return f"refused: {error}".partition("\n")[0]
    except Exception as error:  # noqa: BLE001 - anything else is wrong
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    shapes = [profile.graph.value[v].shape for v in profile.graph.inputs]
    return f"runs at {', '.join('x'.join(map(str, s)) for s in shapes)}"


def main() -> int:
    timeout, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names:
        print(json.dumps(apart(name, float(timeout))), flush=True)
    return 0


def apart(name: str, timeout: float) -> dict[str, Any]:
    """What came of a model in a process forked off this one; `error` is why there is nothing else."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with redirect_stdout(io.StringIO()):
                found = check(name)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is wrong
            found = nothing(name, f"{type(error).__name__}: {error}".partition("\n")[0])
        with os.fdopen(theirs, "w") as pipe:
            pipe.write(json.dumps(found))
        os._exit(0)
    os.close(theirs)
    answer = b""
    with os.fdopen(ours, "rb", 0) as pipe:
        end = time.monotonic() + timeout
        while ready([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = pipe.read(1 << 16)
            if not part:
                break
            answer += part
        else:
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        late = status == -signal.SIGKILL
        return nothing(name, f"longer than {timeout:.0f} s" if late else f"ended with {status}")
    made: dict[str, Any] = json.loads(answer)
    return made


def nothing(name: str, error: str) -> dict[str, Any]:
    return {"name": name, "package": MODELS[name][0], "error": error}


if __name__ == "__main__":
    sys.exit(main())
