"""An aiohttp service that adds jobs, and the task that a worker runs.

Serve it with `python examples/aiohttp_service.py`, and run its jobs in another terminal with
`glidemq worker --app-dir examples aiohttp_service:mq`. Both use $GLIDEMQ_URL, or the embedded server if it is not set.
"""

import os

from aiohttp import web

from glidemq_async import GlideMQ, StorageUnavailable
from glidemq_async.integrations.aiohttp import queues_context

mq = GlideMQ(queue="orders")


@mq.task
async def ship(number: int, item: str) -> str:
    return f"shipped {item}"


async def place(request: web.Request) -> web.Response:
    """Add the order as a job. The reply is sent after the job is stored, so a crash of this service cannot lose it."""
    order = await request.json()
    try:
        job = await ship.options(job_id=f"order-{order['number']}").add(**order)
    except StorageUnavailable as error:
        raise web.HTTPServiceUnavailable(text="try again") from error
    return web.json_response({"job": job.id, "outcome": job.outcome}, status=202)


async def status(request: web.Request) -> web.Response:
    job = await mq.queue("orders").get_job(request.match_info["job_id"])
    if job is None:
        raise web.HTTPNotFound(text="no such order")
    return web.json_response({"state": job.state, "result": job.return_value})


def make_app() -> web.Application:
    app = web.Application()
    # One set of connections for all requests, opened before the first one and closed after the last one.
    app.cleanup_ctx.append(queues_context(mq))
    app.add_routes([web.post("/orders", place), web.get("/orders/{job_id}", status)])
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
