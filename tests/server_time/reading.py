"""Cases of the functions that only read."""

from __future__ import annotations

from typing import Any

import msgpack

from glidemq_async.functions.history import ByEntry, ByNumber, ByTime, Sought
from glidemq_async.functions.settings import Author
from glidemq_async.worker.leases import MAX_HELD
from glidemq_async.worker.worker import MAX_INFO_BYTES
from tests.server_time.bench import MIB, Bench, largest

STRUCTURES = ("returned", "scheduled", "completed", "failed", "lifo", "prioritized", "keyed", "fifo", "runs")


async def every_state(b: Bench) -> None:
    """Fill every structure of the queue."""
    await b.add(b.many)
    await b.end(b.many // 2)
    await b.end(b.many // 2, "f")
    await b.add(b.many)
    await b.claim(b.many // 2)
    extra: dict[str, Any]
    for extra in ({"delay": 60_000}, {"priority": 3}, {"lifo": True}, {"key": "k"}):
        await b.add(b.many // 2, **extra)
    await b.add_keyed(b.many, b.many)
    for number in range(min(b.many, 1_000)):
        await b.functions.limits.pause_key(f"k{number}", 60_000)


@largest("version")
async def version(b: Bench) -> None:
    await b.functions.caller.read("version")


@largest("countJobs")
async def count_jobs(b: Bench) -> None:
    await every_state(b)
    await b.fill("ZADD", "alive", [word for n in range(1_000) for word in (str(n), f"w{n}")])
    await b.functions.reading.count_jobs()


@largest("getDepth")
async def get_depth(b: Bench) -> None:
    await b.add(b.many)
    await many_consumers(b)
    await b.functions.writes.get_depth()


@largest("getRecords", "small")
async def get_small_records(b: Bench) -> None:
    ids = await b.add(1_000, b"x" * 200, msgpack.packb({"a": 3}))
    await b.end(1_000, "f", b"x" * 500)
    await b.functions.reading.get_records(ids)


@largest("getRecords", "large")
async def get_large_records(b: Bench) -> None:
    await b.functions.reading.get_records(await b.add(20, b"x" * MIB))


@largest("getRecords", "rate-limited")
async def get_limited_records(b: Bench) -> None:
    await b.functions.limits.set_key("", rate="1 60000")
    await b.add_keyed(1_000, 1_000)
    await b.end(1_000)
    await b.add_keyed(1_000, 1_000)
    _, ids = await b.functions.reading.list_jobs("rate-limited", "", 1_000)
    assert ids
    await b.functions.reading.get_records(ids * 3)


@largest("getHeads")
async def get_heads(b: Bench) -> None:
    await b.functions.reading.get_heads(await b.add(40, b"x" * MIB))
    await b.functions.reading.get_heads(await b.add(1_000, b"x"))


@largest("getOutlines")
async def get_outlines(b: Bench) -> None:
    ids = await b.add(20, b"x" * MIB)
    await b.end(20, "c", b"x" * MIB)
    await b.functions.reading.get_outlines(ids)


@largest("listJobs")
async def list_jobs(b: Bench) -> None:
    await every_state(b)
    states = ("waiting", "prioritized", "key-waiting", "rate-limited", "active", "delayed", "completed", "failed")
    for state in states:
        cursor, _ = await b.functions.reading.list_jobs(state, "", 1_000)
        if cursor:
            await b.functions.reading.list_jobs(state, cursor, 1_000)


@largest("listJobs", "backwards, from before the oldest job")
async def list_backwards(b: Bench) -> None:
    ids = await b.add(200_000)
    for state in ("waiting", "active"):
        await b.functions.reading.list_jobs(state, "", 1_000, backwards=True)
    oldest = (await b.command("XRANGE", f"{b.base}:fifo", "-", "+", "COUNT", 1))[0][0].decode()
    assert oldest.startswith(f"{ids[0]}-")
    for state in ("waiting", "active"):
        assert await b.functions.reading.list_jobs(state, f"p{oldest}", 1_000, backwards=True) == ("", [])


@largest("searchJobs")
async def search_jobs(b: Bench) -> None:
    await every_state(b)
    for state in ("waiting", "key-waiting", "rate-limited", "active", "completed"):
        await b.functions.searching.find(state, "", 1_000, "n")


async def many_consumers(b: Bench) -> None:
    """Let each of many workers run a job."""
    jobs = await b.add(1_000)
    for number in range(len(jobs)):
        await b.claim(1, f"worker{number}")


@largest("listWorkers")
async def list_workers(b: Bench) -> None:
    await many_consumers(b)
    for number in range(1_000):
        await b.functions.leases.renew(f"worker{number}", b"x" * 500, [], 10)
    rows = await b.functions.worker_list.list(60_000)
    assert len(rows) == 1_000


@largest("listWorkers", "many runs outside of fifo")
async def list_busy_workers(b: Bench) -> None:
    for number in range(1_000):
        await b.add(10, lifo=True)
        await b.claim(10, f"worker{number}")
        await b.functions.leases.renew(f"worker{number}", b"x" * 500, [], 10)
    assert len(await b.functions.worker_list.list(60_000)) == 1_000


@largest("listWorkers", "many workers, long descriptions")
async def list_many_workers(b: Bench) -> None:
    now = int((await b.command("TIME"))[0]) * 1_000
    names = [f"worker{number}" for number in range(10_000)]
    await b.fill("ZADD", "alive", [word for name in names for word in (now, name)])
    await b.fill("HSET", "workers", [word for name in names for word in (name, "x" * MAX_INFO_BYTES)])
    assert {row.name for row in await b.functions.worker_list.list(3_600_000)} == set(names)


@largest("getLogs")
async def get_logs(b: Bench) -> None:
    (job_id,) = await b.add()
    for size in (100_000, 100):
        for _ in range(1_000 if size == 100 else 100):
            await b.functions.updates.write(job_id, "", "log", b"x" * size)
    assert (await b.functions.reading.get_logs(job_id, 0, -1))[0] == 1_000


@largest("now")
async def now(b: Bench) -> None:
    await b.functions.reading.now()


async def many_tasks(b: Bench) -> dict[str, list[str]]:
    """Describe as many tasks as fit, each with long names."""
    tasks = {f"task{number:04}": ["x" * 190] * 10 for number in range(500)}
    await b.functions.known_tasks.describe(tasks)
    return tasks


@largest("describeTasks")
async def describe_tasks(b: Bench) -> None:
    await b.functions.known_tasks.describe(await many_tasks(b))


@largest("listFailureGroups")
async def list_failure_groups(b: Bench) -> None:
    await many_groups(b, 300)
    assert len(await b.functions.failure_groups.list()) == 200


async def many_groups(b: Bench, number: int) -> None:
    """Let as many jobs fail, each in a group of its own with texts of the largest size."""
    await b.add(number)
    for count, held in enumerate(await b.claim(number)):
        error = [f"E{count}" + "x" * 300, "m" * 4_096, "t" * 16_384, "p" * 200, f"{count:064}", "v" * 64]
        await b.settle([held], "f", "-1 -1;retries_exhausted;broken", msgpack.packb(error))


@largest("getHistory")
async def get_history(b: Bench) -> None:
    [job_id] = await b.add(1)
    await b.functions.job_history.set_bytes(65_536)
    for number in range(150):
        await b.functions.job_history.note_action([job_id], "a" * 200, f"{number}", "n" * 200)
    assert len((await b.functions.job_history.get(job_id)).entries) > 100


@largest("noteAction")
async def note_action(b: Bench) -> None:
    ids = await b.add(200, delay=60_000)
    await b.functions.job_history.set_bytes(65_536)
    for number in range(200):
        await b.functions.job_history.note_action(ids[:20] if number < 195 else ids, "a" * 200, "b" * 200, "n" * 200)


@largest("setHistory")
async def set_history(b: Bench) -> None:
    await b.functions.job_history.set_bytes(0)


@largest("listTasks")
async def list_tasks(b: Bench) -> None:
    tasks = await many_tasks(b)
    assert await b.functions.known_tasks.list() == tasks


@largest("isPaused")
async def is_paused(b: Bench) -> None:
    await b.functions.reading.is_paused()


@largest("lastEvent")
async def last_event(b: Bench) -> None:
    await b.add(b.many)
    await b.functions.reading.last_event()


@largest("checkPlaces")
async def check_places(b: Bench) -> None:
    await every_state(b)
    for structure in STRUCTURES:
        cursor = "go"
        while cursor:
            cursor, found = await b.functions.check.locations(structure, "" if cursor == "go" else cursor, 200)
            assert not found


@largest("checkRecords")
async def check_records(b: Bench) -> None:
    ids = await b.add(20, b"x" * MIB)
    ids += await b.add(100, key="k")
    ids += await b.add(100)
    await b.claim(100)
    assert not await b.functions.check.records(ids)


@largest("checkKey")
async def check_key(b: Bench) -> None:
    await b.add(b.many, key="k")
    await b.functions.limits.set_key("k", concurrency="500")
    await b.settle(await b.claim(500), "r", "50000 broken")
    assert not await b.functions.check_marks.key("k")


@largest("checkQueue")
async def check_queue(b: Bench) -> None:
    await every_state(b)
    await b.add_keyed(1_000, 1_000)
    await b.claim(1_000)
    await b.add(b.many, ttl=60_000)
    for job_id in await b.add(500):
        await b.functions.job_waiters.add(job_id, "channel")
    await b.functions.check_marks.queue()


@largest("checkQueue", "renewed runs")
async def check_renewed_runs(b: Bench) -> None:
    await b.add(b.many, lifo=True)
    held = await b.claim(b.many)
    for start in range(0, len(held), MAX_HELD):
        await b.functions.leases.renew("bench", b"x", held[start : start + MAX_HELD], 10)
    await b.functions.check_marks.queue()


@largest("locateEvents")
async def locate_events(b: Bench) -> None:
    for _ in range(b.many // 10):
        await b.functions.queue.set_paused(True)
        await b.functions.queue.set_paused(False)
    sought: list[Sought] = [*(ByNumber(n * 7) for n in range(10)), ByTime(1), ByEntry("5-1")]
    await b.functions.history.locate(sought)


@largest("listReaders")
async def list_readers(b: Bench) -> None:
    for number in range(1_000):
        await b.functions.history.note_reader(f"reader{number}", b.functions.caller.incarnation, number, hold=True)
    assert len(await b.functions.history.list_readers()) == 1_000


@largest("listLosses")
async def list_losses(b: Bench) -> None:
    incarnation = b.functions.caller.incarnation
    for number in range(1_000):
        await b.functions.history.note_loss(f"reader{number}" * 10, "slow", incarnation, number, number + 9)
    assert len(await b.functions.history.list_losses()) == 1_000


@largest("getLimits")
async def get_limits(b: Bench) -> None:
    await b.functions.limits.set(concurrency="5", rate="5 1000")
    await b.functions.limits.get()


@largest("getSettings")
async def get_settings(b: Bench) -> None:
    by = Author("operator", "ada", "x" * 200)
    for number in range(1_000):
        await b.functions.limits.set_key(f"k{number}", by, concurrency="5")
    assert len((await b.functions.settings.get()).holds) == 1_000


@largest("getKeyLimits")
async def get_key_limits(b: Bench) -> None:
    await b.functions.limits.set_key("k", concurrency="5", rate="5 1000", bucket="5 5")
    await b.functions.limits.get_key("k")


@largest("getMetrics")
async def get_metrics(b: Bench) -> None:
    now = int((await b.command("TIME"))[0])
    for hour in range(now // 3600 - 25, now // 3600 + 1):
        flat = [word for minute in range(60) for word in (f"{minute}:n", 12345, f"{minute}:ms", 1234567)]
        await b.fill("HSET", f"metrics:completed:{hour}", flat)
    assert len(await b.functions.metrics.get("completed", None, None)) >= 1_440


@largest("getDeduplication")
async def get_deduplication(b: Bench) -> None:
    (job_id,) = await b.add(data=b"x" * MIB, dedup={"id": "d", "mode": "simple"})
    assert await b.functions.deduplication.get_owner("d") == job_id


@largest("getDeadLetter")
async def get_dead_letter(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead" * 50)
    await b.functions.dead_letters.get_queue()


@largest("listDeadLetters", "failed")
async def list_dead_letters(b: Bench) -> None:
    await b.add(1_000)
    await b.end(1_000, "f")
    _, ids = await b.functions.replaying.list_ids("failed", "", 1_000, "retries_exhausted")
    assert len(ids) == 1_000
    await b.functions.replaying.list_ids("failed", "", 1_000, "expired")


@largest("explainJob", "last in line")
async def explain_last(b: Bench) -> None:
    await b.functions.limits.set(concurrency="1000", rate="900 60000")
    await b.functions.limits.set_key("k0", concurrency="500", rate="500 60000", bucket="500000 1")
    await every_state(b)
    await b.add(1_000, key="k0")
    await b.claim(1_000)
    for state in ("waiting", "prioritized", "key-waiting", "rate-limited", "active", "delayed", "completed", "failed"):
        _, ids = await b.functions.reading.list_jobs(state, "", 1_000)
        for job_id in ids[-2:]:
            assert (await b.functions.explain.job(job_id)).state == state


@largest("explainJob", "behind large jobs that have expired")
async def explain_large(b: Bench) -> None:
    ids = await b.add(30, b"x" * MIB, ttl=1)
    ids += await b.add(1)
    await b.functions.explain.job(ids[-1])
