"""The function library of a server, read without loading one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from glidemq_async.cli.doctor.abilities import attempt, is_unknown
from glidemq_async.cli.doctor.check import Check, fail, ok, warn
from glidemq_async.cli.exits import CommandError
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


class LibraryCheck(NamedTuple):
    """A finding about the library of a server. `must_be_loaded`: the next client has to load it."""

    check: Check
    must_be_loaded: bool = False


async def check_library(wire: Wire) -> LibraryCheck:
    """Compare the loaded library with the shipped one."""
    mine = shipped_document()
    try:
        others = await loaded_libraries(wire)
    except CommandError as error:
        return await _check_unlisted(wire, mine, error)
    theirs = next((one for one in others if one["library"] == LIBRARY), None)
    if theirs is None:
        also = "; other versions: " + ", ".join(one["library"] for one in others) if others else ""
        found = f"not loaded yet; the first client loads {mine['version']}{also}"
        return LibraryCheck(ok("functions", found), must_be_loaded=True)
    # `Library.stamped` appends `storageStamp` to each text that it loads. A library without that function was loaded in
    # another way.
    if not theirs["version"]:
        found = f"{LIBRARY} is of unknown version"
        return LibraryCheck(fail("functions", found, "it was loaded by hand; connect a client to replace it"))
    return _compare(theirs, mine)


async def _check_unlisted(wire: Wire, mine: Mapping[str, Any], refusal: CommandError) -> LibraryCheck:
    """Check the library for a user that may not list libraries, as most workers."""
    reply = await attempt(wire, "FCALL_RO", f"{LIBRARY}_storageStamp", 0)
    if isinstance(reply, bytes):
        version, _, fingerprint = reply.decode().partition(" ")
        return _compare({"version": version, "fingerprint": fingerprint}, mine)
    if str(reply).startswith("ERR Function not found"):
        return LibraryCheck(ok("functions", f"not loaded yet; {mine['version']} is needed"), must_be_loaded=True)
    if is_unknown(reply):
        advice = "use Redis 7.0, Valkey 7.2 or newer, or a service with functions"
        return LibraryCheck(fail("functions", "the server has no functions", advice))
    advice = "allow FCALL and FCALL_RO to this user; `glidemq acl` prints the rules of each role"
    return LibraryCheck(fail("functions", str(refusal), advice))


def _compare(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> LibraryCheck:
    version = f"{theirs['version']} {theirs['fingerprint']}".rstrip()
    if theirs["fingerprint"] == mine["fingerprint"]:
        return LibraryCheck(ok("functions", f"{LIBRARY} {version}, the same as in this package"))
    if is_outdated(shipped(), version):
        found = f"{LIBRARY} {version} is older than {mine['version']} {mine['fingerprint']} in this package"
        return LibraryCheck(warn("functions", found, "the next client replaces it"), must_be_loaded=True)
    if is_rival(shipped(), version):
        found = f"{LIBRARY} {version} has the version of this package, but another text ({mine['fingerprint']} here)"
        advice = f"install the same build everywhere, or run FUNCTION DELETE {LIBRARY}"
        return LibraryCheck(warn("functions", found, advice))
    found = f"{LIBRARY} {version} is newer than {mine['version']} in this package"
    return LibraryCheck(warn("functions", found, "upgrade this package soon"))
