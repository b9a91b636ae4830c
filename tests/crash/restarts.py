"""Server deaths: the server is killed and restarts from its append-only file while workers and producers run.

`own` is a server that the run restarts itself. `file` is the embedded server, which its keeper process restarts.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from glidemq_async.storage import FileStorage
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import servers_of
from glidemq_async.storage.redis.wire import Reply, as_text
from tests.crash import checker
from tests.crash.journal import read_history
from tests.crash.queues import counts_of, pause
from tests.crash.roles import ProducerRole, ReaderRole, Spec, WorkerRole, payload
from tests.crash.workspace import ServerWorkspace, open_workspace

QUEUE = "restarts"


@dataclass(frozen=True)
class Size:
    """The number of server deaths; `seconds` bounds the run."""

    own: int = 12
    file: int = 4
    workers: int = 2
    batch: int = 1_500
    seconds: float = 60.0


@dataclass
class Outcome:
    """The acknowledged jobs, and the jobs that were kept."""

    seed: int
    cycles: int = 0
    cut_adds: int = 0
    added: int = 0
    redeliveries: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    broken: dict[str, int] = field(default_factory=dict[str, int])
    shown: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """Return the rules that it breaks; an empty list is a pass."""
        rules = {
            f"broken: {self.broken} {self.shown}": not self.broken,
            "the server rarely died while jobs were added": self.cut_adds * 3 >= self.cycles,
        }
        return [fault for fault, passed in rules.items() if not passed]

    @property
    def line(self) -> str:
        """Return the summary of the run in one line."""
        return (
            f"server deaths: {self.cycles} cycles ({self.cut_adds} while jobs were added), "
            f"{self.added:,} acknowledged adds, {self.broken.get('lost', 0)} lost, "
            f"{self.broken.get('doubled', 0)} doubled, {sum(self.broken.values())} broken in all, "
            f"{self.redeliveries:,} redeliveries, {self.seconds:.0f} s, seed {self.seed}"
        )


class Restarts:
    """One run on one server."""

    def __init__(self, workspace: ServerWorkspace, url: str, size: Size, outcome: Outcome) -> None:
        self._workspace = workspace
        self._url = url
        self._size = size
        self._outcome = outcome
        self._random = random.Random(outcome.seed)
        self._deadline = time.monotonic() + size.seconds
        self._serial = 0

    def run(self, cycles: int, die: Callable[[], None]) -> None:
        """Kill the server this many times, let the work end, and check it."""
        children, events = self._workspace.children, self._workspace.directory / "events"
        reader = children.fork(ReaderRole(self._url, QUEUE, events))
        role = WorkerRole(self._url, QUEUE, self._workspace.journal, lease=1.0, grace=5.0)
        workers = [children.fork(role) for _ in range(self._size.workers)]
        for cycle in range(cycles):
            producer = children.fork(ProducerRole(self._url, QUEUE, self._workspace.journal, self._specs(), tasks=5))
            # Every other death comes so early that no producer has ended, even on a fast machine.
            self._let_work(self._random.uniform(0.05, 0.3) if cycle % 2 else self._random.uniform(0.0, 0.05))
            self._outcome.cut_adds += producer in children.alive
            die()
            self._outcome.cycles += 1
            self._await_end(producer)
        while any(asyncio.run(counts_of(self._url, QUEUE)).values()):
            self._let_work(0.1)
        for worker in workers:
            children.send(worker, signal.SIGTERM)
        for worker in workers:
            self._await_end(worker)
        asyncio.run(pause(self._url, QUEUE))
        self._await_end(reader)
        self._prove(events)

    def _specs(self) -> list[Spec]:
        specs: list[Spec] = []
        for _ in range(self._size.batch):
            self._serial += 1
            sleep = self._random.uniform(0.0, 0.02)
            specs.append({"serial": self._serial, "job_id": None, "delay": None, "payload": payload(sleep)})
        return specs

    def _let_work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            for ended in self._workspace.children.reap(rest):
                if ended.status:
                    raise RuntimeError(f"a child ended with {ended.status}:\n{self._workspace.complaints}")
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"not done in time: {asyncio.run(counts_of(self._url, QUEUE))}")

    def _await_end(self, pid: int) -> None:
        ended = self._workspace.children.wait_for(pid, max(1.0, self._deadline - time.monotonic()))
        if ended is not None and ended.status:
            raise RuntimeError(f"a child ended with {ended.status}:\n{self._workspace.complaints}")
        if pid in self._workspace.children.alive:
            raise TimeoutError(f"a child did not end in time:\n{self._workspace.complaints}")

    def _prove(self, events: Path) -> None:
        history, counts = read_history(self._workspace.journal), checker.read_events(events)
        final_state = asyncio.run(checker.read_final_state(self._url, QUEUE))
        broken = checker.violations(history, counts, final_state)
        outcome = self._outcome
        for kind, count in checker.summarize(broken).items():
            outcome.broken[kind] = outcome.broken.get(kind, 0) + count
        outcome.shown += [" ".join(one) for one in broken[: checker.SHOWN]]
        outcome.added += len(history.added)
        outcome.redeliveries += sum(one["stalled"] for one in counts.values())
        for text, count in history.errors.items():
            word = text.split(" ", 1)[0]
            outcome.errors[word] = outcome.errors.get(word, 0) + count


def restarts(size: Size, seed: int = 0) -> Outcome:
    """Run on a new server, then on the embedded one."""
    began = time.monotonic()
    outcome, pauses = Outcome(seed), random.Random(seed)
    with open_workspace("--appendonly", "yes", "--appendfsync", "everysec") as workspace:

        def die() -> None:
            asyncio.run(_until_disk_keeps_up(workspace.server.command))
            workspace.server.kill()
            time.sleep(pauses.uniform(0.0, 0.3))
            asyncio.run(workspace.server.start())

        Restarts(workspace, workspace.url, size, outcome).run(size.own, die)
    with open_workspace() as workspace, _home() as home:
        url = f"file://{home}"
        Restarts(workspace, url, size, outcome).run(size.file, lambda: asyncio.run(_kill_embedded(home)))
    outcome.seconds = time.monotonic() - began
    return outcome


@contextmanager
def _home() -> Generator[Path]:
    home = Path(tempfile.mkdtemp(prefix="gmq-"))
    try:
        yield home
        # The keeper ends soon after its last client has left.
        deadline = time.monotonic() + 15
        while (home / "server.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _until_disk_keeps_up(command: Callable[..., Awaitable[object]]) -> None:
    """Wait while the server delays writes for a sync of its disk. test_slow_disk.py tests a stalled disk.

    No other sync begins before the server dies. It would delay the writes again, for longer on a busy machine.
    """
    await command("CONFIG", "SET", "appendfsync", "no")
    for _ in range(1_000):
        if "aof_pending_bio_fsync:0" in as_text(await command("INFO", "persistence")):
            return
        await asyncio.sleep(0.01)


async def _kill_embedded(home: Path) -> None:
    """Kill the server that the keeper of this run's directory started."""
    wire = await (await servers_of(FileStorage(home, linger=1.0, testing=True)).find_node("")).dial()

    async def command(*words: str) -> Reply:
        return await wire.send(pack(*words), asyncio.get_running_loop().time() + 5)

    server = as_text(await command("INFO", "server"))
    pid = next(line for line in server.splitlines() if line.startswith("process_id:"))
    await _until_disk_keeps_up(command)
    os.kill(int(pid.partition(":")[2]), signal.SIGKILL)
    wire.drop("asked")
    await asyncio.sleep(0)
