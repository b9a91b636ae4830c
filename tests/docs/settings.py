"""The programs around the samples: the names that a sample assumes, and the other side of its work.

`BEFORE` runs once per page, before its samples. `AT` runs directly before one of them (page and number, from 0).
"""

from __future__ import annotations

from typing import Final

COMMON: Final = """
from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from typing import Any

from glidemq_async import *
from glidemq_async import Queue, Worker


async def process(job):
    return f"done {job.name}"


async def convert(job):
    return len(job.data)


handle = ship = process
"""

BEFORE: Final = {
    "queues": """
queue = Queue("emails", url)
background = Worker("emails", process, url, handle_signals=False)
await background.start()
""",
    "batches": """
from dataclasses import dataclass

Row = dict[str, int]


@dataclass
class Outcome:
    id: int
    ok: bool = True
    text: str = ""


class database:
    @staticmethod
    async def insert_many(rows):
        return [Outcome(number) for number, _ in enumerate(rows)]
""",
    "dead-letters": """
queue = Queue("emails", url)
async with Worker("emails", process, url, handle_signals=False):
    pass
await (await queue.add("late", ttl=0.001)).revoke()
""",
    "history": """
queue = Queue("emails", url)


async def send(job):
    await job.log("connecting")
    if job.fence == 1:
        raise TimeoutError("no reply")


await queue.add("send", job_id="welcome-42", attempts=2)
await Worker("emails", send, url, handle_signals=False, version="2026.11.3").run(until_empty=True)
""",
    "failures": """
queue = Queue("emails", url)


async def send(job):
    raise TimeoutError("no reply")


await queue.add("send")
await Worker("emails", send, url, handle_signals=False, version="2026.11.3").run(until_empty=True)
""",
    "events": """
queue = Queue("emails", url)


class QueueEvents(QueueEvents):
    async def __aiter__(self):
        await queue.add("welcome")
        async for event in super().__aiter__():
            yield event
            return
""",
    "results": """
queue = Queue("reports", url)


async def process(job):
    return {"partial": True}


def redact(text):
    return text


background = Worker("reports", process, url, handle_signals=False)
await background.start()
""",
    "flows": """
async def run_of_flow(job):
    if job.name == "total":
        return sum((await job.get_children_values()).values())
    return len((job.data or "").split())


mq = GlideMQ(url)


@mq.task
async def fetch(url: str) -> str:
    return url


background = [Worker(name, run_of_flow, url, handle_signals=False) for name in ("texts", "reports")]
for worker in background:
    await worker.start()
""",
    "order-and-limits": 'queue = Queue("emails", url)',
    "schedulers": 'queue = Queue("emails", url)',
    "serialization": "new_key, old_key = generate_key(), generate_key()",
    "services": """
from glidemq_async import HealthServer as _HealthServer
from glidemq_async.telemetry import Prometheus


def HealthServer(workers, port, pages):
    return _HealthServer(workers, 0, pages=pages)  # any free port
""",
    "tasks": """
from contextlib import asynccontextmanager


class Session: ...


class Pool:
    @asynccontextmanager
    async def acquire(self):
        yield Session()


def open_pool() -> Pool:
    return Pool()
""",
    "telemetry": "from glidemq_async.telemetry import JobFilter, JsonFormatter",
    "executors": """
from pathlib import Path

Path("conversions.py").write_text("def convert(job):\\n    return len(job.data)\\n")
from conversions import convert
""",
}

AT: Final = {
    ("from-temporal", 7): """
import subprocess
import sys
from pathlib import Path

command = [sys.executable, "-m", "glidemq_async.cli", "workflows", "export", "letters"]
exported = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
Path("runs.jsonl").write_text(exported.stdout)
""",
    ("flows", 2): "flows = FlowProducer(url)",
    ("README", 1): """
from app import mq

background = mq.worker(handle_signals=False)
await background.start()
""",
    ("services", 4): """
metrics = Prometheus()
worker = Worker("emails", process, url, handle_signals=False, instrumentation=[metrics])
asyncio.get_running_loop().call_later(0.3, worker.stop)
""",
}

AFTER: Final = {
    "flows": """
await flows.close()
for worker in background:
    await worker.close()
""",
    "README": """
async with api.router.lifespan_context(api):
    added = await signup("ada@example.com")
    assert await send_email.result(added["job"], timeout=10) == "Welcome, ada@example.com"
await background.close()
""",
    "queues": "await background.close(); await queue.close()",
    "dead-letters": "await queue.close()",
    "events": "await queue.close()",
    "results": """
await background.close()
async with worker:
    pass
await queue.close()
""",
    "order-and-limits": "await queue.close()",
    "schedulers": "await queue.close()",
    "batches": """
async with Queue("rows", url) as queue, Worker("rows", insert, url, batch=BatchOptions(size=3), handle_signals=False):
    assert await queue.add_and_wait("n", {"a": 1}, wait_timeout=10) == 0
""",
    "from-bullmq": """
for worker in workers:
    await worker.close()
await flows.close()
""",
    "from-celery": "await worker.close(); await mq.close()",
    "executors": """
async with Queue("copies", url) as queue, Worker("copies", copy, url, handle_signals=False):
    assert await queue.add_and_wait("n", ["a", "b"], wait_timeout=10) == 2
""",
}

PYTEST_PAGES: Final = {
    "testing": """
from __future__ import annotations

from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI

from glidemq_async import GlideMQ
from glidemq_async.integrations.fastapi import lifespan
from glidemq_async.testing import Harness
from tests.testing.test_loops import client_of

mq = GlideMQ()


@mq.task(queue="emails")
async def send_email(to: str) -> str:
    return "sent"


@mq.task
async def send_reminder(to: str) -> str:
    return "sent"


@mq.cron("0 3 * * *", queue="nights")
async def clean_up() -> None: ...


service = FastAPI(lifespan=lifespan(mq))


@service.post("/welcome")
async def welcome(to: str) -> None:
    await send_email.add(to)


@contextmanager
def TestClient(service: FastAPI):  # it needs a package that is not installed here
    with client_of(service) as client:
        yield Asking(client)


class Asking:
    def __init__(self, client: Any) -> None:
        self.client = client

    def post(self, path: str, params: dict[str, str]) -> None:
        assert self.client.post(path, urlencode(params)) == 200


class Client:
    def post(self, path: str, data: dict[str, str]) -> None:
        send_email.sync.add(data["to"])


@pytest.fixture
def client() -> Client:
    return Client()
""",
}

PYTEST_AT: Final = {
    ("from-temporal", 7): """
import subprocess
import sys
from pathlib import Path

command = [sys.executable, "-m", "glidemq_async.cli", "workflows", "export", "letters"]
exported = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
Path("runs.jsonl").write_text(exported.stdout)
""",
    ("flows", 2): "flows = FlowProducer(url)",
    ("testing", 0): """
async def sign_up(to: str) -> None:
    await send_email.add(to)
""",
    ("testing", 1): """
async def welcome(queue: Any, to: str) -> None:
    await queue.add("welcome", {"to": to})


async def process(job: Any) -> str:
    return "sent"
""",
    ("testing", 2): """
from dataclasses import dataclass

from glidemq_async import workflows


@mq.signal
@dataclass
class Approved:
    by: str


@mq.workflow(queue="orders")
async def fulfil(order: str) -> str:
    await workflows.receive(Approved)
    await workflows.sleep("1d")
    return "shipped"
""",
}
