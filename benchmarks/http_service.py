"""A FastAPI service with a clock: `python -m benchmarks.http_service PORT FILE` serves until it is stopped.

At its end it writes, for each million of order numbers, the time of every `add` and the processor time of the process.
`python -m benchmarks.http_service worker` runs the jobs.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from glidemq_async import Job, Queue, StorageUnavailable, Worker
from glidemq_async.integrations.fastapi import QueueDependency, lifespan

PHASE: Final = 1_000_000


class Order(BaseModel):
    """The body of a request."""

    number: int
    item: str


Payload = dict[str, int | str]
Orders = Annotated[Queue[Payload, str], QueueDependency("orders")]

app = FastAPI(lifespan=lifespan())


@app.post("/orders", status_code=202)
async def place(order: Order, orders: Orders) -> dict[str, str]:
    """Add the order as a job."""
    try:
        job = await orders.add("ship", order.model_dump(), job_id=f"order-{order.number}")
    except StorageUnavailable as error:
        raise HTTPException(503, "try again") from error
    return {"job": job.id, "outcome": job.outcome}


async def ship(job: Job[Payload, str]) -> str:
    """Run one job."""
    return f"shipped {job.data['item']}"


class ServiceClock:
    """Times the adds of each phase, and the processor time between its first and its last add."""

    def __init__(self) -> None:
        self.adds: defaultdict[int, list[float]] = defaultdict(list)
        self.spent: dict[int, tuple[float, float]] = {}

    def around(self, add: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same method, timed."""

        async def timed(*given: Any, **options: Any) -> Any:
            phase = int(options["job_id"].removeprefix("order-")) // PHASE
            first = self.spent.get(phase, (time.process_time(), 0.0))[0]
            started = time.perf_counter()
            job = await add(*given, **options)
            self.adds[phase].append(time.perf_counter() - started)
            self.spent[phase] = (first, time.process_time())
            return job

        return timed

    def write(self, file: Path) -> None:
        """Write the measurements."""
        found = {
            phase: {"adds": adds, "processor": self.spent[phase][1] - self.spent[phase][0]}
            for phase, adds in self.adds.items()
        }
        file.write_text(json.dumps(found))


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def serve(port: str, file: str) -> None:
    """Serve on uvloop and httptools."""
    clock = ServiceClock()
    Queue.add = clock.around(Queue.add)  # type: ignore[method-assign, assignment]  # pyright: ignore[reportAttributeAccessIssue]
    # uvicorn raises the signal again after its shutdown. It must not end this process before the measurements are
    # written.
    signal.signal(signal.SIGTERM, _ignore)
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")
    clock.write(Path(file))


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(Worker("orders", ship, concurrency=100).run())
    else:
        serve(*sys.argv[1:])
