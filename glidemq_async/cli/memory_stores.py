"""Refusing `memory://` where it would lose jobs, because only one process can see that store."""

from __future__ import annotations

from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.storage import MemoryStorage


def refuse_memory_store(storage: object, why: str) -> None:
    """Raise CommandError for a store that other processes cannot see."""
    # Everything would seem to work: the job is added, its id is printed, and the store disappears with the process.
    if isinstance(storage, MemoryStorage):
        raise CommandError(
            f"{storage.url} is visible to one process only, {why}; use a server or file:///directory", USAGE
        )
