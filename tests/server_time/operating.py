"""Cases of the functions of the operations core."""

from __future__ import annotations

from tests.server_time.bench import Bench, largest


@largest("queueExists")
async def queue_exists(b: Bench) -> None:
    assert await b.functions.queue.exists()


@largest("writeAudit")
async def write_audit(b: Bench) -> None:
    for _ in range(b.many // 2):
        await b.functions.audit.write(b"x" * 8_000)


@largest("readAudit")
async def read_audit(b: Bench) -> None:
    for _ in range(b.many // 2):
        await b.functions.audit.write(b"x" * 8_000)
    cursor, rows = await b.functions.audit.read("", 200)
    assert cursor
    assert len(rows) > 50
