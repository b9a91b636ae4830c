"""The message that pushes claimed jobs to an idle worker, which `push.lua` makes."""

from __future__ import annotations

from typing import NamedTuple, cast

import msgpack

from glidemq_async.functions.settle import ClaimedJob, claimed_jobs

KIND = b"p"
"""The first byte of the message."""


class JobsPushed(NamedTuple):
    """Jobs that another call has claimed for this worker: an add, or one that has resumed a job."""

    number: int
    """The number of the worker's last call before the push."""
    claimed_at: int
    """The time of the claim (server ms)."""
    jobs: list[ClaimedJob]


def read_push(message: bytes) -> JobsPushed:
    """Return the jobs in a message of this kind."""
    number, claimed_at, packed = message[len(KIND) :].split(b" ", 2)
    values = cast("list[object]", msgpack.unpackb(packed, raw=True))
    flat: list[object] = [_as_reply(cast("list[object]", one)) if isinstance(one, list) else one for one in values]
    return JobsPushed(int(number), int(claimed_at), claimed_jobs(flat))


def _as_reply(history: list[object]) -> list[object]:
    """Return the history of a job as a reply has it: with None for a field that the job lacks."""
    return [item or None for item in history]
