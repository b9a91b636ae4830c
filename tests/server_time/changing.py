"""Cases of the functions that change a job, a key, a queue, or many jobs."""

from __future__ import annotations

from typing import Any, get_args

from glidemq_async.functions.settings import Author, Origin
from glidemq_async.queues.cleaning import SWEPT_AT_ONCE
from glidemq_async.queues.events import EventKind
from tests.server_time.bench import MIB, NIL, Bench, largest


async def add_to_many(b: Bench, **extra: object) -> str:
    """Return a job among many of its kind, on a queue with dead workers."""
    ids = await b.add(b.many, NIL, b"", (), **extra)
    (large,) = await b.add(1, b"x" * MIB, b"", (), **extra)
    assert ids
    await b.crowd()
    return large


@largest("changePriority")
async def change_priority(b: Bench) -> None:
    assert await b.functions.changes.set_priority(await add_to_many(b, key="k", priority=1), 7) == "ok"
    assert await b.functions.changes.set_priority(await add_to_many(b), 7) == "ok"


@largest("changeDelay")
async def change_delay(b: Bench) -> None:
    assert await b.functions.changes.set_delay(await add_to_many(b, key="k"), 50_000) == "ok"
    assert await b.functions.changes.set_delay(await add_to_many(b, delay=10_000), 0) == "ok"


@largest("removeJob")
async def remove_job(b: Bench) -> None:
    for extra in ({}, {"key": "k"}, {"delay": 60_000}, {"priority": 4}, {"lifo": True}):
        assert (await b.functions.jobs.remove(await add_to_many(b, **extra))).code == "ok"


@largest("retryJob")
async def retry_job(b: Bench) -> None:
    await b.add(b.many)
    ids = await b.end(b.many, "f")
    await b.crowd()
    assert await b.functions.jobs.retry(ids[-1]) == "ok"


@largest("revokeJob")
async def revoke_job(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    job_id = await add_to_many(b)
    await b.fill("HSET", "waiters", [job_id, " ".join(f"channel{n}" for n in range(1_000))])
    assert (await b.functions.jobs.revoke(job_id, "x" * 1_000)).code == "revoked"


@largest("promoteJob")
async def promote_job(b: Bench) -> None:
    assert await b.functions.jobs.promote(await add_to_many(b, delay=60_000)) == "ok"


@largest("setResultTtl")
async def set_result_ttl(b: Bench) -> None:
    await b.add(b.many, b"x" * 1_000)
    ids = await b.end(b.many)
    assert await b.functions.result_ttl.set(ids[0], 60_000) == "ok"


@largest("updateJob")
async def update_job(b: Bench) -> None:
    (job_id,) = await b.add()
    for kind in ("progress", "data", "log"):
        assert await b.functions.updates.write(job_id, "", kind, b"x" * MIB) == "ok"
    for _ in range(1_010):
        await b.functions.updates.write(job_id, "", "log", b"x" * 100)


@largest("releaseDeduplication")
async def release_deduplication(b: Bench) -> None:
    wanted = {"id": "d", "mode": "keep_last"}
    await b.add(1, b"x" * MIB, dedup=wanted)
    await b.claim(1)
    await b.add(1, b"x" * MIB, dedup=wanted)
    await b.crowd()
    assert await b.functions.deduplication.release("d")


@largest("awaitJob")
async def await_job(b: Bench) -> None:
    (ended,) = await b.add(data=b"x" * MIB)
    await b.end(1, "c", b"x" * MIB)
    assert (await b.functions.job_waiters.add(ended, "one"))[0] == "completed"
    (job_id,) = await b.add(data=b"x" * MIB)
    await b.fill("HSET", "waiters", [job_id, " ".join(f"channel{n}" for n in range(10_000))])
    assert (await b.functions.job_waiters.add(job_id, "one"))[0] == "waiting"


@largest("awaitJobs")
async def await_jobs(b: Bench) -> None:
    (large,) = await b.add(data=b"x" * MIB)
    await b.end(1, "c", b"x" * MIB)
    ended = await b.add(500, b"x" * 1_000)
    await b.end(500, "c", b"x" * 1_000)
    ids = await b.add(500, b"x" * 1_000)
    for asked in (ids, ids, ended):
        left = asked
        while left:
            left = left[len(await b.functions.job_waiters.add_many(left, "one")) :]
    assert len(await b.functions.job_waiters.add_many([large, *ids], "two")) == 1


@largest("forgetReplies")
async def forget_replies(b: Bench) -> None:
    ids = await b.add(500, b"x" * 1_000)
    await b.fill("HSET", "waiters", [word for job_id in ids for word in (job_id, "channel other")])
    await b.functions.job_waiters.remove_many(ids, "channel")
    await b.functions.job_waiters.remove_many(ids, "other")


@largest("forgetReply")
async def forget_reply(b: Bench) -> None:
    (job_id,) = await b.add()
    await b.fill("HSET", "waiters", [job_id, " ".join(f"channel{n}" for n in range(10_000))])
    await b.functions.job_waiters.remove(job_id, "channel9999")


@largest("abandonJob")
async def abandon_job(b: Bench) -> None:
    (job_id,) = await b.add(data=b"x" * MIB)
    await b.fill("HSET", "waiters", [job_id, "channel " + " ".join(f"channel{n}" for n in range(1_000))])
    assert (await b.functions.jobs.abandon(job_id, "channel", "why")).code == "awaited"
    await b.fill("HSET", "waiters", [job_id, "channel"])
    assert (await b.functions.jobs.abandon(job_id, "channel", "why")).code == "revoked"


@largest("confirmReplies")
async def confirm_replies(b: Bench) -> None:
    ids = await b.add(500, b"x" * 1_000)
    await b.fill("HSET", "waiters", [word for job_id in ids for word in (job_id, "channel other")])
    held = await b.claim(500)
    await b.settle(held, "c", "0 0")
    await b.functions.job_waiters.confirm("channel", ids)
    await b.functions.job_waiters.confirm("other", ids)


@largest("setPaused")
async def set_paused(b: Bench) -> None:
    await b.add(b.many)
    await b.functions.queue.set_paused(True)
    await b.crowd()
    await b.functions.queue.set_paused(False)


@largest("openQueue")
async def open_queue(b: Bench) -> None:
    await b.functions.queue.open(None, "dead")


@largest("setLimits")
async def set_limits(b: Bench) -> None:
    await b.add(b.many)
    await b.crowd()
    await b.functions.limits.set(rate="1000 60000", concurrency="1000")
    await b.claim(1_000)
    await b.functions.limits.set(rate="", concurrency="")


@largest("setKeyLimits")
async def set_key_limits(b: Bench) -> None:
    await b.functions.limits.set_key("k", rate="1000 60000", concurrency="1000", bucket="1000000 1000")
    await b.add(b.many, key="k")
    await b.claim(900)
    await b.crowd()
    await b.functions.limits.set_key("k", rate="2000 60000", concurrency="2000")


@largest("setRetention")
async def set_retention(b: Bench) -> None:
    by = Author("operator", "ada", "x" * 200)
    await b.functions.retention.set(by, {"keep_completed": "5 1000", "keep_failed": "5 1000"})
    await b.functions.retention.set(by, {"keep_completed": "", "keep_failed": ""})


@largest("setEvents")
async def set_events(b: Bench) -> None:
    kinds = " ".join(kind for kind in get_args(EventKind) if kind != "obliterated")
    rules = {"max_events": "1", "events_off": kinds, "progress_interval": "1000", "event_content": "value"}
    origins: tuple[Origin, ...] = ("code", "operator")
    for origin in origins:
        by = Author(origin, "ada", "x" * 200)
        await b.functions.event_rules.set(by, rules)
        await b.add(3 * b.many)
        await b.functions.event_rules.set(by, dict.fromkeys(rules, ""))


FILL = """
for i = 1, 60000 do redis.call('XADD', KEYS[1], '*', 'seq', i - 1, 'n', 1, 't', 1, 'e', 'active\\031' .. i) end
redis.call('HSET', KEYS[2], 'events', 60000)
"""


@largest("addPlain", "few events are kept")
async def add_with_few_events(b: Bench) -> None:
    await b.command("EVAL", FILL, 2, f"{b.base}:events", f"{b.base}:meta2")
    await b.functions.event_rules.set(Author("operator", "ada", ""), {"max_events": "1"})
    await b.add(6_000)
    assert await b.command("XLEN", f"{b.base}:events") < 30_000


@largest("pauseKey")
async def pause_key(b: Bench) -> None:
    await b.add_keyed(b.many, b.many // 2)
    await b.add(b.many, key="k")
    await b.functions.limits.pause_key("k", 60_000)
    await b.crowd()
    await b.functions.limits.pause_key("k", 0)


@largest("reviewKeys")
async def review_keys(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="5 60000", concurrency="2", bucket="1000000 1000")
    await b.add_keyed(1_000, 500)
    await b.claim(300)
    await b.crowd()
    await b.functions.limits.review_keys()


async def every_kind(b: Bench) -> None:
    """Add waiting jobs to every structure."""
    await b.add(b.many)
    extra: dict[str, Any]
    for extra in ({"delay": 60_000}, {"priority": 3}, {"lifo": True}, {"key": "k"}, {"ttl": 60_000}):
        await b.add(b.many // 2, **extra)
    await b.add(20, b"x" * MIB)


@largest("drainJobs")
async def drain_jobs(b: Bench) -> None:
    await every_kind(b)
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.drain("" if cursor == "go" else cursor, delayed=True)


@largest("cleanJobs")
async def clean_jobs(b: Bench) -> None:
    await b.add(b.many)
    await b.end(b.many)
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.clean_ended("" if cursor == "go" else cursor, "completed", 0, b.many)


@largest("cleanUnstarted")
async def clean_unstarted(b: Bench) -> None:
    await every_kind(b)
    for state in ("waiting", "prioritized", "key-waiting", "delayed"):
        cursor = "go"
        while cursor:
            cursor, _ = await b.functions.cleaning.clean_unstarted(
                "" if cursor == "go" else cursor, state, 0, 10 * b.many
            )


@largest("promoteJobs")
async def promote_jobs(b: Bench) -> None:
    await b.add(b.many, delay=60_000)
    await b.add(b.many // 2, delay=60_000, key="k")
    await b.add(b.many // 2, delay=60_000, priority=5)
    await b.crowd()
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.promote("" if cursor == "go" else cursor, None)


@largest("retryJobs")
async def retry_jobs(b: Bench) -> None:
    await b.add(b.many)
    await b.end(b.many, "f")
    await b.crowd()
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.retry("" if cursor == "go" else cursor, "failed", None)


@largest("retryJobs", "plain")
async def retry_plain(b: Bench) -> None:
    await b.add(b.many)
    await b.end(b.many)
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.retry("" if cursor == "go" else cursor, "completed", None)


@largest("cleanJobs", "payloads of 1 MB")
async def clean_large(b: Bench) -> None:
    await b.add(20, b"x" * MIB)
    await b.end(20)
    cursor = "go"
    while cursor:
        cursor, _ = await b.functions.cleaning.clean_ended("" if cursor == "go" else cursor, "completed", 0, 20)


@largest("obliterateQueue", "runs with payloads of 1 MB")
async def obliterate_large_runs(b: Bench) -> None:
    await b.add(40, b"x" * MIB)
    await b.claim(40)
    cursor = "go"
    while cursor:
        names = ["meta2", "events", "idle"]
        cursor = (await b.functions.obliterate.step("" if cursor == "go" else cursor, names, force=True)).cursor


@largest("obliterateQueue")
async def obliterate_queue(b: Bench) -> None:
    await every_kind(b)
    await b.claim(1_000)
    await b.add(1_000)
    await b.end(1_000)
    await b.crowd()
    cursor = "go"
    while cursor:
        step = await b.functions.obliterate.step(
            "" if cursor == "go" else cursor, ["meta2", "events", "idle"], force=True
        )
        cursor = step.cursor


@largest("sweepRemains")
async def sweep_remains(b: Bench) -> None:
    ids = await b.add(SWEPT_AT_ONCE)
    await b.command("UNLINK", f"{b.base}:fifo")
    await b.functions.obliterate.sweep_remains([f"job:{job_id}" for job_id in ids])
    keys = [f"keyq:k{n}" for n in range(SWEPT_AT_ONCE)]
    await b.command("MSET", *[word for key in keys for word in (f"{b.base}:{key}", NIL)])
    await b.functions.obliterate.sweep_remains(keys)


@largest("noteReader")
async def note_reader(b: Bench) -> None:
    for number in range(1_010):
        await b.functions.history.note_reader(f"reader{number}", b.functions.caller.incarnation, number, hold=True)


@largest("noteLoss")
async def note_loss(b: Bench) -> None:
    incarnation = b.functions.caller.incarnation
    flat = [word for n in range(1_000) for word in (n, f"reader{n}\x1fslow\x1f{incarnation}\x1f{n}\x1f{n + 9}")]
    await b.fill("ZADD", "losses", flat)
    for number in range(5):
        await b.functions.history.note_loss("reader", "slow", incarnation, number, None)
