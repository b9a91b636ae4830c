"""The commands of `glidemq operations`: preview, start, show, cancel and run bulk operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glidemq_async.cli.bulk_runs import FILTER_HELP, Bulk, DryRun, Rate, Yes, change_matching, show_operation
from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, Reason, parse_json, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

operations = typer.Typer(no_args_is_help=True, help="Change many jobs at once: preview, start, show, cancel, run.")

OperationId = Annotated[str, typer.Argument(metavar="ID", help="The id of the operation.")]
Action = Annotated[str, typer.Argument(metavar="ACTION", help="retry, cancel, promote, delay, move, delete or edit.")]
Wanted = Annotated[str, typer.Argument(metavar="FILTER", help=FILTER_HELP)]
Delay = Annotated[float | None, typer.Option("--delay", min=0, help="For delay: seconds from now.")]
To = Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="For move: the other queue.")]
Data = Annotated[str | None, typer.Option("--data", metavar="JSON", help="For edit: the changed items of the data.")]
Ticket = Annotated[str, typer.Option("--ticket", help="The ticket of the preview.")]


@operations.command("change")
@with_target
def change_jobs(
    target: CommandTarget,
    action: Action,
    wanted: Wanted,
    delay: Delay = None,
    to: To = None,
    data: Data = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Change all jobs that match a filter, after a preview."""
    given = {"delay": delay, "to": to, "data": None if data is None else parse_json("--data", data)}
    arguments = {name: value for name, value in given.items() if value is not None}
    change_matching(target, action, wanted, Bulk(yes, dry_run, rate, reason), arguments, as_json=as_json)


@operations.command("list")
@with_target
def list_operations(target: CommandTarget, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List bulk operations, the newest first."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_ops(target) as ops:
            return {"operations": [as_document(one) for one in await ops.operations(min(limit, 100))]}

    answer(look(), _show_operations, as_json=as_json)


def _show_operations(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            one["id"],
            tables.age_of(one["created_at"]),
            one["action"],
            one["state"],
            one["done"],
            sum(one["refused"].values()),
            one["count"],
            one["actor"],
            one["filter"],
        ]
        for one in document["operations"]
    ]
    kept = [tables.Column(name, kept=True) for name in ("done", "refused", "of")]
    tables.print_table(["id", "age", "action", "state", *kept, "by", "filter"], rows, empty="no operations")


@operations.command()
@with_target
def show(target: CommandTarget, operation_id: OperationId, as_json: AsJson = False) -> None:
    """Show one bulk operation and its progress."""

    async def look(ops: Any) -> object:
        return await ops.operation(operation_id)

    _answer_operation(target, look, as_json=as_json)


@operations.command()
@with_target
def start(
    target: CommandTarget, operation_id: OperationId, ticket: Ticket, rate: Rate = None, as_json: AsJson = False
) -> None:
    """Start a previewed operation. `glidemq operations run` or another process then runs it."""

    async def begin(ops: Any) -> object:
        return await ops.start(operation_id, ticket, rate=rate)

    _answer_operation(target, begin, as_json=as_json)


@operations.command()
@with_target
def cancel(target: CommandTarget, operation_id: OperationId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Cancel an operation. Jobs that it has changed stay changed."""

    async def end(ops: Any) -> object:
        return await ops.cancel_operation(operation_id, reason=reason)

    _answer_operation(target, end, as_json=as_json)


def _answer_operation(target: CommandTarget, work: Any, *, as_json: bool) -> None:
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def do() -> Document:
        async with targets.open_ops(target) as ops:
            return {"operation": as_document(await work(ops))}

    answer(do(), show_operation, as_json=as_json)


@operations.command()
@with_target
def run(target: CommandTarget) -> None:
    """Run started operations, until Ctrl-C. Any number of processes may do so."""
    from glidemq_async.cli import targets

    async def work() -> None:
        async with targets.open_ops(target, check=False) as ops:
            await ops.worker().run()

    targets.run(work())
