"""The commands of `glidemq alerts`: list, add, remove and test alert rules, and list their episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.options import AsJson, CommandTarget, Limit, Reason, with_target

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

alerts = typer.Typer(no_args_is_help=True, help="Set rules that notify you, and list the episodes of the rules.")

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]
ConditionText = Annotated[
    str, typer.Argument(metavar="CONDITION", help="For example 'oldest_age > 60s for 5m'; see docs/alerts.md.")
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="PATTERN", help="Name or pattern of queues.", show_default="every queue"),
]
Webhooks = Annotated[
    list[str] | None,
    typer.Option(
        "--webhook", metavar="URL", help="URL that is notified.", show_default="the webhooks of the rule, or none"
    ),
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        envvar="GLIDEMQ_WEBHOOK_SECRET",
        help="The secret of the signatures.",
        show_default="the one that the rule has, or a new one",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="Content of the requests: json or slack.", show_default="the one of the rule, or json"
    ),
]
Note = Annotated[str, typer.Option("--note", help="What the rule is for, in one line.", show_default=False)]
OnlyOpen = Annotated[bool, typer.Option("--open", help="Only episodes that are open.")]


@alerts.command("list")
@with_target
def list_rules(target: CommandTarget, as_json: AsJson = False) -> None:
    """List the rules, and when they were last evaluated."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_ops(target) as ops:
            return {"alerts": as_document(await ops.alerts())}

    answer(look(), _show_rules, as_json=as_json)


def _show_rules(document: Document) -> None:
    from glidemq_async.cli import output, tables

    found = document["alerts"]
    rows = [
        [one["name"], one["condition"], " ".join(one["queues"]), " ".join(one["webhooks"]), one["who"], one["note"]]
        for one in found["rules"]
    ]
    condition = tables.Column("condition", fixed=True)
    tables.print_table(["rule", condition, "queues", "webhooks", "by", "note"], rows, empty="no alert rules")
    if found["rules"]:
        age = tables.age_of(found["evaluated_at"])
        output.say(
            f"evaluated {age} ago"
            if age
            else "not evaluated yet: keep `glidemq ui` or `glidemq operations run` running"
        )


@alerts.command()
@with_target
def add(
    target: CommandTarget,
    name: RuleName,
    condition: ConditionText,
    queue: Queues = None,
    webhook: Webhooks = None,
    secret: Secret = None,
    content: Format = None,
    note: Note = "",
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Add a rule, or replace the one with this name. Prints the secret of the signatures if it is new."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.alerts.rules import check_format
    from glidemq_async.ops.documents import as_document

    async def do() -> Document:
        async with targets.open_ops(target) as ops:
            stored = await ops.set_alert(
                name,
                condition,
                queues=queue or ("*",),
                webhooks=webhook,
                secret=secret,
                format=None if content is None else check_format(content),
                note=note,
                reason=reason,
            )
            return {"alert": as_document(stored)}

    answer(do(), _show_stored, as_json=as_json)


def _show_stored(document: Document) -> None:
    from glidemq_async.cli import output

    rule = document["alert"]["rule"]
    output.say(f"rule {rule['name']}: {rule['condition']} in {' '.join(rule['queues'])}")
    if document["alert"]["secret"]:
        output.say(f"secret of the signatures, shown only once: {document['alert']['secret']}")


@alerts.command()
@with_target
def remove(target: CommandTarget, name: RuleName, reason: Reason = "", as_json: AsJson = False) -> None:
    """Remove a rule. Its open episodes end without a notification."""
    from glidemq_async.cli import targets

    async def do() -> Document:
        async with targets.open_ops(target) as ops:
            await ops.remove_alert(name, reason=reason)
            return {"removed": name}

    answer(do(), _show_removed, as_json=as_json)


def _show_removed(document: Document) -> None:
    from glidemq_async.cli import output

    output.say(f"rule {document['removed']} is removed")


@alerts.command()
@with_target
def episodes(target: CommandTarget, only_open: OnlyOpen = False, limit: Limit = 20, as_json: AsJson = False) -> None:
    """List the episodes of all rules, the newest first."""
    from glidemq_async.cli import targets
    from glidemq_async.ops.documents import as_document

    async def look() -> Document:
        async with targets.open_ops(target) as ops:
            found = await ops.alert_episodes(open_only=only_open, limit=min(limit, 100))
            return {"episodes": [as_document(one) for one in found]}

    answer(look(), _show_episodes, as_json=as_json)


def _show_episodes(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            one["id"],
            one["rule"],
            one["state"],
            tables.age_of(one["opened_at"]),
            tables.age_of(one["closed_at"]),
            one["text"],
            ", ".join(f"{name} {status}" for name, status in one["notifications"].items()),
        ]
        for one in document["episodes"]
    ]
    state = tables.Column("state", fixed=True)
    tables.print_table(["id", "rule", state, "opened", "closed", "found", "notified"], rows, empty="no episodes")


@alerts.command("test")
@with_target
def send_test(target: CommandTarget, name: RuleName, reason: Reason = "", as_json: AsJson = False) -> None:
    """Send a test notification to each webhook of a rule. The exit code is 1 if one does not accept it."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.exits import FAILED
    from glidemq_async.ops.documents import as_document

    async def do() -> Document:
        async with targets.open_ops(target) as ops:
            return {"replies": [as_document(one) for one in await ops.test_alert(name, reason=reason)]}

    done = answer(do(), _show_replies, as_json=as_json)
    if any(one["error"] for one in done["replies"]):
        raise typer.Exit(FAILED)


def _show_replies(document: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [one["webhook"], one["error"] or f"accepted ({one['status']})", one["seconds"]] for one in document["replies"]
    ]
    tables.print_table(["webhook", "reply", "seconds"], rows, empty="the rule has no webhook")
