"""Cases of the functions for signals and suspended jobs."""

from __future__ import annotations

import asyncio
from functools import partial

from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.outcomes import Suspended
from glidemq_async.functions.push import JobsPushed
from glidemq_async.functions.steps import StepGroup
from glidemq_async.functions.wakeup import read_message
from glidemq_async.stored.hand_over import Waits
from tests.server_time.bench import MIB, Bench, largest
from tests.server_time.working import Claimant

ANY = Waits("waits for approval", None).stored()
OTHERS = Waits("waits for approval", tuple(f"other{number}" for number in range(100))).stored()
MOST_SIGNALS = 255
SMALL, LARGE = b"x" * 900, b"x" * 60_000


async def suspend(b: Bench, jobs: int, waits: str = ANY) -> list[str]:
    """Add jobs and suspend each of them."""
    ids = await b.add(jobs)
    worker = Claimant(b, Suspended(waits, None))
    await worker.claim(jobs)
    await worker.end()
    return ids


async def resume_due(b: Bench, jobs: int) -> None:
    """Suspend jobs for a moment, and claim them when all of them are due."""
    await b.add(jobs)
    worker = Claimant(b, Suspended(ANY, 1_000))
    await worker.claim(jobs)
    await worker.end()
    await asyncio.sleep(1.01)
    await worker.claim(jobs)


async def fill_mailbox(b: Bench, job_id: str, signals: int = MOST_SIGNALS, data: bytes = SMALL) -> None:
    for number in range(signals):
        await b.functions.signals.send(job_id, f"n{number}", data, 0)


@largest("sendSignal", "to many jobs")
async def send(b: Bench) -> None:
    await b.crowd()
    for job_id in (await suspend(b, 500))[:300]:
        assert await b.functions.signals.send(job_id, "a", LARGE, 0) == "resumed"


@largest("sendSignal", "to warm runs")
async def send_to_warm_runs(b: Bench) -> None:
    await b.crowd()
    pushes: asyncio.Queue[bytes] = asyncio.Queue()
    link = asyncio.Event()
    subscription = await b.relay.subscribe(
        b.base, f"{b.base}:wake:keeper", pushes.put_nowait, lambda up: link.set() if up else None
    )
    await link.wait()
    keeper = partial(b.functions.settle.request, RequestChannel("keeper"), "keeper", lock_ms=30_000, subscribed=True)
    [job_id] = await b.add(data=LARGE)
    [job] = (await b.functions.settle.send(keeper(slots=1))).jobs
    for number in range(100):
        request = keeper(slots=1, accepts_pushes=True, has_push=number > 0)
        request.settle(job_id, job.entry, None, Suspended(ANY, None, is_warm=True))
        assert (await b.functions.settle.send(request)).refused == {}
        assert await b.functions.signals.send(job_id, "a", LARGE, 0) == "resumed"
        pushed = read_message(await pushes.get())
        assert isinstance(pushed, JobsPushed)
        [job] = pushed.jobs
    await subscription.close()


@largest("sendSignal", "to one mailbox")
async def send_to_mailbox(b: Bench) -> None:
    [job_id] = await b.add(data=b"x" * 1_000_000)
    await fill_mailbox(b, job_id)


@largest("sendSignal", "expired ones")
async def send_after_expired(b: Bench) -> None:
    [job_id] = await b.add()
    for number in range(256):
        await b.functions.signals.send(job_id, f"n{number}", SMALL, 1)
    await b.functions.signals.send(job_id, "last", SMALL, 0)


@largest("resumeJob")
async def resume(b: Bench) -> None:
    await b.crowd()
    for job_id in (await suspend(b, b.many))[:300]:
        assert await b.functions.signals.resume(job_id) == "ok"


@largest("getMailbox")
async def read_mailbox(b: Bench) -> None:
    [job_id] = await b.add()
    await fill_mailbox(b, job_id)
    assert len(await b.functions.signals.mailbox(job_id)) == MOST_SIGNALS


@largest("receiveSignal")
async def receive(b: Bench) -> None:
    [job_id] = await b.add()
    await fill_mailbox(b, job_id)
    [held] = await b.claim(1)
    b.functions.caller.consumer = "bench"
    for number, one in enumerate(reversed(await b.functions.signals.mailbox(job_id))):
        group = StepGroup(job_id, held.entry, 10_000, 16 * MIB, [(f"receive {number}", SMALL)])
        assert await b.functions.steps.receive(group, one.stored()) == "ok"


@largest("checkMailboxes")
async def check_mailboxes(b: Bench) -> None:
    ids = await b.add(500)
    for job_id in ids:
        await fill_mailbox(b, job_id, 1)
    assert not await b.functions.check_marks.mailboxes(ids)


@largest("settleAndClaim", "due suspensions")
async def claim_due(b: Bench) -> None:
    await resume_due(b, b.many)


@largest("settleAndClaim", "suspensions with full mailboxes")
async def suspend_with_mailboxes(b: Bench) -> None:
    ids = await b.add(20)
    for job_id in ids:
        await fill_mailbox(b, job_id)
    worker = Claimant(b, Suspended(OTHERS, None))
    await worker.claim(20)
    await worker.end()


@largest("settleAndClaim", "signals of full mailboxes")
async def receive_mailboxes(b: Bench) -> None:
    ids = await b.add(20)
    for job_id in ids:
        await fill_mailbox(b, job_id)
    worker = Claimant(b, Suspended(ANY, None))
    await worker.claim(20)
    await worker.call(slots=20)
    await b.claim(20)


@largest("cleanUnstarted", "suspended")
async def clean_suspended(b: Bench) -> None:
    await suspend(b, b.many)
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.clean_unstarted("" if cursor == "go" else cursor, "suspended", 0, 10**9)


@largest("checkQueue", "suspended jobs with mailboxes")
async def check_suspended(b: Bench) -> None:
    ids = await suspend(b, 200, OTHERS)
    for job_id in ids[:20]:
        await fill_mailbox(b, job_id)
    assert not await b.functions.check_marks.queue()
