"""Drops privileges: no_new_privs, capabilities, and a user namespace with a separate count of processes."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from glidemq_async.executors.sandbox.kernel import (
    PR_GET_PDEATHSIG,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    machine,
    prctl,
    syscall,
)
from glidemq_async.executors.sandbox.numbers import NUMBERS

_CLONE_NEWUSER: Final = 0x10000000
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_CAPABILITY_VERSION: Final = 0x20080522


def forgo_new() -> None:
    """Stop programs from gaining rights by a set-user-id bit. Landlock and seccomp require it. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Drop every capability irrevocably. Root keeps its user id and the access that file modes give to it."""
    with suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    # This needs a capability itself. A user without any has nothing to drop.
    with suppress(OSError):
        for capability in range(64):
            prctl(_PR_CAPBSET_DROP, capability)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    syscall(NUMBERS[machine()]["capset"], header, struct.pack("6I", *[0] * 6))


def enter_user_namespace() -> bool:
    """Move into a user namespace, which counts only our processes. Return False if that is not possible."""
    user, group = os.geteuid(), os.getegid()
    signal = ctypes.c_int()
    try:
        prctl(PR_GET_PDEATHSIG, ctypes.byref(signal))
        syscall(NUMBERS[machine()]["unshare"], _CLONE_NEWUSER)
    except (OSError, KeyError):
        return False
    # The kernel may clear the death signal when credentials change.
    prctl(PR_SET_PDEATHSIG, signal.value)
    _map_ids(user, group)
    return True


def _map_ids(user: int, group: int) -> None:
    """Keep the ids of the user and the group inside the namespace."""
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    with suppress(OSError):
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
