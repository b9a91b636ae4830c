"""The commands that change a queue: pause, resume, drain, obliterate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.queues.queue import Queue

Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only jobs with this ordering key.")]
KeySeconds = Annotated[
    float | None, typer.Option("--seconds", min=0.001, help="The length of the pause of a key. Required with --key.")
]
Delayed = Annotated[bool, typer.Option("--delayed", help="Remove the delayed and suspended jobs too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print how many jobs would be removed, and change nothing.")]
Ticket = Annotated[
    str | None, typer.Option("--ticket", help="The ticket of the preview, which confirms that it was read.")
]
Force = Annotated[bool, typer.Option("--force", help="Stop the running jobs. Without it the queue must have none.")]


@with_target
def pause(
    target: CommandTarget,
    queue: QueueName,
    key: Key = None,
    seconds: KeySeconds = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Stop claims of a queue, or with --key of the jobs with this key. Running jobs continue."""
    if (key is None) != (seconds is None):
        raise typer.BadParameter("a pause of a key needs --key and --seconds", param_hint="--key")
    _set_paused(queue, target, as_json, key, seconds, reason, paused=True)


@with_target
def resume(
    target: CommandTarget, queue: QueueName, key: Key = None, reason: Reason = "", as_json: AsJson = False
) -> None:
    """End the pause of a queue, or of a key."""
    _set_paused(queue, target, as_json, key, None, reason, paused=False)


def _set_paused(
    queue: str,
    target: CommandTarget,
    as_json: bool,
    key: str | None,
    seconds: float | None,
    reason: str,
    *,
    paused: bool,
) -> None:
    from glidemq_async.cli import targets

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            if key is None:
                await (ops.pause(queue, note=reason) if paused else ops.resume(queue, reason=reason))
                return {"queue": queue, "paused": paused}
            if seconds is not None:
                await ops.pause_key(queue, key, seconds, reason=reason)
            else:
                await ops.resume_key(queue, key, reason=reason)
        return {"queue": queue, "key": key, "paused": paused}

    def show(done: Document) -> None:
        from glidemq_async.cli import output

        what = f"key {key} of {queue}" if "key" in done else queue
        typer.echo(output.line(f"{what} is {'paused' if paused else 'running'}"))

    answer(do(), show, as_json=as_json)


@with_target
def drain(
    target: CommandTarget,
    queue: QueueName,
    delayed: Delayed = False,
    dry_run: DryRun = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Remove the waiting jobs of a queue. Running jobs continue."""
    from glidemq_async.cli import targets

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, opened):
            if dry_run:
                return {"queue": queue, "would_remove": await _waiting(opened, delayed=delayed)}
            return {"queue": queue, "removed": await ops.drain(queue, delayed=delayed, reason=reason)}

    def show(done: Document) -> None:
        typer.echo(f"would remove {done['would_remove']}" if dry_run else f"removed {done['removed']}")

    answer(do(), show, as_json=as_json)


async def _waiting(queue: Queue[Any, Any], *, delayed: bool) -> int:
    counts = await queue.get_job_counts()
    removed = {"waiting", "prioritized", "key-waiting", "rate-limited", *(("delayed", "suspended") if delayed else ())}
    return sum(count for state, count in counts.items() if state in removed)


@with_target
def obliterate(
    target: CommandTarget,
    queue: QueueName,
    ticket: Ticket = None,
    force: Force = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Remove a queue with all of its jobs. The first call prints a preview with a ticket, and removes nothing.

    The ticket is refused if the queue has been created again, or has grown by more than a tenth of its jobs plus 100.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.exits import REFUSED, CommandError
    from glidemq_async.ops.errors import WrongTicket

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            if ticket is None:
                found = await ops.preview_obliterate(queue)
                return {"queue": queue, "counts": found.counts, "ticket": found.ticket}
            try:
                return {"queue": queue, "removed": await ops.obliterate(queue, ticket, force=force, reason=reason)}
            except WrongTicket as error:
                raise CommandError(f"{error}: run the command without --ticket", REFUSED) from error

    def show(done: Document) -> None:
        from glidemq_async.cli.output import counted

        if "removed" in done:
            typer.echo(f"removed queue {queue} with {counted(done['removed'], 'job')}")
            return
        parts = ", ".join(f"{count:,} {state}" for state, count in done["counts"].items() if count)
        typer.echo(f"queue {queue} has {counted(sum(done['counts'].values()), 'job')}{f': {parts}' if parts else ''}")
        typer.echo(f"nothing is removed yet; to remove the queue: glidemq obliterate {queue} --ticket {done['ticket']}")

    answer(do(), show, as_json=as_json)
