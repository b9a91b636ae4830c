"""Workers of the queues of random flows: `python -m tests.crash.flow_worker URL POINT NTH`.

The process kills itself when it passes the failpoint POINT for the NTH time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any, Literal, TypeAlias, TypedDict

import uvloop

from glidemq_async import FlowJob, FlowProducer, Job, JobOptions, KeepJobs, UnrecoverableError, Worker
from glidemq_async._internal import failpoints
from glidemq_async.storage import open_storage

QUEUES = ("trees", "leaves")
POINTS = ("relay.before_deliver", "relay.after_deliver", "")
LEASE = 1.0
ADDED = "added-"
"""How the ids of children begin that a handler adds."""

Action: TypeAlias = Literal["complete", "fail", "fail first", "add children"]


class Task(TypedDict):
    """What a job does: sleep this many seconds, and then the action."""

    action: Action
    sleep: float


class Handler:
    """Does what a job says, and returns 1 + the sum of the results of its children in the flow."""

    def __init__(self, flows: FlowProducer) -> None:
        self._flows = flows

    async def __call__(self, job: Job[Task, int]) -> int:
        """Run a job."""
        await asyncio.sleep(job.data["sleep"])
        if job.data["action"] == "fail":
            raise UnrecoverableError("bad")
        if job.data["action"] == "fail first" and job.attempts_made == 0:
            raise ValueError("bad at first")
        if job.data["action"] == "add children":
            await self._add_children(job)
        values = await job.get_children_values()
        own = [value for ref, value in values.items() if not ref.job_id.startswith(ADDED)]
        return 1 + sum(value for value in own if isinstance(value, int))

    async def _add_children(self, job: Job[Task, int]) -> None:
        task: Task = {"action": "complete", "sleep": 0.01}
        children = [
            FlowJob(
                "added",
                name,
                task,
                options_of(f"{ADDED}{job.queue}-{job.id.replace('/', '-')}-{name}"),
                on_failure="ignore",
            )
            for name in QUEUES
        ]
        await self._flows.add_children(job, children)
        if (await job.get_dependencies()).pending:
            await job.move_to_waiting_children()


def options_of(job_id: str | None = None) -> JobOptions:
    """Return the options of all jobs: they are kept."""
    return JobOptions(job_id=job_id, attempts=3, keep_completed=KeepJobs(), keep_failed=KeepJobs())


def arm(point: str, nth: int) -> None:
    """Kill this process when it passes the point for the n-th time."""
    left = nth

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(point, passed)


async def main(url: str) -> None:
    """Serve the queues until a test kills the process."""
    async with open_storage(url) as storage, FlowProducer(storage) as flows:
        workers = [
            Worker[Any, Any](
                name,
                Handler(flows),
                storage,
                concurrency=8,
                lock_duration=LEASE,
                max_stalled=1_000,
                handle_signals=False,
            )
            for name in QUEUES
        ]
        await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    if sys.argv[2]:
        arm(sys.argv[2], int(sys.argv[3]))
    # Jobs that are told to fail do.
    logging.disable(logging.ERROR)
    uvloop.run(main(sys.argv[1]))
