"""The new payloads and options of jobs that move to another queue, or that are edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from glidemq_async.functions.bulk import BulkChange
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import stored_parts
from glidemq_async.options.job_options import JobOptions, merge
from glidemq_async.options.stored_options import changed_form
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.call import TaskParameters, changed_call

_NO_OPTIONS = JobOptions()


def moved(job: Job[Any, Any], target: Queue[Any, Any]) -> BulkChange:
    """Return the change that moves a job. Raises SerializationError if codecs bind its payload and refuse it."""
    client = client_of(target)
    if not client.fits(job.key):
        return BulkChange(job.id, "mode")
    # A generated id is the number of a job in its own queue, so the job gets a new one in the other queue.
    own = "" if job.id.isdecimal() else job.id
    if not client.payloads.binds(stored_parts(job)[0]):
        return BulkChange(job.id, target=own)
    # Codecs bind a payload to its job and its queue, so it is encoded again, for an id that is known now.
    own = own or uuid4().hex
    return BulkChange(job.id, data=client.encode_data(job.data, job.name, own, None), target=own)


def edited(
    job: Job[Any, Any], queue: Queue[Any, Any], tasks: TaskParameters, data: object, options: Mapping[str, Any]
) -> BulkChange:
    """Return the change that edits a job: arguments by name, and options. Raises SerializationError, ValueError."""
    changed = job.data if data is None else changed_call(job.data, data, tasks.get(job.name))
    packed = client_of(queue).encode_data(changed, job.name, job.id, job.dead_letter)
    opts = changed_form(stored_parts(job)[1], merge(_NO_OPTIONS, options)) if options else b""
    return BulkChange(job.id, data=packed, opts=opts)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for options that an edit cannot change."""
    if options:
        changed_form(b"", merge(_NO_OPTIONS, options))
