"""The command find, which searches the jobs of all queues with a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import JOB, answer, hint_at_more, show_jobs
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store

FilterText = Annotated[
    str,
    typer.Argument(metavar="FILTER", help="For example 'state:failed name:resize added:>1h'; see docs/finding.md."),
]


@with_target
def find(target: CommandTarget, wanted: FilterText, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Find jobs in every queue, or in the queues that the filter names: 'queue:mail-* state:failed error:Timeout'."""
    from glidemq_async.cli import targets

    async def look() -> Document:
        async with targets.open_store(target) as store:
            # One job more than is shown, to learn if there are others.
            found = await _find(store, wanted, limit + 1)
            return {"jobs": found[:limit], "more": len(found) > limit}

    def show(found: Document) -> None:
        show_jobs(found["jobs"], {"queue": "queue", **JOB}, target, empty="no jobs")
        hint_at_more(found, "more jobs; a higher --limit shows them")

    answer(look(), show, as_json=as_json)


async def _find(store: Store, text: str, limit: int) -> list[Document]:
    from glidemq_async.cli import documents, output, targets
    from glidemq_async.errors import IncompatibleQueueError
    from glidemq_async.filters.filter import Filter
    from glidemq_async.filters.plan import FilterPlan
    from glidemq_async.queues.finding import task_parameters

    wanted = Filter(text)
    plan = FilterPlan(wanted)
    found: list[Document] = []
    for name in await targets.queue_names(store.storage, store.prefix):
        if not plan.may_be_in(name) or len(found) == limit:
            continue
        try:
            async with store.queue(name) as queue:
                jobs = await queue.find(wanted, limit - len(found))
                tasks = await task_parameters(queue)
                found += [documents.job_document(job, tasks) for job in jobs]
        # One queue of another program or layout must not hide the others.
        except IncompatibleQueueError as error:
            typer.echo(output.text(f"{name}: {error}"), err=True)
    return found
