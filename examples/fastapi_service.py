"""A FastAPI service that adds jobs, and the worker process that runs them.

Serve it with `uvicorn --app-dir examples fastapi_service:app`, and start the worker in another terminal with
`python examples/fastapi_service.py worker`. Both use $GLIDEMQ_URL, or the embedded server if it is not set.
Without an argument the program tries both: it sends requests with the test client of FastAPI, which needs httpx2.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from glidemq_async import Job, Queue, StorageUnavailable, Worker
from glidemq_async.integrations.fastapi import QueueDependency, lifespan


class Order(BaseModel):
    number: int
    item: str


Payload = dict[str, int | str]
Orders = Annotated[Queue[Payload, str], QueueDependency("orders")]


# The lifespan opens one set of connections before the first request, and closes it after the last one.
app = FastAPI(lifespan=lifespan())


@app.post("/orders", status_code=202)
async def order(order: Order, orders: Orders) -> dict[str, str]:
    """Add the order as a job. The reply is sent after the job is stored, so a crash of this service cannot lose it."""
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


def try_it() -> None:
    from fastapi.testclient import TestClient

    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}?linger=0.2"
        with TestClient(app) as client:
            for _ in range(2):
                print(client.post("/orders", json={"number": 7, "item": "tea"}).text)
            worker = subprocess.Popen([sys.executable, __file__, "worker"])
            with Queue[Payload, str]("orders").sync as orders:
                job = orders.get_job("order-7")
                assert job is not None
                job.sync.result(timeout=20)
            print(client.get("/orders/order-7").text)
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(work())
    else:
        try_it()
