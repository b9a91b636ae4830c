"""The commands that inspect: queues, jobs, job, workers and schedulers, which can also change a scheduler."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from glidemq_async.cli.command_runner import answer, hint_at_app, show_listed_jobs
from glidemq_async.cli.options import (
    AsJson,
    CommandTarget,
    JobId,
    Limit,
    OneQueue,
    QueueName,
    Reason,
    parse_json,
    with_target,
)

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store
    from glidemq_async.ops.core import Ops
    from glidemq_async.stored.record import State


class StateName(StrEnum):
    """The states of jobs, as an enumeration for typer."""

    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    PRIORITIZED = "prioritized"
    KEY_WAITING = "key-waiting"
    RATE_LIMITED = "rate-limited"
    WAITING_CHILDREN = "waiting-children"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"


StateOption = Annotated[
    list[StateName] | None,
    typer.Option("--state", "-s", help="Only jobs in this state. Can be repeated.", show_default="all"),
]
NewestFirst = Annotated[
    bool | None,
    typer.Option("--newest-first/--oldest-first", help="List every state in this direction.", show_default="by state"),
]
JobName = Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")]
Data = Annotated[
    str | None, typer.Option("--data", metavar="JSON", help="Only jobs whose data has these items, or is this value.")
]
OptionalFilter = Annotated[
    str | None,
    typer.Argument(
        metavar="FILTER", help="For example 'state:failed added:>1h'; see docs/finding.md.", show_default="all"
    ),
]


@with_target
def queues(target: CommandTarget, as_json: AsJson = False) -> None:
    """List the queues, with the number of jobs in each state."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.queue_table import show_queues

    async def look() -> Document:
        async with targets.open_store(target) as store:
            names = await targets.queue_names(store.storage, store.prefix)
            return {"queues": [await _queue(store, name) for name in names]}

    answer(look(), show_queues, as_json=as_json)


async def _queue(store: Store, name: str) -> Document:
    from glidemq_async.errors import IncompatibleQueueError

    try:
        # These are three calls and not one snapshot. The number of workers may belong to a later moment than the
        # counts.
        async with store.queue(name) as queue:
            return {
                "name": name,
                "paused": await queue.is_paused(),
                "counts": await queue.get_job_counts(),
                "workers": len(await queue.get_workers()),
                "problem": None,
            }
    # One queue of another program or layout must not hide the others.
    except IncompatibleQueueError as error:
        return {"name": name, "paused": False, "counts": {}, "workers": 0, "problem": str(error)}


@with_target
def jobs(
    target: CommandTarget,
    queue: OneQueue = None,
    wanted: OptionalFilter = None,
    state: StateOption = None,
    name: JobName = None,
    data: Data = None,
    newest_first: NewestFirst = None,
    limit: Limit = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Number of jobs to skip. Only with --state.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List jobs in the order in which they will start. Ended jobs are listed newest first.

    Without QUEUE the jobs of every queue are listed: `glidemq jobs state:failed`.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.job_listing import JobSelection, list_jobs
    from glidemq_async.filters.filter import Filter

    if queue is not None and wanted is None and _is_filter(queue):
        queue, wanted = None, queue
    fields = None if data is None else parse_json("--data", data)
    states: list[State] | None = None if not state else [one.value for one in state]
    _check_choices(queue, wanted, states, name, data, offset)

    async def look() -> Document:
        chosen = None if wanted is None else Filter(wanted)
        selection = JobSelection(chosen, states, name, fields, newest_first, limit, offset)
        async with targets.open_store(target) as store:
            return await list_jobs(store, queue, selection)

    answer(look(), lambda found: show_listed_jobs(found, target, every_queue=queue is None), as_json=as_json)


def _is_filter(text: str) -> bool:
    """Return whether the only argument is a filter and no queue: `state:failed`, `-name:mail error:timeout`."""
    return ":" in text  # which no name of a queue contains


def _check_choices(
    queue: str | None,
    wanted: str | None,
    states: list[State] | None,
    name: str | None,
    data: str | None,
    offset: int,
) -> None:
    if offset and (queue is None or states is None or name is not None or data is not None):
        raise typer.BadParameter(
            "it can only be used with QUEUE and --state, and without --name and --data", param_hint="--offset"
        )
    if wanted is not None and (states is not None or name is not None or data is not None):
        raise typer.BadParameter(
            "pass either a filter or the options --state, --name and --data: 'state:failed name:resize data.to:ada@x'",
            param_hint="FILTER",
        )


@with_target
def job(target: CommandTarget, queue: QueueName, job_id: JobId, as_json: AsJson = False) -> None:
    """Show everything about one job: its data, its result or failure, and its log."""
    from glidemq_async.cli import documents, targets
    from glidemq_async.cli.exits import NOT_FOUND, CommandError
    from glidemq_async.queues.inspection import task_parameters

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            found = await opened.get_job(job_id)
            if found is None:
                raise CommandError(
                    f"queue {queue!r} has no job {job_id!r}; it was never added, was removed, or its retention is over",
                    NOT_FOUND,
                )
            document = documents.job_document(found, await task_parameters(opened))
            return {**document, "logs": await opened.get_job_logs(job_id)}

    def show(found: Document) -> None:
        _show_job(found)
        hint_at_app([found], target)

    answer(look(), show, as_json=as_json)


def _show_job(document: Document) -> None:
    from glidemq_async.cli import documents, output

    apart, payloads = {"logs", "stacktrace", "sealed", "unreadable"}, {"data", "return_value"}
    shown = {name: documents.cell_value(document, name) for name in document if name not in apart}
    why = {f"why no {name}": reason for name, reason in document["unreadable"].items()}
    # A counter of 0 and a flag that is not set are left out. A payload of 0 or false is shown.
    stated = {name: value for name, value in shown.items() if name in payloads or (value is not False and value != 0)}
    output.print_fields(stated | why)
    trace = document["stacktrace"]
    for heading, lines in (("log", cast("list[str]", document["logs"])), ("traceback", [trace] if trace else [])):
        if lines:
            typer.echo(f"\n{heading}:")
            typer.echo("\n".join(f"  {output.text(line)}" for each in lines for line in each.splitlines()))


@with_target
def workers(target: CommandTarget, queue: OneQueue = None, as_json: AsJson = False) -> None:
    """List the workers that were seen within the last minute."""
    from glidemq_async.cli import documents, targets

    async def look() -> Document:
        found: list[Document] = []
        async with targets.open_store(target) as store:
            if queue is not None:
                async with store.existing(queue) as opened:
                    return {"workers": [documents.worker_document(queue, one) for one in await opened.get_workers()]}
            for name in await targets.queue_names(store.storage, store.prefix):
                async with store.queue(name) as each:
                    found += [documents.worker_document(name, one) for one in await each.get_workers()]
        return {"workers": found}

    answer(look(), _show_workers, as_json=as_json)


def _show_workers(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            one["name"],
            one["queue"],
            one["running"],
            one["concurrency"],
            tables.age_of(one["started_at"]),
            tables.age_of(one["last_seen"]),
            one["host"],
            one["pid"],
        ]
        for one in document["workers"]
    ]
    optional = (tables.Column("host", optional=True), tables.Column("pid", optional=True))
    running = tables.Column("running", kept=True)
    headings: list[str | tables.Column] = ["worker", "queue", running, "of", "started", "seen", *optional]
    tables.print_table(headings, rows, empty="no workers")


@with_target
def schedulers(
    target: CommandTarget,
    queue: OneQueue = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", metavar="ID", help="Add a job of this scheduler now.")
    ] = None,
    remove: Annotated[str | None, typer.Option("--remove", metavar="ID", help="Delete this scheduler.")] = None,
    pause: Annotated[
        str | None, typer.Option("--pause", metavar="ID", help="Pause this scheduler: it adds no jobs.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="End the pause of this scheduler.")
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """List the job schedulers, or trigger, remove, pause or resume one of a queue."""
    from glidemq_async.cli import targets

    given = {"--trigger": trigger, "--remove": remove, "--pause": pause, "--resume": resume}
    chosen = [option for option, scheduler_id in given.items() if scheduler_id is not None]
    if len(chosen) > 1:
        raise typer.BadParameter(f"it cannot be combined with {chosen[1]}", param_hint=chosen[0])
    if chosen and queue is None:
        raise typer.BadParameter("name the queue of the scheduler too", param_hint=chosen[0])

    async def look() -> Document:
        async with targets.open_store(target) as store:
            if queue is None:
                names = await targets.queue_names(store.storage, store.prefix)
                return {"schedulers": [one for name in names for one in await _schedulers(store, name)]}
            if not chosen:
                await store.require(queue)
                return {"schedulers": await _schedulers(store, queue)}
        option, scheduler_id = chosen[0], str(given[chosen[0]])
        async with targets.open_change(queue, target) as (ops, _):
            return await _change_scheduler(ops, queue, option, scheduler_id, reason)

    answer(look(), lambda found: _show_schedulers(found, every_queue=queue is None), as_json=as_json)


async def _schedulers(store: Store, name: str) -> list[Document]:
    from glidemq_async.cli import documents
    from glidemq_async.errors import IncompatibleQueueError
    from glidemq_async.ops.settings import setting_of_schedule
    from glidemq_async.queues.limits import stored_settings

    try:
        async with store.queue(name) as queue:
            found = await queue.get_job_schedulers()
            stored = await stored_settings(queue)
            return [documents.scheduler_document(name, one, setting_of_schedule(stored, one.id)) for one in found]
    # One queue of another program or layout must not hide the others.
    except IncompatibleQueueError:
        return []


async def _change_scheduler(ops: Ops, queue: str, option: str, scheduler_id: str, reason: str) -> Document:
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    if option == "--trigger":
        job = await ops.fire_schedule(queue, scheduler_id, reason=reason)
        return {"triggered": scheduler_id, "job_id": job.id}
    word, change = {
        "--remove": ("removed", ops.remove_schedule),
        "--pause": ("paused", ops.pause_schedule),
        "--resume": ("resumed", ops.resume_schedule),
    }[option]
    if not await change(queue, scheduler_id, reason=reason):
        raise CommandError(f"there is no job scheduler {scheduler_id!r} in queue {queue!r}", NOT_FOUND)
    return {word: scheduler_id}


def _show_schedulers(document: Document, *, every_queue: bool) -> None:
    from glidemq_async.cli import output, tables

    if "schedulers" not in document:
        shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in document.items())
        typer.echo(output.text(shown))
        return
    rows = [
        [
            one["id"],
            one["queue"] if every_queue else None,
            one["name"],
            one["cron"] if one["cron"] is not None else _every(one["every"]),
            one["tz"] if one["cron"] is not None else None,
            "paused" if one["paused"] else "",
            tables.age_of(one["next_at"]),
            tables.age_of(one["last_at"]),
            one["fired"],
            one["skipped"],
            "" if one["origin"] == "none" else one["origin"],
            one["who"],
            one["note"],
        ]
        for one in document["schedulers"]
    ]
    when, paused, following, last = (tables.Column(name, fixed=True) for name in ("when", "", "next", "last"))
    tz = tables.Column("tz", optional=True)
    who = [tables.Column(name, optional=True) for name in ("origin", "by", "note")]
    headings: list[str | tables.Column] = ["id", "queue", "job", when, tz, paused, following, last]
    headings += ["fired", "skipped", *who]
    tables.print_table(headings, rows, empty="no job schedulers")


def _every(seconds: float | None) -> str | None:
    return None if seconds is None else f"every {seconds:g} s"
