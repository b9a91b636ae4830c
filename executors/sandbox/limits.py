"""Resource limits. They are hard limits of each process, and a job cannot raise them again."""

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
"""Seconds between SIGXCPU, which shows the cause in the exit status, and SIGKILL, which cannot be caught."""
_RESERVE: Final = 0.1
"""The part of a job's processor time that a process may use in total before it is replaced."""


def limit(permissions: Permissions, *, apart: bool, threads: int, preparing: int) -> list[str]:
    """Set the limits. `apart`: the kernel counts only our processes. For the other parameters see `apply`.

    Return the limits that could not be set. Raises ExecutorError if the process already uses more memory.
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
    missing += _limit_cpu(permissions, preparing)
    return missing + _limit_processes(permissions, apart=apart, threads=threads)


def begin_job(permissions: Permissions) -> None:
    """Count the processor time of a job from here. Call this only if `is_worn` is False.

    The first call lowers the limit of the process, and later calls cannot raise it again.
    """
    # The kernel counts the processor time of a process from its start, and a hard limit can only be lowered. So one
    # process cannot have a fresh hard limit for each job. The first job lowers the hard limit to its own time plus a
    # tenth and a second. Each job gets its own soft limit below that, and `is_worn` replaces the process when this
    # reserve is used up. A process that runs one job, as confined ones do by default, never gets there.
    if permissions.cpu is None or sys.platform == "win32":
        return
    import resource

    seconds = _after(permissions.cpu)
    reserve = _CPU_GRACE + int(permissions.cpu * _RESERVE)
    # If the system refuses limits, `limit` has already reported that.
    with suppress(OSError, ValueError):
        _lower(resource.RLIMIT_CPU, seconds, seconds + reserve)


def is_worn(permissions: Permissions) -> bool:
    """Return True if this process has too little processor time left for another job."""
    if permissions.cpu is None or sys.platform == "win32":
        return False
    import resource

    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    return most != resource.RLIM_INFINITY and _after(permissions.cpu) + _CPU_GRACE > most


def _after(seconds: int) -> int:
    """Return the processor time of this process in `seconds` from now, in whole seconds as the kernel counts."""
    return ceil(time.process_time() + seconds)


def _limit_cpu(permissions: Permissions, preparing: int) -> list[str]:
    if permissions.cpu is None or sys.platform == "win32":
        return []
    import resource

    seconds = _after(permissions.cpu + preparing)
    return _try("cpu", resource.RLIMIT_CPU, seconds, seconds + _CPU_GRACE)


def _limit_processes(permissions: Permissions, *, apart: bool, threads: int) -> list[str]:
    if permissions.processes is None or sys.platform == "win32":
        return []
    import resource

    if os.getuid() == 0:
        return ["processes: the kernel does not limit the processes of root; run the worker as another user"]
    if apart:
        _lower(resource.RLIMIT_NPROC, permissions.processes + threads)
        return []
    return _limit_processes_of_the_user(permissions.processes, threads)


def _limit_processes_of_the_user(processes: int, threads: int) -> list[str]:
    if sys.platform == "win32":
        return []
    import resource

    running = _tasks_of_the_user()
    if running is None:
        return ["processes: this system has no user namespaces, and no /proc in which the processes can be counted"]
    _lower(resource.RLIMIT_NPROC, running - 1 + processes + threads)
    counted = f"the limit for all of them together is {processes - 1} more than the {running} that run now"
    return [f"processes: without a user namespace the kernel counts all processes of the user; {counted}"]


def _tasks_of_the_user() -> int | None:
    """Return the number of processes and threads of the user, including this one; None if it is unknown."""
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
                f"memory={permissions.memory} bytes is too little: the child process has {used} bytes of address space "
                "before the first job; grant more"
            )


def _try(name: str, kind: int, soft: int | None, hard: int | None = None) -> list[str]:
    # Some systems know a limit but refuse to set it.
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
