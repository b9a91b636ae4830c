"""Messages of errors for logs."""

from __future__ import annotations

from glidemq_async.errors import StorageUnavailable


def problem_of(error: Exception) -> str:
    """Return the message of an error for the log of a program that tries again by itself."""
    return str(error).removesuffix(error.caller_advice if isinstance(error, StorageUnavailable) else "")
