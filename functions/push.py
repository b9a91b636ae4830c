"""The message that pushes claimed jobs to an idle worker, which `push.lua` makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgpack

from glidemq_async.functions.claimed_jobs import ClaimedJob, EntriesRead, claimed_jobs, plain_job

ONE_PLAIN: Final = b"j"
"""The first byte of a message with one plain job without options, which is the most frequent push."""
KINDS: Final = (b"p", ONE_PLAIN)
"""The first bytes of the messages of pushes."""
_PLAIN_JOB = 4
"""Number of values of one plain job. A job with a record has more, and so have several jobs."""


class JobsPushed(NamedTuple):
    """Jobs that another call has claimed for this worker: an add, or a call that has resumed a job."""

    number: int
    """The number of the worker's last call before the push."""
    claimed_at: int
    """The time of the claim (server ms)."""
    jobs: Sequence[ClaimedJob]


class PlainPushed(NamedTuple):
    """One plain job without options that an add has claimed for this worker.

    JobsPushed describes `number` and `claimed_at`.
    """

    number: int
    claimed_at: int
    raw: bytes
    """The id of its entry."""
    name: bytes
    data: bytes

    def as_jobs(self) -> JobsPushed:
        """Return the push in the general form."""
        return JobsPushed(self.number, self.claimed_at, EntriesRead([(self.raw, [self.name, self.data])]))


def read_push(message: bytes) -> JobsPushed:
    """Return the jobs in a message whose first byte is in KINDS."""
    if message.startswith(ONE_PLAIN):
        return read_plain(message).as_jobs()
    number, claimed_at, packed = message.split(b" ", 2)
    values = cast("list[object]", msgpack.unpackb(packed, raw=True))
    if len(values) == _PLAIN_JOB:
        jobs = [plain_job(*values)]
    else:
        flat: list[object] = [_as_reply(cast("list[object]", one)) if isinstance(one, list) else one for one in values]
        jobs = claimed_jobs(flat)
    return JobsPushed(int(number[1:]), int(claimed_at), jobs)


def read_plain(message: bytes) -> PlainPushed:
    """Return the job in a message of the kind ONE_PLAIN."""
    number, claimed_at, raw, length, rest = message.split(b" ", 4)
    at = int(length)
    return PlainPushed(int(number[1:]), int(claimed_at), raw, rest[:at], rest[at:])


def _as_reply(history: list[object]) -> list[object]:
    """Return the history of a job as a reply has it: with None for a field that the job lacks."""
    return [item or None for item in history]
