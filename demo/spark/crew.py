"""The processes of the demonstration: started, killed, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

_PACKAGE = "glidemq_async.demo.spark"


class Member:
    """A process of its own group, which runs one of this package's modules."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.was_killed = False

    @classmethod
    async def start(cls, module: str, settings: Mapping[str, object]) -> Member:
        """Start it. It ends when this process does: its standard input tells."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{_PACKAGE}.{module}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Spark's greetings; what went wrong comes last.
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - asked for above
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        return cls(process)

    def kill(self) -> None:
        """SIGKILL it and what it has started, Spark's JVM among it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Let it end what it is doing; kill it if that takes too long."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), 5)
        self.kill()
        await self.process.wait()
