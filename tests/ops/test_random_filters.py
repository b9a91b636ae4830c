"""A filter selects the same jobs by every face."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from httpx2 import AsyncClient

from glidemq_async import Filter, Queue
from glidemq_async.cli.job_listing import JobSelection, list_jobs
from glidemq_async.cli.targets import Store
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.server import ServerStorage
from tests.support.helpers import AnyQueue
from tests.support.random_filters import Check, add_facts, random_facts, random_filter
from tests.web.clients import serving

JOBS = 50
"""Number of jobs in each of two queues. All filters search the same jobs."""
PAGE = 75
"""Number of jobs of a page. A filter that selects most jobs needs two pages."""
AT_ONCE = 5
"""Number of filters that are compared at the same time, so that their round trips overlap."""


async def compare(storage: Storage, queue: AnyQueue, name: str, cases: int) -> None:
    """Compare the jobs that random filters select in Python, by HTTP and on the command line."""
    draw = random.Random(cases)
    async with Queue[Any, Any](f"{name}-b", storage) as other, serving(storage) as client:
        facts = {one: {f"{n}": random_facts(draw) for n in range(JOBS)} for one in (queue, other)}
        for one, its in facts.items():
            await add_facts(one, its)
        faces = Faces(cast("ServerStorage", storage), [*facts], client)
        for start in range(0, cases, AT_ONCE):
            drawn = [_drawn(draw) for _ in range(min(AT_ONCE, cases - start))]
            found = await asyncio.gather(*(faces.select(text) for text, _ in drawn))
            for (text, test), selected in zip(drawn, found, strict=True):
                wanted = {
                    (one.name, job_id) for one, its in facts.items() for job_id, fact in its.items() if test(fact)
                }
                assert selected == dict.fromkeys(selected, wanted), text


def _drawn(draw: random.Random) -> tuple[str, Check]:
    """Return a random filter. Most of them name the states of the jobs, because each further state costs two calls."""
    text, test = random_filter(draw)
    return (f"{text} state:waiting,prioritized,key-waiting", test) if draw.random() < 0.9 else (text, test)


@dataclass
class Faces:
    """The faces that select jobs with a filter, in this process."""

    storage: ServerStorage
    queues: Sequence[AnyQueue]
    client: AsyncClient

    async def select(self, text: str) -> dict[str, set[tuple[str, str]]]:
        """Return the queues and ids of the jobs that each face selects."""
        found = await asyncio.gather(self._queues(text), self._command(text), self._http(text))
        return dict(zip(("python", "cli", "http"), found, strict=True))

    async def _queues(self, text: str) -> set[tuple[str, str]]:
        found = await asyncio.gather(*(one.find(text, 2 * JOBS) for one in self.queues))
        return {(one.name, job.id) for one, jobs in zip(self.queues, found, strict=True) for job in jobs}

    async def _command(self, text: str) -> set[tuple[str, str]]:
        selection = JobSelection(Filter(text), None, None, None, None, 2 * JOBS)
        listed = await list_jobs(Store(self.storage, "glide", None), None, selection)
        return {(job["queue"], job["id"]) for job in listed["jobs"]}

    async def _http(self, text: str) -> set[tuple[str, str]]:
        # A page ends after 2 seconds, so a busy machine needs several pages.
        found, cursor = set[tuple[str, str]](), ""
        while True:
            query: dict[str, Any] = {"filter": text, "limit": PAGE} | ({"cursor": cursor} if cursor else {})
            page = (await self.client.get("/api/v1/jobs", params=query)).json()
            found |= {(job["queue"], job["id"]) for job in page["jobs"]}
            cursor = page["cursor"]
            if cursor is None:
                return found


async def test_a_filter_selects_the_same_jobs_by_each_face(storage: Storage, queue: AnyQueue, name: str) -> None:
    await compare(storage, queue, name, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.only_on("redis7")
async def test_5_000_filters_select_the_same_jobs_by_each_face(storage: Storage, queue: AnyQueue, name: str) -> None:
    """Takes 300 seconds on two processors that other programs keep busy: 15,000 searches of 100 jobs, no difference."""
    await compare(storage, queue, name, 5_000)
