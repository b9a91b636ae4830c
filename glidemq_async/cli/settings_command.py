"""The command settings: shows the settings of a queue, releases them, and sets the rules of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

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


EventsOff = Annotated[
    str | None,
    typer.Option(
        "--events-off", metavar="KINDS|all|none", help="Kinds of events that the queue does not write: active,progress."
    ),
]
ProgressInterval = Annotated[
    str | None,
    typer.Option(
        "--progress-interval", metavar="DURATION|none", help="The least time between two progress events of a job: 5s."
    ),
]
Content = Annotated[
    str | None,
    typer.Option(
        "--event-content",
        metavar="size|value|none",
        help="Add the size of the result to completed events, or also results of up to 1 KiB.",
    ),
]
_NONE: Final = "none"


@with_target
def settings(
    target: CommandTarget,
    queue: QueueName,
    release: Release = None,
    key: ReleaseKey = None,
    events_off: EventsOff = None,
    progress_interval: ProgressInterval = None,
    event_content: Content = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Show the settings of a queue, set rules of its events, or with --release return a setting to the code.

    `none` removes a rule of events. A rule that is set here holds until it is released.
    """
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    if key is not None and release is None:
        raise typer.BadParameter("it needs --release", param_hint="--key")

    texts = {
        "off": events_off,
        "progress_interval": progress_interval,
        "content": event_content,
    }
    rules = _rules({name: text for name, text in texts.items() if text is not None})

    async def do() -> Document:
        async with targets.open_change(queue, target) as (ops, _):
            if release is not None:
                await ops.release_hold(queue, release, key=key, reason=reason)
            if rules:
                await ops.set_events(queue, **rules, note=reason)
            return {"queue": queue, "settings": as_document(await ops.settings(queue))}

    answer(do(), show_settings, as_json=as_json)


def _rules(given: dict[str, str]) -> dict[str, Any]:
    from glidemq_async.queues.event_rules import EventRules

    try:
        rules = {name: None if text == _NONE else _value(name, text) for name, text in given.items()}
        EventRules(**rules)  # it checks them
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(f"{error}; `none` removes a rule", param_hint="--") from None
    return rules


def _value(name: str, text: str) -> Any:
    from glidemq_async.durations import parse_duration

    if name == "off":
        return text if text == "all" else tuple(text.replace(",", " ").split())
    if name == "progress_interval":
        if (seconds := parse_duration(text)) is None:
            raise ValueError(f"{text!r} is no duration; write for example 500ms or 5s")
        return seconds
    return text


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
