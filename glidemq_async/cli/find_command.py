"""The command find, which searches the jobs of all queues with a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer, show_listed_jobs
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

FilterText = Annotated[
    str,
    typer.Argument(metavar="FILTER", help="For example 'state:failed name:resize added:>1h'; see docs/finding.md."),
]


@with_target
def find(target: CommandTarget, wanted: FilterText, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Find jobs in every queue, or in the queues that the filter names: 'queue:mail-* state:failed error:Timeout'."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.job_listing import JobSelection, list_jobs
    from glidemq_async.filters.filter import Filter

    async def look() -> Document:
        selection = JobSelection(Filter(wanted), None, None, None, None, limit)
        async with targets.open_store(target) as store:
            return await list_jobs(store, None, selection)

    answer(look(), lambda found: show_listed_jobs(found, target, every_queue=True), as_json=as_json)
