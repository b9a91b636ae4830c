"""Several senders signal jobs over connections that are cut: each signal is received once, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from glidemq_async import Job, MailboxFull, Queue, RetryLater, Worker
from glidemq_async.storage import RedisStorage
from glidemq_async.storage.redis.library import Library
from tests.crash.cutting_proxy import CUTS
from tests.crash.size import scaled, seconds
from tests.crash.test_lost_replies import FORGETFUL, Line, line

pytestmark = pytest.mark.crash

SIGNALS = scaled(6_000)
MANY_SIGNALS = 100_000
JOBS = 12
SENDERS = 4
SIGNALS_PER_CUT = 15
KINDS = ("first", "signal", "timeout")
"""Why a run of a job begins."""

AnyJob = Job[int, int]


class Chat:
    """A handler that suspends its job until it gets the signal "end". Some runs end without using their signals."""

    def __init__(self, draw: random.Random) -> None:
        self.received = defaultdict[str, list[tuple[int, int]]](list)
        self.kinds = Counter[str]()
        self.progress = asyncio.Event()
        self._draw = draw

    async def __call__(self, job: AnyJob) -> int:
        self.kinds[job.resumed_by or "first"] += 1
        self.progress.set()
        if self._draw.random() < 0.1:
            raise RetryLater(0.001)
        if self._draw.random() < 0.2:
            # More signals arrive while the job runs.
            await asyncio.sleep(0.005)
        signals = job.signals
        self.received[job.id] += [(one.data[0], one.data[1]) for one in signals if one.name == "say"]
        if any(one.name == "end" for one in signals):
            return len(self.received[job.id])
        return await job.suspend(timeout=0.002 if self._draw.random() < 0.3 else None)


async def send(
    queue: Queue[int, int], sender: int, ids: list[str], count: int, draw: random.Random, sent: Counter[str]
) -> None:
    """Send numbered signals to random jobs; `sent` counts how many each job was sent."""
    for _ in range(count):
        job_id = draw.choice(ids)
        while True:
            try:
                await queue.signal(job_id, "say", [sender, sent[job_id]])
                break
            except MailboxFull:
                await asyncio.sleep(0.01)
        sent[job_id] += 1
        if draw.random() < 0.02:
            await asyncio.sleep(0.01)


async def cut(way: Line, chat: Chat, draw: random.Random) -> None:
    """Cut calls of senders and of the worker, one after another."""
    while True:
        way.proxy.arm(draw.choice((b"_sendSignal", b"_settleAndClaim")), *draw.choices(CUTS, k=draw.choice((1, 1, 2))))
        await way.proxy.all_made()
        # Otherwise the proxy would cut the same call again and again.
        chat.progress.clear()
        await chat.progress.wait()


async def converse(way: Line, signals: int, draw: random.Random) -> tuple[Chat, list[Counter[str]], list[str]]:
    """Let the senders signal the jobs under cuts. Return the handler, what each sender sent, and the jobs."""
    chat = Chat(draw)
    async with way.direct() as storage, Queue[int, int]("chat", storage) as queue:
        ids = [
            (await queue.add("n", number, key=f"k{number % 3}" if number % 2 else None)).id for number in range(JOBS)
        ]
        async with (
            way.through_proxy() as through,
            Worker("chat", chat, through, concurrency=4, lock_duration=600, handle_signals=False),
            asyncio.TaskGroup() as group,
        ):
            cutting = group.create_task(cut(way, chat, draw))
            storages: list[RedisStorage] = [way.through_proxy() for _ in range(SENDERS)]
            queues = [Queue[int, int]("chat", one) for one in storages]
            sent = [Counter[str]() for _ in queues]
            count = signals // SENDERS
            # More signals follow until enough calls were cut, and each kind of start has occurred. On a busy machine,
            # reconnecting takes longer, and a signal may arrive before each of the short timeouts ends.
            while (
                count == signals // SENDERS
                or way.proxy.made.total() <= signals / SIGNALS_PER_CUT / 10
                or not all(chat.kinds[kind] for kind in KINDS)
            ):
                await asyncio.gather(
                    *(send(one, number, ids, count, draw, sent[number]) for number, one in enumerate(queues))
                )
                count = SIGNALS_PER_CUT
            cutting.cancel()
            for job_id in ids:
                while True:
                    try:
                        await queue.signal(job_id, "end")
                        break
                    except MailboxFull:
                        await asyncio.sleep(0.01)
            for job_id in ids:
                job = await queue.get_job(job_id)
                assert job is not None
                await job.result(60)
            for one in queues:
                await one.close()
            for store in storages:
                await store.close()
        assert await queue.check() == []
    return chat, sent, ids


def of_sender(received: list[tuple[int, int]], sender: int) -> list[int]:
    return [number for one, number in received if one == sender]


async def check_received(signals: int) -> None:
    draw = random.Random(5)
    async with line(draw) as way:
        chat, sent, ids = await converse(way, signals, draw)
    for job_id in ids:
        for sender in range(SENDERS):
            assert of_sender(chat.received[job_id], sender) == list(range(sent[sender][job_id]))
    assert min(chat.kinds[kind] for kind in KINDS) > 0


@pytest.mark.timeout(seconds(60))
async def test_each_signal_is_received_once_and_in_order() -> None:
    await check_received(SIGNALS)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_each_of_many_signals_is_received_once_and_in_order() -> None:
    await check_received(MANY_SIGNALS)


@pytest.mark.timeout(seconds(60))
async def test_a_lost_reply_doubles_a_signal_without_request_numbers() -> None:
    assert isinstance(FORGETFUL, Library)
    draw = random.Random(6)
    async with line(draw, FORGETFUL) as way, way.direct() as direct, Queue[int, int]("chat", direct) as queue:
        job = await queue.add("n", 1)
        async with way.through_proxy() as through, Queue[int, int]("chat", through) as sender:
            await sender.get_job(job.id)
            way.proxy.arm(b"_sendSignal", "after")
            await sender.signal(job.id, "a")
        assert len(await queue.get_mailbox(job.id)) == 2
