"""The list of jobs that `glidemq jobs` and `glidemq find` print: of one queue, or of every queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from glidemq_async.cli import documents, output, targets
from glidemq_async.ops.listing import JobSelection

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store

__all__ = ["JobSelection", "list_jobs"]


async def list_jobs(store: Store, queue: str | None, selection: JobSelection) -> Document:
    """Return the selected jobs of a queue, or of every queue. `total` is their number, None if it is not known."""
    if queue is not None:
        await store.require(queue)
    async with targets.ops_of(store) as ops:
        found = await ops.list_jobs(selection, queue)
        for name, reason in found.unreadable.items():
            typer.echo(output.text(f"{name}: {reason}"), err=True)
        jobs = [documents.job_document(job, tasks) for job, tasks in found.jobs]
    return {"jobs": jobs, "more": found.more, "total": found.total}
