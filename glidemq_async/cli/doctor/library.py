"""The function library of a server, read without loading one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from glidemq_async.cli.doctor.check import Check, fail, ok, warn
from glidemq_async.cli.targets import ASK_SECONDS, ask
from glidemq_async.functions.loader import LIBRARY
from glidemq_async.storage.redis.library import is_outdated, is_rival, pack, shipped
from glidemq_async.storage.redis.wire import Reply, Wire, as_list, as_text

_FAMILY = LIBRARY.rpartition("_v")[0] + "_v*"


def shipped_document() -> dict[str, Any]:
    """Return the version and text of this package's library."""
    library = shipped()
    version, _, fingerprint = library.stamp.partition(" ")
    return {"library": library.name, "version": version, "fingerprint": fingerprint}


async def loaded_libraries(wire: Wire) -> list[dict[str, Any]]:
    """Return the libraries of this project on a server. Several major versions can be loaded together."""
    rows = as_list(await ask(wire, "FUNCTION", "LIST", "LIBRARYNAME", _FAMILY)) or []
    return [await _loaded_library(wire, _pairs(row)) for row in rows]


async def _loaded_library(wire: Wire, fields: Mapping[str, Reply]) -> dict[str, Any]:
    name = as_text(fields["library_name"])
    version, _, fingerprint = (await _stamp(wire, name)).partition(" ")
    return {
        "server": wire.where,
        "library": name,
        "version": version,
        "fingerprint": fingerprint,
        "functions": len(as_list(fields["functions"]) or []),
    }


async def _stamp(wire: Wire, library: str) -> str:
    # A function of the library returns its stamp. The text contains the stamp too, but FUNCTION LIST WITHCODE returns
    # hundreds of kilobytes.
    command = pack("FCALL_RO", f"{library}_storageStamp", 0)
    reply = await wire.send(command, asyncio.get_running_loop().time() + ASK_SECONDS)
    return reply.decode() if isinstance(reply, bytes) else ""


def _pairs(row: Reply) -> dict[str, Reply]:
    values = as_list(row) or []
    return {as_text(name): value for name, value in zip(values[::2], values[1::2], strict=True)}


async def check_library(wire: Wire) -> Check:
    """Compare the loaded library with the shipped one."""
    mine = shipped_document()
    others = await loaded_libraries(wire)
    theirs = next((one for one in others if one["library"] == LIBRARY), None)
    if theirs is None:
        also = "; other versions: " + ", ".join(one["library"] for one in others) if others else ""
        return ok("functions", f"not loaded yet; the first client loads {mine['version']}{also}")
    version = f"{theirs['version'] or 'of unknown version'} {theirs['fingerprint']}".rstrip()
    # `Library.stamped` appends `storageStamp` to each text that it loads. A library without that function was loaded in
    # another way.
    if not theirs["version"]:
        return fail("functions", f"{LIBRARY} is {version}", "it was loaded by hand; connect a client to replace it")
    return _compare(version, theirs, mine)


def _compare(version: str, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> Check:
    if theirs["fingerprint"] == mine["fingerprint"]:
        return ok("functions", f"{LIBRARY} {version}, the same as in this package")
    if is_outdated(shipped(), version):
        found = f"{LIBRARY} {version} is older than {mine['version']} {mine['fingerprint']} in this package"
        return warn("functions", found, "the next client replaces it")
    if is_rival(shipped(), version):
        found = f"{LIBRARY} {version} has the version of this package, but another text ({mine['fingerprint']} here)"
        return warn("functions", found, f"install the same build everywhere, or run FUNCTION DELETE {LIBRARY}")
    found = f"{LIBRARY} {version} is newer than {mine['version']} in this package"
    return warn("functions", found, "upgrade this package soon")
