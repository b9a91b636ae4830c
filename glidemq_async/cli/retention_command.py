"""The command retention: show and hold the number of ended jobs and of events that a queue keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.ops.core import Ops
    from glidemq_async.options.retention import KeepJobs

_ALL: Final = "all"
_KEEP: Final = "N|AGE|N/AGE|all"

Completed = Annotated[
    str | None, typer.Option("--completed", metavar=_KEEP, help="Completed jobs to keep: 1000, 7d, 1000/7d or all.")
]
Failed = Annotated[str | None, typer.Option("--failed", metavar=_KEEP, help="Failed jobs to keep.")]
MaxEvents = Annotated[
    int | None, typer.Option("--max-events", metavar="N", min=1, max=100_000, help="Number of events to keep.")
]


@with_target
def retention(
    target: CommandTarget,
    queue: QueueName,
    completed: Completed = None,
    failed: Failed = None,
    max_events: MaxEvents = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Show the held retention of a queue, or hold one that overrides the options of its jobs.

    `glidemq settings QUEUE --release keep_completed` ends a hold.
    """
    from glidemq_async.cli import targets
    from glidemq_async.cli.settings_command import show_settings
    from glidemq_async.ops.documents import as_document
    from glidemq_async.ops.settings import RETENTIONS

    keep = {"completed": _keep("--completed", completed), "failed": _keep("--failed", failed)}

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            await _hold(ops, queue, keep, max_events, reason)
            held = [one for one in await ops.settings(queue) if one.name in (*RETENTIONS, "max_events")]
            return {"queue": queue, "settings": as_document(held)}

    def show(document: Document) -> None:
        show_settings(document, empty="no retention is held; each job applies its own options")

    answer(do(), show, as_json=as_json)


async def _hold(ops: Ops, queue: str, keep: dict[str, KeepJobs | None], max_events: int | None, reason: str) -> None:
    if any(one is not None for one in keep.values()):
        await ops.set_retention(queue, completed=keep["completed"], failed=keep["failed"], note=reason)
    if max_events is not None:
        await ops.set_events(queue, max_events=max_events, note=reason)


def _keep(option: str, text: str | None) -> KeepJobs | None:
    """Return the retention that an option names."""
    from glidemq_async.durations import parse_duration
    from glidemq_async.options.retention import KeepJobs

    if text is None:
        return None
    if text == _ALL:
        return KeepJobs()
    parts = text.split("/")
    counts = [int(part) for part in parts if part.isascii() and part.isdigit()]
    ages = [age for part in parts if (age := parse_duration(part)) is not None]
    if len(counts) > 1 or len(ages) > 1 or len(counts) + len(ages) != len(parts):
        raise typer.BadParameter(f"{text!r} is no retention; write 1000, 7d, 1000/7d or all", param_hint=option)
    return KeepJobs(age=next(iter(ages), None), count=next(iter(counts), None))
