"""The message that pushes claimed jobs to an idle worker, which `push.lua` makes."""

from __future__ import annotations

from typing import NamedTuple, cast

import msgpack

from glidemq_async.functions.claimed_jobs import ClaimedJob, claimed_jobs, plain_job

KIND = b"p"
"""The first byte of the message."""
_PLAIN_JOB = 4
"""Number of values of one plain job. A job with a record has more, and so have several jobs."""


class JobsPushed(NamedTuple):
    """Jobs that another call has claimed for this worker: an add, or one that has resumed a job."""

    number: int
    """The number of the worker's last call before the push."""
    claimed_at: int
    """The time of the claim (server ms)."""
    jobs: list[ClaimedJob]


def read_push(message: bytes) -> JobsPushed:
    """Return the jobs in a message of this kind."""
    number, claimed_at, packed = message.split(b" ", 2)
    values = cast("list[object]", msgpack.unpackb(packed, raw=True))
    if len(values) == _PLAIN_JOB:
        jobs = [plain_job(*values)]
    else:
        flat: list[object] = [_as_reply(cast("list[object]", one)) if isinstance(one, list) else one for one in values]
        jobs = claimed_jobs(flat)
    return JobsPushed(int(number[len(KIND) :]), int(claimed_at), jobs)


def _as_reply(history: list[object]) -> list[object]:
    """Return the history of a job as a reply has it: with None for a field that the job lacks."""
    return [item or None for item in history]
