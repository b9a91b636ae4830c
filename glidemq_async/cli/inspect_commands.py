"""The commands that inspect: queues, jobs, job, workers and schedulers, which can also change a scheduler."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from glidemq_async.cli.command_runner import JOB, answer, hint_at_app, hint_at_more, show_jobs
from glidemq_async.cli.options import AsJson, CommandTarget, JobId, Limit, QueueName, parse_json, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store
    from glidemq_async.jobs.job import Job
    from glidemq_async.queues.queue import Queue
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
OneQueue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="The name of a queue.", show_default="every queue")
]


@with_target
def queues(target: CommandTarget, as_json: AsJson = False) -> None:
    """List the queues, with the number of jobs in each state."""
    from glidemq_async.cli import targets

    async def look() -> Document:
        async with targets.open_store(target) as store:
            names = await targets.queue_names(store.storage, store.prefix)
            return {"queues": [await _queue(store, name) for name in names]}

    answer(look(), _show_queues, as_json=as_json)


def _show_queues(document: Document) -> None:
    from glidemq_async.cli import output

    found = [one for one in document["queues"] if one["problem"] is None]
    for one in document["queues"]:
        if one["problem"] is not None:
            typer.echo(output.text(f"{one['name']}: {one['problem']}"), err=True)
    states = list(found[0]["counts"]) if found else []
    rows = [[one["name"], "paused" if one["paused"] else "", *one["counts"].values(), one["workers"]] for one in found]
    output.print_table(["queue", "", *states, "workers"], rows, empty="no queues")


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
    queue: QueueName,
    wanted: OptionalFilter = None,
    state: StateOption = None,
    name: JobName = None,
    data: Data = None,
    newest_first: NewestFirst = None,
    limit: Limit = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Number of jobs to skip. Only with --state.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List jobs of a queue in the order in which they will start. Ended jobs are listed newest first."""
    from glidemq_async.cli import documents, targets
    from glidemq_async.queues.finding import task_parameters

    fields = None if data is None else parse_json("--data", data)
    states: list[State] | None = None if not state else [one.value for one in state]
    if offset and (states is None or name is not None or data is not None):
        raise typer.BadParameter(
            "it can only be used with --state, and without --name and --data", param_hint="--offset"
        )
    if wanted is not None and (states is not None or name is not None or data is not None):
        raise typer.BadParameter(
            "pass either a filter or the options --state, --name and --data: 'state:failed name:resize data.to:ada@x'",
            param_hint="FILTER",
        )

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            # One job more than is shown, to learn if there are others.
            if wanted is None:
                found = await _jobs(opened, states, name, fields, newest_first, limit + 1, offset)
            else:
                found = await opened.find(wanted, limit + 1, newest_first=newest_first)
            tasks = await task_parameters(opened)
            shown = [documents.job_document(job, tasks) for job in found[:limit]]
            return {"jobs": shown, "more": len(found) > limit}

    def show(found: Document) -> None:
        show_jobs(found["jobs"], JOB, target, empty="no jobs")
        hint_at_more(found, "more jobs; a higher --limit, or --offset with --state, shows them")

    answer(look(), show, as_json=as_json)


async def _jobs(
    queue: Queue[Any, Any],
    states: list[State] | None,
    name: str | None,
    data: object,
    newest_first: bool | None,
    limit: int,
    offset: int,
) -> list[Job[Any, Any]]:
    # `get_jobs` reads a range of positions. A filter needs `search_jobs`, which reads all jobs until enough of them
    # match, so an offset has no meaning there.
    if states is not None and name is None and data is None:
        return await queue.get_jobs(states, offset, offset + limit - 1, newest_first=newest_first)
    return await queue.search_jobs(states, name, data, limit, newest_first=newest_first)


@with_target
def job(target: CommandTarget, queue: QueueName, job_id: JobId, as_json: AsJson = False) -> None:
    """Show everything about one job: its data, its result or failure, and its log."""
    from glidemq_async.cli import documents, targets
    from glidemq_async.cli.exits import NOT_FOUND, CommandError
    from glidemq_async.queues.finding import task_parameters

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
    # A counter of 0 and a flag that is not set say nothing. A payload of 0 or false does.
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
    from glidemq_async.cli import output

    # The headings below follow the order of the fields in `worker_document`.
    rows = [list(one.values()) for one in document["workers"]]
    headings = ["queue", "worker", "host", "pid", "running", "of", "started", "last seen"]
    output.print_table(headings, rows, empty="no workers")


@with_target
def schedulers(
    target: CommandTarget,
    queue: QueueName,
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
    as_json: AsJson = False,
) -> None:
    """List the job schedulers of a queue, or trigger, remove, pause or resume one of them."""
    from glidemq_async.cli import documents, targets
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    given = {"--trigger": trigger, "--remove": remove, "--pause": pause, "--resume": resume}
    chosen = [option for option, scheduler_id in given.items() if scheduler_id is not None]
    if len(chosen) > 1:
        raise typer.BadParameter(f"it cannot be combined with {chosen[1]}", param_hint=chosen[0])

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            if trigger is not None:
                return {"triggered": trigger, "job_id": (await opened.trigger_job_scheduler(trigger)).id}
            for word, scheduler_id, change in (
                ("removed", remove, opened.remove_job_scheduler),
                ("paused", pause, opened.pause_job_scheduler),
                ("resumed", resume, opened.resume_job_scheduler),
            ):
                if scheduler_id is None:
                    continue
                if not await change(scheduler_id):
                    raise CommandError(f"there is no job scheduler {scheduler_id!r} in queue {queue!r}", NOT_FOUND)
                return {word: scheduler_id}
            found = await opened.get_job_schedulers()
            return {"schedulers": [documents.scheduler_document(one) for one in found]}

    answer(look(), _show_schedulers, as_json=as_json)


def _show_schedulers(document: Document) -> None:
    from glidemq_async.cli import output

    if "schedulers" not in document:
        typer.echo(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in document.items()))
        return
    columns = ["id", "name", "cron", "tz", "every", "next_at", "last_at", "fired", "skipped", "paused"]
    rows = [[one[column] for column in columns] for one in document["schedulers"]]
    headings = ["id", "job", "cron", "tz", "every", "next", "last", "fired", "skipped", "paused"]
    output.print_table(headings, rows, empty="no job schedulers")
