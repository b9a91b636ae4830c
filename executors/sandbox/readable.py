"""What a Python program has to read, whatever its job is granted: the default read set, listed in docs/permissions.md.

A directory of sys.path that belongs to an application may hold more than code, a `.env` or, when a script was started
in somebody's home, everything: of such a directory the names and what can be imported are readable, the rest is not.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store")
_SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone"),
    *("/etc/locale.alias", "/etc/locale.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/hosts", "/etc/gai.conf"),
    *("/etc/resolv.conf", "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/os-release"),
    *("/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
)
_OWN: Final = (
    *(
        "auxv",
        "cgroup",
        "cmdline",
        "comm",
        "environ",
        "fd",
        "fdinfo",
        "io",
        "limits",
        "maps",
        "oom_score",
        "oom_score_adj",
    ),
    *("smaps", "smaps_rollup", "stat", "statm", "status"),
)
"""What a process may read about itself. The rest shows the machine: its connections, its mounts."""
_KERNEL: Final = (
    *("/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/random", "/proc/sys/kernel/pid_max"),
    *("/proc/sys/kernel/cap_last_cap", "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu"),
    *("/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"),
    *("/dev/random", "/dev/urandom"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_CODE: Final = re.compile(r".*\.(py|pyc|pth|zip|egg|so(\.\d+)*)")
_WHOLE: Final = (".dist-info", ".egg-info", ".egg", "__pycache__")
"""Directories that hold compiled code, or what a package says about itself, and nothing else."""
_WRITABLE_DEVICES: Final = ("random", "urandom", "tty", "ptmx", "pts", "shm")


_FRESH_SECONDS: Final = 5.0
_AGED_SECONDS: Final = 10.0
"""A process that is forked may use what its parent has found, unless it is older."""


class _Found(NamedTuple):
    at: float
    readable: list[str]
    listed: list[str]


_found: list[_Found] = []


def look_for_code() -> None:
    """Find what `runtime_paths` and `listed_paths` return, for the processes that are forked from this one.

    Does nothing where that happened within the last 5 seconds.
    """
    if not _found or time.monotonic() - _found[0].at > _FRESH_SECONDS:
        application = _application()
        _found[:] = [_Found(time.monotonic(), _runtime_paths(application), sorted(map(str, application)))]


def _known() -> _Found:
    if not _found or time.monotonic() - _found[0].at > _AGED_SECONDS:
        _found.clear()
        look_for_code()
    return _found[0]


def runtime_paths() -> list[str]:
    """The paths that may be read with all below them; those of the code existed at most 10 seconds ago."""
    own = (f"/proc/self/{name}" for name in _OWN)
    return [*_known().readable, *(path for path in own if os.path.exists(path))]


def _runtime_paths(application: Iterable[Path]) -> list[str]:
    archives = (entry for entry in sys.path if os.path.isfile(entry))
    found = {*_SYSTEM, *_SETTINGS, *_KERNEL, *_installation(), *_library(), *archives}
    for directory in application:
        found.update(_importable(directory))
    return sorted(path for path in found if os.path.exists(path))


def listed_paths() -> list[str]:
    """The directories of which names may be listed, as importing does, but nothing read."""
    return _known().listed


def device_paths() -> list[str]:
    """The devices that may be read and written."""
    return [path for path in _DEVICES if os.path.exists(path)]


def every_path() -> list[str]:
    """The paths below which everything may be written when all of them are granted.

    Settings of the kernel and devices are not files that belong to somebody: whoever writes them owns the machine, and
    root needs no capability for that.
    """
    places = [f"/{name}" for name in os.listdir("/") if name not in {"proc", "sys", "dev"}]
    return [*places, *(path for name in _WRITABLE_DEVICES if os.path.exists(path := f"/dev/{name}"))]


def program_paths() -> list[str]:
    """Where programs may be started from when other processes may be started at all."""
    places = {*_SYSTEM, *_installation()}
    return sorted(path for path in places if os.path.exists(path))


def _installation() -> Iterator[str]:
    """The interpreter, its standard library and its packages."""
    for paths in (sysconfig.get_paths(), sysconfig.get_paths(vars={"base": sys.base_prefix})):
        # "data" is the prefix itself, which need not hold Python alone.
        yield from (path for name, path in paths.items() if name != "data")
    yield sys.executable
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from (os.path.join(prefix, name) for name in ("bin", "lib", "lib64", "pyvenv.cfg", "share"))


def _application() -> set[Path]:
    """The directories of sys.path, and those of what is imported already, that are not part of the installation."""
    places = {entry or "." for entry in sys.path}
    # Editable installations find packages without an entry in sys.path.
    for name, module in list(sys.modules.items()):
        if "." not in name:
            inside = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
            places.update(os.path.dirname(path) or "." for path in inside if path)
    installed = {os.path.realpath(path) for path in (*_SYSTEM, *_installation())}
    found = {Path(place).resolve() for place in places}
    return {place for place in found if installed.isdisjoint(map(str, (place, *place.parents))) and _is_there(place)}


def _importable(directory: Path) -> Iterator[str]:
    """Return the files of a directory that Python can import, and those of its packages; no other file in them.

    A directory without code is looked into if the one above it has some: it may be a namespace package.
    """
    seen: set[tuple[int, int]] = set()
    left = [(str(directory), True)]
    while left:
        place, is_below_code = left.pop()
        folders: list[str] = []
        has_code = False
        for entry in _entries(place):
            if entry.name.startswith("."):
                continue
            if not _is_dir(entry):
                if _CODE.fullmatch(entry.name):
                    has_code = True
                    yield entry.path
            elif entry.name.endswith(_WHOLE):
                yield entry.path
            elif entry.name.isidentifier() and _is_new(entry.path, seen):
                folders.append(entry.path)
        if has_code or is_below_code:
            left += [(folder, has_code) for folder in folders]


def _is_new(directory: str, seen: set[tuple[int, int]]) -> bool:
    """Return whether a directory was not seen before; links may lead to one again and again."""
    with suppress(OSError):
        told = os.stat(directory)
        known = (told.st_dev, told.st_ino)
        if known not in seen:
            seen.add(known)
            return True
    return False


def _library() -> Iterator[str]:
    """Return the directories of this library, which hold more than modules."""
    for package in ("glidemq_async", "glidemq_async.functions"):
        module = sys.modules.get(package)
        yield from (os.path.realpath(place) for place in getattr(module, "__path__", ()))


def _entries(directory: str | Path) -> Iterable[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as entries:
        return list(entries)
    return ()


def _is_there(directory: Path) -> bool:
    with suppress(OSError):
        return directory.is_dir()
    return False


def _is_dir(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False
