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
    "queue": "queue",
    "name": "name",
    "state": "state",
    "key": "key",
    "attempts": "attempts_made",
    "age": "created_at",
    "reason": "failed_reason",
    "data": "data",
}
DEAD_LETTER_COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "queue": "queue",
    "name": "name",
    "cause": "failure_cause",
    "attempts": "attempts_made",
    "failed": "finished_at",
    "reason": "failed_reason",
    "data": "data",
}
_INSTANTS: Final = frozenset({"created_at", "finished_at"})
_FIXED: Final = frozenset({"state", "created_at", "finished_at"})
"""Fields that no table shortens."""
_OPTIONAL: Final = frozenset({"key", "attempts_made", "data"})
"""Fields that a narrow terminal does not show."""


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


def show_jobs(
    found: list[Document], columns: Mapping[str, str], target: CommandTarget, *, empty: str, every_queue: bool
) -> None:
    """Print a table of jobs with the given fields and headings. The queue is shown if there can be several."""
    from glidemq_async.cli import tables

    chosen = {heading: field for heading, field in columns.items() if every_queue or field != "queue"}
    rows = [[_cell(one, field) for field in chosen.values()] for one in found]
    headings = [
        tables.Column(heading, field in _FIXED, optional=field in _OPTIONAL) for heading, field in chosen.items()
    ]
    tables.print_table(headings, rows, empty=empty)
    hint_at_app(found, target)


def _cell(document: Document, field: str) -> object:
    from glidemq_async.cli import documents, output, tables

    value = documents.cell_value(document, field)
    if field in _INSTANTS:
        return tables.age_of(None if value is None else str(value))
    # A table leaves out a value of 0, such as attempts that were not made. A payload of 0 or false is shown as a text.
    return output.text(value) if field == "data" else value


def show_listed_jobs(document: Document, target: CommandTarget, *, every_queue: bool) -> None:
    """Print a list of jobs, and the number of jobs that it does not show."""
    show_jobs(document["jobs"], JOB, target, empty="no jobs", every_queue=every_queue)
    hint_at_more(document, "jobs", "job", "a higher --limit, or --offset with --state, shows more")


def hint_at_more(document: Document, field: str, thing: str, remedy: str) -> None:
    """Print that more things exist, if so. `thing` is the singular, and `total` of the document is the number of all
    things, None if it is unknown.
    """
    from glidemq_async.cli.output import counted

    # It goes to standard error, so it is not part of the table in a pipe.
    if not document["more"]:
        return
    shown, total = len(document[field]), document.get("total")
    if total is not None:
        found = f"{shown:,} of {counted(total, thing)}"
    else:
        found = f"the first {thing if shown == 1 else counted(shown, thing)}"
    typer.echo(f"{found}; {remedy}", err=True)


def hint_at_app(found: list[Document], target: CommandTarget) -> None:
    """Print how to read sealed payloads, if there are any and no app was given."""
    if target.spec is None and any(one["sealed"] for one in found):
        typer.echo("sealed: only the codecs of the app can read these payloads; pass --app module:name", err=True)
