"""A process of Python that answers one request after the other, for tests of what is run elsewhere: it
imports torch once, and not once a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

ANSWERS = """
import json, sys

for line in sys.stdin:
    print(json.dumps(answer(*json.loads(line))), flush=True)
"""


@contextmanager
def answering(code: str, env: Mapping[str, str] | None = None) -> Iterator[Callable[..., Any]]:
    """Within, what a process gives that runs `code`, which has a function `answer`, from JSON to JSON. What
    it is to print goes to the standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", code + ANSWERS], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def answer(*given: Any) -> Any:
            asked.write(json.dumps(given) + "\n")
            asked.flush()
            line = answers.readline()
            assert line, f"the process ended with {process.wait()}"
            return json.loads(line)

        yield answer
        asked.close()
