"""Access to the inside of a queue, for tasks, flows and operations. Programs use the public methods of Queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

from glidemq_async.client.growing_collection import GrowingCollection
from glidemq_async.client.job_collection import Deliver
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.add import AddRequest
from glidemq_async.instrumentation import Addition, Instruments
from glidemq_async.jobs.batch import JobBatch
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions, layered
from glidemq_async.options.stored_options import ReplyTo
from glidemq_async.queues.awaited_add import AwaitedReply
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.queue import Queue
from glidemq_async.queues.telemetry_headers import with_added_headers


def add_prepared(
    queue: Queue[Any, Any], name: str, data: object, options: JobOptions
) -> Coroutine[Any, Any, Job[Any, Any]]:
    """Add a job without the queue's default options, for tasks. Raises what `add` raises."""
    return queue._add_one(name, data, options, None)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def add_prepared_and_wait(
    queue: Queue[Any, Any],
    name: str,
    data: object,
    options: JobOptions,
    note: Callable[[Job[Any, Any]], Awaitable[Job[Any, Any]]],
    *,
    wait_timeout: float | timedelta | None,
    revoke_if_abandoned: bool,
) -> Any:
    """Do `add_and_wait` without the queue's default options, for tasks. `note` is called when the job is stored."""

    async def add(reply: AwaitedReply) -> Job[Any, Any]:
        return await note(await queue._add_one(name, data, options, reply))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    return await queue._add_awaited(add, name, options.job_id, wait_timeout, tied=revoke_if_abandoned)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def add_for_caller(
    queue: Queue[Any, Any], jobs: Iterable[JobInput[Any]], collection: GrowingCollection
) -> JobBatch[Any, Any]:
    """Add jobs like `add_bulk` for a caller that waits for their ends in this collection."""
    ids: list[tuple[str, bool]] = []
    collection.begin_add()
    try:
        reply = ReplyTo(queue._client.results.channel)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        added = await queue._add_bulk(jobs, reply)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        ids = [(job.id, job.outcome == "added") for job in added]
    except GlideMQError as error:
        ids = [(job_id, True) for job_id in error.bulk.stored.values()] if error.bulk else []
        raise
    finally:
        collection.end_add(ids)
    return added


async def collect_added(queue: Queue[Any, Any], deliver: Deliver) -> GrowingCollection:
    """Return a wait for the jobs of `add_for_caller`. They are revoked when the caller leaves."""
    await queue.connect()
    results = queue._client.results  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    # Before the first add, so that the end of a fast job reaches this client as a message.
    await results.listen()
    return results.collect_added(deliver, tied=True)


def prepare_request(
    queue: Queue[Any, Any], name: str, data: object, options: JobOptions | None, addition: Addition | None = None
) -> tuple[AddRequest, JobOptions]:
    """Return the request and the options for one job, which a flow stores. Raises what `add` raises before it sends.

    The job gets the headers of the addition.
    """
    chosen = layered(queue._defaults, options, {})  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if addition is not None:
        chosen = with_added_headers(chosen, addition)
    return queue._request(name, data, chosen, None), chosen  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def observing(queue: Queue[Any, Any]) -> Queue[Any, Any]:
    """Mark a queue as read by a tool, and return it. The tool fires no job schedulers, and does not migrate the
    queue."""
    client_of(queue).is_observer = True
    return queue


def addition_to(queue: Queue[Any, Any], name: str, options: JobOptions | None) -> tuple[Instruments, Addition] | None:
    """Return the addition of one job for the instrumentation of the queue, None without instrumentation."""
    instruments = queue._instruments  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if not instruments:
        return None
    chosen = layered(queue._defaults, options, {})  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return instruments, Addition(queue.name, name, chosen.headers)


def client_of(queue: Queue[Any, Any]) -> QueueClient:
    """Return the connection of a queue, for flows."""
    return queue._client  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
