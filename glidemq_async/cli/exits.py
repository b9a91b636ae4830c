"""The exit codes of the commands and their errors. docs/cli.md lists them for users."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The command was valid but did not succeed."""
USAGE: Final = 2
"""The command line is invalid: an unknown option, an app that cannot be loaded, bad JSON."""
UNAVAILABLE: Final = 3
"""The server cannot be reached or cannot be used."""
NOT_FOUND: Final = 4
"""The queue, job, job scheduler or embedded store does not exist."""
REFUSED: Final = 5
"""The object exists, but its state does not allow the operation."""
RELEASED: Final = 6
"""A second signal stopped the worker. Its running jobs were released."""
GAVE_UP: Final = 7
"""The supervisor gave up because its workers die during their start."""
INTERRUPTED: Final = 130
"""Ctrl-C or SIGTERM ended a command other than `worker`."""


class CommandError(Exception):
    """Ends a command with one line on standard error and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


# Scripts test these numbers. An error of the library that is not named here is FAILED. The commands turn mistakes of
# the command line into CommandError with USAGE themselves.
def code_of(error: Exception) -> int:
    """Return the exit code for an error of the library."""
    from glidemq_async import errors
    from glidemq_async.ops.errors import (
        AlertNotFound,
        NoSuchHold,
        OperationNotFound,
        OperationRefused,
        QueueNotFound,
        SettingsChanged,
    )

    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, errors.FilterError):
        return USAGE
    missing = errors.JobNotFound | errors.SchedulerNotFound | QueueNotFound | OperationNotFound | AlertNotFound
    if isinstance(error, missing):
        return NOT_FOUND
    if isinstance(error, errors.JobStateError | errors.QueueBusy | OperationRefused | NoSuchHold | SettingsChanged):
        return REFUSED
    if isinstance(error, errors.StorageUnavailable | errors.LibraryVersionError):
        return UNAVAILABLE
    return FAILED
