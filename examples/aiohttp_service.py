"""An aiohttp service that adds jobs, and the worker process that runs them.

Start the service with `python examples/aiohttp_service.py serve 8080`, and the worker in another terminal with
`python examples/aiohttp_service.py worker`. Both use $GLIDEMQ_URL, or the embedded server if it is not set. Without an
argument the program tries both: it sends requests with the test client of aiohttp.
"""

import asyncio
import os
import sys
import tempfile

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from glidemq_async import Job, Queue, StorageUnavailable, Worker
from glidemq_async.integrations.aiohttp import get_queue, queues_context

Payload = dict[str, int | str]


async def order(request: web.Request) -> web.Response:
    """Add the order as a job. The reply is sent after the job is stored, so a crash of this service cannot lose it."""
    orders: Queue[Payload, str] = get_queue(request, "orders")
    wanted: Payload = await request.json()
    try:
        job = await orders.add("ship", wanted, job_id=f"order-{wanted['number']}")
    except StorageUnavailable as error:
        raise web.HTTPServiceUnavailable(text="try again") from error
    return web.json_response({"job": job.id, "outcome": job.outcome}, status=202)


async def status(request: web.Request) -> web.Response:
    job = await get_queue(request, "orders").get_job(request.match_info["job_id"])
    if job is None:
        raise web.HTTPNotFound(text="no such order")
    return web.json_response({"state": job.state, "result": job.return_value})


def make_app() -> web.Application:
    app = web.Application()
    # One set of connections for all requests, opened before the first one and closed after the last one.
    app.cleanup_ctx.append(queues_context())
    app.add_routes([web.post("/orders", order), web.get("/orders/{job_id}", status)])
    return app


async def ship(job: Job[Payload, str]) -> str:
    return f"shipped {job.data['item']}"


async def work() -> None:
    await Worker("orders", ship, concurrency=100).run()


async def try_it() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}?linger=0.2"
        async with TestClient(TestServer(make_app())) as client:
            for _ in range(2):
                response = await client.post("/orders", json={"number": 7, "item": "tea"})
                print(response.status, await response.json())
            worker = await asyncio.create_subprocess_exec(sys.executable, __file__, "worker")
            async with Queue[Payload, str]("orders") as orders:
                job = await orders.get_job("order-7")
                assert job is not None
                await job.result(timeout=20)
            response = await client.get("/orders/order-7")
            print(response.status, await response.json())
        worker.terminate()
        await worker.wait()


def main(what: str = "", port: str = "8080") -> None:
    if what == "serve":
        web.run_app(make_app(), host="127.0.0.1", port=int(port))
    else:
        asyncio.run(work() if what == "worker" else try_it())


if __name__ == "__main__":
    main(*sys.argv[1:])
