"""The command settings: the pause and the limits of a queue, who has set them, and what the code declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, QueueName, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

Release = Annotated[
    str | None,
    typer.Option(
        "--release", metavar="NAME", help="Release this setting: the value that the code declares applies again."
    ),
]
ReleaseKey = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="With --release: the setting of this ordering key, '' for every key."),
]


@with_target
def settings(
    target: CommandTarget,
    queue: QueueName,
    release: Release = None,
    key: ReleaseKey = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Show the settings of a queue with their origin, or with --release return one to the code."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    if key is not None and release is None:
        raise typer.BadParameter("it needs --release", param_hint="--key")

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            if release is not None:
                await ops.release_hold(queue, release, key=key, reason=reason)
            return {"queue": queue, "settings": as_document(await ops.settings(queue))}

    answer(do(), show_settings, as_json=as_json)


def show_settings(document: Document, *, empty: str = "no settings") -> None:
    """Print a table of settings."""
    from glidemq_async.cli import tables

    rows = [
        [
            one["name"],
            one["key"] or ("" if one["key"] is None else "(every key)"),
            one["value"] or ("running" if one["name"] == "paused" else "no limit"),
            one["origin"],
            one["who"],
            "" if one["at"] is None else tables.age_of(one["at"]),
            one["note"],
            one["declared"],
            "" if one["until"] is None else tables.age_of(one["until"]),
        ]
        for one in document["settings"]
    ]
    headings: list[str | tables.Column] = [
        tables.Column("setting", fixed=True),
        "key",
        "value",
        "origin",
        "by",
        "age",
        "note",
        "declared",
        "ends",
    ]
    tables.print_table(headings, rows, empty=empty)
