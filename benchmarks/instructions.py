"""`python -m benchmarks.instructions`: the instructions of the server per job, compared with stored figures.

Wall times scatter by a third on a shared machine. The instructions that callgrind counts differ by less than three
percent between two runs: steps of the garbage collection of Lua and the random heights of skip lists add to some
counts. A kind whose count is too high is therefore counted again, and its smallest count decides. The calls go directly
to the functions, in batches of a fixed size, so that the timing of a worker has no influence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed
from glidemq_async.functions.push import JobsPushed
from glidemq_async.functions.wakeup import read_message
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.stored_options import ReplyTo, pack_extra
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.connections import Endpoint, dial
from glidemq_async.storage.redis.library import Library, shipped
from glidemq_async.storage.redis.standalone import RedisStorage

from .server import ask

STORED: Final = Path(__file__).with_suffix(".json")
PAGE: Final = Path(__file__).parents[1] / "docs" / "internals" / "functions.md"
"""The page that has the stored figures as a table."""
SERVER: Final = "7.0.15"
"""The version of Redis that the stored figures are for."""
TOLERANCE: Final = 0.03
START_SECONDS: Final = 60.0
CALL_SECONDS: Final = 120.0
MOST_COUNTS: Final = 3
"""How often a kind is counted whose count is too high."""
LEASE_MS: Final = 600_000
WARM_UP: Final = 1200
"""Number of jobs before the measured ones. After them, retention removes one record for each job that completes."""
PAYLOAD: Final = b"\x83\xa2to\xb0user@example.com\xa7subject\xabhello world\xa1n\xcd\x01\x00"
NONE: Final = b"\xc0"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of jobs, the number of jobs in a call, and the number of measured jobs."""

    options: JobOptions
    batch: int = 100
    jobs: int = 1000
    keys: int = 0
    """Number of ordering keys among the jobs."""
    reply: bytes = b""
    """The channel on which a client waits for the results."""
    idle: bool = False
    """True if an idle worker waits for each job. Its whole life is counted, because the add may claim it."""
    pushed: bool = False
    """True if the idle worker accepts pushes."""
    is_direct: bool = False
    """True if the worker claims directly."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a job's life that are counted separately: names of methods of InstructionClient."""
        return ("live",) if self.idle else ("add", "drain")

    def request(self, number: int) -> AddRequest:
        """Return the add of one job."""
        options = JobOptions(key=f"k{number % self.keys}") if self.keys else self.options
        return AddRequest(
            "", "job", PAYLOAD, b"", pack_extra(options, ReplyTo(self.reply.decode()) if self.reply else None)
        )


KINDS: Final = {
    "plain": Kind(JobOptions()),
    "plain, direct claims": Kind(JobOptions(), is_direct=True),
    "one by one": Kind(JobOptions(), batch=1, jobs=200),
    "prioritized": Kind(JobOptions(priority=3)),
    "LIFO": Kind(JobOptions(lifo=True)),
    "keyed": Kind(JobOptions(), keys=200),
    "keyed in long lines": Kind(JobOptions(), keys=100, jobs=4_000),
    "awaited": Kind(JobOptions(), reply=b"client"),
    "awaited one by one": Kind(JobOptions(), batch=1, jobs=200, reply=b"client"),
    "woken worker": Kind(JobOptions(), batch=1, jobs=200, idle=True),
    "pushed to": Kind(JobOptions(), batch=1, jobs=200, idle=True, pushed=True),
    "awaited, pushed to": Kind(JobOptions(), batch=1, jobs=200, reply=b"client", idle=True, pushed=True),
}


def without_time_limit() -> Library:
    """Return the library with calls that do not end early, because callgrind is some 50 times slower."""
    text, count = re.subn(
        r"^local SETTLED, CLAIMED, ADDED = [\d., ]+$",
        "local SETTLED, CLAIMED, ADDED = 1e9, 1e9, 1e9",
        shipped().text,
        flags=re.MULTILINE,
    )
    assert count == 1, f"budget.lua names the time of a claim {count} times"
    return Library(text)


class CountedServer:
    """A Redis server under callgrind, which counts only while a part is measured."""

    def __init__(self, directory: str, port: int, process: subprocess.Popen[bytes]) -> None:
        self.directory = Path(directory)
        self.port = port
        self._process = process

    def start_counting(self) -> None:
        """Set the counter to zero and start it."""
        self._control("--instr=on")
        self._control("--zero")

    def stop_counting(self, name: str) -> int:
        """Return the instructions since the start. The dump is a file whose name contains `name`."""
        self._control(f"--dump={name}")
        self._control("--instr=off")
        newest = max(self.directory.glob("out.*"), key=lambda path: path.stat().st_mtime_ns)
        found = re.search(r"^(?:summary|totals): (\d+)", newest.read_text(), re.MULTILINE)
        assert found is not None, f"{newest} has no total"
        newest.rename(self.directory / f"dump.{name}".replace(" ", "_"))
        return int(found[1])

    def _control(self, command: str) -> None:
        subprocess.run(["callgrind_control", command, str(self._process.pid)], check=True, capture_output=True)


@contextmanager
def counted_server(directory: str) -> Generator[CountedServer]:
    """Run a server under callgrind. It stores its dumps in `directory`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [
        "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/out",
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory, "--hz", "1",
        "--dynamic-hz", "no", "--activerehashing", "no", "--busy-reply-threshold", "0",
        "--stream-node-max-entries", "100",
    ]  # fmt: skip
    with (Path(directory) / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_port(port)
        yield CountedServer(directory, port, process)
    finally:
        process.terminate()
        process.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


class InstructionClient:
    """Adds and drains the jobs of one kind with direct calls of the functions."""

    def __init__(self, functions: Functions, kind: Kind, channel: RequestChannel) -> None:
        self._functions = functions
        self._kind = kind
        self._channel = channel
        self._now = 0
        """The time of the last claim, server ms."""
        self.pushed: list[JobsPushed] = []
        self._heard = asyncio.Event()

    async def add(self, jobs: int) -> None:
        """Add jobs in batches."""
        batch = self._kind.batch
        for first in range(0, jobs, batch):
            await self._functions.add.jobs([self._kind.request(first + i) for i in range(batch)])

    async def live(self, jobs: int) -> None:
        """Add jobs one by one to an idle worker, which runs each of them."""
        claimed = await self._turn([])
        for number in range(jobs):
            self.pushed, self._heard = [], asyncio.Event()
            await self._functions.add.jobs([self._kind.request(number)])
            await self._heard.wait()
            claimed = [job for push in self.pushed for job in push.jobs] or await self._turn([])
            assert len(claimed) == 1, f"{len(claimed)} jobs ran instead of 1"
            await self._turn(claimed)

    async def listen(self, storage: Storage) -> None:
        """Listen on the channel of the worker until the storage is closed."""
        link = asyncio.Event()
        base = self._functions.caller.base
        await storage.subscribe(base, f"{base}:wake:worker", self._on_message, lambda up: link.set() if up else None)
        await link.wait()

    def _on_message(self, message: bytes) -> None:
        """Note a message on the channel of the worker."""
        if isinstance(read := read_message(message), JobsPushed):
            self.pushed.append(read)
            self._now = read.claimed_at
        self._heard.set()

    async def drain(self, jobs: int) -> None:
        """Run jobs as a worker with as many slots as the batch has jobs, until none waits."""
        claimed: list[ClaimedJob] = []
        done = 0
        while done < jobs or claimed:
            claimed = await self._turn(claimed)
            done += len(claimed)
        assert done == jobs, f"{done} jobs ran instead of {jobs}"

    async def _turn(self, claimed: list[ClaimedJob]) -> list[ClaimedJob]:
        settle = self._functions.settle
        request = settle.request(
            self._channel,
            "worker",
            self._kind.batch,
            LEASE_MS,
            subscribed=True,
            ran_ms=(len(claimed), 0),
            accepts_pushes=self._kind.pushed,
            has_push=bool(self.pushed),
            is_direct=self._kind.is_direct,
        )
        for job in claimed:
            route = job.history.route if job.history else None
            key = route.rsplit(b" ", 1)[1].decode() if route and self._kind.keys else None
            since, claimed_at = (self._now, None) if job.is_plain else (None, self._now)
            request.settle(job.id, job.entry, key, Completed(NONE), plain_since=since, claimed_at=claimed_at)
        reply = await settle.send(request)
        self._now = reply.now
        return [*reply.jobs]


async def measure(server: CountedServer, name: str, kind: Kind) -> dict[str, int]:
    """Return the instructions per added and per drained job."""
    # The table of all keys grows while jobs are counted. Without the keys of other kinds it grows at the same jobs in
    # each run.
    wire = await dial(Endpoint("127.0.0.1", server.port))
    await ask(wire, "FLUSHALL", "SYNC")
    wire.drop("done")
    async with RedisStorage(
        Endpoint("127.0.0.1", server.port), timeout=CALL_SECONDS, library=without_time_limit()
    ) as storage:
        functions = Functions(storage, f"bench:{{{name}}}")
        await functions.queue.open(None)
        channel = RequestChannel("worker")
        client = InstructionClient(functions, kind, channel)
        warm_up = InstructionClient(functions, Kind(kind.options, keys=kind.keys), channel)
        await warm_up.add(WARM_UP)
        await warm_up.drain(WARM_UP)
        figures: dict[str, int] = {}
        if kind.idle:
            await client.listen(storage)
        for part in (client.live,) if kind.idle else (client.add, client.drain):
            server.start_counting()
            await part(kind.jobs)
            figures[f"{name}, {part.__name__}"] = server.stop_counting(f"{name} {part.__name__}") // kind.jobs
        return figures


def count(server: CountedServer, name: str, stored: dict[str, int]) -> dict[str, int]:
    """Return the smallest counts of a kind. A count that is not too high is the only one."""
    counts: dict[str, int] = {}
    for _ in range(MOST_COUNTS):
        again = asyncio.run(measure(server, name, KINDS[name]))
        counts = {figure: min(number, counts.get(figure, number)) for figure, number in again.items()}
        if not compare(counts, stored):
            break
    return counts


def compare(found: dict[str, int], stored: dict[str, int]) -> list[str]:
    """Return a sentence for each figure that is above the stored one by more than the tolerance."""
    return [
        f"{name}: {number} instructions per job, more than {stored[name]} + {TOLERANCE:.0%}. Make the function "
        f"cheaper, or store the new figure with `make instructions ARGS=--store` and say why in the commit."
        for name, number in found.items()
        if name in stored and number > stored[name] * (1 + TOLERANCE)
    ]


def with_table(page: str, stored: dict[str, int]) -> str:
    """Return the page with a table of the stored figures."""
    rows = ["| Jobs | add | drain | whole life |", "|---|--:|--:|--:|"]
    for name, kind in KINDS.items():
        cells = [f"{stored[f'{name}, {part}']:,}" if part in kind.parts else "" for part in ("add", "drain", "live")]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    marked = re.compile(r"(<!-- figures of benchmarks/instructions\.json[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
    table = "\n".join(rows) + "\n"
    return marked.sub(lambda match: match[1] + table + match[2], page)


def lacking() -> str | None:
    """Return why the figures cannot be measured here, None if they can."""
    if not all(shutil.which(name) for name in ("valgrind", "callgrind_control", "redis-server")):
        return "valgrind or redis-server is not installed"
    version = subprocess.run(["redis-server", "--version"], check=True, capture_output=True, text=True).stdout
    return None if f"v={SERVER} " in version else f"the stored figures are for Redis {SERVER}"


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the table, and compare or store the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=main.__doc__)
    parser.add_argument("--store", action="store_true", help="store the figures instead of comparing them")
    parser.add_argument(
        "--only", metavar="KIND", action="append", choices=KINDS, help="count only this kind, without a comparison"
    )
    parser.add_argument("--keep", type=Path, help="a directory for the dumps, which callgrind_annotate reads")
    asked = parser.parse_args(given)
    reason = lacking()
    if reason:
        print(f"!!! {reason}: the instructions were NOT counted", file=sys.stderr)
        return 0
    stored: dict[str, int] = json.loads(STORED.read_text()) if STORED.exists() else {}
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="glidemq-instructions-") as directory:
        with counted_server(directory) as server:
            # The memory of Lua grows during the first kind, which costs a plain job up to a tenth more.
            asyncio.run(measure(server, "LIFO", KINDS["LIFO"]))
            for name in asked.only or KINDS:
                counts = count(server, name, {} if asked.only or asked.store else stored)
                for figure, instructions in counts.items():
                    print(f"{figure:26} {instructions:9} {stored.get(figure, 0):9}", flush=True)
                found |= counts
        if asked.keep:
            shutil.copytree(directory, asked.keep, dirs_exist_ok=True)
    if asked.store:
        STORED.write_text(json.dumps({**stored, **found}, indent=2) + "\n")
        PAGE.write_text(with_table(PAGE.read_text(), {**stored, **found}))
        return 0
    # Lua collects garbage in steps whose cost depends on everything that ran before, so figures of a part of the kinds
    # differ by up to 3 % from figures of all kinds.
    problems = [] if asked.only else compare(found, stored)
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
