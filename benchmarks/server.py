"""The measured server: the embedded binary as a child on a unix socket, and its reports of its own cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Final

from glidemq_async.storage.embedded.binary import find_server
from glidemq_async.storage.embedded.memory import HOLDER
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import Reply, Wire, as_text

START_SECONDS: Final = 10.0
REPLY_SECONDS: Final = 60.0


@contextlib.contextmanager
def running_server(*options: str) -> Generator[str]:
    """Run a server without persistence unless `options` enable it; yield the path of its socket."""
    directory = tempfile.mkdtemp(prefix="glidemq-bench-")
    socket = f"{directory}/s"
    command = [
        find_server(), "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--dir", directory,
        "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--stream-node-max-entries", "10",
        "--io-threads", "1", "--logfile", "", *options,
    ]  # fmt: skip
    holder = subprocess.Popen(
        ["/bin/sh", "-c", HOLDER, "glidemq-bench", directory, *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _await_socket(socket)
        yield socket
    finally:
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()


def _await_socket(socket: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not os.path.exists(socket):  # noqa: PTH110 - a path of a socket, checked a few times
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server did not open its socket within {START_SECONDS:g} s")
        time.sleep(0.005)


@contextlib.asynccontextmanager
async def connected(socket: str) -> AsyncGenerator[Wire]:
    """A connection of the library, for commands that are not queue calls."""
    wire = await dial(Endpoint(path=socket))
    try:
        yield wire
    finally:
        wire.drop("done")


async def ask(wire: Wire, *parts: str | bytes | int) -> Reply:
    """Send one command and return its reply; raise an error reply."""
    reply = await wire.send(pack(*parts), asyncio.get_running_loop().time() + REPLY_SECONDS)
    if isinstance(reply, Exception):
        raise reply
    return reply


@dataclass(frozen=True, slots=True)
class ServerCost:
    """The total cost of the server at one time: seconds of processor time, and calls and seconds by command."""

    processor: float
    calls: dict[str, int]
    seconds: dict[str, float]

    @classmethod
    async def read(cls, wire: Wire) -> ServerCost:
        """Read it from INFO."""
        processor = _fields(as_text(await ask(wire, "INFO", "cpu")))
        calls: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for name, text in _fields(as_text(await ask(wire, "INFO", "commandstats"))).items():
            command = name.removeprefix("cmdstat_").replace("|", " ")
            numbers = dict(part.split("=", 1) for part in text.split(","))
            calls[command] = int(numbers["calls"])
            seconds[command] = int(numbers["usec"]) / 1e6
        spent = float(processor["used_cpu_user"]) + float(processor["used_cpu_sys"])
        return cls(spent, calls, seconds)

    def since(self, before: ServerCost) -> ServerCost:
        """Return the cost between two times."""
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return ServerCost(
            self.processor - before.processor,
            calls,
            {name: self.seconds[name] - before.seconds.get(name, 0.0) for name, count in calls.items() if count},
        )


def _fields(info: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}
