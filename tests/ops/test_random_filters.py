"""A filter selects the same jobs by every face."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from glidemq_async import Filter, Queue
from glidemq_async.cli.job_listing import JobSelection, list_jobs
from glidemq_async.cli.targets import Store
from glidemq_async.ops import Ops
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.server import ServerStorage
from tests.support.helpers import AnyQueue
from tests.support.random_filters import add_facts, random_facts, random_filter
from tests.web.clients import serving

JOBS = 40


async def compare(storage: Storage, queue: AnyQueue, name: str, cases: int) -> None:
    """Compare the jobs that random filters select in Python, by HTTP and on the command line."""
    draw = random.Random(cases)
    async with Queue[Any, Any](f"{name}-b", storage) as other, Ops(storage) as ops, serving(storage) as client:
        facts = {one: {f"{n}": random_facts(draw) for n in range(JOBS)} for one in (queue, other)}
        for one, its in facts.items():
            await add_facts(one, its)
        store = Store(cast("ServerStorage", storage), "glide", None)
        for _ in range(cases):
            text, test = random_filter(draw)
            wanted = {(one.name, job_id) for one, its in facts.items() for job_id, fact in its.items() if test(fact)}
            by_queue = {(one.name, job.id) for one in facts for job in await one.find(text, 2 * JOBS)}
            by_core = {(row.queue, row.id) for row in (await ops.find(text, limit=2 * JOBS)).jobs}
            listed = await list_jobs(store, None, JobSelection(Filter(text), None, None, None, None, 2 * JOBS))
            by_command = {(job["queue"], job["id"]) for job in listed["jobs"]}
            reply = (await client.get("/api/v1/jobs", params={"filter": text, "limit": 2 * JOBS})).json()
            by_http = {(job["queue"], job["id"]) for job in reply["jobs"]}
            assert by_queue == by_core == by_http == by_command == wanted, text


async def test_a_filter_selects_the_same_jobs_by_each_face(storage: Storage, queue: AnyQueue, name: str) -> None:
    await compare(storage, queue, name, 40)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.only_on("redis7")
async def test_5_000_filters_select_the_same_jobs_by_each_face(storage: Storage, queue: AnyQueue, name: str) -> None:
    await compare(storage, queue, name, 5_000)
