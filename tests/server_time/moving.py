"""Cases of the functions that move jobs between queues, and of writes."""

from __future__ import annotations

import msgpack

from glidemq_async.functions.inbox import Delivery
from glidemq_async.functions.replaying import Revival
from tests.server_time.bench import MIB, NIL, Bench, largest

ORIGIN = msgpack.packb(["origin", "1", "retries_exhausted", "broken", 3, 1_700_000_000_000, ""])


def deliveries(count: int, data: bytes = NIL, origin: bytes = b"", first: int = 0) -> list[Delivery]:
    """Return jobs as an outbox delivers them."""
    numbers = range(first, first + count)
    return [Delivery(f"token{n}", b"id%d" % n, b"n", data, b"", b"", origin) for n in numbers]


async def moved(b: Bench, count: int, data: bytes = NIL) -> list[str]:
    """Store this many dead letters of another queue."""
    await b.functions.queue.set_paused(True)
    step = 100 if len(data) < 1_000 else 1
    for first in range(0, count, step):
        await b.functions.inbox.deliver(deliveries(min(step, count - first), data, ORIGIN, first))
    return [f"id{n}" for n in range(count)]


@largest("setDeadLetter")
async def set_dead_letter(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead" * 50)


@largest("relayOutbox", "small")
async def relay_small(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(b.many, b"x" * 300)
    await b.end(b.many, "f")
    await relay_all(b)


@largest("relayOutbox", "large")
async def relay_large(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(110, b"x" * MIB)
    held = await b.claim(110)
    for one in held:
        await b.settle([one], "f", "-1 -1;retries_exhausted;broken")
    await relay_all(b)


async def relay_all(b: Bench) -> None:
    """Relay all entries of the outbox."""
    after, done = "", list[str]()
    while True:
        after, posted, *_ = await b.functions.outbox.relay("holder", after, done)
        if not posted:
            return
        done = [one.entry for one in posted]


@largest("deliverJobs", "small")
async def deliver_small(b: Bench) -> None:
    await b.crowd()
    await b.functions.inbox.deliver(deliveries(100, b"x" * 300, ORIGIN))
    await b.functions.inbox.deliver(deliveries(100, b"x" * 300, ORIGIN))


@largest("deliverJobs", "large")
async def deliver_large(b: Bench) -> None:
    await b.functions.inbox.deliver(deliveries(1, b"x" * MIB, ORIGIN))


@largest("deliverJobs", "full inbox")
async def deliver_to_many(b: Bench) -> None:
    await b.fill("ZADD", "inbox", [word for n in range(110_000) for word in (n, f"before{n}")])
    await b.fill("ZADD", "moved", [word for n in range(100_300) for word in (n, f"before{n}")])
    await b.functions.inbox.deliver(deliveries(100, NIL, ORIGIN))


@largest("listDeadLetters", "moved")
async def list_moved(b: Bench) -> None:
    await moved(b, 1_000)
    for cause in ("", "expired"):
        await b.functions.replaying.list_ids("moved", "", 1_000, cause)


@largest("readMoved", "small")
async def read_moved(b: Bench) -> None:
    await moved(b, 1_000, b"x" * 300)
    assert (await b.functions.replaying.read_moved(0, None, 200, "")).found
    await b.functions.replaying.read_moved(0, None, 200, "expired")


@largest("readMoved", "large")
async def read_large(b: Bench) -> None:
    await moved(b, 20, b"x" * MIB)
    assert (await b.functions.replaying.read_moved(0, None, 200, "")).found


@largest("dropMoved")
async def drop_moved(b: Bench) -> None:
    assert await b.functions.replaying.drop_moved(await moved(b, 100, b"x" * 300)) == 100
    ids = await moved(b, 20, b"x" * MIB)
    await b.crowd()
    await b.functions.replaying.drop_moved(ids)


@largest("replayFailed")
async def replay_failed(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="2", rate="1000 60000", bucket="1000000 1000")
    await b.add_keyed(b.many // 2, b.many // 4, ttl=3_600_000)
    await b.add(b.many)
    await b.end(2 * b.many, "f")
    await b.crowd()
    skip, left = 0, None
    while left != 0:
        skip, left, _ = await b.functions.replaying.replay_failed(skip, left, 100_000, "")


@largest("reviveJobs", "missing")
async def revive_missing(b: Bench) -> None:
    await b.crowd()
    await b.functions.replaying.revive([Revival(f"t{n}", f"id{n}", 5, b"n", b"x" * 300, b"", "") for n in range(100)])
    await b.functions.replaying.revive([Revival("t", "large", 5, b"n", b"x" * MIB, b"", "")])


@largest("reviveJobs", "failed")
async def revive_failed(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="2", rate="1000 60000", bucket="1000000 1000")
    await b.add_keyed(100, 100)
    ids = await b.end(100, "f")
    records = await b.functions.reading.get_records(ids)
    back = [
        Revival(f"t{job_id}", job_id, int(one[b"ended"]), b"n", NIL, b"", one[b"route"].decode())
        for job_id, one in zip(ids, records, strict=True)
    ]
    await b.crowd()
    assert await b.functions.replaying.revive(back) == ["ok"] * 100


@largest("planWrite")
async def plan_write(b: Bench) -> None:
    await b.functions.writes.plan()


async def writes(b: Bench, count: int) -> list[str]:
    """Store this many known writes."""
    ids = [f"write{n}" for n in range(count)]
    for write_id in ids:
        await b.functions.writes.open(write_id, "token", 60_000, "app" + write_id, 1, "label" * 10)
    return ids


@largest("openWrite")
async def open_write(b: Bench) -> None:
    await writes(b, 1_010)


@largest("getWrites")
async def get_writes(b: Bench) -> None:
    await b.functions.writes.get(await writes(b, 100))


@largest("listWrites")
async def list_writes(b: Bench) -> None:
    await writes(b, 300)
    assert len((await b.functions.writes.list_ids("", 100))[1]) == 100


@largest("getTransaction")
async def get_transaction(b: Bench) -> None:
    (write_id,) = await writes(b, 1)
    await b.functions.writes.end(write_id, "token", "committed")
    assert await b.functions.writes.get_transaction("app" + write_id)


@largest("endWrite")
async def end_write(b: Bench) -> None:
    for write_id in await writes(b, 10):
        await b.functions.writes.end(write_id, "token", "committed", 1_000)


@largest("probeWrite")
async def probe_write(b: Bench) -> None:
    (write_id,) = await writes(b, 1)
    ids = [f"row{n}" * 10 for n in range(500)]
    taken = [f"taken{n}" * 10 for n in range(500)]
    rows = [word for job_id in ids for word in (job_id, "n", NIL, b"", b"")]
    await b.functions.writes.add(write_id, "token", rows)
    await b.add(ids=taken)
    await b.functions.writes.probe(write_id, "token", ids)
    await b.functions.writes.probe(write_id, "token", ids[:250] + taken[:250])
    await b.functions.writes.probe(write_id, "token", [f"new{n}" for n in range(500)])


@largest("addToWrite")
async def add_to_write(b: Bench) -> None:
    (write_id,) = await writes(b, 1)
    await b.crowd()
    ids = [f"row{n}" * 10 for n in range(500)]
    rows = [word for job_id in ids for word in (job_id, "n", b"x" * 300, b"", b"")]
    marks = [b"mark%d" % n for n in range(500)]
    await b.functions.writes.add(write_id, "token", rows, marks=marks)
    await b.functions.writes.add(write_id, "token", rows, marks=marks)


@largest("addToWrite", "jobs with priorities of keys with long lines")
async def add_keyed_to_write(b: Bench) -> None:
    (write_id,) = await writes(b, 1)
    for _ in range(4):
        await b.add_keyed(5_000, 500)
    extras = [msgpack.packb({"key": f"k{n}", "priority": 5}) for n in range(500)]
    rows = [word for n in range(500) for word in (f"row{n}", "n", b"x" * 300, b"", extras[n])]
    while rows:
        reply = await b.functions.writes.add(write_id, "token", rows, may_end_early=True)
        assert reply.inserted == reply.considered > 0
        rows = rows[5 * reply.considered :]
