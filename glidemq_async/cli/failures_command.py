"""The command failures: the groups of failures with the same error and place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.cli.command_runner import answer, hint_at_more
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, OneQueue, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document


@with_target
def failures(target: CommandTarget, queue: OneQueue = None, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the groups of failures with the same error and place, the one that failed last first."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_ops(target) as ops:
            found = await ops.failures(queue)
            shown = [as_document(group) for group in found[:limit]]
            return {"failures": shown, "more": len(found) > limit, "total": len(found)}

    answer(look(), _show, as_json=as_json)


def _show(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            one["fingerprint"],
            one["queue"],
            one["name"],
            one["error_type"],
            one["count"],
            tables.age_of(one["last_at"]),
            one["place"],
            one["message"],
        ]
        for one in document["failures"]
    ]
    group = tables.Column("group", fixed=True)
    headings: list[str | tables.Column] = [group, "queue", "name", "error", "count", "last", "place", "message"]
    tables.print_table(headings, rows, empty="no failures")
    hint_at_more(document, "failures", "group", "a higher --limit shows more")
