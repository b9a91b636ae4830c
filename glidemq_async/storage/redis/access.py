"""Permissions of the server's user: the ACL rules that are missing, and the warning about them.

A user without permissions for channels loses no job: workers poll instead of being woken, and results are read from
the record. A user without FCALL can only read. A user without a command or key pattern cannot open a queue.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

from glidemq_async.errors import StorageUnavailable

GUIDE: Final = "docs/operating.md, Permissions"
"""The page that lists the permissions."""

log: Final = logging.getLogger("glidemq_async.storage")

_COMMAND: Final = re.compile(r"run the '([^']+)' command")
# A worker opens several connections and each of them may meet the same refusal. The log gets one line per rule.
_warned: Final[set[tuple[str, str]]] = set()


class CallRefused(StorageUnavailable):
    """The server's user may not run a command of a call. `rule` is the ACL rule that allows it, such as `+fcall`."""

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


def missing_rule(problem: str, prefix: str = "glide:") -> str:
    """Return the ACL rule that an error reply NOPERM asks for, such as `+xread` or `&glide:*`."""
    command = _COMMAND.search(problem)
    if command is not None:
        return f"+{command[1].lower()}"
    return f"&{prefix}*" if "channel" in problem else f"~{prefix}*"


def prefix_of(name: str) -> str:
    """Return the part of a store key or channel that all queues of one prefix share: `glide:`."""
    return name.partition("{")[0]


def refused(where: str, rules: str) -> StorageUnavailable:
    """Return the error for a user without permissions that every queue needs."""
    return StorageUnavailable(
        f"{where} does not give this user every permission that queues need. Add to the user: {rules} "
        f"(ACL SETUSER <user> {rules}); see {GUIDE}."
    )


def warn(where: str, rules: Iterable[str]) -> None:
    """Warn about missing permissions for channels, once per process, server and rule."""
    new = [rule for rule in rules if (where, rule) not in _warned]
    if not new:
        return
    _warned.update((where, rule) for rule in new)
    text = " ".join(new)
    log.warning(
        "%s does not let this user publish or subscribe to the channels of its queues. Workers find jobs only when "
        "they poll (poll_interval), and results arrive later. Add to the user: %s (ACL SETUSER <user> %s); see %s.",
        where,
        text,
        text,
        GUIDE,
    )
