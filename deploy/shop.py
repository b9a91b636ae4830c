"""An example of a deployed app: a FastAPI service, the tasks that workers run, and the metrics of both.

Replace it with your own app. The files next to it name it as `shop:mq` (the workers) and `shop:app` (the service).
"""

from fastapi import FastAPI, Response

from glidemq_async import GlideMQ
from glidemq_async.instrumentation import QueueDepth
from glidemq_async.integrations.fastapi import lifespan
from glidemq_async.telemetry import Prometheus

# Workers serve this port. The service serves the same page at /metrics below.
metrics = Prometheus(port=9100, host="0.0.0.0")  # noqa: S104 - the scraper is another machine
mq = GlideMQ(queue="orders", instrumentation=[metrics])
app = FastAPI(lifespan=lifespan(mq))


async def depth() -> QueueDepth:
    return await mq.queue("orders").get_depth()


# The service reports the backlog also while no worker runs, so that an autoscaler can start the first one.
metrics.watch("orders", depth)


@mq.task
async def ship(item: str) -> str:
    return f"shipped {item}"


@app.post("/orders", status_code=202)
async def place(item: str) -> dict[str, str]:
    job = await ship.add(item)
    return {"job": job.id}


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/metrics")
async def exported() -> Response:
    page = await metrics.page()
    return Response(page.body, page.status, media_type=page.content_type)
