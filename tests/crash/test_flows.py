"""Random flows over two queues whose workers, relays and clients are killed: each job ends once, after its children."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from glidemq_async import EventGap, FlowProducer, JobNotFound, JobStateError, Queue, QueueEvents
from glidemq_async.queues.internals import client_of
from glidemq_async.storage import Storage, open_storage
from glidemq_async.stored.record import FINAL
from tests.crash.flow_worker import POINTS, QUEUES
from tests.crash.random_flows import History, Node, Stop, add_flow
from tests.crash.size import scaled, seconds
from tests.support.servers import standalone

pytestmark = pytest.mark.crash
FLOWS = scaled(5_000)
KILLS = max(4, scaled(40))
WORKERS = 3
MOST_LIVE = 100
CLOCK_GRAIN_MS = 2.0

AnyQueue = Queue[Any, Any]


class FlowRun:
    """Adds random flows and cancels some of them, while workers are killed."""

    def __init__(self, storage: Storage, url: str, seed: int) -> None:
        self.draw = Random(seed)
        self.storage = storage
        self.url = url
        self.queues = {name: Queue[Any, Any](name, storage) for name in QUEUES}
        self.history = History()
        self.flows: list[list[Node]] = []
        self.live: list[list[Node]] = []
        self.stops: list[Stop] = []
        self.kills = self.cancelled = 0

    async def follow(self, name: str) -> None:
        """Note the events of a queue until it is paused."""
        async with QueueEvents(name, self.storage, after="0") as events:
            async for event in events:
                assert not isinstance(event, EventGap), f"{event.missed} events were trimmed before they were read"
                if event.kind == "paused":
                    return
                self.history.add(name, event)

    async def produce(self) -> None:
        """Add the flows. The number of live ones is limited, so that the kills meet flows in every phase."""
        async with FlowProducer(self.storage) as producer:
            while len(self.flows) < FLOWS:
                self.live = [nodes for nodes in self.live if not self.history.ends(nodes[0])]
                if len(self.live) >= MOST_LIVE:
                    await asyncio.sleep(0.01)
                    continue
                self.flows.append(await add_flow(self.draw, producer))
                self.live.append(self.flows[-1])
                if self.draw.random() < 0.3:
                    await self.cancel(self.draw.choice(self.draw.choice(self.live)))

    async def cancel(self, node: Node) -> None:
        """Revoke or remove a job."""
        name, job_id = node.place
        queue, draw = self.queues[name], self.draw.random()
        node.is_ended_by_user = True
        if draw < 0.4:
            # The client is killed when the server has executed the call.
            jobs = client_of(queue).functions.jobs
            await (jobs.revoke(job_id) if draw < 0.2 else jobs.remove(job_id))
            return
        with suppress(JobNotFound, JobStateError):
            await (queue.revoke(job_id) if draw < 0.7 else queue.remove(job_id))
            self.cancelled += 1
            if not node.parents:
                self.stops.append(Stop(node, time.time() * 1000 + CLOCK_GRAIN_MS))

    async def kill(self, workers: list[asyncio.subprocess.Process]) -> None:
        """Kill workers, as the flows progress. Some kill themselves while they relay."""
        while self.kills < KILLS:
            target = (self.kills + 1) * FLOWS // (KILLS + 2)
            while len(self.flows) < target and all(worker.returncode is None for worker in workers):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            victim = next((worker for worker in workers if worker.returncode is not None), workers[0])
            with suppress(ProcessLookupError):
                victim.kill()
            await victim.wait()
            workers.remove(victim)
            workers.append(await spawn(self.url, self.draw))
            self.kills += 1
        # From now on no worker dies.
        for worker in [*workers]:
            workers.append(await spawn(self.url, None))
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
            workers.remove(worker)

    async def is_quiet(self) -> bool:
        """Return whether all flows have ended, and no message is on its way."""
        for queue in self.queues.values():
            counts = await queue.get_job_counts()
            if any(count for state, count in counts.items() if state not in FINAL):
                return False
            outgoing = await client_of(queue).functions.outbox.relay("", "", [])
            if outgoing.posted or outgoing.has_work:
                return False
        return all(self.history.ends(nodes[0]) for nodes in self.flows)

    async def finish(self) -> None:
        """Wait for the end of all flows and of their events."""
        quiet = 0
        while quiet < 3:
            quiet = quiet + 1 if await self.is_quiet() else 0
            await asyncio.sleep(0.05)
        for queue in self.queues.values():
            await queue.pause()

    async def results(self) -> dict[tuple[str, str], object]:
        """Return the results of the completed jobs."""
        return {
            (name, job.id): job.return_value
            for name, queue in self.queues.items()
            async for job in queue.iter_jobs("completed")
        }


async def spawn(url: str, draw: Random | None) -> asyncio.subprocess.Process:
    """Start a worker process. With `draw` it may kill itself while it relays."""
    point = draw.choice(POINTS) if draw else ""
    nth = draw.randint(1, 60) if draw else 0
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.flow_worker", url, point, str(nth))
    )


@asynccontextmanager
async def three_workers(url: str, draw: Random) -> AsyncGenerator[list[asyncio.subprocess.Process]]:
    """Yield a list of worker processes, whose present members end with the block."""
    workers = [await spawn(url, draw) for _ in range(WORKERS)]
    try:
        yield workers
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


@pytest.mark.timeout(seconds(240))
async def test_each_job_of_random_flows_ends_once_and_after_its_children() -> None:
    async with standalone(unix=True) as server, open_storage(server.url) as storage:
        run = FlowRun(storage, server.url, 31)
        async with three_workers(server.url, run.draw) as workers, asyncio.TaskGroup() as group:
            for name, queue in run.queues.items():
                await queue.connect()
                group.create_task(run.follow(name))
            killing = group.create_task(run.kill(workers))
            await run.produce()
            await killing
            await run.finish()
        assert [fault for nodes in run.flows for fault in run.history.faults(nodes)] == []
        assert [late for stop in run.stops for late in run.history.late_starts(stop)] == []
        assert run.history.endless() == []
        found = await run.results()
        assert [wrong for nodes in run.flows for wrong in run.history.wrong_results(nodes, found)] == []
        for queue in run.queues.values():
            assert await queue.check() == []
            await queue.close()
        assert run.kills == KILLS
        assert len(run.stops) > FLOWS // 100
        assert len(found) > FLOWS
