"""The command dlq, which lists the dead letters of one or of all queues, and replays the ones of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from glidemq_async.cli.command_runner import DEAD_LETTER_COLUMNS, answer, hint_at_more, show_jobs
from glidemq_async.cli.options import AsJson, CommandTarget, OneQueue, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store
    from glidemq_async.queues.queue import Queue

# A copy of FailureCause: typer reads the choices when the command is registered, and the command line imports the
# modules of jobs only when a command runs.
Cause: TypeAlias = Literal[
    "retries_exhausted",
    "unrecoverable",
    "stalled",
    "undelivered",
    "expired",
    "revoked",
    "malformed",
    "oversize",
    "child_failed",
    "diverged",
]


_LISTED: Final = 20
"""Number of dead letters that are listed without `--limit`."""
_LIMITS: Final = "20; with --replay all"


@with_target
def dlq(
    target: CommandTarget,
    queue: OneQueue = None,
    cause: Annotated[
        Cause | None, typer.Option("--cause", help="Only dead letters with this cause.", show_default="all")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of dead letters.", show_default=_LIMITS)
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Replay the dead letters, the oldest first.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """List dead letters (jobs that failed for good), or replay the ones of a queue."""
    from glidemq_async.cli import targets

    if replay and queue is None:
        raise typer.BadParameter("name the queue whose dead letters run again", param_hint="--replay")

    async def do() -> Document:
        if queue is None:
            async with targets.open_store(target) as store:
                return await _list_everywhere(store, cause, limit or _LISTED)
        async with targets.open_change(queue, target) as (ops, opened):
            if not replay:
                return await _list(opened, cause, limit or _LISTED)
            replayed = await ops.replay_dead_letters(queue, limit, cause=cause, reason=reason)
            left = await opened.count_dead_letter_jobs(cause=cause)
            return {"queue": queue, "replayed": replayed, "left": left, "more": left > 0}

    answer(do(), lambda done: _show(done, target, every_queue=queue is None), as_json=as_json)


async def _list_everywhere(store: Store, cause: Cause | None, limit: int) -> Document:
    from glidemq_async.cli import targets
    from glidemq_async.errors import IncompatibleQueueError

    found: list[Document] = []
    total = 0
    for name in await targets.queue_names(store.storage, store.prefix):
        try:
            async with store.queue(name) as queue:
                part = await _list(queue, cause, limit - len(found))
        # One queue of another program or layout must not hide the others.
        except IncompatibleQueueError:
            continue
        found += part["dead_letters"]
        total += part["total"]
    return {"dead_letters": found, "more": len(found) < total, "total": total}


async def _list(queue: Queue[Any, Any], cause: Cause | None, limit: int) -> Document:
    from glidemq_async.cli import documents
    from glidemq_async.queues.inspection import task_parameters

    found = await queue.get_dead_letter_jobs(0, limit - 1, cause=cause) if limit else []
    tasks = await task_parameters(queue)
    total = max(len(found), await queue.count_dead_letter_jobs(cause=cause))
    shown = [documents.job_document(job, tasks) for job in found]
    return {"dead_letters": shown, "more": len(found) < total, "total": total}


def _show(done: Document, target: CommandTarget, *, every_queue: bool) -> None:
    from glidemq_async.cli import documents

    if "replayed" in done:
        typer.echo(f"replayed {done['replayed']}" + (f", {done['left']} are left" if done["left"] else ""))
        return
    shown = [documents.letter_row(one) for one in done["dead_letters"]]
    show_jobs(shown, DEAD_LETTER_COLUMNS, target, empty="no dead letters", every_queue=every_queue)
    hint_at_more(done, "dead_letters", "dead letter", "a higher --limit shows more")
