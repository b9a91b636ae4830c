"""The command history: the runs of a job, and what operators did with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, JobId, QueueName, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document


@with_target
def history(target: CommandTarget, queue: QueueName, job_id: JobId, as_json: AsJson = False) -> None:
    """Show the runs of a job with their workers, errors and log lines, and the actions of operators."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            return {"queue": queue, "id": job_id, "history": as_document(await ops.history(queue, job_id))}

    answer(look(), _show, as_json=as_json)


def _show(document: Document) -> None:
    from glidemq_async.cli import output

    if not document["history"]:
        typer.echo("the job has not run yet")
    for entry in document["history"]:
        typer.echo(output.line(_text(entry)))
        if entry["error"]:
            typer.echo(output.line(f"    {entry['error']}"))
        for at, line in entry["log"]:
            typer.echo(output.line(f"    {at} {line}"))


def _text(entry: Document) -> str:
    if entry["kind"] == "action":
        return " ".join(filter(None, [entry["at"], entry["outcome"], "by", entry["actor"], entry["note"]]))
    if entry["kind"] == "event":
        return f"{entry['at']} {entry['outcome']}"
    where = f" on {entry['worker']}" if entry["worker"] else ""
    version = f" ({entry['version']})" if entry["version"] else ""
    return f"{entry['started_at']} run {entry['number']}{where}{version}: {entry['outcome']}"
