"""The default read set: paths that a Python program must read, for any permissions (see docs/permissions.md).

A directory of sys.path that belongs to an application may contain more than code, for example a `.env` file, or a whole
home directory if a script was started there. In such a directory, only the names and the importable files are readable.
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
"""Files about itself that a process may read. The others reveal the machine: its connections, its mounts."""
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
"""Directories that contain only compiled code or the metadata of a package."""
_WRITABLE_DEVICES: Final = ("random", "urandom", "tty", "ptmx", "pts", "shm")


_FRESH_SECONDS: Final = 5.0
_AGED_SECONDS: Final = 10.0
"""A forked process uses the paths that its parent found, up to this age."""


class _Found(NamedTuple):
    at: float
    readable: list[str]
    listed: list[str]


_found: list[_Found] = []


def look_for_code() -> None:
    """Find the results of `runtime_paths` and `listed_paths`, for processes that are forked from this one.

    Does nothing if that happened within the last 5 seconds.
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
    """Return the paths that may be read with everything below them. Paths of code may be 10 seconds old."""
    # Not cached: `/proc/self` is another directory in each process, and a forked child must not get the rules of its
    # parent.
    own = (f"/proc/self/{name}" for name in _OWN)
    return [*_known().readable, *(path for path in own if os.path.exists(path))]


def _runtime_paths(application: Iterable[Path]) -> list[str]:
    archives = (entry for entry in sys.path if os.path.isfile(entry))
    found = {*_SYSTEM, *_SETTINGS, *_KERNEL, *_installation(), *_library(), *archives}
    for directory in application:
        found.update(_importable(directory))
    return sorted(path for path in found if os.path.exists(path))


def listed_paths() -> list[str]:
    """Return the directories that may be listed, which imports need, but not read."""
    return _known().listed


def device_paths() -> list[str]:
    """Return the devices that may be read and written."""
    return [path for path in _DEVICES if os.path.exists(path)]


def every_path() -> list[str]:
    """Return the paths below which everything may be written with write=True.

    Kernel settings and devices are left out: write access to them gives control of the machine, and root does not even
    need a capability for it.
    """
    places = [f"/{name}" for name in os.listdir("/") if name not in {"proc", "sys", "dev"}]
    return [*places, *(path for name in _WRITABLE_DEVICES if os.path.exists(path := f"/dev/{name}"))]


def program_paths() -> list[str]:
    """Return the paths from which programs may be started if the job may start processes."""
    places = {*_SYSTEM, *_installation()}
    return sorted(path for path in places if os.path.exists(path))


def _installation() -> Iterator[str]:
    """Yield the interpreter, its standard library and its packages."""
    for paths in (sysconfig.get_paths(), sysconfig.get_paths(vars={"base": sys.base_prefix})):
        # "data" is the prefix itself, which may contain more than Python.
        yield from (path for name, path in paths.items() if name != "data")
    yield sys.executable
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from (os.path.join(prefix, name) for name in ("bin", "lib", "lib64", "pyvenv.cfg", "share"))


def _application() -> set[Path]:
    """Return the directories of sys.path and of imported modules that are not part of the installation."""
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
    """Yield the files of a directory and of its packages that Python can import, and no other files.

    A directory without code is searched if the one above it has code: it may be a namespace package.
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
    """Return True if a directory was not seen before. Links may lead to the same directory repeatedly."""
    with suppress(OSError):
        status = os.stat(directory)
        known = (status.st_dev, status.st_ino)
        if known not in seen:
            seen.add(known)
            return True
    return False


def _library() -> Iterator[str]:
    """Yield the directories of this library, which contain more than modules."""
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
