"""Where results go: stdout in the width and colours of the terminal, or a file, as its suffix says."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.files import write_atomically
from opgraph.views.terminal import readable_lines, safe

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord

_quiet = False


def width() -> int:
    """Columns of the terminal; 120 for pipes, unless COLUMNS says otherwise."""
    return max(60, shutil.get_terminal_size((120, 40)).columns)


def color() -> bool:
    """Whether stdout is a terminal that wants colours (https://no-color.org)."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def open_streams() -> None:
    """Stand in for what the shell has closed (`>&-`): remarks go nowhere, and results to what cannot be
    written to, which is an error. A stdout that takes fewer characters than Unicode has shows the others
    as question marks."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper) and "utf" not in sys.stdout.encoding.lower():
        sys.stdout.reconfigure(errors="replace")


def show(text: str) -> None:
    """Print a result. Raises `RenderError` when stdout is closed or takes no more."""
    with _stdout():
        sys.stdout.write(text)


def answer(path: str | None, content: str | bytes) -> None:
    """Write a result to a file and say so, or print it.

    Raises `RenderError` for bytes that would go to stdout, and what `show` and writing raise.
    """
    if path is not None:
        write_atomically(path, content)
        say(f"wrote {path}")
    elif isinstance(content, str):
        show(content)
    else:
        raise RenderError("this format is binary, and a terminal shows text",
                          hint="name a file with -o")  # fmt: skip


def tell(
    form: str | None, text: Callable[[], str], rows: Callable[[], Sequence[Mapping[str, Any]]],
    data: Callable[[], Any] | None = None,
) -> None:  # fmt: skip
    """Print a result in the form that was asked for (see `form_of`): as text without one, as a table of its
    rows, or in JSON as all its `data`, where that is more."""
    from opgraph.record.files import dumps
    from opgraph.views.tables import written

    if form is None:
        show(text())
    elif form == ".json" and data is not None:
        show(dumps(data(), indent=1) + "\n")
    else:
        show(written(rows(), form[1:]))


def finish() -> None:
    """Write what is left of the results. Raises what `show` raises."""
    with _stdout():
        if sys.stdout.writable():
            sys.stdout.flush()


@contextmanager
def _stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # what is still held would be tried again at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise RenderError(f"cannot write to stdout: {error.strerror or 'it is closed'}") from error


def be_quiet(quiet: bool) -> None:
    """Whether remarks and progress are left out from now on; errors and broken gates are still said."""
    global _quiet
    _quiet = quiet


def say(text: str) -> None:
    """Print a remark: to stderr, so that results can be piped."""
    if not _quiet:
        insist(text)


def insist(text: str) -> None:
    """Print what must be seen also where it is quiet. A stderr that takes nothing is no reason to fail."""
    with suppress(OSError):
        sys.stderr.write(readable_lines(text) + "\n")
        sys.stderr.flush()


def say_what_it_took() -> None:
    """Print the processor time of the process, and the most memory that it had."""
    seconds = time.process_time()
    try:
        import resource
    except ImportError:  # Windows has none
        say(f"{units.seconds(seconds)} of processor time")
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    say(f"{units.seconds(seconds)} of processor time, {units.size(peak)} of memory at most")


def say_remarks(notes: Iterable[str]) -> None:
    """Say what of some notes must be known of how figures came about, each once and with its code."""
    from opgraph.record.remarks import coded

    for remark in coded(notes):
        note = safe(f"note: {remark} ({remark.code})", 500)
        say(textwrap.fill(note, width(), subsequent_indent="      ", break_long_words=False,
                          break_on_hyphens=False))  # fmt: skip


def status_of(costed: CostedRecord, *, shown: bool = False) -> int:
    """Say what must be known of how the figures came about, unless the output has `shown` it. Returns the
    exit status: 1 when the forward failed and the graph is partial."""
    profile = costed.profile
    say_remarks(() if shown else costed.remarks)
    failed = profile.graph.failed
    if failed is None:
        return 0
    from opgraph.record.profile import GUESSED

    where = f" at {failed.file}:{failed.line}" if failed.file else ""
    insist(safe(f"error: the {failed.part} failed{where}: {profile.failure}", 500))
    guessed = (
        f"{GUESSED} (--input-shape, --input NAME=SHAPE, or NAME.KEY=SHAPE of a dictionary); "
        if GUESSED in profile.model.notes
        else ""
    )
    insist(f"hint: {guessed}the graph holds what ran until then")
    return 1


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done and goes when it is done; nothing where stderr is
    not a terminal, or where it shall be quiet. What a model prints meanwhile goes to stderr, too, so that
    results stay alone on stdout."""
    if _quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        with redirect_stdout(sys.stderr):
            yield lambda _: None
        return
    columns = shutil.get_terminal_size((80, 24)).columns

    def tell(text: str) -> None:
        sys.stderr.write("\r\x1b[2K" + safe(text, columns - 1))
        sys.stderr.flush()

    try:
        with redirect_stdout(sys.stderr):
            yield tell
    finally:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
