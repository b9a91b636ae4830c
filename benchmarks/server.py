"""The measured servers, each one as a child process, and their reports of their own cost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from glidemq_async.storage.embedded.binary import find_server
from glidemq_async.storage.embedded.memory import HOLDER
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import Reply, Wire, as_text

START_SECONDS: Final = 10.0
REPLY_SECONDS: Final = 60.0


@contextlib.contextmanager
def running_server(*options: str) -> Generator[str]:
    """Run the embedded binary without persistence unless `options` enable it; yield the URL of its unix socket."""
    directory = tempfile.mkdtemp(prefix="glidemq-bench-")
    path = f"{directory}/s"
    command = [
        find_server(), "--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--dir", directory,
        "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--stream-node-max-entries", "10",
        "--io-threads", "1", "--logfile", "", *options,
    ]  # fmt: skip
    with _held(directory, command, lambda: accepts(socket.AF_UNIX, path)):
        yield f"unix://{path}"


@contextlib.contextmanager
def tcp_server(binary: str) -> Generator[str]:
    """Run a server with the default settings of its product, but without snapshots; yield its URL."""
    directory = tempfile.mkdtemp(prefix="glidemq-bench-")
    port = free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""]
    with _held(directory, command, lambda: accepts(socket.AF_INET, ("127.0.0.1", port))):
        yield f"redis://127.0.0.1:{port}"


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    """Return whether a server accepts connections. The file of a unix socket exists before that."""
    with contextlib.suppress(OSError), socket.socket(family) as probe:
        probe.settimeout(1)
        probe.connect(address)
        return True
    return False


@contextlib.contextmanager
def _held(directory: str, command: list[str], is_ready: Callable[[], bool]) -> Generator[None]:
    """Run a server that ends with this process, whatever ends it."""
    holder = subprocess.Popen(
        ["/bin/sh", "-c", HOLDER, "glidemq-bench", directory, *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{command[0]} did not accept connections within {START_SECONDS:g} s")
            time.sleep(0.005)
        yield
    finally:
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Wire]:
    """A connection of the library, for commands that are not queue calls."""
    parts = urlsplit(url)
    place = Endpoint(path=parts.path) if parts.scheme == "unix" else Endpoint(parts.hostname or "", parts.port or 0)
    wire = await dial(place)
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


async def used_bytes(wire: Wire) -> int:
    """Return the memory that the server uses for everything but the buffers of its clients."""
    fields = _fields(as_text(await ask(wire, "INFO", "memory")))
    return int(fields["used_memory"]) - int(fields["mem_clients_normal"])


async def main_thread_seconds(wire: Wire) -> float:
    """Return the processor time of the thread that executes all commands."""
    fields = _fields(as_text(await ask(wire, "INFO", "cpu")))
    return float(fields["used_cpu_user_main_thread"]) + float(fields["used_cpu_sys_main_thread"])


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

    @property
    def in_functions(self) -> float:
        """The seconds of function calls, which contain the commands that the functions call."""
        return self.seconds.get("fcall", 0.0) + self.seconds.get("fcall_ro", 0.0)

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
