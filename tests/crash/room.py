"""The place of one crash run: a directory with a server of its own, a journal and a log of the children."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.herd import Herd
from tests.crash.journal import Journal
from tests.support.servers import Server


@dataclass(frozen=True)
class Base:
    """A directory with a journal, and the children of a run."""

    directory: Path
    journal: Journal
    herd: Herd

    @property
    def complaints(self) -> str:
        """What the children wrote to their standard error."""
        return (self.directory / "children.log").read_text()


@dataclass(frozen=True)
class Room(Base):
    """A base with a server."""

    server: Server

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.server.url


@contextlib.contextmanager
def open_base() -> Generator[Base]:
    """Make everything ready to fork; all of it ends with the block."""
    # Short, since a unix socket lives there.
    directory = Path(tempfile.mkdtemp(prefix="gmq-"))
    try:
        journal = Journal(directory / "journal")
        with Herd(directory / "children.log") as herd:
            yield Base(directory, journal, herd)
        journal.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def open_room(*options: str, unix: bool = True) -> Generator[Room]:
    """Start a server, on a unix socket or a loopback port, beside a base; it ends with the block."""
    with open_base() as base:
        server = Server(base.directory, options, unix=unix)
        try:
            asyncio.run(server.start())
            yield Room(base.directory, base.journal, base.herd, server)
        finally:
            server.kill()
