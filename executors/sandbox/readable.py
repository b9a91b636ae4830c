"""What a Python program has to read, whatever its job is granted: the default read set, listed in docs/permissions.md.

A directory of sys.path that belongs to an application may hold more than code, a `.env` or, when a script was started
in somebody's home, everything: of such a directory the names and what can be imported are readable, the rest is not.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store")
_SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone"),
    *("/etc/locale.alias", "/etc/locale.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/hosts", "/etc/gai.conf"),
    *("/etc/resolv.conf", "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/os-release"),
    *("/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
)
_KERNEL: Final = (
    *("/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/random", "/proc/sys/kernel/pid_max"),
    *("/proc/sys/kernel/cap_last_cap", "/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu"),
    *("/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"),
    *("/dev/random", "/dev/urandom"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_CODE: Final = (".py", ".pyc", ".so", ".pth", ".zip", ".egg", ".dist-info", ".egg-info", "__pycache__")


def runtime_paths() -> list[str]:
    """The paths that may be read with all below them; each exists."""
    archives = (entry for entry in sys.path if os.path.isfile(entry))
    found = {*_SYSTEM, *_SETTINGS, *_KERNEL, *_installation(), *archives}
    for directory in _application():
        found.update(_importable(directory))
    return sorted(path for path in found if os.path.exists(path))


def listed_paths() -> list[str]:
    """The directories of which names may be listed, as importing does, but nothing read."""
    return sorted(str(path) for path in _application())


def device_paths() -> list[str]:
    """The devices that may be read and written."""
    return [path for path in _DEVICES if os.path.exists(path)]


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
    """What of a directory Python can import: modules, packages, and where links in a package lead."""
    for entry in _entries(directory):
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(_CODE):
            yield entry.path
        elif entry.name.isidentifier() and _is_dir(entry) and _holds_code(entry.path, deeper=True):
            yield entry.path
            for inner in _entries(entry.path):
                # A rule holds for what a link leads to, and a package may link to other things than packages.
                if inner.is_symlink() and _is_dir(inner) and _holds_code(inner.path, deeper=False):
                    yield inner.path


def _holds_code(directory: str, *, deeper: bool) -> bool:
    entries = list(_entries(directory))
    if any(entry.name.endswith((".py", ".so")) for entry in entries):
        return True
    # A namespace package has no file of its own.
    return deeper and any(
        entry.name.isidentifier() and _is_dir(entry) and _holds_code(entry.path, deeper=False) for entry in entries
    )


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
