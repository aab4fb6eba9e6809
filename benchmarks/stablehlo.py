"""What an export as StableHLO takes: processor time, memory, and the size of the file; each model in a
process of its own. `python -m benchmarks.stablehlo [MODEL …]`

torch-mlir is needed: `pip install 'opgraph[stablehlo]'`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

MODELS = (
    "resnet18",
    "bert-base-uncased --seq-len 32",
    "gpt2 --seq-len 32",
    "t5-small",
    "timm:vit_tiny_patch16_224",
    "yolov8n.pt",
    "meta-llama/Llama-3.1-8B --seq-len 128 --dtype bf16",
)


def main(models: tuple[str, ...]) -> None:
    with TemporaryDirectory() as folder:
        for model in models:
            file = Path(folder) / "model.mlir"
            file.unlink(missing_ok=True)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "opgraph", "export", *model.split(), "-o", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            said = done.stderr.strip().splitlines()[:1] if done.returncode else []
            size = file.stat().st_size if file.exists() else 0
            print(f"{model:<52} {seconds:5.1f} s  {after.ru_maxrss / 2**20:4.2f} GiB (of all so far)  "
                  f"{size:>9,} bytes", *said)  # fmt: skip


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or MODELS)
