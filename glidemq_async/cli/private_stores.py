"""Refusing `memory://` where it could only lose work: a store of one process, asked to serve others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.storage import MemoryStorage


def refuse_private(storage: object, why: str) -> None:
    """Raise CommandError for a store that no other process sees."""
    if isinstance(storage, MemoryStorage):
        raise CommandError(
            f"{storage.url} is seen by one process alone, {why}: use a server or file:///directory", USAGE
        )


def refuse_private_stores(running: object, processes: int) -> None:
    """Raise CommandError when several processes would each work on a store of their own."""
    if processes > 1:
        for worker in cast("Iterable[object]", getattr(running, "workers", [running])):
            why = f"and each of {processes} would work on a store of its own"
            refuse_private(getattr(worker, "storage", None), why)
