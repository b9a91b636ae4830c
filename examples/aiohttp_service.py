"""An aiohttp service that adds jobs, and the worker process that runs them.

`python examples/aiohttp_service.py serve 8080` and `python examples/aiohttp_service.py worker` run one each; both find
each other by $GLIDEMQ_URL, or in the embedded default. Started without a word, both run for a moment and are tried.
"""

import asyncio
import os
import sys
import tempfile

from aiohttp import ClientSession, web

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


# -- trying it --------------------------------------------------------------------------------------------------------


async def try_it() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["GLIDEMQ_URL"] = f"file://{directory}?linger=0.2"
        runner = web.AppRunner(make_app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with ClientSession(f"http://{host}:{port}") as client:
            for _ in range(2):
                async with client.post("/orders", json={"number": 7, "item": "tea"}) as answer:
                    print(answer.status, await answer.json())
            worker = await asyncio.create_subprocess_exec(sys.executable, __file__, "worker")
            async with Queue[Payload, str]("orders") as orders:
                job = await orders.get_job("order-7")
                assert job is not None
                await job.result(timeout=20)
            async with client.get("/orders/order-7") as answer:
                print(answer.status, await answer.json())
        worker.terminate()
        await worker.wait()
        await runner.cleanup()


def main(what: str = "", port: str = "8080") -> None:
    if what == "serve":
        web.run_app(make_app(), host="127.0.0.1", port=int(port))
    else:
        asyncio.run(work() if what == "worker" else try_it())


if __name__ == "__main__":
    main(*sys.argv[1:])
