"""ACL rules of the server for each role: the fewest permissions with which a client can do all work of the role.

Functions run with the permissions of their caller, and opening a queue checks every command of `functions/access.lua`.
A role that writes therefore needs all of these commands. Roles differ in the functions that they may call, and in the
commands that the client sends by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async.functions import loader

ServerRole: TypeAlias = Literal["producer", "worker", "operator", "viewer", "deployer"]
ROLES: Final[tuple[ServerRole, ...]] = get_args(ServerRole)

PRODUCER_FUNCTIONS: Final = (
    "openQueue", "addJob", "addPlain", "addGroups", "giveNotice", "stageFlow", "addFlow", "advanceFlows",
    "publishMessages",
    "awaitJob", "awaitJobs", "forgetReply", "forgetReplies", "confirmReplies", "abandonJob", "revokeJob", "sendSignal",
    "followChunks", "planWrite", "openWrite", "addToWrite", "probeWrite", "endWrite",
)  # fmt: skip
"""The functions that a producer calls: it adds jobs, waits for results, and stops or signals its own jobs."""

_READS: Final = frozenset({
    "exists", "get", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "hstrlen", "lindex", "llen",
    "lpos", "lrange", "memory|usage", "pttl", "sismember", "smismember", "sscan", "time", "type", "xinfo|groups",
    "xinfo|stream", "xlen", "xpending", "xrange", "xrevrange", "zcard", "zcount", "zmscore", "zrange", "zrangebyscore",
    "zrank", "zrevrange", "zrevrank", "zscan", "zscore",
})  # fmt: skip
"""Commands of functions that change nothing."""

_CONNECTING: Final = "+ping +select +client|setname +cluster|slots +role +info"
_CHANNELS: Final = "+ssubscribe +sunsubscribe"
_WRITING: Final = f"{_CHANNELS} +spublish +pubsub|shardnumsub +fcall_ro +wait"
_CHECKING: Final = "+config|get +function|list"

_COMMANDS_OF_ROLES: Final[dict[ServerRole, str]] = {
    "producer": _WRITING,
    "worker": f"{_WRITING} +fcall +xread",
    "operator": f"{_WRITING} +fcall +xread +scan {_CHECKING}",
    "viewer": f"{_CHANNELS} +fcall_ro +xread +scan {_CHECKING}",
    "deployer": f"+fcall_ro +function|load +function|delete {_CHECKING}",
}


def rules_of(role: ServerRole, *, prefix: str = "glide", queues: Sequence[str] = ()) -> list[str]:
    """Return the ACL rules of a role, for all queues of a prefix or for the named ones.

    Raises ValueError for a name with a space, which a rule cannot contain.
    """
    rules = ["resetkeys", "resetchannels", *_patterns(role, prefix, queues), "-@all"]
    rules += _COMMANDS_OF_ROLES[role].split() + _CONNECTING.split()
    if role == "producer":
        rules += [f"+fcall|{loader.function_name(name)}" for name in PRODUCER_FUNCTIONS]
    if role != "deployer":
        rules += [f"+{name}" for name in commands_of_functions() if role != "viewer" or name in _READS]
    return rules


def _patterns(role: ServerRole, prefix: str, queues: Sequence[str]) -> Iterator[str]:
    if role == "deployer":
        return
    for queue in queues or [""]:
        # The base key of a queue, which each call names, ends with the brace.
        pattern = f"{_literal(prefix)}:" + (f"{{{_literal(queue)}}}*" if queue else "*")
        yield ("%R~" if role == "viewer" else "~") + pattern
        yield f"&{pattern}"


def _literal(name: str) -> str:
    if " " in name:
        raise ValueError(f"an ACL rule cannot name {name!r}, because it contains a space")
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)


@cache
def commands_of_functions() -> tuple[str, ...]:
    """Return the commands that functions need, for example "zadd" and "xgroup|create"."""
    # The list of the permission check is the only one, so a new command of a function is in both.
    declared = re.search(r"local COMMANDS = \{(.*?)\n\s*\}", loader.source(), re.DOTALL)
    containers = re.search(r"local CONTAINERS = \{(.*?)\}", loader.source())
    assert declared is not None  # noqa: S101 - a part of this package
    assert containers is not None  # noqa: S101
    split = set(re.findall(r"(\w+) =", containers[1]))
    uses = [line.split() for line in re.findall(r"'([^']*)'", declared[1])]
    return tuple(sorted({"|".join(use[: 2 if use[0] in split else 1]).lower() for use in uses}))
