"""The commands clean, which removes many jobs, and release, which releases a deduplication id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

CleanState: TypeAlias = Literal[
    "completed", "failed", "waiting", "prioritized", "key-waiting", "delayed", "waiting-children", "suspended"
]
MOST_CLEANED = 1_000


@with_target
def clean(
    target: CommandTarget,
    queue: QueueName,
    state: Annotated[CleanState, typer.Option("--state", "-s", help="The state of the jobs to remove.")],
    grace: Annotated[float, typer.Option("--grace", min=0, help="Minimum age in seconds.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of jobs.")] = MOST_CLEANED,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Remove jobs in one state. The age counts from the end of an ended job, and from the add of any other job.

    The oldest ended jobs are removed first. Of other jobs, the one that would start next is removed first.
    """
    from glidemq_async.cli import targets

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            return {"queue": queue, "removed": len(await ops.clean(queue, grace, limit, state, reason=reason))}

    answer(do(), lambda done: typer.echo(f"removed {done['removed']}"), as_json=as_json)


@with_target
def release(
    target: CommandTarget,
    queue: QueueName,
    deduplication_id: Annotated[str, typer.Argument(metavar="DEDUPLICATION_ID", help="The id to release.")],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Release a deduplication id: the next add with it creates a new job. The job that owns the id continues."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            if not await ops.release_deduplication(queue, deduplication_id, reason=reason):
                raise CommandError(f"no job of queue {queue!r} owns deduplication id {deduplication_id!r}", NOT_FOUND)
            return {"queue": queue, "released": deduplication_id}

    answer(do(), lambda done: typer.echo(f"released {done['released']}"), as_json=as_json)
