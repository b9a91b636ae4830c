"""Change all jobs that match a filter: print the preview, ask, start the operation, and run it to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from glidemq_async.cli.command_runner import answer

if TYPE_CHECKING:
    from glidemq_async.cli.options import CommandTarget
    from glidemq_async.cli.output import Document

FILTER_HELP: Final = "For example 'queue:mail state:failed added:>1h'; see docs/finding.md."
Matching = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="FILTER", help=f"All jobs that match. {FILTER_HELP}")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Required where no terminal can ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the preview with its ticket, and change nothing.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.001, help="Maximum number of jobs a second.")]


@dataclass(frozen=True, slots=True)
class Bulk:
    """The options of a bulk operation: its confirmation, rate and reason."""

    yes: bool
    dry_run: bool
    rate: float | None
    reason: str


def within(queue: str | None, wanted: str) -> str:
    """Return a filter for the jobs of one queue, or of all."""
    from glidemq_async.filters.filter import Filter

    return wanted if queue is None else str(Filter.of_queue(queue, wanted))


def change_matching(
    target: CommandTarget, action: str, wanted: str, bulk: Bulk, arguments: Mapping[str, Any], *, as_json: bool
) -> None:
    """Preview an operation, ask the user, and run it. The exit code is 1 if it stops before its end."""
    from glidemq_async.cli import output, targets
    from glidemq_async.cli.exits import FAILED, REFUSED, CommandError
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_ops(target) as ops:
            return {"preview": as_document(await ops.preview(action, wanted, reason=bulk.reason, **arguments))}

    if bulk.dry_run:
        answer(look(), _show_preview, as_json=as_json)
        return
    preview = targets.run(look())
    if not bulk.yes:
        if as_json or not output.in_terminal():
            raise CommandError(
                f"{_count(preview)}; nothing was changed. Pass --yes to change them, or --dry-run to see them", REFUSED
            )
        _show_preview(preview)
        if not typer.confirm(f"{action} them?"):
            raise typer.Exit(REFUSED)

    async def do() -> Document:
        found = preview["preview"]
        async with targets.open_ops(target) as ops:
            await ops.start(found["operation_id"], found["ticket"], rate=bulk.rate)
            return {"operation": as_document(await ops.run_operation(found["operation_id"]))}

    done = answer(do(), show_operation, as_json=as_json)
    if done["operation"]["state"] != "done":
        raise typer.Exit(FAILED)


def _show_preview(document: Document) -> None:
    from glidemq_async.cli import output, tables

    found = document["preview"]
    output.say(_count(document), bold=True)
    rows = [[one["id"], one["queue"], one["name"], one["state"], one["failed_reason"]] for one in found["sample"][:10]]
    if rows:
        tables.print_table(["id", "queue", "name", "state", "reason"], rows, empty="")
    for why, count in found["refused"].items():
        typer.echo(output.line(f"not changed: {count:,} ({why})"))
    typer.echo(f"operation {found['operation_id']}, ticket {found['ticket']}")


def _count(document: Document) -> str:
    found = document["preview"]
    matches = "1 job matches" if found["count"] == 1 else f"{found['count']:,} jobs match"
    return f"{found['action']}: {matches} {found['filter']}"


def show_operation(document: Document) -> None:
    """Print an operation and its result so far."""
    from glidemq_async.cli import output

    found = document["operation"]
    refused = "".join(f", {count:,} not changed ({why})" for why, count in found["refused"].items())
    stopped = f"; {found['stop_reason']}" if found["stop_reason"] else ""
    typer.echo(
        output.line(f"{found['action']} {found['state']}: {found['done']:,} of {found['count']:,}{refused}{stopped}")
    )
