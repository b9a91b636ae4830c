"""The command that lists topics and their subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store

TopicName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The name of a topic.", show_default="every topic")
]


@with_target
def topics(target: CommandTarget, name: TopicName = None, as_json: AsJson = False) -> None:
    """List the topics with their subscriptions, and how many messages each has not read."""
    from glidemq_async.cli import targets
    from glidemq_async.topics.listing import list_topics

    async def look() -> Document:
        async with targets.open_store(target) as store:
            names = [name] if name is not None else await list_topics(store.storage, prefix=store.prefix)
            return {"topics": [await _topic(store, one) for one in names]}

    answer(look(), _show, as_json=as_json)


async def _topic(store: Store, name: str) -> Document:
    from glidemq_async.cli import output
    from glidemq_async.topics.topic import Topic

    async with Topic(name, store.storage, prefix=store.prefix) as topic:
        info = await topic.info()
    return {
        "name": name,
        "published": info.published,
        "stored": info.stored,
        "subscriptions": [
            {
                "name": one.name,
                "queue": one.queue,
                "patterns": list(one.patterns),
                "position": one.position,
                "lag": one.lag,
                "jobs": one.jobs,
                "lost": one.lost,
                "read_at": output.instant(one.read_at),
            }
            for one in info.subscriptions
        ],
    }


def _show(document: Document) -> None:
    from glidemq_async.cli import tables

    rows: list[list[object]] = []
    for topic in document["topics"]:
        rows.append([topic["name"], "", "", topic["published"], topic["stored"], "", ""])
        rows.extend(
            ["", one["queue"], " ".join(one["patterns"]) or ">", "", "", one["lag"], one["lost"]]
            for one in topic["subscriptions"]
        )
    columns = ["topic", "subscription", "patterns", "published", "stored", "lag", "lost"]
    tables.print_table(columns, rows, empty="no topics")
