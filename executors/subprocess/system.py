"""Calls of the operating system: death signals, adopted orphans, memory in use."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Final

_SET_DEATH_SIGNAL: Final = 1
_SET_SUBREAPER: Final = 36
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        # If the kernel or a filter refuses the call, the other layers still end the processes.
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(number: signal.Signals, parent: int) -> bool:
    """Request the signal `number` for the death of the parent. Return False if it is dead already (Linux)."""
    # The parent may have died before the request, and the kernel sends no signal for that. An orphan has another
    # parent, so the comparison afterwards closes the gap. Whichever comes first, one of the two notices the death.
    _prctl(_SET_DEATH_SIGNAL, number)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies (Linux)."""
    _prctl(_SET_SUBREAPER, 1)


def own_children() -> list[int]:
    """Return the ids of this process's children, including dead ones that were not reaped (Linux)."""
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    try:
        return [int(pid) for pid in listed.read_text().split()]
    except OSError:
        return _children_by_search(os.getpid())


def _children_by_search(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The process name before it may contain anything, even brackets.
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def memory_in_use() -> int:
    """Return the resident memory of this process in bytes, or its peak where only that is known."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - runs after each job; a Path would double the cost
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def how_it_ended(status: int | None) -> str:
    """Describe the end of a process by its exit status (negative: a signal)."""
    if status is None:
        return "is gone"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
