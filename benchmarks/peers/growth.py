"""How the time grows: Llama-like models of 1 to 126 layers and of 1e8 to 4e11 parameters, sequences of 128
to 131,072 tokens, and each step from building to the interactive page by the size of the graph."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WIDTHS = {
    "0.1B": {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8,
             "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 12},
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 16},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 32},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
            "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 80},
    "405B": {"hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128,
             "num_key_value_heads": 8, "vocab_size": 128256, "num_hidden_layers": 126},
}  # fmt: skip
LAYERS = (1, 2, 4, 8, 16, 32, 64, 126)
LENGTHS = (128, 1024, 8192, 32768, 131072)


def rows(done: list[dict[str, Any]], runs: int) -> Iterator[dict[str, Any]]:
    """A row for each size that is not there yet, each from a process of its own."""
    del runs
    there = {(r["series"], r["at"]) for r in done if r["kind"] == "growth"}
    for series, at in (
        *(("layers", n) for n in LAYERS),
        *(("width", name) for name in WIDTHS),
        *(("length", n) for n in LENGTHS),
    ):
        if (series, at) not in there:
            command = [sys.executable, __file__, series, str(at)]
            done_ = subprocess.run(command, capture_output=True, text=True, check=False)
            last = done_.stdout.splitlines()[-1:] or [json.dumps({"error": done_.stderr[-300:]})]
            yield {"kind": "growth", "series": series, "at": at, **json.loads(last[0])}


def _peak() -> int:
    """The most resident bytes since this program was started; getrusage counts those of its parent, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM"))


def measured(series: str, at: str) -> dict[str, Any]:
    """CPU seconds of each step for one size of model, and what came of it."""
    import opgraph
    from opgraph.api.pipeline import Options, prepared, profile_model

    widths = dict(
        WIDTHS[at] if series == "width" else WIDTHS["405B" if series == "layers" else "8B"]
    )
    if series == "layers":
        widths["num_hidden_layers"] = int(at)
    length = int(at) if series == "length" else 1024
    row: dict[str, Any] = {}

    def timed(step: str, run: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = run()
        row[step] = time.process_time() - start
        return result

    options = Options(seq_len=length, head="causal-lm", model_args=widths)
    prepared("hf-type:llama", None, None, Options(seq_len=8, model_args={"num_hidden_layers": 1}))
    model, example = timed("build", lambda: prepared("hf-type:llama", None, None, options))
    profile = timed("trace", lambda: opgraph.Profile.of(profile_model(model, example)))
    if profile.graph.failed is not None:
        raise SystemExit(profile.graph.failed.error)
    row["memory"] = _peak()
    row |= {"nodes": len(profile.nodes), "parameters": profile.totals.parameters}
    row |= {"flops": profile.totals.flops}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile.json"
        timed("save", lambda: profile.save(file))
        row["bytes"] = file.stat().st_size
        loaded = timed("load", lambda: opgraph.load(file))
        timed("table", lambda: str(loaded))
        timed("draw", lambda: loaded.draw(Path(folder) / "picture.svg"))
        timed("view", lambda: loaded.view(Path(folder) / "page.html"))
    return row


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], sys.argv[2])))
