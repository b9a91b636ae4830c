"""The progress of the demonstration: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

LINE_SECONDS: Final = 1.0
FRAMES: Final = 8
"""Frames per second. More frames would take processor time from the workers."""


class Snapshot(NamedTuple):
    """The state of the run at one moment. `rate` is the number of ended jobs per second, `seconds` the elapsed time."""

    total: int
    done: int
    active: int
    waiting: int
    retries: int
    recovered: int
    rate: float
    seconds: float


class Display(Protocol):
    """Shows the progress of a run. It is a context manager around the run."""

    def update(self, now: Snapshot) -> None:
        """Show the current state."""
        ...

    def note(self, text: str) -> None:
        """Show a message."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Plain:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class SilentDisplay(_Plain):
    """Shows nothing."""

    def update(self, now: Snapshot) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


class LineDisplay(_Plain):
    """Prints one line a second, for a log or a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def update(self, now: Snapshot) -> None:
        """Print a line if the last one is older than a second, and one at the end."""
        if now.seconds < self._next and now.done < now.total:
            return
        self._next = now.seconds + LINE_SECONDS
        self._console.print(
            f"{now.seconds:5.1f} s  {now.done:,}/{now.total:,} done, {now.active} active, {now.waiting:,} waiting, "
            f"{now.retries} retries, {now.recovered} recovered, {now.rate:,.0f} jobs/s"
        )

    def note(self, text: str) -> None:
        """Print it."""
        self._console.print(text)


class _TwoLines(Progress):
    """A bar and a line of counts, which both fit into 80 columns."""

    counts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text.from_markup(self.counts)


class BarDisplay:
    """A live progress bar with notes above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = _TwoLines(
            SpinnerColumn(),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=FRAMES,
            expand=True,
        )
        self._task = self._progress.add_task("starting", total=None)

    def update(self, now: Snapshot) -> None:
        """Move the bar."""
        self._progress.counts = (
            f"  [yellow]{now.active:,}[/] active, [blue]{now.waiting:,}[/] waiting, "
            f"[magenta]{now.retries:,}[/] retries, [cyan]{now.recovered:,}[/] recovered"
        )
        self._progress.update(
            self._task, total=now.total, completed=now.done, description=f"[green]{now.rate:,.0f}[/] jobs/s"
        )

    def note(self, text: str) -> None:
        """Print it above the bar."""
        self._console.print(text)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def open_display(console: Console, *, silent: bool) -> Display:
    """Return the display that fits the console."""
    if silent:
        return SilentDisplay()
    return BarDisplay(console) if console.is_terminal else LineDisplay(console)
