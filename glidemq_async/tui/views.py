"""The views of the terminal: which rows a table shows, and how a command of the user names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from glidemq_async.filters.filter import Filter

Kind: TypeAlias = Literal["queues", "jobs", "failures", "workers", "schedulers", "audit"]
Tab: TypeAlias = Literal["details", "log", "explanation"]
KINDS: Final[tuple[Kind, ...]] = ("queues", "jobs", "failures", "workers", "schedulers", "audit")


class UnknownCommand(ValueError):
    """Raised for a command that names no view."""


@dataclass(frozen=True, slots=True)
class TableView:
    """The selection of the table. `queue` restricts it to one queue, and `wanted` is the filter of the user.

    With a `job_id` it shows a text about that job, and `tab` selects which.
    """

    kind: Kind = "queues"
    queue: str | None = None
    wanted: str = ""
    job_id: str | None = None
    tab: Tab = "details"

    @property
    def title(self) -> str:
        """The text that names the view in the second line of the screen."""
        if self.job_id is not None:
            return f"{self.tab} of {self.job_id}"
        parts = [self.kind, *([f"of {self.queue}"] if self.queue else []), *([self.wanted] if self.wanted else [])]
        return " ".join(parts)

    def of_job(self, queue: str, job_id: str, tab: Tab) -> TableView:
        """Return the view of a job."""
        return replace(self, queue=queue, job_id=job_id, tab=tab)


def parse_command(text: str) -> TableView:
    """Return the view that a command names: `queues`, `jobs state:failed`, `workers`.

    Raises UnknownCommand, and FilterError for jobs.
    """
    name, _, wanted = text.strip().removeprefix(":").partition(" ")
    for kind in KINDS:
        if name in {kind, kind[:-1], kind[0]}:
            if kind == "jobs":
                Filter(wanted)
            return TableView(kind, wanted=wanted.strip())
    near = get_close_matches(name, KINDS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the views are {', '.join(KINDS)}"
    raise UnknownCommand(f"there is no view {name!r}: {hint}")


def fits(cells: Sequence[object], wanted: str) -> bool:
    """Return whether a row contains each word of a filter. Jobs have filters of their own."""
    text = " ".join(str(cell) for cell in cells).casefold()
    return all(word in text for word in wanted.casefold().split())
