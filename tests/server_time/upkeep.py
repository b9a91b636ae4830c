"""Cases of the functions that maintain a queue: leases, sweeps, and the end of a worker."""

from __future__ import annotations

from glidemq_async.functions.lease import Held
from glidemq_async.worker.leases import MAX_HELD
from tests.migration.old_queue import LIBRARY, OldJob, OldQueue, OldStore, layout1, options
from tests.server_time.bench import MIB, Bench, largest

LONG_AGO = 10**9


async def sweep(b: Bench, max_stalled: int = 3) -> None:
    """Sweep as after a long time without sweeps, until nothing is left to do."""
    await b.command("HSET", f"{b.base}:meta2", "settled_since", 1, "seen_at", 1, "away", 0)
    resume = False
    while True:
        reply = await b.functions.stalled.sweep(max_stalled, 0, LONG_AGO * 10_000, resume=resume)
        assert reply is not None
        if not reply.more:
            return
        resume = True


async def vanish(b: Bench, held: list[Held]) -> None:
    """End the leases of these runs."""
    waited = [run.entry[1:] for run in held if run.entry[0] == "p"]
    others = [run.entry for run in held if run.entry[0] != "p"]
    for start in range(0, len(waited), 500):
        some = waited[start : start + 500]
        await b.command("XCLAIM", f"{b.base}:fifo", "workers", "bench", 0, *some, "IDLE", 9_000_000, "JUSTID")
    for token in others:
        await b.command("HSET", f"{b.base}:renewed", token, LONG_AGO)


@largest("renewLeases")
async def renew_leases(b: Bench) -> None:
    await b.add(MAX_HELD // 2)
    held = await b.claim(MAX_HELD // 2)
    await b.add(MAX_HELD // 2, lifo=True)
    held += await b.claim(MAX_HELD // 2)
    for run in held[: MAX_HELD // 5]:
        await b.functions.jobs.revoke(run.id, "")
    await b.functions.leases.renew("bench", b"x" * 500, held, 10)


@largest("renewLeases", "plain")
async def renew_plain(b: Bench) -> None:
    await b.add(MAX_HELD)
    held = await b.claim(MAX_HELD)
    for run in held[::5]:
        await b.functions.updates.write(run.id, run.entry, "log", "line")
    for _ in range(2):
        await b.functions.leases.renew("bench", b"x" * 500, held, 10)


@largest("renewLeases", "many runs outside of fifo")
async def renew_many_runs(b: Bench) -> None:
    await b.add(5_000 + 2_000, lifo=True)
    await b.claim(1_000, "before")
    held = await b.claim(3_000)
    await b.claim(1_000, "after")
    held += await b.claim(2_000)
    for some in [held[start : start + MAX_HELD] for start in range(0, len(held), MAX_HELD)] * 2:
        assert await b.functions.leases.renew("bench", b"x" * 500, some, 10) == ([], [])
    lost, _ = await b.functions.leases.renew("before", b"x", held[:MAX_HELD], 10)
    assert lost == [run.entry for run in held[:MAX_HELD]]


async def stopping_runs(b: Bench) -> list[Held]:
    """Remove 500 running jobs with their own ordering keys, each with another job that waits."""
    await b.functions.limits.set_key("", concurrency="1", rate="1000 60000", bucket="1000000 1000")
    await b.add_keyed(1_000, 500)
    held = await b.claim(500)
    for run in held:
        await b.functions.jobs.remove(run.id)
    return held


@largest("renewLeases", "stopping")
async def renew_stopping(b: Bench) -> None:
    held = await stopping_runs(b)
    await b.functions.leases.renew("bench", b"x" * 500, held, 10)


@largest("describeWorker")
async def describe_worker(b: Bench) -> None:
    await b.functions.leases.renew("worker", b"x", [], 10)
    await b.functions.leases.describe("worker", b"x" * 4_000)


@largest("tellWorker")
async def tell_worker(b: Bench) -> None:
    await b.functions.leases.renew("worker", b"x", [], 10)
    assert await b.functions.leases.tell("worker", "pause") == 0


@largest("giveNotice")
async def give_notice(b: Bench) -> None:
    await b.crowd(10_000)
    assert await b.functions.caller.call("giveNotice") == 0


@largest("endRuns")
async def end_runs(b: Bench) -> None:
    held = await stopping_runs(b)
    await b.crowd()
    assert await b.functions.leases.end_runs("bench", [run.entry for run in held[:20]]) == 20


@largest("sweep", "stopping")
async def sweep_stopping(b: Bench) -> None:
    held = await stopping_runs(b)
    await b.fill("ZADD", "stopping", [word for run in held for word in (1, run.entry)])
    await b.crowd()
    await sweep(b)


@largest("sweep", "stalled")
async def sweep_stalled(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await b.add(b.many, lifo=True)
    await vanish(b, held + await b.claim(b.many))
    await b.crowd()
    await sweep(b)


@largest("sweep", "stalled keyed")
async def sweep_keyed(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="2", rate="1000 60000", bucket="1000000 1000")
    await b.add_keyed(b.many, b.many // 2)
    await vanish(b, await b.claim(b.many))
    await b.add_keyed(b.many, b.many // 2)
    await b.crowd()
    await sweep(b)


async def runs_of_several_workers(b: Bench, lock_ms: int = 30_000) -> list[Held]:
    """Let each of ten workers run LIFO jobs and keyed ones."""
    held: list[Held] = []
    for number in range(10):
        await b.add(b.many // 4, lifo=True)
        await b.add_keyed(b.many // 4, b.many // 4)
        held += await b.claim(b.many // 2, f"worker{number}", lock_ms)
    return held


@largest("sweep", "stalled, several workers")
async def sweep_several_workers(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="100")
    await vanish(b, await runs_of_several_workers(b))
    await b.crowd()
    await sweep(b)


@largest("sweep", "healthy, several workers")
async def sweep_healthy_workers(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="100")
    held = await runs_of_several_workers(b, 3_600_000)
    await b.functions.leases.renew("worker0", b"x", held[:MAX_HELD], 10)
    await b.command("HSET", f"{b.base}:meta2", "settled_since", 1)
    await sweep(b)


@largest("sweep", "runs from the future")
async def sweep_future_runs(b: Bench) -> None:
    claimed = int((await b.command("TIME"))[0]) * 1_000 + 9_000_000
    await b.fill("ZADD", "runs", [word for n in range(5 * b.many) for word in (1, f"{claimed}-{n:09}l job{n}")])
    for _ in range(2):
        await sweep(b)


@largest("sweep", "stalled too often")
async def sweep_failing(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(200, b"x" * 100_000, ttl=3_600_000)
    held = await b.claim(200)
    await b.add(b.many, key="k")
    await vanish(b, held + await b.claim(b.many))
    await sweep(b, 0)


@largest("sweep", "large dead letters")
async def sweep_large(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(20, b"x" * MIB)
    await vanish(b, await b.claim(20))
    await sweep(b, 0)


@largest("sweep", "large dead letters with records")
async def sweep_large_records(b: Bench) -> None:
    await b.functions.dead_letters.set_queue("dead")
    await b.add(20, b"x" * MIB)
    held = await b.claim(20)
    for run in held:
        await b.functions.updates.write(run.id, run.entry, "progress", b"\x01")
    await vanish(b, held)
    await sweep(b, 0)


@largest("sweep", "healthy")
async def sweep_healthy(b: Bench) -> None:
    await b.add(b.many)
    await b.claim(b.many, lock_ms=3_600_000)
    await b.command("HSET", f"{b.base}:meta2", "settled_since", 1)
    await sweep(b)


@largest("sweep", "expired")
async def sweep_expired(b: Bench) -> None:
    await b.add(b.many, ttl=1)
    await b.add(b.many // 2, ttl=1, key="k")
    await b.add(b.many // 2, ttl=1, delay=60_000)
    await b.crowd()
    await sweep(b)


@largest("sweep", "retention")
async def sweep_retention(b: Bench) -> None:
    await b.add(b.many, b"x" * 1_000)
    await b.end(b.many)
    await b.add(b.many, b"x" * 1_000)
    await b.settle(await b.claim(b.many), "c", "-1 -1 t1")
    await b.command("HSET", f"{b.base}:meta2", "keep_completed", "10 -1")
    await sweep(b)


@largest("sweep", "stalled, payloads of 1 MB")
async def sweep_large_runs(b: Bench) -> None:
    await b.add(20, b"x" * MIB)
    await vanish(b, await b.claim(20))
    await sweep(b)


@largest("sweep", "retention of plain jobs")
async def sweep_results(b: Bench) -> None:
    await b.add(b.many, b"x" * 1_000)
    await b.end(b.many)
    await b.command("HSET", f"{b.base}:meta2", "keep_completed", "-1 0")
    await sweep(b)


@largest("sweep", "dead workers")
async def sweep_dead(b: Bench) -> None:
    await b.fill("ZADD", "alive", [word for n in range(b.many) for word in (1, f"dead{n}")])
    await b.fill("HSET", "workers", [word for n in range(b.many) for word in (f"dead{n}", "info")])
    await b.crowd()
    await sweep(b)


@largest("sweep", "runs of an earlier build")
async def sweep_old_runs(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="1000")
    await b.add_keyed(b.many, 500)
    held = await b.claim(b.many)
    for run in held:
        raw = (await b.command("XADD", f"{b.base}:lane", "*", "h", run.id)).decode()
        await b.command("HSET", f"{b.base}:job:{run.id}", "place", f"active l{raw}")
    await sweep(b)


@largest("sweep", "clock set back")
async def sweep_set_back(b: Bench) -> None:
    await b.add(b.many, ttl=50_000_000)
    for number in range(1_000):
        await b.functions.limits.pause_key(f"k{number}", 60_000_000)
    now = int((await b.command("TIME"))[0]) * 1_000
    for name in ("alive", "held", "completed", "failed", "sleeping"):
        await b.fill("ZADD", name, [word for n in range(b.many) for word in (now + 9_000_000, f"m{n}")])
    await b.command("HSET", f"{b.base}:meta2", "set_back", 3_600_000)
    await b.functions.stalled.sweep(3, 0, LONG_AGO, resume=False)


@largest("closeWorker")
async def close_worker(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="2", rate="1000 60000", bucket="1000000 1000")
    await b.add_keyed(400, 200)
    held = await b.claim(400)
    await b.functions.limits.set_key("", concurrency="", rate="", bucket="")
    await b.add(400)
    held += await b.claim(400)
    for run in held[::2]:
        await b.functions.jobs.revoke(run.id, "")
    await b.crowd()
    await b.functions.stalled.close_worker("bench")


@largest("closeWorker", "many runs outside of fifo")
async def close_many(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency="1000")
    await b.add(b.many, lifo=True)
    await b.add_keyed(b.many, 200)
    held = await b.claim(2 * b.many)
    await b.functions.leases.renew("bench", b"x", held[:MAX_HELD], 10)
    await b.crowd()
    await b.functions.stalled.close_worker("bench")


@largest("closeWorker", "payloads of 1 MB")
async def close_large(b: Bench) -> None:
    await b.add(20, b"x" * MIB)
    await b.claim(20)
    await b.functions.stalled.close_worker("bench")


@largest("closeWorker", "large")
async def close_failing(b: Bench) -> None:
    await b.add(200, b"x" * 100_000)
    await b.fill("SADD", "revoking", [run.id for run in await b.claim(200)])
    await b.functions.stalled.close_worker("bench")


@largest("migrateQueue")
async def migrate_queue(b: Bench) -> None:
    # The queue of the bench has layout 2 already.
    await b.command("FLUSHALL")
    await b.command("FUNCTION", "LOAD", "REPLACE", layout1())
    old = OldQueue(OldStore(b.command), b.name)
    try:
        await old.functions.queue.open(None)
        await old.add([OldJob(number) for number in range(3 * b.many)])
        leases = await old.claim("old", 2 * b.many)
        await old.settle("old", leases[b.many :])
        for start in range(0, b.many, 500):
            tokens = [word for run in leases[start : min(start + 500, b.many)] for word in (run.id, run.token)]
            await old.store.call("renewLeases", old.base, ["old", b"\x80", 0, 0, *tokens])
        await old.add([OldJob("x" * MIB) for _ in range(10)])
        for extra in (options(delay=60_000), options(priority=3), options(lifo=True), options(key="k")):
            await old.add([OldJob(number, extra=extra) for number in range(b.many)])
        await b.command("DEL", f"{b.base}:alive")
        while not (await b.functions.migration.step()).is_done:
            pass
    finally:
        await b.command("FUNCTION", "DELETE", LIBRARY)
