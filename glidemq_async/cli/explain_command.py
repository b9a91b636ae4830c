"""The command explain: why a job does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, JobId, QueueName, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document


@with_target
def explain(target: CommandTarget, queue: QueueName, job_id: JobId, as_json: AsJson = False) -> None:
    """Show why a job does not run: the conditions of a claim that it does not meet, the deciding one first."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_queue(queue, target) as opened:
            return {"explanation": as_document(await opened.explain(job_id))}

    answer(look(), _show, as_json=as_json)


def _show(document: Document) -> None:
    from glidemq_async.cli import output

    found = document["explanation"]
    typer.echo(output.line(found["summary"]))
    # The summary is a sentence about the first gate.
    for gate in found["gates"][1:]:
        typer.echo(output.line(f"- {gate['text']}"))
