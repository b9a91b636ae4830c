"""Health over HTTP: the replies to a probe while workers run, stop, lose their storage, or block their loop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import HealthServer, Queue, StorageUnavailable, Worker, WorkerPool
from glidemq_async._internal.http_endpoint import Page
from glidemq_async.storage import RedisStorage
from glidemq_async.worker import health
from glidemq_async.worker.leases import LeaseRenewer
from tests.support.helpers import AnyJob, AnyWorker, Gate, echo, soon
from tests.support.servers import Server, eventually, free_port, standalone

pytestmark = pytest.mark.timeout(30)


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    """Request a page; return the status and the JSON body, or the text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
    head, _, body = (await soon(reader.read())).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split(" ")[1]), json.loads(body) if "application/json" in head and body else body


async def becomes(port: int, path: str, status: int, problem: str = "") -> None:
    """Wait until a probe gets this status, and this problem of a worker."""

    async def heard() -> bool:
        found, body = await ask(port, path)
        return found == status and problem in json.dumps(body)

    await eventually(heard, f"{path} answers {status} {problem}")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server for this test only."""
    async with standalone() as started:
        yield started


def worker_at(port: int, url: str, handler: Any = echo, **options: Any) -> AnyWorker:
    """A worker that checks often, so that a test need not wait for it."""
    options.setdefault("poll_interval", 0.05)
    return Worker("q", handler, url, health_port=port, handle_signals=False, **options)


async def test_a_running_worker_is_alive_and_ready() -> None:
    port = free_port()
    async with worker_at(port, "memory://") as worker:
        await becomes(port, "/readyz", 200)
        about: dict[str, object] = {"queue": "q", "alive": True, "ready": True, "running": 0, "problems": []}
        assert await ask(port, "/healthz") == (200, {"status": "ok", "workers": {worker.name: about}})
        assert (await ask(port, "/livez?verbose"))[0] == 200
        assert await ask(port, "/readyz", "HEAD") == (200, "")
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_wrong_path_gets_the_list_of_pages() -> None:
    port = free_port()
    async with worker_at(port, "memory://"):
        assert await ask(port, "/", "GET") == (404, "the pages are /healthz, /livez, /readyz\n")
        assert (await ask(port, "/healthz", "POST"))[0] == 405
        for rubbish in (b"\x16\x03\x01\r\n\r\n", b"x" * 10_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            assert (await soon(reader.read())).startswith((b"HTTP/1.1 400 ", b""))
            writer.close()
        # A client that sends nothing does not block others, and does not delay the close of the worker.
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        assert (await ask(port, "/healthz"))[0] == 200
    silent.close()


async def test_pages_of_others_are_served_on_the_same_port() -> None:
    async def metrics() -> Page:
        return Page(b"jobs 1\n", "text/plain; version=0.0.4")

    async with (
        Worker("q", echo, "memory://", handle_signals=False) as worker,
        HealthServer([worker], 0, pages={"/metrics": metrics}) as found,
    ):
        assert await ask(found.port, "/metrics") == (200, "jobs 1\n")


async def test_a_full_worker_is_healthy_however_long_its_job_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.2)
    port, gate = free_port(), Gate()
    async with Queue[Any, Any]("q", "memory://") as queue:
        worker = Worker("q", gate, queue.storage, health_port=port, handle_signals=False, poll_interval=0.05)
        async with worker:
            await queue.add("n")
            await gate.running()
            await asyncio.sleep(0.5)  # nothing happens during this time, which must not matter
            assert worker.health() == health.Health(alive=True, ready=True, problems=(), running=1)
            gate.release()


async def test_a_stopping_worker_is_alive_but_not_ready() -> None:
    port, gate = free_port(), Gate()
    async with Queue[Any, Any]("q", "memory://") as queue:
        worker = Worker("q", gate, queue.storage, health_port=port, handle_signals=False)
        await worker.start()
        await queue.add("n")
        await gate.running()
        closing = asyncio.create_task(worker.close())
        await becomes(port, "/readyz", 503, "it is stopping")
        assert (await ask(port, "/healthz"))[0] == 200
        gate.release()
        await soon(closing)


async def test_a_silent_storage_makes_it_not_ready_but_alive(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.3)
    port = free_port()
    async with worker_at(port, server.url):
        await becomes(port, "/readyz", 200)
        server.pause()
        await becomes(port, "/readyz", 503, "the storage has not answered for")
        assert (await ask(port, "/healthz"))[0] == 200
        server.resume()
        await becomes(port, "/readyz", 200)


async def test_leases_in_doubt_make_it_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    renewing = True
    renew = LeaseRenewer._renew  # pyright: ignore[reportPrivateUsage]

    async def renew_or_not(self: LeaseRenewer, *details: Any) -> bool:
        return renewing and await renew(self, *details)

    monkeypatch.setattr(LeaseRenewer, "_renew", renew_or_not)
    port = free_port()
    async with worker_at(port, "memory://", lock_duration=1):
        await becomes(port, "/readyz", 200)
        renewing = False
        await becomes(port, "/readyz", 503, "its leases could not be renewed")
        assert (await ask(port, "/healthz"))[0] == 200
        renewing = True
        await becomes(port, "/readyz", 200)


async def test_a_lost_storage_makes_it_not_ready(server: Server) -> None:
    port = free_port()
    async with worker_at(port, server.url):
        await becomes(port, "/readyz", 200)
        server.kill()
        await becomes(port, "/readyz", 503, "not subscribed")
        assert (await ask(port, "/healthz"))[0] == 200
        await server.start()
        await becomes(port, "/readyz", 200)


async def test_the_probe_fails_while_a_claim_loop_makes_no_calls(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands for a defect of the library: a call without a reply and without an end after its 30 seconds.
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.3)
    port = free_port()
    async with worker_at(port, server.url):
        server.pause()
        await becomes(port, "/healthz", 503, "its claim loop last called the storage")
        server.resume()
        await becomes(port, "/healthz", 200)


async def test_the_status_of_a_pool_covers_all_of_its_workers(server: Server) -> None:
    port = free_port()
    workers: list[AnyWorker] = [Worker(f"q{number}", echo, server.url) for number in range(2)]
    async with WorkerPool(workers, handle_signals=False, health_port=port):
        await becomes(port, "/readyz", 200)
        _, body = await ask(port, "/readyz")
        assert body["workers"].keys() == {worker.name for worker in workers}
        await workers[0].close()
        assert (await ask(port, "/readyz"))[0] == 503


async def test_a_worker_that_cannot_start_frees_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisStorage, "_connect_timeout", 0.1)
    port = free_port()
    async with HealthServer([], port):
        with pytest.raises(OSError, match="address already in use"):
            await worker_at(port, "memory://").run()
    with pytest.raises(StorageUnavailable):
        await worker_at(port, f"redis://127.0.0.1:{free_port()}").start()
    async with HealthServer([], port):
        pass


@pytest.mark.parametrize("port", [-1, 65_536, 1.5, "8080"])
def test_a_bad_port_is_refused(port: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="health_port"):
        Worker("q", echo, "memory://", health_port=port)


def healthcheck(port: int, *options: str) -> tuple[int, str]:
    """Run `glidemq healthcheck`; return its exit code and its output."""
    command = [sys.executable, "-m", "glidemq_async.cli", "healthcheck", "--port", str(port), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_the_exit_code_of_the_command_is_the_status() -> None:
    port = free_port()

    async def block(_job: AnyJob) -> tuple[int, str]:
        # Without an await: the worker's loop does not turn while the command runs.
        return healthcheck(port, "--timeout", "0.3")

    queue = Queue[Any, Any]("q", "memory://")
    async with queue, Worker("q", block, queue.storage, health_port=port, handle_signals=False) as worker:
        await becomes(port, "/readyz", 200)
        assert await asyncio.to_thread(healthcheck, port, "--ready") == (0, f"{worker.name} (q): ok\n")
        code, said = await queue.add_and_wait("n", wait_timeout=20)
        assert (code, "no reply" in said) == (1, True)
