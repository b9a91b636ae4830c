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
from tests.servers import Server


@dataclass(frozen=True)
class Room:
    """What the processes of a run share."""

    directory: Path
    server: Server
    journal: Journal
    herd: Herd

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.server.url

    @property
    def complaints(self) -> str:
        """What the children wrote to their standard error."""
        return (self.directory / "children.log").read_text()


@contextlib.contextmanager
def open_room(*options: str) -> Generator[Room]:
    """Start a server and make everything ready to fork; all of it ends with the block."""
    # Short, since a unix socket lives there.
    directory = Path(tempfile.mkdtemp(prefix="gmq-"))
    server = Server(directory, options, unix=True)
    try:
        asyncio.run(server.start())
        journal = Journal(directory / "journal")
        with Herd(directory / "children.log") as herd:
            yield Room(directory, server, journal, herd)
        journal.close()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
