"""The worker's client of its guard process: starts it, requests children, and receives their ends."""

from __future__ import annotations

import asyncio
import json
import multiprocessing.spawn
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.subprocess import frames
from glidemq_async.executors.subprocess.channel import Channel
from glidemq_async.executors.subprocess.references import MainModule

_START_SECONDS: Final = 30.0
"""Maximum time in which a guard must report that it has started."""
_END_SECONDS: Final = 5.0
"""Maximum time in which it must end with all of its children."""


class Ending(NamedTuple):
    """The end of a process: its exit status, negative for a signal. It is None if the process did not start; see
    `why`."""

    status: int | None
    why: str = ""


class GuardClient:
    """One guard process and its children."""

    def __init__(self, config: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._config = config
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._channel: Channel | None = None
        self._listening: asyncio.Task[None] | None = None
        self._endings: dict[int, asyncio.Future[Ending]] = {}
        self._last = 0

    @property
    def is_alive(self) -> bool:
        """True if children can be started."""
        return self._channel is not None and self._channel.is_open

    async def start(self) -> None:
        """Start the guard and wait until it is ready. Raises ExecutorError."""
        ours = self._launch_connected()
        # The channel reads through a transport of asyncio, which cannot send descriptors. They are sent over this copy
        # of the socket. Nothing else is written to the transport, so frames cannot interleave.
        self._control = ours.dup()
        try:
            self._channel = await Channel.over(ours, frames.ANY_SIZE)
        except BaseException:
            ours.close()
            raise
        await self._await_hello(self._channel)
        self._listening = asyncio.create_task(self._listen(self._channel))

    def _launch_connected(self) -> socket.socket:
        """Start the process, and return our end of the socket to it."""
        ours, its = socket.socketpair()
        try:
            with its:
                self._process = self._launch(its)
        except BaseException:
            ours.close()
            raise
        return ours

    async def _await_hello(self, channel: Channel) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                hello = await channel.receive()
        except TimeoutError:
            hello = None
        if hello is None or hello[:2] != ["guard", frames.PROTOCOL]:
            await self.stop()
            raise ExecutorError(
                f"the guard process of the subprocess executor did not start: it sent {hello}, expected protocol "
                f"{frames.PROTOCOL}; see its messages on stderr"
            )

    def _launch(self, control: socket.socket) -> subprocess.Popen[bytes]:
        python = [os.fsdecode(multiprocessing.spawn.get_executable()), *_flags()]
        config = {**self._config, **_program(), "python": python}
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(config).encode())
            file.seek(0)
            boot = str(Path(__file__).with_name("boot.py"))
            return subprocess.Popen(  # noqa: S603 - this interpreter
                [*python, "-P", boot, "guard", str(file.fileno()), str(control.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(file.fileno(), control.fileno()),
                env=dict(self._environment),
                start_new_session=True,
            )

    async def _listen(self, channel: Channel) -> None:
        while (frame := await channel.receive()) is not None:
            if frame[0] == "ended":
                self._note(frame[1], Ending(frame[2], frame[3]))
        # The guard is gone, and its children died with it. Every run that waits for an end must hear of it now.
        for number in list(self._endings):
            self._note(number, Ending(None, "was killed with its guard, the process that starts them,"))

    def _note(self, number: int, ending: Ending) -> None:
        future = self._endings.pop(number, None)
        if future is not None and not future.done():
            future.set_result(ending)

    def start_child(self, output: Sequence[int]) -> tuple[int, socket.socket, asyncio.Future[Ending]]:
        """Request a child with these descriptors as stdout and stderr; a single one is used for both.

        Return its number, its channel, and a future of its end. Raises ExecutorError when the guard is gone.
        """
        ours, its = socket.socketpair()
        with its:
            self._last += 1
            given = [its.fileno(), *output]
            try:
                self._send(frames.packed("start", self._last, len(given)), given)
            except OSError as error:
                ours.close()
                raise ExecutorError(f"the guard process of the subprocess executor is gone: {error}") from error
        ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._endings[self._last] = ending
        return self._last, ours, ending

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a child and its process group. Does nothing if it has ended."""
        with suppress(OSError):
            self._send(frames.packed("signal", number, int(what)), [])

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        if self._control is None:
            raise BrokenPipeError("it was stopped")
        while data:
            try:
                # The descriptors travel with the first part. A second copy would become another child's channel.
                data = data[socket.send_fds(self._control, [data], descriptors) :]
                descriptors = []
            except BlockingIOError:
                # Not even a few hundred bytes fit: the guard is stopped or overloaded. Wait for one second at most.
                if not select.select([], [self._control], [], 1.0)[1]:
                    raise

    async def stop(self) -> None:
        """Close the channel, which ends the guard and everything below it, and wait until all of them are gone."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._channel is not None:
            self._channel.close()
        if self._process is None:
            return
        process, self._process = self._process, None
        await _await_end(process)
        if self._listening is not None:
            await self._listening


def _flags() -> list[str]:
    """Return the options of this interpreter that change how code runs."""
    flags = [f"-W{option}" for option in sys.warnoptions]
    flags += [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    flags += ["-O" * sys.flags.optimize] if sys.flags.optimize else []
    return flags + (["-s"] if sys.flags.no_user_site else []) + (["-E"] if sys.flags.ignore_environment else [])


def _program() -> dict[str, Any]:
    """Return the facts about this program that a guard needs in order to run the same code."""
    places: list[object] = list(sys.path)
    return {
        "path": [place for place in places if isinstance(place, str)],  # imports ignore other entries
        # Only the name: the arguments of the worker may contain secrets, such as the password in a URL.
        "argv": sys.argv[:1],
        "main": list(MainModule.of_this_process()),
        "worker": os.getpid(),
    }


async def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, and kill it after `_END_SECONDS`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _END_SECONDS
    while process.poll() is None:
        if loop.time() > deadline:
            process.kill()
        await asyncio.sleep(0.005)
