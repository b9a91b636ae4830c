"""Runs the commands that read and change queues against one server, as a user does."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from glidemq_async.cli.app import run as run_command
from tests.cli.commands import COMMAND, environment


class Shell:
    """Runs commands against one server: as processes or, to save their start, in a thread of this process."""

    def __init__(self, url: str, temporary: Path, *, processes: bool = False) -> None:
        self._environment = environment(temporary) | {"GLIDEMQ_URL": url}
        self._processes = processes

    def set(self, name: str, value: str) -> None:
        """Set a variable of the environment of the next commands."""
        self._environment[name] = value

    async def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        run = self._process if self._processes else self._thread
        return await asyncio.to_thread(run, arguments, given)

    def _process(self, arguments: Sequence[str], given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            env=self._environment,
            input=given,
            check=False,
        )

    def _thread(self, arguments: Sequence[str], given: str) -> subprocess.CompletedProcess[str]:
        out, err, code = StringIO(), StringIO(), 0
        with (
            patch.dict(os.environ, self._environment),
            patch.object(sys, "argv", ["glidemq", *arguments]),
            patch.object(sys, "stdin", StringIO(given)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                run_command()
            except SystemExit as end:
                code = cast("int", end.code) or 0
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    async def json(self, *arguments: str) -> Any:
        """Run a command that must succeed, and parse its output."""
        done = await self.run(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)

    async def fails(self, *arguments: str, given: str = "") -> tuple[int, str]:
        """Run a command that must fail: return its exit code, and the one line that it prints."""
        done = await self.run(*arguments, given=given)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr.rstrip("\n")
