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


@largest("summarize")
async def summarize(b: Bench) -> None:
    await b.functions.queue.open(None)
    figures = await b.functions.summary.read()
    assert figures.alive == 0


@largest("putToken")
async def put_token(b: Bench) -> None:
    for number in range(b.many):
        await b.functions.tokens.put(f"{number:064}", 0, b"x" * 4_000)


@largest("getToken")
async def get_token(b: Bench) -> None:
    await b.functions.tokens.put("a", 0, b"x" * 4_000)
    assert await b.functions.tokens.get("a")


@largest("listTokens")
async def list_tokens(b: Bench) -> None:
    for number in range(min(b.many, 500)):
        await b.functions.tokens.put(f"{number:064}", 0, b"x" * 4_000)
    assert await b.functions.tokens.list()


@largest("removeToken")
async def remove_token(b: Bench) -> None:
    await b.functions.tokens.put("a", 0, b"x" * 4_000)
    assert await b.functions.tokens.remove("a")
