"""A FastAPI service that adds jobs, and the worker process that runs them.

Serve it with `uvicorn --app-dir examples fastapi_service:app`, and start `python examples/fastapi_service.py worker`
beside it; both find each other by $GLIDEMQ_URL, or in the embedded default. Started without a word, both run for a
moment and are tried.
"""

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from glidemq_async import Job, Queue, StorageUnavailable, Worker
from glidemq_async.integrations.fastapi import QueueDependency, lifespan


class Order(BaseModel):
    number: int
    item: str


Payload = dict[str, int | str]
Orders = Annotated[Queue[Payload, str], QueueDependency("orders")]


@asynccontextmanager
async def prepare(_app: FastAPI) -> AsyncGenerator[None]:
    # All that was imported stays: without this, the collector walks through it now and then, 20 ms each time.
    gc.collect()
    gc.freeze()
    yield


# One set of connections for all requests: opened before the first of them, closed after the last.
app = FastAPI(lifespan=lifespan(around=prepare))


@app.post("/orders", status_code=202)
async def order(order: Order, orders: Orders) -> dict[str, str]:
    """Answer once the job is stored: from then on it will be run, whatever happens to this process."""
    try:
        job = await orders.add("ship", order.model_dump(), job_id=f"order-{order.number}")
    except StorageUnavailable as error:
        raise HTTPException(503, "try again") from error
    return {"job": job.id, "outcome": job.outcome}


@app.get("/orders/{job_id}")
async def status(job_id: str, orders: Orders) -> dict[str, str | None]:
    job = await orders.get_job(job_id)
    if job is None:
        raise HTTPException(404, "no such order")
    return {"state": job.state, "result": job.return_value}


async def ship(job: Job[Payload, str]) -> str:
    return f"shipped {job.data['item']}"


async def work() -> None:
    await Worker("orders", ship, concurrency=100, health_port=int(os.environ.get("GLIDEMQ_HEALTH_PORT", "0"))).run()


# -- trying it --------------------------------------------------------------------------------------------------------


async def try_it() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}?linger=0.2"
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn announces it to nobody
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(await ask(port, "POST /orders", '{"number": 7, "item": "tea"}'))
        print(await ask(port, "POST /orders", '{"number": 7, "item": "tea"}'))
        worker = await asyncio.create_subprocess_exec(sys.executable, __file__, "worker")
        async with Queue[Payload, str]("orders") as orders:
            job = await orders.get_job("order-7")
            assert job is not None
            await job.result(timeout=20)
        print(await ask(port, "GET /orders/order-7"))
        worker.terminate()
        await worker.wait()
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await serving


async def ask(port: int, request: str, body: str = "") -> str:
    """Make a request with nothing but asyncio; returns the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1:] == ["worker"] else try_it())
