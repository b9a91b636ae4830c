"""The permissions of a job's code. Everything is refused unless granted; `executors/sandbox/` enforces it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, TypeAlias

Path: TypeAlias = "str | os.PathLike[str]"

_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE: Final = re.compile(r"(\d+)\s*([A-Za-z]*)")
_LARGEST: Final = 2**62
_LEAST_MEMORY: Final = 32 * 2**20
_LEAST_FILES: Final = 8
_FEW_FILES, _MANY_FILES = 64, 1_024
"""Bounds of the default of `open_files` when `memory` is limited."""
_MEMORY_OF_A_FILE: Final = 2**20
"""Bytes of `memory` for each open file. The buffers of a socket hold about a fifth of it in the kernel."""


@dataclass(frozen=True, slots=True, init=False)
class Permissions:
    """The permissions of a job in a subprocess. Everything that is not granted is refused.

    The Linux kernel enforces them on the whole child process; docs/permissions.md lists the mechanisms and the kernel
    versions. Bad values raise ValueError or TypeError here. Paths become absolute, but links are not resolved.
    """

    read: bool | tuple[str, ...]
    """Paths that may be read, with everything below them; True: every path. The Python runtime is always readable."""
    write: bool | tuple[str, ...]
    """Paths that may be read, written, created and removed, with everything below them; True: every path."""
    network: bool | tuple[int, ...]
    """TCP ports that may be connected to; True: every kind of socket except raw ones; False: none."""
    environment: bool | tuple[str, ...]
    """Variables that the child gets, "AWS_*" for all with a prefix; True: all variables of the worker."""
    memory: int | None
    """Bytes of address space of each process. With this limit, buffers of sockets and pipes cannot be enlarged."""
    cpu: int | None
    """Seconds of processor time of each job, and of each process that it starts."""
    file_size: int | None
    """Maximum size in bytes of a file that the job writes."""
    open_files: int | None
    """Maximum number of open descriptors of a process; by default one for each MiB of `memory`, from 64 to 1,024.

    Buffers of sockets and pipes are kernel memory and do not count as `memory`, so their number is limited instead.
    """
    processes: int | None
    """Maximum number of processes and threads at the same time, including the process that runs the job."""
    subprocess: bool
    """True if the job may start other processes. They have the same permissions."""
    strict: bool
    """True to run no job on a machine that cannot enforce all of the permissions."""

    def __init__(
        self,
        *,
        read: bool | Iterable[Path] = (),
        write: bool | Iterable[Path] = (),
        network: bool | Iterable[int] = False,
        environment: bool | Iterable[str] = (),
        memory: int | str | None = None,
        cpu: float | None = None,
        file_size: int | str | None = None,
        open_files: int | None = None,
        processes: int | None = None,
        subprocess: bool = False,
        strict: bool = False,
    ) -> None:
        """Check the values. Sizes are bytes or text such as "512MiB"; None means no limit."""
        values: dict[str, object] = {
            "read": _paths("read", read),
            "write": _paths("write", write),
            "network": _ports(network),
            "environment": _variables(environment),
            "memory": _size("memory", memory, _LEAST_MEMORY),
            "cpu": None if cpu is None else ceil(_number("cpu", cpu)),
            "file_size": _size("file_size", file_size, 0),
            "open_files": None if open_files is None else _count("open_files", open_files, _LEAST_FILES),
            "processes": None if processes is None else _count("processes", processes, 1),
            "subprocess": _flag("subprocess", subprocess),
            "strict": _flag("strict", strict),
        }
        if open_files is None and isinstance(granted := values["memory"], int):
            values["open_files"] = min(max(_FEW_FILES, granted // _MEMORY_OF_A_FILE), _MANY_FILES)
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _listed(name: str, value: Any) -> bool | tuple[Any, ...]:
    """Return the value as a tuple, or True when everything is granted. False becomes the empty tuple."""
    if isinstance(value, bool):
        return value or ()
    if not _is_listed(value):
        raise TypeError(f"{name} must be True, False or a list, got {value!r}")
    return tuple(dict.fromkeys(value))


def _is_listed(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike))


def _paths(name: str, value: Any) -> bool | tuple[str, ...]:
    listed = _listed(name, value)
    if isinstance(listed, bool):
        return listed
    for path in listed:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise TypeError(f"{name} lists paths, got {path!r}")
    # Absolute now: the child may have another working directory.
    return tuple(dict.fromkeys(os.path.abspath(path) for path in listed))  # noqa: PTH100 - not resolved


def _ports(value: Any) -> bool | tuple[int, ...]:
    listed = _listed("network", value)
    if isinstance(listed, bool):
        return listed
    for port in listed:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"network lists TCP ports from 1 to 65535, got {port!r}")
    return tuple(sorted(listed)) or False


def _variables(value: Any) -> bool | tuple[str, ...]:
    listed = _listed("environment", value)
    if isinstance(listed, bool):
        return listed
    for name in listed:
        if not isinstance(name, str) or not name or "=" in name or "*" in name[:-1]:
            raise ValueError(f"environment lists names of variables, with at most a * at the end, got {name!r}")
    return listed


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if not least <= value <= _LARGEST:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    if not 0 < value < _LARGEST:
        raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
    return value


def _size(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str):
        return _count(name, value, least)
    found = _SIZE.fullmatch(value.strip())
    unit = None if found is None else _UNITS.get(found[2].upper())
    if found is None or unit is None:
        raise ValueError(f"{name} must be bytes or text such as '512MiB' or '2GB', got {value!r}")
    return _count(name, int(found[1]) * unit, least)
