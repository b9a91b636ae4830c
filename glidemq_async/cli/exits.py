"""The exit codes of the commands, and which error leads to which. docs/cli.md tells them to users."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The command was understood and did not succeed."""
USAGE: Final = 2
"""What was typed makes no sense: an unknown option, an app that cannot be loaded, bad JSON."""
UNAVAILABLE: Final = 3
"""The server cannot be reached or cannot be used."""
NOT_FOUND: Final = 4
"""There is no such queue, job, job scheduler or embedded store."""
REFUSED: Final = 5
"""It exists, and is in a state in which this cannot be done."""
HANDED_BACK: Final = 6
"""A worker that was told twice to stop: what it was running has been handed back."""
GAVE_UP: Final = 7
"""The supervisor ended because its workers die as soon as they are started."""
INTERRUPTED: Final = 130
"""Ended by Ctrl-C or SIGTERM, commands other than `worker`."""


class CommandError(Exception):
    """Ends a command with one line on standard error and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception) -> int:
    """Return the exit code for an error of the library."""
    from glidemq_async import errors

    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, errors.JobNotFound | errors.SchedulerNotFound):
        return NOT_FOUND
    if isinstance(error, errors.JobStateError | errors.QueueBusy):
        return REFUSED
    if isinstance(error, errors.StorageUnavailable | errors.LibraryVersionError):
        return UNAVAILABLE
    return FAILED
