"""Check before a deployment whether the runs in flight fit the new code: export them, and replay them with an app."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, cast

from glidemq_async.client.payload_coder import Payloads
from glidemq_async.errors import SerializationError
from glidemq_async.functions.steps import StoredJournal
from glidemq_async.jobs.journal import FORKED_FROM
from glidemq_async.jobs.remote_steps import plain_journal
from glidemq_async.queues.queue import Queue
from glidemq_async.tasks.app import GlideMQ, core_of
from glidemq_async.tasks.task import definition_of
from glidemq_async.tasks.workflows import is_body
from glidemq_async.workflows.fingerprint import fingerprint_of
from glidemq_async.workflows.replaying import ExportedRun, RunReplay, replay_run

IN_FLIGHT = "-state:completed,failed"
"""The filter of the runs that will run again by themselves."""


async def export_runs(queue: Queue[Any, Any], wanted: str = IN_FLIGHT) -> AsyncIterator[ExportedRun]:
    """Iterate over the runs of a queue that match a filter and have recorded steps.

    Raises SerializationError for a run whose arguments or results msgpack cannot store, FilterError and
    StorageUnavailable.
    """
    async for job in queue.iter_find(wanted):
        steps, requeued = await plain_journal(job)
        if steps:
            origin = job.headers.get(FORKED_FROM)
            yield ExportedRun.of(queue.name, job.id, job.name, origin, job.data, StoredJournal(steps, requeued))


async def check_exported(mq: GlideMQ[Any], runs: Iterable[ExportedRun]) -> list[RunReplay]:
    """Replay exported runs with the workflows of an app, one after another. Needs no server.

    Steps are not executed: recorded ones return their recorded results, and a run stops where it asks for another one.
    Code of a workflow outside of its steps is executed.
    """
    return [await _check(mq, run) for run in runs]


async def _check(mq: GlideMQ[Any], run: ExportedRun) -> RunReplay:
    core = core_of(mq)
    task = core.tasks.get(run.workflow)
    if task is None or not is_body(definition_of(task).function):
        return RunReplay(run.id, run.workflow, "unknown", reason="the app has no workflow of this name")
    shared = core.shared_of(run.queue)
    payloads = Payloads("check", shared.get("serializer"), ())
    definition = definition_of(task)
    function = cast("Callable[..., Coroutine[Any, Any, Any]]", inspect.unwrap(definition.function))
    try:
        return await replay_run(run, function, fingerprint_of(function), payloads, definition.arguments.read)
    except SerializationError as error:
        return RunReplay(run.id, run.workflow, "unknown", reason=str(error))
