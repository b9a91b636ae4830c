"""Topics whose workers are killed, and whose calls lose replies: each message becomes one job of each subscription."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from glidemq_async import BroadcastWorker, Job, Queue, Topic
from glidemq_async.topics.subjects import fits
from tests.crash.cutting_proxy import CUTS
from tests.crash.size import scaled, seconds
from tests.crash.test_lost_replies import line
from tests.crash.topic_worker import SUBSCRIPTIONS
from tests.support.servers import standalone

pytestmark = pytest.mark.crash
MESSAGES = scaled(20_000)
KILLS = max(4, min(40, scaled(8)))
WORKERS = 3


async def publish_all(url: str, count: int) -> None:
    async with Topic("orders", url, max_messages=None) as topic:
        for start in range(0, count, 500):
            await topic.publish_many([("order.paid.eu", number) for number in range(start, min(start + 500, count))])


async def spawn(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.crash.topic_worker", url)


async def completed(queue: Queue[Any, Any]) -> int:
    return (await queue.get_job_counts())["completed"]


async def fed(topic: Topic) -> int:
    return sum(one.jobs for one in (await topic.info()).subscriptions)


async def wait_for_more(topic: Topic, target: int) -> None:
    while await fed(topic) < target:  # noqa: ASYNC110 - other processes feed
        await asyncio.sleep(0.01)


@pytest.mark.timeout(seconds(170))
async def test_killed_workers_lose_and_double_no_message() -> None:
    draw = random.Random(21)
    async with standalone(unix=True) as server, Topic("orders", server.url, max_messages=None) as topic:
        for name in SUBSCRIPTIONS:
            async with BroadcastWorker("orders", print, server.url, subscription=name, handle_signals=False) as _:
                pass
        publishing = asyncio.ensure_future(publish_all(server.url, MESSAGES))
        workers = [await spawn(server.url) for _ in range(WORKERS)]
        total = MESSAGES * len(SUBSCRIPTIONS)
        try:
            for kill in range(KILLS):
                target = (kill + 1) * total // (KILLS + 2)
                await wait_for_more(topic, draw.randrange(target - total // (2 * KILLS + 4), target))
                victim = workers.pop(0)
                victim.kill()
                await victim.wait()
                workers.append(await spawn(server.url))
            await publishing
            for name in SUBSCRIPTIONS:
                async with Queue[int, int](f"orders.{name}", server.url) as queue:
                    while await completed(queue) < MESSAGES:  # noqa: ASYNC110 - other processes complete them
                        await asyncio.sleep(0.05)
        finally:
            for worker in workers:
                worker.kill()
                await worker.wait()
        for name in SUBSCRIPTIONS:
            async with Queue[int, int](f"orders.{name}", server.url) as queue:
                counts = {state: count for state, count in (await queue.get_job_counts()).items() if count}
                assert counts == {"completed": MESSAGES}
                got = Counter([job.data async for job in queue.iter_jobs("completed")])
                assert got == Counter(range(MESSAGES))
                assert await queue.check() == []
        info = await topic.info()
        assert [(one.lag, one.lost, one.jobs) for one in info.subscriptions] == [(0, 0, MESSAGES)] * len(SUBSCRIPTIONS)
        assert await topic.check() == []


@pytest.mark.timeout(seconds(60))
async def test_lost_replies_neither_lose_nor_double_a_message() -> None:
    draw, wanted = random.Random(22), scaled(60)
    patterns = {"all": [], "some": ["a.*", "!a.b"]}
    published: dict[str, list[tuple[str, int]]] = {"one": [], "two": []}
    found: Counter[tuple[str, str, int]] = Counter()

    def handler(topic: str, subscription: str) -> Any:
        async def note(job: Job[int, None]) -> None:
            found[topic, subscription, job.data] += 1

        return note

    async with line(draw) as way, way.through_proxy() as through, way.direct() as direct:
        topics = {name: Topic(name, through) for name in published}
        workers = [
            BroadcastWorker(
                topic,
                handler(topic, name),
                through,
                subscription=name,
                subjects=patterns[name],
                start_from="beginning",
                backlog=draw.choice((5, 1_000)),
                handle_signals=False,
            )
            for topic in published
            for name in patterns
            for _ in range(2)
        ]
        for worker in workers:
            await worker.start()
        functions = (b"_publishMessages", b"_feedJobs", b"_readMessages", b"_openFeed")
        while way.proxy.made.total() < wanted:
            way.proxy.arm(draw.choice(functions), *draw.choices(CUTS, k=draw.choice((1, 2))))
            name = draw.choice([*published])
            count = len(published[name])
            new = [(draw.choice(("a.b", "a.c", "b.c")), count + offset) for offset in range(draw.choice((1, 30)))]
            await topics[name].publish_many(list(new))
            published[name] += new
            with suppress(TimeoutError):
                await asyncio.wait_for(way.proxy.all_made(), 0.5)
        way.proxy.arm(b"")
        expected = Counter(
            (topic, name, data)
            for topic, messages in published.items()
            for name in patterns
            for subject, data in messages
            if fits(patterns[name], subject)
        )
        while len(found) < len(expected):  # noqa: ASYNC110 - the workers call no event for all of them together
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        for worker in workers:
            await worker.close()
        assert found == expected
        for name in published:
            await topics[name].close()
            async with Topic(name, direct) as topic:
                assert await topic.check() == []
                for one in (await topic.info()).subscriptions:
                    async with Queue[Any, Any](one.queue, direct) as queue:
                        assert await queue.check() == []
                        assert (one.lag, one.lost) == (0, 0)
