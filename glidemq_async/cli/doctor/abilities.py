"""The commands that a server refuses: managed servers leave some out, and users lack permissions for others."""

from __future__ import annotations

import asyncio

from glidemq_async.cli.doctor.check import Check, fail, ok, warn
from glidemq_async.cli.targets import ASK_SECONDS
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import Reply, Wire

NO_CODE = "Missing library metadata"
"""A part of the reply to a FUNCTION LOAD without code, if this user may load functions."""


async def attempt(wire: Wire, *words: str | bytes | int) -> Reply:
    """Send one command and return its reply, which may be an error."""
    return await wire.send(pack(*words), asyncio.get_running_loop().time() + ASK_SECONDS)


def is_unknown(reply: Reply) -> bool:
    """Return whether the server has no such command."""
    return isinstance(reply, Exception) and "unknown command" in str(reply).lower()


def is_refused(reply: Reply) -> bool:
    """Return whether the server's user may not run the command."""
    return isinstance(reply, Exception) and str(reply).startswith("NOPERM")


async def check_loading(wire: Wire, *, needed: bool) -> Check:
    """Check whether this user may load functions. `needed`: the library is missing or older."""
    # Without code the server loads nothing, whatever it replies.
    reply = await attempt(wire, "FUNCTION", "LOAD", "")
    if NO_CODE in str(reply):
        return ok("loading functions", "allowed")
    if is_unknown(reply):
        return fail("loading functions", "the server has no FUNCTION command", "use Redis 7.0, Valkey 7.2 or newer")
    detail = f"refused: {reply}"
    if not needed:
        return ok("loading functions", "not allowed to this user, and not needed now")
    return fail("loading functions", detail, "run `glidemq functions --load` as a user with +function|load")


async def check_channels(wire: Wire) -> Check:
    """Check whether the server has sharded channels, which wake workers and announce results."""
    # No client subscribes to this channel. A cluster may reply with the node of the channel, which shows the command
    # too.
    reply = await attempt(wire, "SPUBLISH", "glide:{doctor}:wake:doctor", "")
    if is_unknown(reply):
        return warn("channels", "the server has no sharded channels", "workers find jobs only when they poll")
    if is_refused(reply):
        return ok("channels", "this user may not publish")
    return ok("channels", "sharded channels exist")
