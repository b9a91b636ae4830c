"""Landlock restricts the paths, TCP ports and signals of a process and its children, irrevocably."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.sandbox.kernel import IS_LINUX, machine, syscall
from glidemq_async.executors.sandbox.numbers import NUMBERS
from glidemq_async.executors.sandbox.readable import (
    device_paths,
    every_path,
    listed_paths,
    program_paths,
    runtime_paths,
)

_VERSION: Final = 1
_PATH_BENEATH, _NET_PORT = 1, 2


# Rights on files, as bits of the kernel.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE_DIR: Final = 0x1FF0
"""Creating and removing in a directory, every kind of file."""
_DEVICES: Final = 1 << 6 | 1 << 11
_MAKE_SOCKET: Final = 1 << 9
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ: Final = _READ_FILE | _READ_DIR
_WRITE: Final = _WRITE_FILE | _CHANGE_DIR & ~(_DEVICES | _MAKE_SOCKET) | _REFER | _TRUNCATE
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_SOCKETS, _SCOPE_SIGNALS = 1, 2


def version() -> int:
    """Return the version of the kernel's Landlock, 0 if it has none."""
    if not IS_LINUX or machine() not in NUMBERS:
        return 0
    with suppress(OSError):
        return _call("create_ruleset", None, 0, _VERSION)
    return 0


def restrict(permissions: Permissions, landlock: int) -> None:
    """Apply a ruleset to the calling thread. Needs no_new_privs. Raises OSError, also if a granted path is missing."""
    handled = _handled(permissions, landlock)
    ports = 0 if permissions.network is True or landlock < 4 else _BIND_TCP | _CONNECT_TCP
    ruleset = _create_ruleset(permissions, landlock, handled, ports)
    try:
        _allow_paths(ruleset, permissions, handled)
        if ports and not isinstance(permissions.network, bool):
            for port in permissions.network:
                _call("add_rule", ruleset, _NET_PORT, struct.pack("QQ", _CONNECT_TCP, port), 0)
        # From here on nothing can be opened without a rule, so the rules above had to come first.
        _call("restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _create_ruleset(permissions: Permissions, landlock: int, handled: int, ports: int) -> int:
    """Create an empty ruleset, and return its descriptor."""
    scoped = 0 if landlock < 6 else _SCOPE_SIGNALS | (0 if permissions.network is True else _SCOPE_SOCKETS)
    # An older kernel refuses fields that it does not know, so it gets only the ones of its version.
    size = 8 if landlock < 4 else 16 if landlock < 6 else 24
    attributes = struct.pack("QQQ", handled, ports, scoped)[:size]
    return _call("create_ruleset", ctypes.create_string_buffer(attributes, size), size, 0)


def _allow_paths(ruleset: int, permissions: Permissions, handled: int) -> None:
    lists = (permissions.read, permissions.write)
    asked = {path for listed in lists if isinstance(listed, tuple) for path in listed}
    for path, access in _granted(permissions).items():
        # If this user cannot open a path of the default set, its jobs cannot read it either.
        try:
            _allow_path(ruleset, path, access & handled)
        except OSError:
            if path in asked:
                raise


def _handled(permissions: Permissions, landlock: int) -> int:
    """Return the rights that the ruleset refuses unless a rule grants them."""
    # Never an empty set: a ruleset also protects the memory of processes outside.
    rights = _DEVICES
    # Every ruleset refuses moves between directories unless it handles and grants them.
    rights |= _REFER if landlock >= 2 else 0
    if permissions.read is not True:
        rights |= _READ
    rights |= _WRITE_FILE | _CHANGE_DIR
    for since, right in ((3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if landlock >= since else 0
    if permissions.read is not True or not permissions.subprocess:
        rights |= _EXECUTE
    return rights


def _granted(permissions: Permissions) -> Mapping[str, int]:
    granted: dict[str, int] = {}
    for paths, access in _grants(permissions):
        for path in paths:
            granted[path] = granted.get(path, 0) | access
    return granted


def _grants(permissions: Permissions) -> Iterator[tuple[Iterable[str], int]]:
    """Yield lists of paths with the access to them. A path may be in several lists."""
    programs = _EXECUTE if permissions.subprocess else 0
    yield runtime_paths(), _READ
    yield listed_paths(), _READ_DIR
    yield device_paths(), _READ_FILE | _WRITE_FILE
    if permissions.subprocess:
        yield program_paths(), _READ | programs
    if isinstance(permissions.read, tuple):
        yield permissions.read, _READ | programs
    if permissions.write is True:
        yield every_path(), _WRITE | _MAKE_SOCKET | _IOCTL_DEV
    else:
        sockets = _MAKE_SOCKET if permissions.network is True else 0
        yield permissions.write or (), _READ | _WRITE | programs | sockets


def _allow_path(ruleset: int, path: str, access: int) -> None:
    # A rule belongs to the opened file or directory and not to its name. A job that could replace a path by a link
    # would not get access to the target of the link.
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        if access:
            _call("add_rule", ruleset, _PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(name: str, *arguments: object) -> int:
    return syscall(NUMBERS[machine()][f"landlock_{name}"], *arguments)
