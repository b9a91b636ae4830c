"""Cases of the migration from layout 1."""

from __future__ import annotations

from tests.migration import every_state
from tests.migration.old_queue import LIBRARY, OldJob, OldQueue, OldStore, layout1
from tests.server_time.bench import AT_ONCE, MIB, Bench, largest


async def _old_queue(b: Bench) -> OldQueue:
    await b.command("FUNCTION", "LOAD", "REPLACE", layout1())
    old = OldQueue(OldStore(b.command), f"{b.name}-old")
    await old.functions.queue.open(None)
    return old


async def _migrate(b: Bench) -> None:
    await b.command("FUNCTION", "DELETE", LIBRARY)
    functions = b.other("old")
    while not (await functions.migration.step()).is_done:
        pass


@largest("migrateQueue", "every state")
async def migrate_every_state(b: Bench) -> None:
    await every_state.build(await _old_queue(b), 2 * b.many)
    await _migrate(b)


@largest("migrateQueue", "runs")
async def migrate_runs(b: Bench) -> None:
    old = await _old_queue(b)
    await old.add(OldJob(number) for number in range(2 * b.many))
    await old.settle("old", await old.claim("old", b.many), "b")
    for _ in range(2 * b.many // AT_ONCE):
        await old.claim("dead", AT_ONCE)
    await _migrate(b)


@largest("migrateQueue", "large jobs")
async def migrate_large_jobs(b: Bench) -> None:
    old = await _old_queue(b)
    await old.add(OldJob(b"x" * MIB) for _ in range(50))
    await old.claim("dead", 25)
    await _migrate(b)
