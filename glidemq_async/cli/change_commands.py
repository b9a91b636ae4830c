"""The commands that change jobs: add, retry, remove, revoke and promote."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from glidemq_async.cli.bulk_runs import Bulk, DryRun, Matching, Rate, Yes, change_matching, within
from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.option_flags import with_flags
from glidemq_async.cli.options import AsJson, CommandTarget, OneQueue, QueueName, Reason, parse_json, with_target
from glidemq_async.options.table import JOB_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glidemq_async.cli.output import Document
    from glidemq_async.jobs.job import Job
    from glidemq_async.ops.core import Ops
    from glidemq_async.queues.queue import Queue

OptionalJobIds = Annotated[
    list[str] | None, typer.Argument(metavar="JOB_ID", help="The ids of the jobs.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the job, or of a task.")]
DataArgument = Annotated[
    str | None, typer.Argument(metavar="DATA", help="The payload as JSON; - reads it from standard input.")
]
Args = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="For a task: its positional arguments, a list.")
]
Kwargs = Annotated[
    str | None, typer.Option("--kwargs", metavar="JSON", help="For a task: its keyword arguments, an object.")
]
Wait = Annotated[float | None, typer.Option("--wait", min=0, help="Wait up to this many seconds for the result.")]


@with_target
@with_flags(
    {name: (option.flag, None) for name, option in JOB_OPTIONS.items() if option.flag is not None}, after="kwargs"
)
def add(
    target: CommandTarget,
    queue: QueueName,
    name: Name,
    data: DataArgument = None,
    args: Args = None,
    kwargs: Kwargs = None,
    wait: Wait = None,
    reason: Reason = "",
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Add a job, and print its id; with --wait, its result.

    With --wait, the exit code is 1 if the job fails or does not end in time.
    """
    payload = _payload(data, args, kwargs)
    readers: dict[str, Callable[[Any], object]] = {"at": _instant, "headers": _headers}
    options = {name: readers[name](value) if name in readers else value for name, value in options.items()}

    from glidemq_async.cli import targets
    from glidemq_async.cli.add_command import planned_add

    async def do() -> Document:
        async with targets.open_store(target, make=True) as store:
            add = planned_add(store, queue, name, payload, options)
            async with targets.ops_of(store) as ops, ops.changing("add", queue, reason=reason, job=name) as change:
                job = await add()
                change.target = job.id
            document: Document = {"id": job.id, "queue": queue, "outcome": job.outcome}
            if wait is not None:
                # The id is not printed if this raises, but the job stays added. JobFailed and ResultTimeout have exit
                # code 1.
                document["return_value"] = await job.result(wait)
            return document

    answer(do(), _show_added, as_json=as_json)


def _show_added(document: Document) -> None:
    from glidemq_async.cli import output

    if "return_value" in document:
        typer.echo(output.to_json(document["return_value"]))
    else:
        said = document["id"] if document["outcome"] == "added" else f"{document['id']} ({document['outcome']})"
        typer.echo(output.text(said))


def _payload(data: str | None, args: str | None, kwargs: str | None) -> Any:
    if args is None and kwargs is None:
        if data == "-":
            data = _given()
        return None if data is None else parse_json("DATA", data)
    if data is not None:
        raise typer.BadParameter("a task takes --args and --kwargs, but not DATA", param_hint="--args")
    positional: object = parse_json("--args", args or "[]")
    keywords: object = parse_json("--kwargs", kwargs or "{}")
    if not isinstance(positional, list):
        raise typer.BadParameter(f"it must be a JSON list, got {args}", param_hint="--args")
    if not isinstance(keywords, dict):
        raise typer.BadParameter(f"it must be a JSON object, got {kwargs}", param_hint="--kwargs")
    return {"a": cast("object", positional), "k": cast("object", keywords)}


def _given() -> str:
    try:
        return typer.get_text_stream("stdin").read()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"standard input is not valid text: {error}", param_hint="DATA") from None


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError(f"{text!r} has no time zone")
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as 2030-01-31T12:00:00+01:00", param_hint="--at") from None
    return found


def _headers(found: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in found]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise typer.BadParameter(f"{name!r} is not NAME=TEXT", param_hint="--header")
    return {name: text for name, _, text in pairs}


@with_target
def retry(
    target: CommandTarget,
    queue: OneQueue = None,
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="JOB_ID", help="The jobs to run again.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run all jobs in --state again.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of jobs, the newest in --state.")
    ] = None,
    state: Annotated[
        Literal["failed", "completed"],
        typer.Option("--state", "-s", help="The state of the jobs. Jobs in another state are refused."),
    ] = "failed",
    force: Annotated[
        bool, typer.Option("--force", help="Run the named jobs again in whichever state they have ended.")
    ] = False,
    wanted: Matching = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Run failed jobs again, with fresh attempts: the named ones, --all, --count of them, or --filter.

    A completed job runs again only with --state completed or --force. If a named job is in another state, no job is
    retried.
    """
    from glidemq_async.cli import targets

    if wanted is not None:
        _require_nothing_but_filter(job_ids, everything, count)
        bulk = Bulk(yes, dry_run, rate, reason)
        change_matching(target, "retry", within(queue, wanted), bulk, {"force": force}, as_json=as_json)
        return
    queue = _named(queue)
    _require_one_choice(job_ids, everything, count)
    if force and not job_ids:
        raise typer.BadParameter("it is for named jobs; use --state for many", param_hint="--force")

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, opened):
            if not job_ids:
                return {"queue": queue, "retried": await ops.retry_jobs(queue, state, count, reason=reason)}
            # All of them are looked at before the first change: a mistyped id in a list should not leave half of the
            # work done.
            jobs = [await _existing(opened, job_id, "retried") for job_id in job_ids]
            for job in [] if force else jobs:
                _require_state(job, state)
            for job in jobs:
                await ops.retry(queue, job.id, force=force or state == "completed", reason=reason)
            return {"queue": queue, "retried": len(job_ids)}

    answer(do(), lambda done: typer.echo(f"retried {done['retried']}"), as_json=as_json)


def _require_state(job: Job[Any, Any], state: str) -> None:
    from glidemq_async.cli.exits import REFUSED, CommandError

    if job.state != state:
        remedy = "; --force runs it again" if job.state == "completed" else ""
        raise CommandError(
            f"job {job.id!r} of queue {job.queue!r} is {job.state}, not {state}{remedy}; none was retried", REFUSED
        )


@with_target
def remove(
    target: CommandTarget,
    queue: OneQueue = None,
    job_ids: OptionalJobIds = None,
    wanted: Matching = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Delete jobs with all of their data: the named ones, or --filter. A running job is stopped."""

    async def do(ops: Ops, job_id: str) -> str:
        await ops.delete(_named(queue), job_id, reason=reason)
        return "removed"

    if wanted is not None:
        _require_nothing_but_filter(job_ids, False, None)
        bulk = Bulk(yes, dry_run, rate, reason)
        change_matching(target, "delete", within(queue, wanted), bulk, {}, as_json=as_json)
        return
    _change(target, _named(queue), _named_jobs(job_ids), do, ("removed",), as_json=as_json)


@with_target
def revoke(
    target: CommandTarget,
    queue: OneQueue = None,
    job_ids: OptionalJobIds = None,
    wanted: Matching = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, in one line. The job and the audit lines store it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Revoke jobs: the named ones, or --filter. They fail with the cause `revoked`, and workers cancel running ones."""

    async def do(ops: Ops, job_id: str) -> str:
        return "revoked" if await ops.revoke(_named(queue), job_id, reason=reason) else "stopping"

    if wanted is not None:
        _require_nothing_but_filter(job_ids, False, None)
        bulk = Bulk(yes, dry_run, rate, reason)
        change_matching(target, "cancel", within(queue, wanted), bulk, {}, as_json=as_json)
        return
    found = _named_jobs(job_ids)
    _change(target, _named(queue), found, do, ("revoked", "stopping"), as_json=as_json)


@with_target
def promote(
    target: CommandTarget,
    queue: OneQueue = None,
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="JOB_ID", help="The jobs to start now.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Start all delayed jobs.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Maximum number of jobs, the next due ones first.")
    ] = None,
    wanted: Matching = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start delayed jobs now: the named ones, --all, --count of them, or --filter."""
    from glidemq_async.cli import targets

    if wanted is not None:
        _require_nothing_but_filter(job_ids, everything, count)
        bulk = Bulk(yes, dry_run, rate, reason)
        change_matching(target, "promote", within(queue, wanted), bulk, {}, as_json=as_json)
        return
    queue = _named(queue)
    _require_one_choice(job_ids, everything, count)

    async def do(ops: Ops, job_id: str) -> str:
        await ops.promote(queue, job_id, reason=reason)
        return "promoted"

    async def do_many() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            return {"queue": queue, "promoted": await ops.promote_jobs(queue, count, reason=reason)}

    if job_ids:
        _change(target, queue, job_ids, do, ("promoted",), as_json=as_json)
    else:
        answer(do_many(), lambda done: typer.echo(f"promoted {done['promoted']}"), as_json=as_json)


def _named(queue: str | None) -> str:
    if queue is None:
        raise typer.BadParameter("name the queue of the jobs, or use --filter", param_hint="QUEUE")
    return queue


def _named_jobs(job_ids: list[str] | None) -> list[str]:
    if not job_ids:
        raise typer.BadParameter("name jobs, or use --filter", param_hint="JOB_ID")
    return job_ids


def _require_nothing_but_filter(job_ids: list[str] | None, everything: bool, count: int | None) -> None:
    if job_ids or everything or count is not None:
        raise typer.BadParameter("it selects the jobs; name none, and omit --all and --count", param_hint="--filter")


def _require_one_choice(job_ids: list[str] | None, everything: bool, count: int | None) -> None:
    if bool(job_ids) + everything + (count is not None) != 1:
        raise typer.BadParameter("name jobs, or use --all, --count or --filter", param_hint="JOB_ID")


def _change(
    target: CommandTarget,
    queue: str,
    job_ids: list[str],
    do: Callable[[Ops, str], Awaitable[str]],
    words: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Change each of these jobs if all of them exist, and count the results by their name."""
    from glidemq_async.cli import targets

    async def work() -> Document:
        async with targets.open_change(queue, target) as (ops, opened):
            # The list is complete before the first change: with a mistyped id in it, no job is changed. A job that
            # disappears later raises JobNotFound, and the jobs before it stay changed.
            jobs = [await _existing(opened, job_id, words[0]) for job_id in job_ids]
            done = [await do(ops, job.id) for job in jobs]
        return {"queue": queue, **{word: done.count(word) for word in words}}

    def show(found: Document) -> None:
        typer.echo(", ".join(f"{word} {found[word]}" for word in words if found[word] or word == words[0]))

    answer(work(), show, as_json=as_json)


async def _existing(queue: Queue[Any, Any], job_id: str, done: str) -> Job[Any, Any]:
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    found = await queue.get_job(job_id)
    if found is None:
        raise CommandError(f"there is no job {job_id!r} in queue {queue.name!r}; none was {done}", NOT_FOUND)
    return found
