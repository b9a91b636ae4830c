"""The messages on the channel of a worker, which `wakeup.lua` publishes."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from glidemq_async.functions import push
from glidemq_async.functions.push import JobsPushed


class ClaimNow(NamedTuple):
    """A job may be ready for this worker."""


class Echo(NamedTuple):
    """The answer to a request of this worker for a message, which shows that its subscription works."""


class LeaseGone(NamedTuple):
    """The run under this entry has no lease any more, because its job was removed."""

    entry: str


class RunRevoked(NamedTuple):
    """The job of the run under this entry was revoked."""

    entry: str


class FireTimeSet(NamedTuple):
    """A fire time of a job scheduler was set that no process waits for."""


class Command(NamedTuple):
    """A command of an operator: "pause", "resume", "stop" or "concurrency <n>"."""

    text: str


Message: TypeAlias = ClaimNow | JobsPushed | Echo | LeaseGone | RunRevoked | FireTimeSet | Command


def read_message(message: bytes) -> Message | None:
    """Return a message of the server, None for a kind that a newer library publishes.

    Also None for a notice ("n"): its arrival has woken the process, which is all that a notice does.
    """
    if message.startswith(push.KINDS):
        return push.read_push(message)
    kind, _, entry = message.decode().partition(" ")
    match kind:
        case "w":
            return ClaimNow()
        case "e":
            return Echo()
        case "x":
            return LeaseGone(entry)
        case "r":
            return RunRevoked(entry)
        case "s":
            return FireTimeSet()
        case "c":
            return Command(entry)
        case _:
            return None
