"""The command audit: the changes that people and tools have made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.cli.command_runner import answer, hint_at_more
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, OneQueue, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document


@with_target
def audit(target: CommandTarget, queue: OneQueue = None, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the changes of queues and jobs, the newest first: who made them, when, and why."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        found: list[object] = []
        async with targets.open_ops(target) as ops:
            async for line in ops.audit.lines():
                if queue is None or line.queue == queue:
                    found.append(as_document(line))
                if len(found) > limit:
                    break
        return {"audit": found[:limit], "more": len(found) > limit}

    answer(look(), _show, as_json=as_json)


def _show(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            tables.age_of(one["at"]),
            f"{one['source']}:{one['actor']}",
            one["action"],
            one["queue"],
            one["target"],
            one["count"],
            one["reason"],
            "" if one["result"] == "ok" else one["result"],
        ]
        for one in document["audit"]
    ]
    action = tables.Column("action", fixed=True)
    tables.print_table(["age", "by", action, "queue", "target", "count", "reason", "error"], rows, empty="no changes")
    hint_at_more(document, "audit", "change", "a higher --limit shows more")
