"""A load generator for the example services, in a separate process: `python -m benchmarks.http_load PORT`.

Each client is one persistent connection with one request at a time. With a rate, requests have due times, and a
latency counts from the due time. So a slow response also makes the delayed requests slow. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Final, cast

import uvloop

POINTS: Final = (50, 90, 95, 99, 99.9, 100)


class LoadClient(asyncio.Protocol):
    """One connection: sends a request, reads its response, reports both to the load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._due = 0.0
        self._number = -1
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop implements the interface, but it is not an instance of the class.
        self.transport = cast("asyncio.Transport", transport)

    def send(self, number: int, due: float) -> None:
        """Send one request that was due at this time."""
        assert self.transport is not None
        self._number, self._due = number, due
        self.transport.write(self._load.request(number))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._buffer = b""
        number, self._number = self._number, -1
        self._load.answered(self, number, int(head[9:12]), self._due)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._load.lost(self, self._number >= 0)


def _length(head: bytes) -> int:
    start = head.lower().index(b"content-length:") + 15
    return int(head[start:].split(b"\r\n", 1)[0])


class Load:
    """A number of requests from a number of clients, at a rate or as fast as responses come."""

    def __init__(self, path: str, first: int, requests: int, rate: float) -> None:
        self._head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._first = first
        self._requests = requests
        self._rate = rate
        self._begun = 0.0
        self._left = 0
        self.done = asyncio.Event()
        self.latencies: list[float] = []
        self.accepted: list[int] = []
        self.refused = 0
        self.broken = 0

    def request(self, number: int) -> bytes:
        """Return the bytes of one request."""
        body = f'{{"number":{self._first + number},"item":"tea"}}'
        return f"{self._head}{len(body)}\r\n\r\n{body}".encode()

    def start(self, clients: Sequence[LoadClient]) -> None:
        """Let every client send its first request."""
        self._begun = perf_counter()
        self._left = len(clients)
        for client in clients:
            self._next(client)

    def _next(self, client: LoadClient) -> None:
        number = next(self._numbers)
        if number >= self._requests:
            self._left -= 1
            if not self._left:
                self.done.set()
            return
        now = perf_counter()
        due = self._begun + number / self._rate if self._rate else now
        if due > now:
            self._loop.call_later(due - now, client.send, number, due)
        else:
            client.send(number, due)

    def answered(self, client: LoadClient, number: int, status: int, due: float) -> None:
        """Note a response."""
        # The loop's own time has a resolution of only one millisecond with uvloop.
        self.latencies.append(perf_counter() - due)
        if status == 202:
            self.accepted.append(self._first + number)
        else:
            self.refused += 1
        self._next(client)

    def lost(self, client: LoadClient, waiting: bool) -> None:  # noqa: ARG002
        """Note the end of a connection. The outcome of its open request is unknown."""
        self.broken += waiting
        if not self.done.is_set():
            self._left -= 1
            if self._left <= 0:
                self.done.set()

    def report(self) -> dict[str, object]:
        """Return the results; latencies in milliseconds."""
        seconds = perf_counter() - self._begun
        ordered = sorted(self.latencies) or [0.0]
        at = {str(point): _milliseconds(ordered, point) for point in POINTS}
        answers = len(self.latencies)
        return {
            "answers": answers,
            "accepted": len(self.accepted),
            "refused": self.refused,
            "broken": self.broken,
            "seconds": round(seconds, 3),
            "per_second": round(answers / seconds, 1),
            "ms": at,
        }


def _milliseconds(ordered: Sequence[float], point: float) -> float:
    position = min(len(ordered) - 1, int(len(ordered) * point / 100))
    return round(ordered[position] * 1000, 3)


async def _run(asked: argparse.Namespace) -> dict[str, object]:
    load = Load(asked.path, asked.first, asked.requests, asked.rate)
    loop = asyncio.get_running_loop()
    clients: list[LoadClient] = []
    for _ in range(asked.clients):
        _, client = await loop.create_connection(lambda: LoadClient(load), "127.0.0.1", asked.port)
        clients.append(client)
    load.start(clients)
    await load.done.wait()
    report = load.report()
    for client in clients:
        if client.transport is not None:
            client.transport.abort()
    if asked.accepted is not None:
        asked.accepted.write_text("".join(f"order-{number}\n" for number in load.accepted))
    return report


def main(given: Sequence[str] | None = None) -> int:
    """Generate the load and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_load")
    parser.add_argument("port", type=int)
    parser.add_argument("--path", default="/orders")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first request")
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second of all clients (0 = no limit)")
    parser.add_argument("--accepted", type=Path, help="where to write the ids of the jobs that were acknowledged")
    asked = parser.parse_args(given)
    print(json.dumps(uvloop.run(_run(asked))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
