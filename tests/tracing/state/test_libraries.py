"""What libraries keep for the whole process, in their classes and modules, is as before after a profile
whose forward changed it."""

from __future__ import annotations

import subprocess
import sys

OPENS = """
import io
import torch
from PIL import Image
import opgraph
GIF = b"GIF89a" + bytes([1, 0, 1, 0, 128, 0, 0]) + bytes(6) + b",\\0\\0\\0\\0\\1\\0\\1\\0\\0\\2\\2D\\1\\0;"
class Opens(torch.nn.Module):
    def forward(self, x):
        return x * Image.open(io.BytesIO(GIF)).size[0] * (x.sum().item() if REAL else 1)
assert not Image.OPEN
for REAL in (False, True):
    profile = opgraph.profile(Opens(), torch.ones(2))
    assert profile.graph.nodes and not [r for r in profile.remarks if r.code == "state"]
    assert {"GIF", "PNG"} <= Image.OPEN.keys() == Image.MIME.keys()
    assert Image._initialized == 0
    assert Opens()(torch.ones(2)).shape == (2,)
    Image._initialized = 0
"""


def test_what_modules_fill_in_a_library_as_a_forward_is_the_first_to_import_them() -> None:
    """Pillow imports what reads the usual formats at the first `open`: it stays imported, and known."""
    subprocess.run([sys.executable, "-c", OPENS], check=True)
