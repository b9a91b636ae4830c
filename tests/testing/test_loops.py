"""Testing code without an event loop or with a separate one: threads, plain tests, web services."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio.from_thread
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from glidemq_async import GlideMQ, JobFailed, Queue
from glidemq_async.integrations.fastapi import get_queue, lifespan
from glidemq_async.storage import MemoryStorage
from glidemq_async.tasks.app import core_of
from glidemq_async.testing import Harness, MovableClock
from tests.support.helpers import AnyJob

HOUR = 3600
mq = GlideMQ("redis://127.0.0.1:1/0", queue="sums")


@mq.task
async def double(number: int) -> int:
    return number * 2


@mq.task(executor="thread")
def halve(number: int) -> float:
    return number / 2


@mq.task(queue="nights")
async def fail() -> None:
    raise ValueError("no luck")


@mq.cron("0 3 * * *", queue="nights")
async def nightly() -> str:
    return "done"


def make_service() -> FastAPI:
    service = FastAPI(lifespan=lifespan(mq))

    @service.post("/plain")
    def plain(number: int) -> str:
        return double.sync.add(number).id

    @service.post("/awaited")
    async def awaited(number: int) -> str:
        return (await double.add(number)).id

    return service


async def echo(job: AnyJob) -> object:
    return job.data


class Client:
    """Calls a service in the loop of another thread and blocks until it returns, like the TestClient of FastAPI."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, service: Any, state: dict[str, Any]) -> None:
        self._portal = portal
        self._service = service
        self._state = state

    def post(self, path: str, query: str = "") -> int:
        status: int = self._portal.call(post, self._service, path, query, self._state)
        return status


async def post(service: Any, path: str, query: str = "", state: dict[str, Any] | None = None) -> int:
    """Make one request without a network; return the status."""
    said: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            said.append(message["status"])

    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [], "http_version": "1.1", "scheme": "http", "root_path": "", "state": dict(state or {}),
    }  # fmt: skip
    await service(scope, receive, send)
    return said[0]


@contextmanager
def client_of(service: FastAPI) -> Generator[Client]:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(service.router.lifespan_context(service)) as state,
    ):
        yield Client(portal, service, dict(state or {}))


async def test_a_thread_adds_while_the_test_has_the_loop(glidemq: Harness) -> None:
    glidemq.use(mq)
    await asyncio.to_thread(double.sync.add, 1)
    assert [job.return_value for job in await glidemq.drain(mq)] == [2]
    await asyncio.to_thread(double.sync.add, 2)  # nothing keeps the app open between two drains
    assert [job.return_value for job in await glidemq.drain(mq)] == [4]


async def test_a_thread_adds_eagerly(glidemq: Harness) -> None:
    with glidemq.eager(mq):
        job = await asyncio.to_thread(double.sync.add, 4)
        assert (job.state, job.return_value) == ("completed", 8)


async def test_endpoints_in_the_loop_of_the_test(glidemq: Harness) -> None:
    glidemq.use(mq)
    service = make_service()
    for path in ("/plain", "/awaited"):
        assert await post(service, path, "number=3") == 200
        assert [job.return_value for job in await glidemq.drain(mq)] == [6]


@pytest.mark.parametrize("path", ["/plain", "/awaited"])
async def test_a_service_in_a_separate_loop(glidemq: Harness, path: str) -> None:
    glidemq.use(mq)
    service = make_service()
    with client_of(service) as client:
        assert client.post(path, "number=3") == 200
        assert [job.return_value for job in await glidemq.drain(mq)] == [6]
        assert client.post(path, "number=4") == 200
    (job,) = await glidemq.drain(mq)
    assert job.return_value == 8
    await glidemq.assert_added("sums", "double", times=2)


async def test_a_service_in_a_separate_loop_runs_each_job_at_its_add(glidemq: Harness) -> None:
    with glidemq.eager(mq), client_of(make_service()) as client:
        assert client.post("/plain", "number=3") == 200
        assert client.post("/awaited", "number=4") == 200
    assert [job.return_value for job in await glidemq.added("sums")] == [6, 8]


def test_a_service_can_be_tested_in_a_plain_test(glidemq: Harness) -> None:
    glidemq.use(mq)
    with client_of(make_service()) as client:
        assert client.post("/plain", "number=3") == 200
        assert [job.return_value for job in glidemq.sync.drain(mq)] == [6]
        assert client.post("/awaited", "number=4") == 200
    assert [job.return_value for job in glidemq.sync.drain(mq)] == [8]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_service_of_queues_uses_the_storage_of_the_test(glidemq: Harness, plain: bool) -> None:
    service = FastAPI(lifespan=lifespan(glidemq.storage))

    def add(request: Request) -> str:
        return get_queue(request, "emails").sync.add("welcome").id

    async def add_awaited(request: Request) -> str:
        return (await get_queue(request, "emails").add("welcome")).id

    service.post("/add")(add if plain else add_awaited)
    with client_of(service) as client:
        assert client.post("/add") == 200
    await glidemq.assert_added("emails", "welcome")


def test_a_plain_test_adds_and_drains(glidemq: Harness, glidemq_storage: MemoryStorage) -> None:
    glidemq.use(mq)
    job = double.sync.add(21)
    glidemq.sync.assert_added("sums", "double", data={"a": [21]})
    assert [one.id for one in glidemq.sync.drain(mq)] == [job.id]
    assert job.sync.result(5) == 42
    with Queue("q", glidemq_storage).sync as queue:
        queue.add("n", 1)
    (ended,) = glidemq.sync.drain("q", echo)
    assert ended.return_value == 1
    glidemq.sync.assert_nothing_added("others")
    with pytest.raises(AssertionError, match="found 1"):
        glidemq.sync.assert_nothing_added("q")


def test_a_plain_test_moves_the_clock(glidemq: Harness, glidemq_clock: MovableClock) -> None:
    glidemq.use(mq)
    job = double.options(delay=HOUR).sync.add(1)
    assert glidemq.sync.drain(mq, queues=["sums"]) == []
    before = glidemq_clock.sync.now()
    assert glidemq_clock.sync.advance(HOUR) >= before + timedelta(seconds=HOUR)
    assert [one.id for one in glidemq.sync.drain(mq, queues=["sums"])] == [job.id]


def test_a_plain_test_runs_each_job_at_its_add(glidemq: Harness) -> None:
    with glidemq.eager(mq):
        assert double.sync.add(2).return_value == 4
        assert halve.sync.add(2).return_value == 1.0
        with pytest.raises(JobFailed, match="no luck"):
            fail.sync.add().sync.result(5)


def test_a_harness_outside_of_pytest_without_a_loop() -> None:
    with Harness() as harness:
        harness.use(mq)
        double.sync.add(1)
        assert [job.return_value for job in harness.sync.drain(mq)] == [2]
    assert core_of(mq).relocate("memory://") == "redis://127.0.0.1:1/0"
    core_of(mq).relocate("redis://127.0.0.1:1/0")


async def test_a_harness_can_use_an_app_without_its_crons(glidemq: Harness) -> None:
    glidemq.use(mq, crons=False)
    await glidemq.clock.move_to(datetime(2030, 1, 1, 12, tzinfo=UTC))
    job = await double.options(delay=HOUR).add(1)
    assert await glidemq.drain(mq) == []
    await glidemq.clock.advance(timedelta(days=3))
    (ended,) = await glidemq.drain(mq)
    assert ended.id == job.id


async def test_the_next_harness_has_the_crons_again() -> None:
    async with Harness() as harness:
        harness.use(mq, crons=False)
    async with Harness() as harness, harness.use(mq):
        assert await harness.queue("nights").get_job_scheduler("nightly") is not None


class Counted:
    """An executor that runs functions directly, and counts its starts."""

    occupied = 0
    starts = 0

    async def start(self, freed: object) -> None:
        self.starts += 1

    async def run(self, handler: Any, job: object, timeout: float | None) -> object:
        return handler(job)

    async def stop(self, grace: float) -> None: ...


async def test_an_executor_starts_when_a_job_needs_it(glidemq: Harness) -> None:
    executor = Counted()
    app = glidemq.use(GlideMQ("memory://"))
    slow = app.task(name="slow", executor=executor)(lambda: 1)
    quick = app.task(name="quick")(lambda: 2)
    await quick.add()
    assert [job.return_value for job in await glidemq.drain(app)] == [2]
    assert executor.starts == 0
    await slow.add()
    await slow.add()
    assert [job.return_value for job in await glidemq.drain(app)] == [1, 1]
    assert executor.starts == 1
