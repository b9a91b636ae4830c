"""The worker processes of the demonstration: starting them, killing one, replacing those that end by themselves."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from glidemq_async.demo.jobs.worker_process import SHUTDOWN_SECONDS, WORKING, Settings
from glidemq_async.errors import GlideMQError

_MODULE: Final = "glidemq_async.demo.jobs.worker_process"
_LINES_KEPT: Final = 20


class WorkerProcessFailed(GlideMQError):
    """Raised when a worker process ended before it could do anything."""


class Member:
    """One worker process."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process
        self.working = False
        """True once it has claimed a job. From then on it holds some until the queue is empty."""
        self.messages: deque[str] = deque(maxlen=_LINES_KEPT)

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid})"


class Crew:
    """A number of worker processes; one that ends by itself, or is killed, is replaced.

    Leaving the block stops them: they let running jobs end, and are killed when that takes too long.
    `note` gets a sentence about whatever happens to them.
    """

    def __init__(self, size: int, settings: Settings, note: Callable[[str], None]) -> None:
        self._size = size
        self._settings = settings
        self._note = note
        self._members: list[Member] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._somebody_works = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.killed: Member | None = None
        """The process that `kill_one` killed."""
        self.started = 0
        """How many processes were started."""

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._size):
                await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def kill_one(self) -> None:
        """Kill a process that is at work, with SIGKILL; waits until there is one."""
        while self.killed is None:
            await self._somebody_works.wait()
            self._somebody_works.clear()
            for member in self._members:
                if member.working and member.process.returncode is None:
                    self.killed = member
                    member.process.kill()
                    break

    async def failed(self) -> None:
        """Wait for the failure of the crew; raises WorkerProcessFailed when it cannot work."""
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop every process and wait for its end; idempotent."""
        self._stopping = True
        for member in self._members:
            if member.process.stdin is not None:
                member.process.stdin.close()
        # A snapshot would miss a replacement that is being started: its watch is waited for in the next round.
        deadline = asyncio.get_running_loop().time() + 2 * SHUTDOWN_SECONDS
        while self._watches:
            _, late = await asyncio.wait(self._watches, timeout=max(0.1, deadline - asyncio.get_running_loop().time()))
            if late:
                self._kill_all()
        if self._failure.done():
            self._failure.exception()

    def _kill_all(self) -> None:
        for member in self._members:
            with suppress(ProcessLookupError):
                member.process.kill()

    async def _start(self) -> Member:
        self.started += 1
        number = self.started
        # A session of its own: Ctrl-C in a terminal reaches this process alone, which then stops them in order.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        member = Member(number, process)
        self._members.append(member)
        settings: Settings = {**self._settings, "name": f"{self._settings['name']}-{number}"}
        assert process.stdin is not None  # noqa: S101 - asked for above
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        if self._stopping:
            process.stdin.close()
        watch = asyncio.create_task(self._watch(member))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return member

    async def _watch(self, member: Member) -> None:
        await asyncio.gather(self._hear(member), self._read_messages(member))
        code = await member.process.wait()
        self._members.remove(member)
        if self._stopping:
            return
        if member is not self.killed and not member.working:
            self._fail(member, code)
            return
        try:
            successor = await self._start()
        except OSError as error:
            self._fail(member, code, [f"and no other one could be started: {error}"])
            return
        self._note(f"{member} {_ending(code)}; {successor} takes its place")

    async def _hear(self, member: Member) -> None:
        assert member.process.stdout is not None  # noqa: S101 - asked for at its start
        async for line in member.process.stdout:
            if line.decode().strip() == WORKING:
                member.working = True
                self._somebody_works.set()

    async def _read_messages(self, member: Member) -> None:
        assert member.process.stderr is not None  # noqa: S101 - asked for at its start
        async for line in member.process.stderr:
            text = line.decode(errors="replace").rstrip()
            member.messages.append(text)
            if member.working:
                self._note(f"worker {member.number} says: {text}")

    def _fail(self, member: Member, code: int, messages: Sequence[str] = ()) -> None:
        if not self._failure.done():
            said = "\n".join([*member.messages, *messages]) or "it said nothing"
            self._failure.set_exception(
                WorkerProcessFailed(f"{member} {_ending(code)} before it did anything:\n{said}")
            )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
