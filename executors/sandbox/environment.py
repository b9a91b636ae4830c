"""The environment of a child: granted variables, and variables that the interpreter needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from glidemq_async.executors.permissions import Permissions

_ALWAYS: Final = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"),
    *("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONUNBUFFERED", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_DNS: Final = 53


def child_environment(permissions: Permissions, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment to start a child with.

    A child must be *started* with it, because the initial environment of a process stays readable in /proc.
    TMPDIR is the first directory that may be written, unless TMPDIR is granted.
    """
    if permissions.environment is True:
        return dict(environ)
    listed = permissions.environment if isinstance(permissions.environment, tuple) else ()
    chosen = {name: value for name, value in environ.items() if _matches(name, (*_ALWAYS, *listed))}
    chosen.update(_defaults(permissions, chosen))
    return chosen


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _defaults(permissions: Permissions, chosen: Mapping[str, str]) -> dict[str, str]:
    added: dict[str, str] = {}
    if "TMPDIR" not in chosen and isinstance(permissions.write, tuple):
        directory = next((path for path in permissions.write if os.path.isdir(path)), None)
        added.update({"TMPDIR": directory} if directory else {})
    if permissions.memory is not None and "MALLOC_ARENA_MAX" not in chosen:
        # Each thread's arena reserves 64 MiB of address space, even if it does not use them.
        added["MALLOC_ARENA_MAX"] = "2"
    if not isinstance(permissions.network, bool) and _DNS in permissions.network and "RES_OPTIONS" not in chosen:
        # Granted ports are TCP ports. The resolver uses UDP by default, so make it use TCP.
        added["RES_OPTIONS"] = "use-vc"
    return added
