"""The list of attacks, their permissions, and their targets."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from glidemq_async.executors.sandbox.kernel import machine
from glidemq_async.executors.sandbox.numbers import NUMBERS

SECRET = "the text that must not get out"
WON = 42
"""Exit status of an attack that replaces or ends its own process."""


@dataclass(frozen=True)
class Target:
    """The objects that a test made as targets. `work` is the one directory that is granted for writing."""

    secret: str
    readable: str
    outside: str
    work: str
    application: str
    victim: int
    address: int
    tcp: int
    granted_tcp: int
    udp: int
    unix: str
    datagrams: str
    abstract: str
    leaked: int
    terminal: int


Function: TypeAlias = Callable[[Target], object]


@dataclass(frozen=True)
class Attack:
    """A function and its permissions in addition to the permissions of the test."""

    name: str
    function: Function
    permissions: dict[str, Any]
    unprivileged: bool = False


ATTACKS: dict[str, Attack] = {}


def attack(*, unprivileged: bool = False, **permissions: Any) -> Callable[[Function], Function]:
    """Register an attack. `unprivileged`: skip it for root, to whom some limits do not apply."""

    def register(function: Function) -> Function:
        ATTACKS[function.__name__] = Attack(function.__name__, function, permissions, unprivileged)
        return function

    return register


def syscall(name: str, *arguments: object) -> int:
    """Make a system call by its name, without Python's own checks; raises OSError."""
    call: Any = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    number = NUMBERS[machine()].get(name, _MORE.get(machine(), {}).get(name, -1))
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(call(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


_MORE = {
    "x86_64": {"pidfd_open": 434, "getxattr": 191},
    "aarch64": {"pidfd_open": 434, "getxattr": 8},
}
