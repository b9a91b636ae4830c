"""Ways to start the run of a workflow again: from the beginning, with changed code, or as a fork.

functions/mending.lua has the calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgpack

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import WorkflowExists
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.mending import MAX_STEPS
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.journal import ACCEPTED, FORKED_FROM
from glidemq_async.jobs.recorded_steps import StoredStep, packed_mark, unpack_step
from glidemq_async.jobs.reply_codes import check_reply, not_found
from glidemq_async.jobs.snapshot import client_of, job_of_record
from glidemq_async.options.job_options import replaced
from glidemq_async.options.stored_options import pack_extra, stored_form
from glidemq_async.stored.names import check_id

R = TypeVar("R")

_HELD_SECONDS: Final = 100 * 365 * 86_400
"""The delay of a fork until its journal is complete. If this process dies before, the fork remains delayed."""
_CALL_BYTES: Final = 1 << 20
"""The size of the steps of one call. The server copies them, and no call may hold it up."""


async def restart(job: Job[Any, Any]) -> None:
    """Start an ended job again without its journal. Raises JobStateError, JobNotFound."""
    check_reply(await client_of(job).functions.mending.restart(job.id), "restart", job.id)


async def accept(job: Job[Any, Any]) -> None:
    """Start a failed job again, and let its workflow ask for other steps than before.

    Raises JobStateError, JobNotFound.
    """
    client = client_of(job)
    stored = await _read(client, job.id)
    mark = packed_mark(client, job.id, ACCEPTED, stored.fence)
    check_reply(await client.functions.mending.accept(job.id, ACCEPTED, mark), "accept", job.id)


async def fork(job: Job[Any, R], before: str | None, new_id: str | None) -> Job[Any, R]:
    """Add a job with the name, the data and the options of this one, and with a copy of its journal.

    `before` is the name of a step: the copy ends where the first step of this name began. Raises JobNotFound,
    WorkflowExists if a job has the new id, and ValueError if no step has the name.
    """
    client, source = client_of(job), await _read(client_of(job), job.id)
    kept = await client.read_steps(job.id)
    found = {identity: unpack_step(packed) for identity, packed in kept.steps.items()}
    chosen = found if before is None else _until(found, before, job.id)
    forked = uuid.uuid4().hex if new_id is None else check_id("id", new_id)
    await _add(client, source, forked, source.headers.get(FORKED_FROM, source.id))
    steps = [
        (identity, _with_id(client, step, kept.steps[identity], source.id, forked)) for identity, step in chosen.items()
    ]
    for page in _pages(steps):
        check_reply(await client.functions.mending.restore(forked, page), "fork", forked)
    check_reply(await client.functions.jobs.promote(forked), "fork", forked)
    return await _read(client, forked)


async def _read(client: QueueClient, job_id: str) -> Job[Any, Any]:
    record = (await client.functions.reading.get_records([job_id]))[0]
    if b"place" not in record:
        raise not_found("read", job_id)
    return job_of_record(client, job_id, record)


async def _add(client: QueueClient, source: Job[Any, Any], forked: str, origin: str) -> None:
    options = replaced(
        source.options,
        job_id=forked,
        delay=_HELD_SECONDS,
        at=None,
        deduplication=None,
        headers={**source.headers, FORKED_FROM: origin},
    )
    data = client.encode(source.data, "data", source.name, forked)
    request = AddRequest(forked, source.name, data, stored_form(options), pack_extra(options))
    reply = await client.functions.add.jobs([request])
    if reply.outcomes.get(0, "added") != "added":
        raise WorkflowExists(source.name, forked, (await _read(client, forked)).state)


def _until(found: dict[str, StoredStep], before: str, job_id: str) -> dict[str, StoredStep]:
    """Return the steps that ended before the first step of this name began."""
    begun = [step.began for step in found.values() if step.name == before]
    if not begun:
        names = ", ".join(sorted({step.name for step in found.values()})) or "none"
        raise ValueError(f"job {job_id} has recorded no step {before!r}; its steps are: {names}")
    # Earlier versions stored whole milliseconds. A step that ended in the millisecond in which the other one began was
    # its cause, or it ran at the same time. In both cases its result is valid.
    return {identity: step for identity, step in found.items() if step.name != before and step.ended <= min(begun)}


def _with_id(client: QueueClient, step: StoredStep, packed: bytes, old: str, new: str) -> bytes:
    """Return the stored form of a step for another job. A codec may bind the bytes to the id."""
    body = client.encode(client.decode(step.body, "step", step.name, old), "step", step.name, new)
    # The first run of the fork has the number 1. Its steps must look older.
    return msgpack.packb(step._replace(body=body, run=0)) if body != step.body or step.run else packed


def _pages(steps: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Split steps into calls."""
    page: list[tuple[str, bytes]] = []
    size = 0
    for identity, packed in steps:
        if page and (len(page) == MAX_STEPS or size + len(packed) > _CALL_BYTES):
            yield page
            page, size = [], 0
        page.append((identity, packed))
        size += len(packed)
    if page:
        yield page
