"""Detects which mechanisms of the sandbox this machine has, for `glidemq doctor` and for early refusals."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox import filters, landlock
from glidemq_async.executors.sandbox.kernel import IS_LINUX, machine

_NO_LANDLOCK: Final = "Landlock is missing (it needs Linux 5.13, and must be enabled in the kernel)"
_NO_FILTERS: Final = "seccomp filters are missing (they need Linux on x86_64 or aarch64)"
_FEATURES: Final = (
    ("landlock", 1, "paths: reading, writing, creating, removing (Linux 5.13)"),
    ("landlock refer", 2, "moves and links between granted directories (5.19); before, they are refused"),
    ("landlock truncate", 3, "truncation by Landlock (6.2); before, by seccomp"),
    ("landlock tcp", 4, "TCP ports (6.7)"),
    ("landlock devices", 5, "ioctl on devices (6.10)"),
    ("landlock scope", 6, "signals and abstract unix sockets stay inside (6.12)"),
)
_USUAL_BUFFER: Final = 212_992
"""Bytes of a socket's buffers if the kernel does not report them."""
_TRY_NAMESPACE: Final = (
    "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
    "r = c.unshare(0x10000000); print(os.strerror(ctypes.get_errno()) if r else 'ok')"
)


@dataclass(frozen=True, slots=True)
class Support:
    """One mechanism of the sandbox, its availability on this machine, and its purpose."""

    name: str
    available: bool
    detail: str


def support() -> list[Support]:
    """Return the mechanisms of the sandbox and their availability. For diagnosis: it starts a short process."""
    version = landlock.version()
    where = f"{platform.system()} {platform.release()} on {machine()}"
    return [
        Support("limits", sys.platform != "win32", "memory, cpu, file_size, open_files, processes"),
        Support("seccomp", IS_LINUX and filters.available(), f"system calls; this is {where}"),
        *(Support(name, version >= since, f"{detail}; found version {version}") for name, since, detail in _FEATURES),
        _user_namespaces(),
        _socket_buffers(),
    ]


def unenforced(permissions: Permissions, version: int, *, filtered: bool) -> list[str]:
    """Return the permissions that cannot be enforced with this version of Landlock (0: none) and seccomp filters."""
    missing: list[str] = []
    if version < 1:
        missing.append(f"memory and environment of the user's other processes, in /proc: {_NO_LANDLOCK}")
        missing += [f"{name}: {_NO_LANDLOCK}" for name in ("read", "write") if getattr(permissions, name) is not True]
    elif version < 3 and not filtered and permissions.write is not True:
        missing.append("write: truncation is not refused (needs Linux 6.2)")
    if isinstance(permissions.network, tuple) and version < 4:
        missing.append("network: TCP ports cannot be restricted (needs Linux 6.7), so every port can be reached")
    if version < 6 and (permissions.subprocess or not filtered):
        missing.append("signals to other processes of the user (needs Linux 6.12)")
    missing += _uncounted(permissions)
    return missing if filtered else missing + _unfiltered(permissions)


def _unfiltered(permissions: Permissions) -> list[str]:
    names = ["network"] if permissions.network is not True else []
    names += [] if permissions.subprocess else ["subprocess"]
    return [f"{name}: {_NO_FILTERS}" for name in (*names, "system calls")]


def _uncounted(permissions: Permissions) -> list[str]:
    """Return a note if the sockets of a process may use more memory than it is granted in total."""
    if not IS_LINUX or permissions.memory is None or permissions.open_files is None:
        return []
    most = permissions.open_files * _setting("core/wmem_default", _USUAL_BUFFER)
    if most <= permissions.memory:
        return []
    held = f"{permissions.open_files} open files may hold {most} bytes in the buffers of sockets"
    advice = f"grant fewer open_files, or more memory than {permissions.memory}"
    return [f"memory: {held}, which the kernel does not count; {advice}"]


def _socket_buffers() -> Support:
    """Return how much kernel memory a job may use in addition to its `memory`."""
    if not IS_LINUX:
        return Support("socket buffers", False, "not on this platform")
    local = _setting("core/wmem_default", _USUAL_BUFFER)
    tcp = _setting("ipv4/tcp_wmem", 4 * 2**20) + _setting("ipv4/tcp_rmem", 6 * 2**20)
    detail = f"each open file may use {local} bytes in addition to memory=, a TCP connection {tcp}"
    return Support("socket buffers", filters.available(), f"{detail}; a control group limits both")


def _setting(name: str, usual: int) -> int:
    """Return the last number of a network setting."""
    try:
        with open(f"/proc/sys/net/{name}", encoding="ascii") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return usual


def _user_namespaces() -> Support:
    found = "not on this platform"
    if IS_LINUX:
        command = [sys.executable, "-I", "-S", "-c", _TRY_NAMESPACE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - ours
        found = done.stdout.strip() or "failed"
        if found == "ok" and os.getuid() == 0:
            found = "the kernel does not limit the processes of root; run the worker as another user"
    return Support("user namespaces", found == "ok", f"an exact count of processes: {found}")
