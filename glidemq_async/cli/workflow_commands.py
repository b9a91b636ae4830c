"""The commands of `glidemq workflows`: look at runs, send signals to them, and repair them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from glidemq_async.cli.command_runner import answer, hint_at_more
from glidemq_async.cli.graph_command import graph, waterfall
from glidemq_async.cli.options import AsJson, CommandTarget, JobId, Limit, QueueName, Reason, with_target
from glidemq_async.cli.run_check_commands import check, export
from glidemq_async.cli.signal_commands import signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glidemq_async.cli.output import Document
    from glidemq_async.jobs.job import Job
    from glidemq_async.jobs.recorded_steps import RecordedStep
    from glidemq_async.queues.queue import Queue
    from glidemq_async.tasks.workflows import RunHandle

MOST_CHANGED = 1_000
"""The number of runs that one command changes without --limit."""
_SHOWN = 10

Runs: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="RUN_ID", help="The ids of the runs.")]
WantedRuns = Annotated[str, typer.Argument(metavar="FILTER", help="A filter; see docs/finding.md.")]
Matching = Annotated[
    str | None, typer.Option("--filter", metavar="FILTER", help="Select runs with a filter, as glidemq find does.")
]
Most = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of runs that --filter selects.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Change the runs that --filter selects. Otherwise list them.")]

workflows = typer.Typer(no_args_is_help=True, help="Look at runs of workflows, send signals to them, and repair them.")

workflows.command("send")(signal)
workflows.command()(export)
workflows.command()(check)
workflows.command()(graph)
workflows.command()(waterfall)


@workflows.command("list")
@with_target
def list_runs(
    target: CommandTarget,
    queue: QueueName,
    wanted: WantedRuns = "-state:completed",
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs: jobs that have recorded steps, or wait for a signal or an instant.

    Completed runs are listed if FILTER names their state.
    """
    from glidemq_async.cli import targets

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            found: list[Document] = []
            async for job in opened.iter_find(wanted):
                if len(found) > limit:
                    break
                run = await _run(job)
                if run["recorded"] or run["problem"] or job.suspension is not None:
                    found.append(run)
            runs = [{name: run[name] for name in run if name != "recorded"} for run in found[:limit]]
            return {"runs": runs, "more": len(found) > limit}

    answer(look(), _show_runs, as_json=as_json)


async def _run(job: Job[Any, Any]) -> Document:
    from glidemq_async.cli.output import instant
    from glidemq_async.errors import SerializationError

    waits, problem = job.suspension, None
    steps: list[RecordedStep] = []
    # A journal that cannot be read, for example without its codecs, must not hide the run.
    try:
        steps = await job.get_steps()
    except SerializationError as error:
        problem = str(error)
    return {
        "id": job.id,
        "workflow": job.name,
        "state": job.state,
        "steps": len(steps),
        "last_step": steps[-1].name if steps else None,
        "waits_for": None if waits is None or waits.signals is None else sorted(waits.signals),
        "until": None if waits is None else instant(waits.deadline),
        "failed_reason": job.failed_reason,
        "failure_cause": job.failure_cause,
        "attempts_made": job.attempts_made,
        "problem": problem,
        "recorded": [*map(_step, steps)],
    }


def _show_runs(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [[one["id"], one["workflow"], one["state"], one["steps"], _now_at(one)] for one in document["runs"]]
    tables.print_table(["id", "workflow", "state", "steps", "now"], rows, empty="no runs")
    hint_at_more(document, "runs", "run", "a higher --limit shows more")


def _now_at(run: Document) -> str:
    """Return what a run waits for, or why it failed, or its last step."""
    if run["state"] == "suspended":
        names = "any signal" if run["waits_for"] is None else " or ".join(run["waits_for"])
        until = f"until {run['until']}" if run["until"] else ""
        return " ".join(filter(None, ("waits", f"for {names}" if names else "", until)))
    if run["failed_reason"]:
        return f"{run['failure_cause']}: {run['failed_reason']}"
    return f"after {run['last_step']}" if run["last_step"] else ""


@workflows.command()
@with_target
def show(target: CommandTarget, queue: QueueName, run_id: JobId, as_json: AsJson = False) -> None:
    """Show a run: its state, what it waits for, and its recorded steps."""
    from glidemq_async.cli import targets

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            return await _run(await _existing(opened, run_id))

    answer(look(), _show_run, as_json=as_json)


def _step(step: RecordedStep) -> Document:
    from glidemq_async.cli.output import instant

    return {
        "name": step.name,
        "status": step.status,
        "key": step.key,
        "arguments": step.arguments,
        "result": step.result,
        "error": None if step.error is None else str(step.error),
        "run": step.run,
        "started_at": instant(step.started_at),
        "finished_at": instant(step.finished_at),
        "seconds": round((step.finished_at - step.started_at).total_seconds(), 3),
    }


def _show_run(document: Document) -> None:
    from glidemq_async.cli import output, tables

    output.print_fields({name: value for name, value in document.items() if name != "recorded" and value is not None})
    rows = [
        [one["name"], one["run"], one["seconds"], one["key"] or one["arguments"], one["error"] or one["result"]]
        for one in document["recorded"]
    ]
    typer.echo()
    tables.print_table(["step", "run", "seconds", "arguments", "result"], rows, empty="no recorded steps")


@workflows.command()
@with_target
def cancel(
    target: CommandTarget,
    queue: QueueName,
    run_ids: Runs = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason, in one line. The run stores it.")] = None,
    wanted: Matching = None,
    limit: Most = MOST_CHANGED,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel runs. They fail with the reason 'revoked'. A run that executes may undo its steps first."""

    async def do(run: RunHandle[Any]) -> None:
        await run.cancel(reason)

    _change(
        target, queue, _Selection(run_ids, wanted, limit, yes), do, "cancel", "cancelled", reason or "", as_json=as_json
    )


@workflows.command()
@with_target
def retry(
    target: CommandTarget,
    queue: QueueName,
    run_ids: Runs = None,
    wanted: Matching = None,
    limit: Most = MOST_CHANGED,
    yes: Yes = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Run failed runs again from the step that failed. Recorded steps are not repeated."""

    async def do(run: RunHandle[Any]) -> None:
        await _require_failed(run)
        await run.retry()

    _change(target, queue, _Selection(run_ids, wanted, limit, yes), do, "retry", "retried", reason, as_json=as_json)


@workflows.command()
@with_target
def restart(
    target: CommandTarget,
    queue: QueueName,
    run_ids: Runs = None,
    wanted: Matching = None,
    limit: Most = MOST_CHANGED,
    yes: Yes = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Run ended runs again from the beginning. All of their steps are repeated."""

    async def do(run: RunHandle[Any]) -> None:
        await run.restart()

    _change(target, queue, _Selection(run_ids, wanted, limit, yes), do, "restart", "restarted", reason, as_json=as_json)


@workflows.command()
@with_target
def accept(
    target: CommandTarget,
    queue: QueueName,
    run_ids: Runs = None,
    wanted: Matching = None,
    limit: Most = MOST_CHANGED,
    yes: Yes = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Retry runs whose workflow has changed, and let the new code leave out recorded steps."""

    async def do(run: RunHandle[Any]) -> None:
        await run.accept()

    _change(target, queue, _Selection(run_ids, wanted, limit, yes), do, "accept", "accepted", reason, as_json=as_json)


@workflows.command()
@with_target
def fork(
    target: CommandTarget,
    queue: QueueName,
    run_id: JobId,
    before: Annotated[
        str | None, typer.Option("--before", metavar="STEP", help="Repeat the steps from this one on.")
    ] = None,
    new_id: Annotated[str | None, typer.Option("--id", help="The id of the fork.", show_default="generated")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start another run with the arguments and the recorded steps of this one, which remains as it is."""
    from glidemq_async.cli import targets

    async def do() -> Document:
        from glidemq_async.tasks.workflows import RunHandle

        async with targets.open_change(queue, target) as (ops, opened):
            run: RunHandle[Any] = RunHandle(await _existing(opened, run_id))
            async with ops.changing_job("fork run", queue, run_id, reason, before=before):
                made = await run.fork(before=before, id=new_id)
            return {"queue": queue, "id": made.id, "forked_from": run_id}

    answer(do(), lambda done: typer.echo(f"forked as {done['id']}"), as_json=as_json)


class _Selection:
    """The runs that a command changes: the ones with these ids, or the ones that a filter selects."""

    def __init__(self, run_ids: list[str] | None, wanted: str | None, limit: int, yes: bool) -> None:
        if bool(run_ids) == (wanted is not None):
            raise typer.BadParameter("name runs, or select them with --filter", param_hint="RUN_ID")
        self._ids, self._wanted, self._limit = run_ids or [], wanted, limit
        self.is_preview = wanted is not None and not yes

    async def read(self, queue: Queue[Any, Any]) -> list[Job[Any, Any]]:
        """Return the runs. All of them exist."""
        if self._wanted is not None:
            return await queue.find(self._wanted, self._limit)
        return [await _existing(queue, run_id) for run_id in self._ids]


def _change(
    target: CommandTarget,
    queue: str,
    selection: _Selection,
    do: Callable[[RunHandle[Any]], Awaitable[None]],
    action: str,
    done: str,
    reason: str,
    *,
    as_json: bool,
) -> None:
    """Change the selected runs. A run in a state that does not fit is left as it is, and its reason is reported."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.exits import REFUSED
    from glidemq_async.errors import JobNotFound, JobStateError

    async def work() -> Document:
        from glidemq_async.tasks.workflows import RunHandle

        changed: list[str] = []
        refused: list[Document] = []
        async with targets.open_change(queue, target) as (ops, opened):
            jobs = await selection.read(opened)
            if selection.is_preview:
                return {"queue": queue, "preview": [job.id for job in jobs], done: 0, "refused": []}
            for job in jobs:
                try:
                    async with ops.changing_job(f"{action} run", queue, job.id, reason):
                        await do(RunHandle(job))
                    changed.append(job.id)
                except (JobStateError, JobNotFound) as error:
                    refused.append({"id": job.id, "reason": str(error)})
        return {"queue": queue, "preview": None, done: len(changed), "refused": refused}

    found = answer(work(), lambda document: _show_changed(document, done), as_json=as_json)
    if found["refused"]:
        raise typer.Exit(REFUSED)


def _show_changed(document: Document, done: str) -> None:
    from glidemq_async.cli import output

    preview = document["preview"]
    if preview is not None:
        shown = ", ".join(preview[:_SHOWN]) + (", ..." if len(preview) > _SHOWN else "")
        if preview:
            typer.echo(output.text(f"{output.counted(len(preview), 'run')} would be {done}: {shown}"))
            typer.echo("--yes changes them")
        else:
            typer.echo("no run fits the filter")
        return
    if document[done] or not document["refused"]:
        typer.echo(f"{done} {document[done]}")
    for one in document["refused"]:
        typer.echo(output.text(f"refused {one['id']}: {one['reason']}"), err=True)


async def _existing(queue: Queue[Any, Any], run_id: str) -> Job[Any, Any]:
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    found = await queue.get_job(run_id)
    if found is None:
        raise CommandError(f"there is no job {run_id!r} in queue {queue.name!r}; nothing was changed", NOT_FOUND)
    return found


async def _require_failed(run: RunHandle[Any]) -> None:
    from glidemq_async.errors import JobStateError

    if run.job.state != "failed":
        raise JobStateError(f"retry job {run.id}", run.job.state, "restart runs a completed run again")
