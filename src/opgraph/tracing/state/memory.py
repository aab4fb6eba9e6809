"""How much memory there is for the asking."""

from __future__ import annotations

import os


def free_bytes() -> int:
    """The memory that this process can have for the asking, in bytes: of the machine, and of the control
    group that it is in."""
    free = [_at("/proc/meminfo", b"MemAvailable:", 1024)]
    for group, limit, used in (
        ("", "memory.max", "memory.current"),
        ("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        place = f"{_GROUPS}{group}/"
        most = _at(place + limit)
        now = None if most is None or most >= _UNLIMITED else _at(place + used)
        if most is not None and now is not None:
            cached = _at(place + "memory.stat", b"inactive_file") or 0
            free.append(max(most - now + cached, 0))
    known = [n for n in free if n is not None]
    if known:
        return min(known)
    try:  # half of all, where nothing says what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _UNLIMITED


_GROUPS = "/sys/fs/cgroup"
_UNLIMITED = 1 << 62
"""Bytes from which on a limit is none: the older control groups write the largest number of whole pages."""


def _at(file: str, name: bytes | None = None, unit: int = 1) -> int | None:
    """The number in a file of the system, in the line of that name; None where there is none."""
    try:
        opened = os.open(file, os.O_RDONLY)
        try:
            text = os.read(opened, _MOST_OF_A_FILE)
        finally:
            os.close(opened)
        for line in text.splitlines():
            words = line.split()
            if name is None or words[0] == name:
                return int(words[0 if name is None else 1]) * unit
    except (OSError, ValueError, IndexError):
        pass
    return None


_MOST_OF_A_FILE = 1 << 16
