"""Applies permissions to a process for the rest of its life."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import filters, landlock, privileges
from glidemq_async.executors.sandbox.denials import watch
from glidemq_async.executors.sandbox.kernel import IS_LINUX
from glidemq_async.executors.sandbox.limits import limit
from glidemq_async.executors.sandbox.rules import rules_for
from glidemq_async.executors.sandbox.supported import unenforced

_STANDARD = 3
"""Descriptors below this one are stdin, stdout and stderr."""


def apply(permissions: Permissions, *, channels: Sequence[int] = (), threads: int = 0, preparing: int = 0) -> list[str]:
    """Apply permissions to this process, once and irrevocably, before it runs any code of a job.

    The process must have one thread: the kernel confines the calling thread and the threads that it starts later. All
    descriptors except the standard ones and `channels` are closed, so create an event loop afterwards. The `threads`
    that the executor will start here do not count as processes of the job. `preparing` is the processor time in seconds
    before the `begin_job` of the first job.

    Return the permissions that could not be enforced. Raises ExecutorError if there are any and `strict` is set, or if
    a path does not exist. The process must end after an error.
    """
    # The order of the steps is a part of the protection:
    #
    # 1. Everything that can be missing is checked before the first irrevocable step, so that `strict` refuses a process
    #    that is still usable for an error report.
    # 2. Descriptors are closed, because the kernel checks permissions only when one is opened.
    # 3. The user namespace comes before the limits: inside it the kernel counts only the processes of this job.
    # 4. `forgo_new` sets no_new_privs. Landlock and seccomp require it of processes without privileges, and it keeps
    #    set-uid programs from undoing the rest.
    # 5. Landlock opens each granted path, so it comes before the filters, which refuse some of the calls used here.
    version = landlock.version()
    filtered = IS_LINUX and filters.available()
    missing = unenforced(permissions, version, filtered=filtered) + _other_threads()
    # Check for missing mechanisms before any change. Some of them show only when they are tried.
    _refuse(permissions, missing)
    _check_paths(permissions)
    _close_others(channels)
    watch()
    # The kernel does not limit root's processes, even in a namespace.
    counts = filtered and permissions.processes is not None and os.getuid() != 0
    apart = counts and privileges.enter_user_namespace()
    missing += limit(permissions, apart=apart, threads=threads, preparing=preparing)
    _refuse(permissions, missing)
    try:
        if filtered:
            privileges.forgo_new()
            privileges.drop_capabilities()
            if version:
                landlock.restrict(permissions, version)
            # Filters come last, because they refuse some calls that the steps above need.
            filters.install(rules_for(permissions, version))
    except OSError as error:
        raise ExecutorError(f"the permissions of a job could not be applied: {error}") from error
    return missing


def _refuse(permissions: Permissions, missing: Sequence[str]) -> None:
    if permissions.strict and missing:
        raise ExecutorError(f"strict permissions cannot be enforced here: {'; '.join(missing)}")


def _check_paths(permissions: Permissions) -> None:
    for name in ("read", "write"):
        granted: bool | tuple[str, ...] = getattr(permissions, name)
        for path in () if isinstance(granted, bool) else granted:
            if not os.path.exists(path):
                raise ExecutorError(f"{name} grants {path!r}, which does not exist; create it before the job runs")


def _other_threads() -> list[str]:
    if not IS_LINUX:
        return []
    with suppress(OSError):
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        if threads > 1:
            return [f"all permissions: the process has {threads} threads, and only the calling one is confined"]
    return []


def _close_others(channels: Sequence[int]) -> None:
    """Close all other descriptors: the kernel checks permissions only when a descriptor is opened."""
    kept = sorted({number for number in channels if number >= _STANDARD})
    start = _STANDARD
    for number in kept:
        os.closerange(start, number)
        start = number + 1
    os.closerange(start, max(start, _most_descriptors()))


def _most_descriptors() -> int:
    with suppress(OSError, ValueError):
        return max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_OPEN_MAX")
    return 4096
