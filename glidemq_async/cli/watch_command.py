"""The command watch: the updates of a job, or the counts of queues, one line for each change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glidemq_async.cli.options import AsJson, CommandTarget, OneQueue, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store
    from glidemq_async.queues.queue import Queue

WatchedJob = Annotated[str | None, typer.Argument(metavar="JOB_ID", help="Watch this job until it ends.")]
Interval = Annotated[float, typer.Option("--interval", min=0.25, help="Seconds between two looks at the counts.")]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this number of updates.")]


@with_target
def watch(
    target: CommandTarget,
    queue: OneQueue = None,
    job_id: WatchedJob = None,
    interval: Interval = 1.0,
    count: Count = None,
    as_json: AsJson = False,
) -> None:
    """Print each change of a job until it ends, or of the counts of one or of all queues until Ctrl-C.

    The exit code is 1 if the watched job fails.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.exits import FAILED

    async def look() -> bool:
        async with targets.open_store(target) as store:
            if queue is None:
                names = await targets.queue_names(store.storage, store.prefix)
                return await _watch_queues(store, names, interval, count, as_json)
            if job_id is None:
                await store.require(queue)
                return await _watch_queues(store, [queue], interval, count, as_json)
            async with store.existing(queue) as opened:
                return await _watch_job(opened, job_id, count, as_json)

    if not targets.run(look()):
        raise typer.Exit(FAILED)


async def _watch_job(queue: Queue[Any, Any], job_id: str, count: int | None, as_json: bool) -> bool:
    from glidemq_async.cli.exits import NOT_FOUND, CommandError

    job = await queue.get_job(job_id)
    if job is None:
        raise CommandError(f"there is no job {job_id!r} in queue {queue.name!r}", NOT_FOUND)
    printed, state = 0, ""
    async for update in job.watch():
        state = update.state
        document = {
            "queue": queue.name,
            "id": job_id,
            "state": update.state,
            "progress": update.progress,
            "log": list(update.log),
            "missed_lines": update.missed_lines,
        }
        _print(document, as_json)
        printed += 1
        if printed == count:
            break
    return state != "failed"


async def _watch_queues(store: Store, names: list[str], interval: float, count: int | None, as_json: bool) -> bool:
    from contextlib import AsyncExitStack

    last: dict[str, Document] = {}
    printed = 0
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(store.queue(name)) for name in names]
        while True:
            for queue in queues:
                document: Document = {
                    "queue": queue.name,
                    "paused": await queue.is_paused(),
                    "counts": await queue.get_job_counts(),
                }
                if last.get(queue.name) == document:
                    continue
                last[queue.name] = document
                _print(document, as_json)
                printed += 1
                if printed == count:
                    return True
            await asyncio.sleep(interval)


def _print(document: Document, as_json: bool) -> None:
    from glidemq_async.cli import output

    if as_json:
        typer.echo(output.to_json(document))
        return
    for line in _lines(document):
        typer.echo(output.line(line))


def _lines(document: Document) -> list[str]:
    from glidemq_async.cli import output

    if "counts" in document:
        counts = "  ".join(f"{state} {number}" for state, number in document["counts"].items() if number)
        return [f"{_now()}  {document['queue']}  {'paused  ' if document['paused'] else ''}{counts or 'no jobs'}"]
    progress = "" if document["progress"] is None else f"  progress {output.text(document['progress'])}"
    number = document["missed_lines"]
    missed = [f"  {output.counted(number, 'line')} {'was' if number == 1 else 'were'} trimmed"] if number else []
    return [f"{_now()}  {document['state']}{progress}", *missed, *(f"  {line}" for line in document["log"])]


def _now() -> str:
    import time

    return time.strftime("%H:%M:%S")
