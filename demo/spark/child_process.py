"""A child process of the demonstration, which can be killed with everything that it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

_PACKAGE = "glidemq_async.demo.spark"


class ChildProcess:
    """A process in a new session that runs one module of this package."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.was_killed = False

    @classmethod
    async def start(cls, module: str, settings: Mapping[str, object]) -> ChildProcess:
        """Start the module. It ends when this process ends, because its standard input closes then."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{_PACKAGE}.{module}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Spark writes messages of its start to stderr. The caller keeps the last lines for an error message.
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - requested above
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        return cls(process)

    def kill(self) -> None:
        """Kill the process and its process group, which includes the JVM of Spark."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Wait five seconds for the end of its work, then kill it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), 5)
        self.kill()
        await self.process.wait()
