"""What every command does in the end: run its work, and print the document that comes out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from glidemq_async.cli.options import Place
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
LETTER: Final[Mapping[str, str]] = {
    "id": "id",
    "name": "name",
    "cause": "failure_cause",
    "attempts": "attempts_made",
    "failed": "finished_at",
    "reason": "failed_reason",
    "data": "data",
}


def answer(work: Coroutine[Any, Any, Document], show: Callable[[Document], None], *, as_json: bool) -> None:
    """Run a command's work to its end and print its document: as JSON, or as `show` does for people."""
    from glidemq_async.cli import output, targets

    found = targets.run(work)
    if as_json:
        output.print_json(found)
    else:
        show(found)


def show_jobs(found: list[Document], columns: Mapping[str, str], place: Place, *, empty: str) -> None:
    """Print a table of jobs: the fields by their headings."""
    from glidemq_async.cli import documents, output

    rows = [[documents.told(one, field) for field in columns.values()] for one in found]
    output.print_table(list(columns), rows, empty=empty)
    hint_at_app(found, place)


def hint_at_more(document: Document, hint: str) -> None:
    """Say that a list goes on, if it does: in a pipe too, where it is no part of the table."""
    if document["more"]:
        typer.echo(f"there are {hint}", err=True)


def hint_at_app(found: list[Document], place: Place) -> None:
    """Say how sealed payloads can be read, if there are any and no app was named."""
    if place.spec is None and any(one["sealed"] for one in found):
        typer.echo("sealed: written with codecs that only the app has; name it with --app module:name", err=True)
