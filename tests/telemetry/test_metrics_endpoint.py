"""The metrics that Prometheus reads from a worker's port: counters, histograms, and the depth of queues."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from glidemq_async import Queue, RetryLater, StorageUnavailable, UnrecoverableError, WorkerPool
from glidemq_async.storage import Storage
from glidemq_async.telemetry import HttpEndpoint, Page, Prometheus
from tests.support.helpers import AnyJob, AnyQueue, Gate, Heard, echo, ended, soon, worker_of

Samples = Mapping[str, float]


async def fetch(port: int, request: bytes) -> tuple[str, bytes]:
    """Send a request; return the head and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await soon(reader.read())
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


async def scrape(metrics: Prometheus) -> Samples:
    """Read /metrics; return the values by name and labels."""
    assert metrics.endpoint is not None
    head, body = await fetch(metrics.endpoint.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Content-Type: text/plain; version=" in head
    return samples(body)


def samples(body: bytes) -> Samples:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                found[" ".join([sample.name, *sample.labels.values()])] = sample.value
    return found


def about(found: Samples, queue: str) -> dict[str, float]:
    """The samples of one queue, without its name; histograms without their sums, states without zeros."""
    return {
        key.replace(f" {queue}", ""): value
        for key, value in found.items()
        if f" {queue}" in key and "_sum" not in key and (value or "glidemq_jobs " not in key)
    }


async def test_outcomes_of_jobs_are_counted(storage: Storage, name: str) -> None:
    async def work(job: AnyJob) -> None:
        if job.data == "later" and job.fence == 1:
            raise RetryLater(0)
        if job.data == "retry" and job.attempts_made == 0:
            raise ValueError
        if job.data == "fail":
            raise UnrecoverableError("no")

    metrics = Prometheus(port=0)
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(Queue[Any, Any](name, storage, instrumentation=[metrics]))
        worker = await stack.enter_async_context(worker_of(queue, work, instrumentation=[metrics]))
        done = Heard(worker, "completed")
        for data in ("ok", "later", "retry", "fail"):
            await ended(await queue.add("mail", data, attempts=2))
        await queue.add_bulk([("post", None)])
        for _ in range(4):
            await done.next()
        await queue.add("mail", delay=60, job_id="x")
        await queue.add("mail", delay=60, job_id="x")
        with pytest.raises(TypeError):
            await queue.add("mail", object())
        found = about(await scrape(metrics), name)
    assert found == {
        "glidemq_jobs_added_total mail added": 5,
        "glidemq_jobs_added_total post added": 1,
        "glidemq_jobs_added_total mail duplicate": 1,
        "glidemq_adds_failed_total SerializationError mail": 1,
        "glidemq_runs_started_total mail": 6,
        "glidemq_runs_started_total post": 1,
        "glidemq_runs_ended_total mail completed": 3,
        "glidemq_runs_ended_total mail delayed": 1,
        "glidemq_runs_ended_total mail retrying": 1,
        "glidemq_runs_ended_total mail failed": 1,
        "glidemq_runs_ended_total post completed": 1,
        "glidemq_run_duration_seconds_count mail completed": 3,
        "glidemq_run_duration_seconds_count mail delayed": 1,
        "glidemq_run_duration_seconds_count mail retrying": 1,
        "glidemq_run_duration_seconds_count mail failed": 1,
        "glidemq_run_duration_seconds_count post completed": 1,
        "glidemq_job_wait_seconds_count mail": found["glidemq_job_wait_seconds_count mail"],
        "glidemq_job_wait_seconds_count post": 1,
        "glidemq_jobs completed": 4,
        "glidemq_jobs failed": 1,
        "glidemq_jobs delayed": 1,
        "glidemq_jobs_running": 0,
        "glidemq_oldest_waiting_seconds": 0,
        "glidemq_workers": 1,
    }
    assert found["glidemq_job_wait_seconds_count mail"] >= 5


async def test_wait_and_run_times_are_measured(storage: Storage, name: str) -> None:
    metrics = Prometheus(port=0)
    gate = Gate()
    async with Queue[Any, Any](name, storage) as queue:
        variants: list[dict[str, Any]] = [{}, {"priority": 3}, {"key": "k"}]
        started = asyncio.get_running_loop().time()
        for options in variants:
            await queue.add("n", **options)
        await asyncio.sleep(0.15)
        async with worker_of(queue, gate, concurrency=3, instrumentation=[metrics]):
            for _ in range(3):
                await gate.running()
            waited = asyncio.get_running_loop().time() - started
            found = await scrape(metrics)
            assert found[f"glidemq_jobs_running {name}"] == 3
            assert found[f"glidemq_jobs {name} active"] == 3
            gate.release()
    sum_of_waits = metrics.registry.get_sample_value("glidemq_job_wait_seconds_sum", {"queue": name, "job": "n"})
    assert sum_of_waits is not None
    # The server's clock has a resolution of one millisecond.
    assert 3 * 0.14 <= sum_of_waits <= 3 * waited + 0.1


async def test_the_depth_is_read_at_the_scrape_and_also_of_watched_queues(storage: Storage, name: str) -> None:
    metrics = Prometheus(port=0)
    async with (
        Queue[Any, Any](name, storage) as queue,
        Queue[Any, Any](f"{name}-other", storage) as other,
        worker_of(queue, echo, instrumentation=[metrics]),
    ):
        metrics.watch(f"{name}-other", other.get_job_counts)
        await other.add_bulk([("n", None)] * 7)
        found = await scrape(metrics)
        assert found[f"glidemq_jobs {name}-other waiting"] == 7
        assert found[f"glidemq_jobs {name} waiting"] == 0
        # A function that returns counts exports nothing else.
        assert f"glidemq_workers {name}-other" not in found
        # Scrapes of the same second share one reading.
        await other.add("n")
        assert (await scrape(metrics))[f"glidemq_jobs {name}-other waiting"] == 7


async def test_the_age_of_the_oldest_job_and_the_workers_are_exported(storage: Storage, name: str) -> None:
    metrics = Prometheus()
    async with Queue[Any, Any](name, storage) as queue:
        metrics.watch(name, queue.get_depth)
        await queue.add("n")
        await asyncio.sleep(0.02)
        found = samples((await metrics.page()).body)
        assert found[f"glidemq_jobs {name} waiting"] == 1
        assert 0.02 <= found[f"glidemq_oldest_waiting_seconds {name}"] < 60
        assert found[f"glidemq_workers {name}"] == 0


async def test_the_workers_of_a_process_share_the_port_until_the_last_one_closes(storage: Storage, name: str) -> None:
    metrics = Prometheus(port=0)
    async with Queue[Any, Any](name, storage) as queue, Queue[Any, Any](f"{name}-b", storage) as other:
        workers = [worker_of(each, echo, instrumentation=[metrics]) for each in (queue, other)]
        async with WorkerPool(workers, handle_signals=False):
            assert metrics.endpoint is not None
            port = metrics.endpoint.port
            found = await scrape(metrics)
            assert {f"glidemq_jobs {name} active", f"glidemq_jobs {name}-b active"} <= found.keys()
            await workers[0].close()
            assert f"glidemq_jobs_running {name}" not in await scrape(metrics)
    with pytest.raises(OSError, match="onnect"):
        await fetch(port, b"")


async def test_a_start_with_a_taken_port_fails_and_leaves_nothing(queue: AnyQueue) -> None:
    first, second = Prometheus(port=0), Prometheus(port=0)
    async with worker_of(queue, echo, instrumentation=[first]):
        assert first.endpoint is not None
        taken = Prometheus(port=first.endpoint.port)
        worker = worker_of(queue, echo, instrumentation=[second, taken])
        with pytest.raises(OSError, match="address already in use"):
            await worker.run(until_empty=True)
        assert second.endpoint is not None
        assert second.endpoint.port == 0
        await queue.add("n")


async def test_the_endpoint_serves_only_its_pages(queue: AnyQueue) -> None:
    metrics = Prometheus(port=0)

    async def health() -> Page:
        return Page(b"fine\n")

    async def broken() -> Page:
        raise RuntimeError

    metrics.pages["/healthz"] = health
    metrics.pages["/broken"] = broken
    async with worker_of(queue, echo, instrumentation=[metrics]):
        assert metrics.endpoint is not None
        port = metrics.endpoint.port
        for request, status in [
            (b"GET /healthz?full=1 HTTP/1.1\r\n\r\n", "200 OK"),
            (b"GET /other HTTP/1.0\r\n\r\n", "404 Not Found"),
            (b"GET /broken HTTP/1.1\r\n\r\n", "500 Internal Server Error"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (b"nonsense\r\n\r\n", "400 Bad Request"),
        ]:
            head, body = await fetch(port, request)
            assert head.startswith(f"HTTP/1.1 {status}\r\n")
            assert body
        assert (await fetch(port, b"HEAD /healthz HTTP/1.1\r\n\r\n"))[1] == b""
        # An endless request is cut off at its limit. A client that sends nothing does not block others.
        assert await fetch(port, b"x" * 100_000) == ("", b"")
        silent, keep = await asyncio.open_connection("127.0.0.1", port)
        assert (await fetch(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] == b"fine\n"
    assert await soon(silent.read()) == b""
    keep.close()


async def test_an_unreachable_server_hides_only_the_depth(queue: AnyQueue) -> None:
    metrics = Prometheus(port=0)

    async def away() -> Mapping[str, int]:
        raise StorageUnavailable("gone")

    async with worker_of(queue, echo, instrumentation=[metrics]) as worker:
        done = Heard(worker, "completed")
        metrics.watch("elsewhere", away)
        await queue.add("n")
        await done.next()
        found = await scrape(metrics)
    assert found["glidemq_depth_errors_total elsewhere"] == 1
    assert not [key for key in found if key.startswith("glidemq_jobs elsewhere")]
    assert found[f"glidemq_runs_ended_total n completed {queue.name}"] == 1


async def test_a_failing_watcher_hides_only_its_queue(queue: AnyQueue) -> None:
    async def broken() -> Mapping[str, int]:
        raise KeyError("no such table")

    metrics = Prometheus()
    metrics.watch("elsewhere", broken)
    metrics.watch(queue.name, queue.get_job_counts)
    await queue.add("n")
    found = samples((await metrics.page()).body)
    assert found["glidemq_depth_errors_total elsewhere"] == 1
    assert found[f"glidemq_jobs {queue.name} waiting"] == 1


async def test_many_names_share_one_label(queue: AnyQueue) -> None:
    metrics = Prometheus(port=0, most_names=2)
    async with worker_of(queue, echo, instrumentation=[metrics]) as worker:
        done = Heard(worker, "completed")
        for number in range(5):
            await queue.add(f"n{number}")
            await done.next()
        found = about(await scrape(metrics), queue.name)
    started = {key: value for key, value in found.items() if "started" in key}
    assert started == {
        "glidemq_runs_started_total n0": 1,
        "glidemq_runs_started_total n1": 1,
        "glidemq_runs_started_total other": 3,
    }


async def test_the_page_can_be_mounted_elsewhere_without_a_port(queue: AnyQueue) -> None:
    metrics = Prometheus()
    metrics.watch(queue.name, queue.get_job_counts)
    await queue.add("n")
    page = await metrics.page()
    assert samples(page.body)[f"glidemq_jobs {queue.name} waiting"] == 1
    assert page.content_type.startswith("text/plain")


CHILD = """
import asyncio, sys
from glidemq_async import Worker
from glidemq_async.telemetry import Prometheus

async def work(job):
    pass

async def main(name, url):
    metrics = Prometheus(port=0)
    async with Worker(name, work, url, instrumentation=[metrics]) as worker:
        worker.on("completed", lambda job, result: print(metrics.endpoint.port, flush=True))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.only_on("redis7")
async def test_a_worker_process_is_scraped(queue: AnyQueue, storage: Storage) -> None:
    await queue.add("n")
    child = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", CHILD, queue.name, storage.url],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    port = int(await soon(child.stdout.readline(), 20))
    _, body = await fetch(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    await soon(child.communicate(b"\n"), 20)
    assert samples(body)[f"glidemq_runs_ended_total n completed {queue.name}"] == 1
    assert samples(body)[f"glidemq_jobs {queue.name} completed"] == 1


@pytest.mark.parametrize(
    ("port", "error"), [("9135", TypeError), (True, TypeError), (70_000, ValueError), (-1, ValueError)]
)
def test_a_bad_port_is_refused_immediately(port: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="port must be"):
        Prometheus(port=port)
    with pytest.raises(error, match="port must be"):
        HttpEndpoint({}, port=port)
