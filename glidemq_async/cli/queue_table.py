"""The table of queues, which shows as many states as the terminal has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from glidemq_async.cli import output, tables

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document

_FOLDED_FIRST: Final = (
    "suspended",
    "waiting-children",
    "rate-limited",
    "prioritized",
    "key-waiting",
    "completed",
    "delayed",
)
"""The states whose counts become one column `other`, in this order, until the rows fit."""


def show_queues(document: Document) -> None:
    """Print the queues, and the problems of the ones that cannot be read."""
    found = [one for one in document["queues"] if one["problem"] is None]
    for one in document["queues"]:
        if one["problem"] is not None:
            typer.echo(output.text(f"{one['name']}: {one['problem']}"), err=True)
    folded = _folded(found)
    tables.print_table(*_table(found, folded), empty="no queues")
    if folded:
        typer.echo(f"other: {', '.join(folded)}; a wider terminal or --json shows them", err=True)


def _folded(found: list[Document]) -> list[str]:
    """Return the states that become one column, so that the rows fit."""
    width, folded = tables.terminal_width(), list[str]()
    if width is None:
        return folded
    for state in _FOLDED_FIRST:
        if max(map(len, tables.format_table(*_table(found, folded), width=width))) <= width:
            break
        if any(one["counts"][state] for one in found):
            folded.append(state)
    return folded


def _table(found: list[Document], folded: list[str]) -> tuple[list[str | tables.Column], list[list[object]]]:
    states = [state for state in (found[0]["counts"] if found else ()) if state not in folded]
    rows: list[list[object]] = [
        [
            one["name"],
            "paused" if one["paused"] else "",
            *(one["counts"][state] for state in states),
            sum(one["counts"][state] for state in folded),
            one["workers"],
        ]
        for one in found
    ]
    # The number of workers is shown even if it is 0 everywhere: jobs then wait for ever.
    last = tables.Column("workers", kept=True)
    return ["queue", tables.Column("", fixed=True), *states, "other", last], rows
