"""The files of one crash run: a directory with a server, a journal and a log of the children."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.child_processes import ChildProcesses
from tests.crash.journal import Journal
from tests.support.servers import Server


@dataclass(frozen=True)
class Workspace:
    """A directory with a journal, and the children of a run."""

    directory: Path
    journal: Journal
    children: ChildProcesses

    @property
    def complaints(self) -> str:
        """Return the output of the children on standard error."""
        return (self.directory / "children.log").read_text()


@dataclass(frozen=True)
class ServerWorkspace(Workspace):
    """A run directory with a server."""

    server: Server

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.server.url


@contextlib.contextmanager
def open_base() -> Generator[Workspace]:
    """Prepare the run so that it can fork. The block ends all of it."""
    # A short path, because it contains a unix socket.
    directory = Path(tempfile.mkdtemp(prefix="gmq-"))
    try:
        journal = Journal(directory / "journal")
        with ChildProcesses(directory / "children.log") as children:
            yield Workspace(directory, journal, children)
        journal.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def open_workspace(*options: str, unix: bool = True) -> Generator[ServerWorkspace]:
    """Start a server on a unix socket or a loopback port for a run directory. It ends with the block."""
    with open_base() as base:
        server = Server(base.directory, options, unix=unix)
        try:
            asyncio.run(server.start())
            yield ServerWorkspace(base.directory, base.journal, base.children, server)
        finally:
            server.kill()
