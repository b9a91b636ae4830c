"""Running the work of a command and printing the resulting document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from glidemq_async.cli.options import CommandTarget
    from glidemq_async.cli.output import Document

JOB: Final[Mapping[str, str]] = {
    "id": "id",
    "name": "name",
    "state": "state",
    "key": "key",
    "attempts": "attempts_made",
    "created": "created_at",
    "reason": "failed_reason",
    "data": "data",
}
DEAD_LETTER_COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "name": "name",
    "cause": "failure_cause",
    "attempts": "attempts_made",
    "failed": "finished_at",
    "reason": "failed_reason",
    "data": "data",
}


def answer(work: Coroutine[Any, Any, Document], show: Callable[[Document], None], *, as_json: bool) -> Document:
    """Run the work of a command, print its document, as JSON or with `show`, and return it."""
    from glidemq_async.cli import output, targets

    # The document is printed after the work has ended, which includes closing the storage. A program that reads the
    # output therefore gets a complete document, or none and an error on standard error.
    found = targets.run(work)
    if as_json:
        output.print_json(found)
    else:
        show(found)
    return found


def show_jobs(found: list[Document], columns: Mapping[str, str], target: CommandTarget, *, empty: str) -> None:
    """Print a table of jobs with the given fields and headings."""
    from glidemq_async.cli import documents, output

    rows = [[documents.cell_value(one, field) for field in columns.values()] for one in found]
    output.print_table(list(columns), rows, empty=empty)
    hint_at_app(found, target)


def hint_at_more(document: Document, hint: str) -> None:
    """Print a hint if the list has more rows. It goes to standard error, so it is not part of the table in a pipe."""
    if document["more"]:
        typer.echo(f"there are {hint}", err=True)


def hint_at_app(found: list[Document], target: CommandTarget) -> None:
    """Print how to read sealed payloads, if there are any and no app was given."""
    if target.spec is None and any(one["sealed"] for one in found):
        typer.echo("sealed: only the codecs of the app can read these payloads; pass --app module:name", err=True)
