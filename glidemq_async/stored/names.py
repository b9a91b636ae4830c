"""Valid names of queues, prefixes, workers and ids, and the store keys of a queue.

docs/internals/stored-data.md describes the contents of each store key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "ALERT_QUEUE",
    "MAX_ID_BYTES",
    "MAX_NAME_BYTES",
    "SYSTEM",
    "SYSTEM_QUEUE",
    "QueueKeys",
    "check_id",
    "check_name",
]

MAX_NAME_BYTES: Final = 256
MAX_ID_BYTES: Final = 512

SYSTEM: Final = "system/"
"""The beginning of the names of the queues of the library itself."""
SYSTEM_QUEUE: Final = "system/ops"
"""The queue of the operations core: bulk operations are its jobs, and it stores the audit lines."""
ALERT_QUEUE: Final = "system/alerts"
"""The queue of alerts: notifications are its jobs, and it stores the rules and the episodes."""

# Braces delimit the hash tag: a name with a brace would spread the store keys of one queue over several cluster slots.
# Colons separate the parts of a store key, so `a:b` could be two different keys. Ids have no such rule, because they
# come last.
_FORBIDDEN: Final = frozenset("{}:")


def check_name(kind: str, value: str) -> str:
    """Validate the name of a queue, a prefix, a subscription or a worker, and return it.

    Raises TypeError unless it is a str. Raises ValueError for an empty name, a name of more than 256 bytes, and a name
    with `{`, `}`, `:` or control characters, because these have a meaning in store keys.
    """
    _check_text(kind, value, MAX_NAME_BYTES)
    for character in value:
        if character in _FORBIDDEN:
            raise ValueError(f"{kind} {value!r} contains {character!r}, which has a meaning in store keys; use - or .")
    return value


def check_id(kind: str, value: str) -> str:
    """Validate the id of a job, an ordering key, a deduplication or a scheduler, and return it.

    Raises TypeError unless it is a str. Raises ValueError for an empty id, an id of more than 512 bytes, and an id with
    control characters. All other characters are allowed.
    """
    _check_text(kind, value, MAX_ID_BYTES)
    return value


def _check_text(kind: str, value: str, limit: int) -> None:
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{kind} must be a str, not {value!r}")
    if not value:
        raise ValueError(f"{kind} must not be empty, got {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{kind} {value!r} contains a lone surrogate, not valid in UTF-8") from None
    if size > limit:
        raise ValueError(f"{kind} is {size} bytes long, but at most {limit} are allowed: {value[:40]!r}…")
    # Hot path: str.isprintable is one pass in C, and is rarely false for a text without control characters.
    if not value.isprintable() and any(map(_is_control, value)):
        raise ValueError(f"{kind} {value!r} contains a control character; remove it")


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The store keys of one queue, for example `glide:{emails}:fifo`.

    The braces are literal: they place all store keys of a queue in one cluster slot. Raises the errors of `check_name`.
    """

    prefix: str
    queue: str
    base: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("prefix", self.prefix)
        check_name("queue name", self.queue)
        object.__setattr__(self, "base", f"{self.prefix}:{{{self.queue}}}")

    @classmethod
    def of(cls, base: str) -> QueueKeys:
        """Return the store keys of the queue with this base key."""
        prefix, _, queue = base.removesuffix("}").partition(":{")
        return cls(prefix, queue)

    @staticmethod
    def queue_of(base: str) -> str:
        """Return the name of the queue with this base key, for messages. Other texts are unchanged."""
        return base.removesuffix("}").partition(":{")[2] or base

    @classmethod
    def pattern(cls, prefix: str) -> str:
        """Return the pattern of SCAN that finds one key of each queue with this prefix; see `found`."""
        return re.sub(r"([*?\[\]\\^-])", r"\\\1", check_name("prefix", prefix)) + ":{*}:meta"

    @classmethod
    def found(cls, keys: Iterable[bytes]) -> list[str]:
        """Return the names of the queues whose keys `pattern` has found, sorted and each once."""
        names = {key.decode(errors="replace").partition(":{")[2].removesuffix("}:meta") for key in keys}
        # The key of a job's record matches too if its id ends like the pattern, because ids are free text.
        return sorted(name for name in names if "}" not in name)

    def key(self, name: str) -> str:
        """Return the store key of one structure, for example `fifo`."""
        return f"{self.base}:{name}"

    def job(self, job_id: str) -> str:
        """Return the store key of a job's record."""
        return f"{self.base}:job:{job_id}"

    def channel(self, name: str) -> str:
        """Return the name of a pub/sub channel, for example `wake:w1`, in the cluster slot of the queue."""
        return f"{self.base}:{name}"
