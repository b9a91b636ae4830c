"""The command `glidemq events`: the events of a queue, one per line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, with_target

if TYPE_CHECKING:
    from glidemq_async.queues.events import EventGap, QueueEvent

After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="POSITION", help="Start after this event; 0 starts at the oldest event.", show_default="now"
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow/--no-follow", help="Wait for new events, or end after the existing ones.")
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this number of events.")]


def _kinds() -> tuple[str, ...]:
    from glidemq_async.queues.events import EventKind

    return get_args(EventKind)


def _check_kinds(found: list[str] | None) -> list[str] | None:
    for kind in found or ():
        if kind not in _kinds():
            raise typer.BadParameter(f"{kind!r} is not one of {', '.join(_kinds())}")
    return found


Kinds = Annotated[
    list[str] | None,
    typer.Option(
        *("--kind", "-k"),
        help="Only events of this kind. Can be repeated.",
        show_default="all",
        callback=_check_kinds,
        autocompletion=lambda: list(_kinds()),
    ),
]


OneJob = Annotated[str | None, typer.Option("--job", "-j", metavar="JOB_ID", help="Only events of this job.")]


@with_target
def events(
    target: CommandTarget,
    queue: QueueName,
    after: After = None,
    follow: Follow = True,
    count: Count = None,
    kind: Kinds = None,
    job: OneJob = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a queue as they happen, one per line, until Ctrl-C.

    With --json each line is an object; its `position` resumes after that event.
    """
    from glidemq_async.cli import targets

    kinds = frozenset(kind or ())

    def is_wanted(event: QueueEvent) -> bool:
        return (not kinds or event.kind in kinds) and (job is None or event.job_id == job)

    start = after if after is not None or follow else "0"

    async def listen() -> None:
        from glidemq_async.queues.events import QueueEvents

        async with targets.open_store(target) as store, store.existing(queue):
            # With --no-follow the end is fixed before the first event is printed. A queue that writes events faster
            # than a terminal prints them would otherwise never end the command.
            end = None
            if not follow:
                async with QueueEvents(queue, store.storage, prefix=store.prefix) as last:
                    end = _number(last.position)
            async with QueueEvents(queue, store.storage, after=start, prefix=store.prefix) as reader:
                await _print(reader, end, count, is_wanted, as_json)

    targets.run(listen())


async def _print(
    reader: object, end: int | None, count: int | None, is_wanted: Callable[[QueueEvent], bool], as_json: bool
) -> None:
    from glidemq_async.queues.events import EventGap, QueueEvents

    assert isinstance(reader, QueueEvents)  # noqa: S101 - narrows the type, which is not imported above
    if end is not None and (end <= 0 or _number(reader.position) >= end):
        return
    printed = 0
    async for event in reader:
        if isinstance(event, EventGap) or is_wanted(event):
            typer.echo(_line(event, as_json))
            printed += 1
        if printed == count or (end is not None and _number(event.position) >= end):
            return


def _line(event: QueueEvent | EventGap, as_json: bool) -> str:
    from glidemq_async.cli import documents, output
    from glidemq_async.queues.events import EventGap

    document = documents.event_document(event)
    if as_json:
        return output.to_json(document)
    if isinstance(event, EventGap):
        return f"{'':24}  {_loss(event.missed)}"
    return output.text(f"{document['at']}  {event.kind:<13} {event.job_id} {event.detail}".rstrip())


def _loss(missed: int | None) -> str:
    """Describe a gap of this many events. None: the number is unknown."""
    from glidemq_async.cli import output

    if missed is None:
        return "the queue was obliterated, and its unread events are lost"
    if missed == 1:
        return "1 event was trimmed before it was read"
    return f"{output.counted(missed, 'event')} were trimmed before they were read"


def _number(position: str) -> int:
    """Return the number of the event after a position."""
    return int(position.rpartition("/")[2])
