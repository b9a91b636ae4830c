"""Rights: the role of a person or program, the queues that it may see, and its right to see payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async.errors import GlideMQError

Role: TypeAlias = Literal["viewer", "operator", "admin"]
"""A viewer changes nothing. An operator changes jobs and pauses queues. An admin also changes settings and removes."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
_RANK: Final = {role: rank for rank, role in enumerate(ROLES)}
EVERY_QUEUE: Final = ("*",)
PAYLOADS: Final = "payload:read"
"""The name of the right to see data, results, progress, errors and log lines of jobs."""


class AccessDenied(GlideMQError):
    """Raised when an identity lacks a right. `needed` is the role, or `payload:read`; `queue` is "" for all queues."""

    def __init__(self, name: str, needed: str, queue: str = "") -> None:
        where = f"queue {queue!r}" if queue else "all queues"
        super().__init__(f"{name or 'this client'} does not have the right {needed!r} for {where}; ask an admin for it")
        self.name = name
        self.needed = needed
        self.queue = queue

    def __reduce__(self) -> tuple[type[AccessDenied], tuple[str, str, str]]:
        return type(self), (self.name, self.needed, self.queue)


@dataclass(frozen=True, slots=True)
class Identity:
    """A person or program, and its rights.

    - `role` is "viewer", "operator" or "admin". Each role has the rights of the ones before it.
    - `queues` are patterns of the queues that it may see, such as `mail-*`. The role applies to these only.
    - `payloads` is the right to see data, results, progress, errors and log lines of jobs. No role includes it.

    Raises TypeError or ValueError for a bad value.
    """

    name: str
    role: Role = "viewer"
    queues: tuple[str, ...] = EVERY_QUEUE
    payloads: bool = False

    def __post_init__(self) -> None:
        if self.role not in _RANK:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {self.role!r}")
        object.__setattr__(self, "queues", checked_patterns(self.queues))

    @classmethod
    def owner(cls, name: str) -> Identity:
        """Return the identity of an admin who may see all queues and all payloads."""
        return cls(name, "admin", payloads=True)

    @property
    def sees_all(self) -> bool:
        """True if it may see every queue."""
        return "*" in self.queues

    def sees(self, queue: str) -> bool:
        """Return whether it may see a queue."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)

    def visible(self, queues: Iterable[str]) -> list[str]:
        """Return the given queues that it may see, in their order."""
        return list(queues) if self.sees_all else [queue for queue in queues if self.sees(queue)]

    def has(self, role: Role) -> bool:
        """Return whether it has the rights of a role."""
        return _RANK[self.role] >= _RANK[role]

    def require(self, role: Role, queue: str = "", *, payloads: bool = False) -> None:
        """Raise AccessDenied if it lacks a role, or with `payloads` the right to see them, for a queue.

        An empty `queue` stands for all queues together.
        """
        covered = self.sees(queue) if queue else self.sees_all
        if not covered or not self.has(role):
            raise AccessDenied(self.name, role, queue)
        if payloads and not self.payloads:
            raise AccessDenied(self.name, PAYLOADS, queue)


def checked_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of queues as a tuple. Raises TypeError for a single text, ValueError for none or an empty one."""
    if isinstance(patterns, str):
        raise TypeError(f"queues must be a list of patterns, got the text {patterns!r}")
    if not patterns or not all(patterns):
        raise ValueError('queues must name at least one pattern, such as "mail-*" or "*"')
    return tuple(patterns)
