"""The checks of this process: the interpreter, the installed packages, and the kernel's abilities."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

from glidemq_async.cli.doctor.check import Check, fail, ok, warn

NEEDED: Final = ("hiredis", "msgpack", "croniter")
USEFUL: Final = {"uvloop": "the event loop is considerably slower without it"}
OLDEST: Final = (3, 11)
_SANDBOX: Final = "glidemq_async.executors.sandbox"


def check_machine() -> Iterator[Check]:
    """Check this process."""
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform(terse=True)}"
    yield ok("python", python) if sys.version_info >= OLDEST else fail("python", python, "3.11 or newer is needed")
    yield ok("package", f"glidemq-async {version('glidemq-async')}")
    yield from _libraries()
    yield _embedded()
    yield from _sandbox()


def _libraries() -> Iterator[Check]:
    found = {name: _version(name) for name in (*NEEDED, *USEFUL)}
    missing = [name for name in NEEDED if found[name] is None]
    named = ", ".join(f"{name} {number}" for name, number in found.items() if number is not None)
    yield (
        fail("libraries", f"missing: {', '.join(missing)}", "install the package again")
        if missing
        else ok("libraries", named)
    )
    for name, why in USEFUL.items():
        if found[name] is None:
            yield warn(name, "not installed", f"pip install {name}: {why}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _embedded() -> Check:
    from glidemq_async.errors import EmbeddedServerMissing
    from glidemq_async.storage.embedded.binary import find_server

    try:
        return ok("embedded server", find_server())
    except EmbeddedServerMissing as error:
        return warn("embedded server", "none found", f"memory:// and file:// need one: {error}")


def _sandbox() -> Iterator[Check]:
    """Check which `Permissions` the executor can enforce on this kernel."""
    for one in _sandbox_support():
        name = f"sandbox: {one.name}"
        yield (
            ok(name, one.detail or "available")
            if one.available
            else warn(
                name, one.detail or "not available", "permissions that need it are not enforced, or refused when strict"
            )
        )


def _sandbox_support() -> Iterable[Any]:
    """Return the abilities that the sandbox knows, or none if this installation has no sandbox."""
    try:
        if find_spec(_SANDBOX) is None:
            return ()
        support: Any = getattr(import_module(_SANDBOX), "support", None)
    except ImportError:
        return ()
    return support() if support is not None else ()
