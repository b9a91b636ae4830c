"""A FastAPI service that adds jobs, and the task that a worker runs.

Serve it with `uvicorn --app-dir examples fastapi_service:app`, and run its jobs in another terminal with
`glidemq worker --app-dir examples fastapi_service:mq`. Both use $GLIDEMQ_URL, or the embedded server if it is not set.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from glidemq_async import GlideMQ, StorageUnavailable
from glidemq_async.integrations.fastapi import lifespan

mq = GlideMQ(queue="orders")
# The lifespan opens one set of connections before the first request, and closes it after the last one.
app = FastAPI(lifespan=lifespan(mq))


class Order(BaseModel):
    number: int
    item: str


@mq.task
async def ship(order: Order) -> str:
    return f"shipped {order.item}"


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    """Add the order as a job. The reply is sent after the job is stored, so a crash of this service cannot lose it."""
    try:
        job = await ship.options(job_id=f"order-{order.number}").add(order)
    except StorageUnavailable as error:
        raise HTTPException(503, "try again") from error
    return {"job": job.id, "outcome": job.outcome}


@app.get("/orders/{job_id}")
async def status(job_id: str) -> dict[str, str | None]:
    job = await mq.queue("orders").get_job(job_id)
    if job is None:
        raise HTTPException(404, "no such order")
    return {"state": job.state, "result": job.return_value}
