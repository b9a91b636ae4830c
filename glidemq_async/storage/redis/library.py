"""Loading the function library on a node, and the check of the server it is loaded on.

A stamp function of the library returns the version that is loaded. A missing or older library is loaded, a newer one is
kept. Another text of the same version is kept too: two builds must not replace each other with every connection.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, cast

import hiredis

from glidemq_async.errors import LibraryVersionError, StorageUnavailable
from glidemq_async.functions import loader
from glidemq_async.storage.redis.access import GUIDE, missing_rule
from glidemq_async.storage.redis.wire import Reply, ReplyError, Wire, as_list, as_text

log: Final = logging.getLogger("glidemq_async.storage")

OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)


@dataclass(frozen=True)
class Library:
    """The text of a function library and its version; the default is the one that ships with this package."""

    text: str
    version: str = loader.VERSION
    name: str = loader.LIBRARY

    @cached_property
    def stamp(self) -> str:
        """Version and fingerprint, as the loaded library reports them."""
        return f"{self.version} {loader.fingerprint(self.text)}"

    @property
    def stamp_function(self) -> str:
        """The function that returns the stamp."""
        return loader.function_name("storageStamp")

    @cached_property
    def stamped(self) -> str:
        """The text to load."""
        return (
            f"{self.text}\nredis.register_function{{function_name='{self.stamp_function}', "
            f"callback=function() return '{self.stamp}' end, flags={{'no-writes', 'allow-stale'}}}}\n"
        )


@cache
def shipped(*, testing: bool = False) -> Library:
    """The library of this package; `testing` adds the switches that only throw-away servers may have."""
    return Library(loader.source(testing=testing), loader.build_version(testing=testing))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split(" ", 1)[0])[:3])


def _rank(version: str) -> tuple[tuple[int, ...], float, bool]:
    # The numbers, then builds under development before their release, then the switches of tests.
    build = re.search(r"\.dev(\d+)", version)
    return _version(version), int(build[1]) if build else math.inf, version.endswith("+testing")


def is_outdated(library: Library, loaded: str) -> bool:
    """Return whether the library replaces a loaded one, given by its stamp."""
    return _rank(loaded.split(" ", 1)[0]) < _rank(library.version)


def is_rival(library: Library, loaded: str) -> bool:
    """Return whether a loaded library, given by its stamp, is another text of the same version."""
    return loaded != library.stamp and _rank(loaded.split(" ", 1)[0]) == _rank(library.version)


# Its stub knows no element types for the tuple's length and nothing about the result.
_pack: Final = cast(
    "Callable[[tuple[str | bytes | int, ...]], bytes]",
    hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
)


def pack(*parts: str | bytes | int) -> bytes:
    """Pack one command."""
    return _pack(parts)


async def ensure_library(library: Library, wire: Wire, deadline: float) -> None:
    """Load the library unless the same or a newer one is there.

    Raises `LibraryVersionError` when the loaded one has another major version, `OSError` when the node cannot
    take it now.
    """
    # Other processes may load the library at the same moment, with this version or another one. Each round therefore
    # reads the version that is loaded now, and decides from it.
    #
    # An absent library is loaded without REPLACE. If another process loads its library between the two commands, the
    # server refuses this one, and the next round compares the versions. With REPLACE, an older library could overwrite
    # a newer one unseen.
    #
    # A library that is newer is kept, because its functions serve older clients of the same major version. Two
    # processes with different versions would otherwise replace each other's library at each connection.
    for _ in range(3):
        loaded = await wire.send(pack("FCALL_RO", library.stamp_function, 0), deadline)
        if isinstance(loaded, bytes):
            if not _outdated(library, loaded.decode(), wire.where):
                return
            command = pack("FUNCTION", "LOAD", "REPLACE", library.stamped)
        elif _is(loaded, "ERR Function not found"):
            command = pack("FUNCTION", "LOAD", library.stamped)
        else:
            raise _refused(library, loaded, wire.where)
        reply = await wire.send(command, deadline)
        if isinstance(reply, bytes):
            log.debug("loaded %s %s on %s", library.name, library.version, wire.where)
            return
        if _is(reply, f"ERR Library '{library.name}' already exists"):
            if not await _has_stamp(library, wire, deadline):
                # It was not loaded by this module, so its version is unknown.
                await _load_over(library, wire, deadline)
                return
            continue
        raise _refused(library, reply, wire.where)
    raise ConnectionError(f"the function library on {wire.where} keeps changing")


async def lacks(library: Library, function: str, wire: Wire, deadline: float) -> bool:
    """Return whether the library is loaded but lacks this function. An unreadable reply also counts as lacking it."""
    # Two different problems give "Function not found": the library is missing (another client flushed it, so load it
    # again), or the loaded version is too old or too new for this client (no attempt can succeed). The list of its
    # functions decides.
    reply = await wire.send(pack("FUNCTION", "LIST", "LIBRARYNAME", library.name), deadline)
    if isinstance(reply, OSError):
        raise reply
    found = as_list(reply)
    if found is None:
        return True
    return bool(found) and function.encode() not in _names(found)


def _names(reply: Reply) -> Iterator[Reply]:
    """Every text of a nested reply."""
    for part in as_list(reply) or []:
        if isinstance(part, list):
            yield from _names(cast("Reply", part))
        else:
            yield part


async def _has_stamp(library: Library, wire: Wire, deadline: float) -> bool:
    return isinstance(await wire.send(pack("FCALL_RO", library.stamp_function, 0), deadline), bytes)


async def _load_over(library: Library, wire: Wire, deadline: float) -> None:
    reply = await wire.send(pack("FUNCTION", "LOAD", "REPLACE", library.stamped), deadline)
    if not isinstance(reply, bytes):
        raise _refused(library, reply, wire.where)


def _outdated(library: Library, loaded: str, where: str) -> bool:
    theirs, ours = _version(loaded), _version(library.version)
    if theirs[:1] != ours[:1]:
        raise LibraryVersionError(
            f"{where} has version {loaded.split(maxsplit=1)[0]} of {library.name}, but this client needs version "
            f"{library.version}. Use a client with the same major version as the server."
        )
    if is_rival(library, loaded):
        _warn_of_rival(library, loaded, where)
    return is_outdated(library, loaded)


def _warn_of_rival(library: Library, loaded: str, where: str) -> None:
    """Warn once about each server that has another text of the same version."""
    if (where, loaded) not in _warned:
        _warned.add((where, loaded))
        log.warning(
            "%s keeps %s %s, but this process has %s. The texts differ although the version is the same. Install the "
            "same build everywhere, or run FUNCTION DELETE %s on the server: the next client then loads its own text.",
            where,
            library.name,
            loaded,
            library.stamp,
            library.name,
        )


# Servers, and the texts on them that this process has warned about.
_warned: Final[set[tuple[str, str]]] = set()


def _is(reply: Reply, start: str) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith(start)


def _refused(library: Library, reply: Reply, where: str) -> Exception:
    text = str(reply)
    if isinstance(reply, OSError):
        return reply
    # These states end by themselves. The error must be an OSError here, because `judge` sends the call again after an
    # OSError and treats a GlideMQError as final.
    if text.split(" ", 1)[0] in ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "OOM", "BUSY", "MISCONF"):
        return ConnectionError(f"{where} cannot take the function library now: {text}")
    if text.startswith("NOPERM"):
        return StorageUnavailable(
            f"{where} does not allow the function library to be called or loaded: {text}. Add to the user: "
            f"{missing_rule(text)}; `glidemq acl` prints all rules that it needs, see {GUIDE}."
        )
    return LibraryVersionError(
        f"{where} refused the function library {library.name} {library.version}: {text}. Redis >= 7.0 or "
        "Valkey >= 7.2 is needed."
    )


async def check_server(wire: Wire, deadline: float) -> int | None:
    """Refuse a server that is too old, and warn about settings that lose jobs.

    Returns the bytes that one argument of a call may have (proto-max-bulk-len), None when the server does not say.
    """
    info, config = (
        wire.send(pack("INFO", "server"), deadline),
        wire.send(pack("CONFIG", "GET", "maxmemory-policy", "proto-max-bulk-len"), deadline),
    )
    # A user may lack the permission for INFO or CONFIG. An error reply therefore only skips its check: no job depends
    # on it.
    info_reply, config_reply = await info, await config
    if isinstance(info_reply, OSError):
        raise info_reply
    if isinstance(info_reply, bytes):
        _check_version(dict(_lines(info_reply)), wire.where)
    words = [as_text(word) for word in as_list(config_reply) or []]
    settings = dict(zip(words[::2], words[1::2], strict=False))
    _check_eviction(settings.get("maxmemory-policy", "noeviction"), wire.where)
    largest = settings.get("proto-max-bulk-len", "")
    return int(largest) if largest.isdecimal() else None


def _check_eviction(policy: str, where: str) -> None:
    if policy != "noeviction":
        # Jobs do not expire; request tokens, throttles and the ledgers of bulk writes do.
        is_volatile = policy.startswith("volatile-")
        loss = "remember which calls it executed, and add a job twice" if is_volatile else "keep jobs"
        log.warning(
            "%s has maxmemory-policy %s: when memory is short it may no longer %s. Set it to noeviction.",
            where,
            policy,
            loss,
        )


def _lines(info: bytes) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return [(name, value.strip()) for name, colon, value in pairs if colon]


def _check_version(info: dict[str, str], where: str) -> None:
    product, oldest = ("Valkey", OLDEST_VALKEY) if "valkey_version" in info else ("Redis", OLDEST_REDIS)
    text = info.get("valkey_version") or info.get("redis_version") or ""
    if text and _version(text)[:2] < oldest:
        raise StorageUnavailable(
            f"{where} runs {product} {text}; functions and sharded channels need Redis >= 7.0 or "
            "Valkey >= 7.2. Upgrade the server or use a file:// URL."
        )
