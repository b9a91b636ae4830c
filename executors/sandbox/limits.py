"""Resource limits. They are hard ones, for each process by itself; no job can lift them again."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from math import ceil
from typing import Final

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.permissions import Permissions

_CPU_GRACE: Final = 1
"""Seconds between SIGXCPU, which ends the process in a way that tells why, and SIGKILL, which nobody can catch."""
_RESERVE: Final = 0.1
"""The part of a job's processor time that a process may use in all before it is too worn for another job."""


def limit(permissions: Permissions, *, apart: bool, threads: int, preparing: int) -> list[str]:
    """Set the limits; `apart` says that the kernel counts our processes alone. For the rest see `apply`.

    Returns what could not be limited. Raises ExecutorError when the process is past its memory already.
    """
    if sys.platform == "win32":
        return [f"{name}: this platform has no resource limits" for name in _asked(permissions)]
    import resource

    _check_memory(permissions)
    _lower(resource.RLIMIT_CORE, 0)
    missing = [
        *_try("memory", resource.RLIMIT_AS, permissions.memory),
        *_try("file_size", resource.RLIMIT_FSIZE, permissions.file_size),
        *_try("open_files", resource.RLIMIT_NOFILE, permissions.open_files),
    ]
    if permissions.cpu is not None:
        seconds = _after(permissions.cpu + preparing)
        missing += _try("cpu", resource.RLIMIT_CPU, seconds, seconds + _CPU_GRACE)
    return missing + _limit_processes(permissions, apart=apart, threads=threads)


def begin_job(permissions: Permissions) -> None:
    """Let the processor time of a job count from here, as far as `is_worn` said that there is enough of it.

    What the first call takes away from that of the process, no later one gives back.
    """
    if permissions.cpu is None or sys.platform == "win32":
        return
    import resource

    seconds = _after(permissions.cpu)
    reserve = _CPU_GRACE + int(permissions.cpu * _RESERVE)
    # Where the system refuses limits, that was told when they were applied.
    with suppress(OSError, ValueError):
        _lower(resource.RLIMIT_CPU, seconds, seconds + reserve)


def is_worn(permissions: Permissions) -> bool:
    """Whether this process has too little processor time left for another job."""
    if permissions.cpu is None or sys.platform == "win32":
        return False
    import resource

    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    return most != resource.RLIM_INFINITY and _after(permissions.cpu) + _CPU_GRACE > most


def _after(seconds: int) -> int:
    """The processor time of this process after so many seconds more, in whole ones, which is what the kernel counts."""
    return ceil(time.process_time() + seconds)


def _limit_processes(permissions: Permissions, *, apart: bool, threads: int) -> list[str]:
    if permissions.processes is None or sys.platform == "win32":
        return []
    import resource

    if os.getuid() == 0:
        return ["processes: the kernel does not limit root's; run the worker as another user"]
    if apart:
        _lower(resource.RLIMIT_NPROC, permissions.processes + threads)
        return []
    running = _tasks_of_the_user()
    if running is None:
        return ["processes: there is no user namespace, and no /proc to count the user's processes by"]
    _lower(resource.RLIMIT_NPROC, running - 1 + permissions.processes + threads)
    told = f"the limit is what runs now ({running}) and {permissions.processes - 1} more, for all of them together"
    return [f"processes: without a user namespace the kernel counts all processes of the user: {told}"]


def _tasks_of_the_user() -> int | None:
    """How many processes and threads the user runs, this one included; None when it cannot be told."""
    try:
        return sum(_tasks(entry.path) for entry in os.scandir("/proc") if entry.name.isdigit())
    except OSError:
        return None


def _tasks(process: str) -> int:
    with suppress(OSError):
        if os.stat(process).st_uid == os.getuid():
            return len(os.listdir(f"{process}/task"))
    return 0


def _asked(permissions: Permissions) -> list[str]:
    names = ("memory", "cpu", "file_size", "open_files", "processes")
    return [name for name in names if getattr(permissions, name) is not None]


def _check_memory(permissions: Permissions) -> None:
    if permissions.memory is None:
        return
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        if used >= permissions.memory:
            raise ExecutorError(
                f"memory is {permissions.memory} bytes, the child has {used} bytes of address space before the first "
                "job: grant more"
            )


def _try(name: str, kind: int, soft: int | None, hard: int | None = None) -> list[str]:
    # Not every system that knows a limit lets it be set.
    try:
        _lower(kind, soft, hard)
    except (OSError, ValueError) as error:
        return [f"{name}: this system refuses the limit: {error}"]
    return []


def _lower(kind: int, soft: int | None, hard: int | None = None) -> None:
    if soft is None or sys.platform == "win32":
        return
    import resource

    most = resource.getrlimit(kind)[1]
    hard = soft if hard is None else hard
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))
