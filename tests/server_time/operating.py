"""Cases of the functions of the operations core."""

from __future__ import annotations

from glidemq_async.functions.alerts import Holds, Observation
from glidemq_async.functions.bulk import MOST_JOBS, Action, BulkChange, ChangeStep
from glidemq_async.functions.operations import Advance
from tests.server_time.bench import MIB, NIL, Bench, largest


@largest("queueExists")
async def queue_exists(b: Bench) -> None:
    assert await b.functions.queue.exists()


@largest("writeAudit")
async def write_audit(b: Bench) -> None:
    for _ in range(b.many // 2):
        await b.functions.audit.write(b"x" * 8_000)


@largest("endAudit")
async def end_audit(b: Bench) -> None:
    for _ in range(b.many // 4):
        entry = await b.functions.audit.write(b"x" * 8_000)
        await b.functions.audit.end(entry, b"x" * 8_000)


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
    # The server keeps at most 500 tokens and refuses the others.
    for number in range(min(b.many, 600)):
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


async def changes(b: Bench, action: Action, ids: list[str], argument: str = "", data: bytes = b"") -> None:
    """Make a change of all these jobs, in steps as large as a client sends them."""
    step, position = ChangeStep("op", action, argument, None, (), "a" * 200, "n" * 200), 1
    while position <= len(ids):
        some = [BulkChange(job_id, data=data) for job_id in ids[position - 1 : position + MOST_JOBS - 1]]
        reply = await b.functions.bulk.change(step, position, some)
        assert set(reply.statuses) == {"ok"}
        position += len(reply.statuses)


@largest("changeJobs", "retry")
async def retry_jobs(b: Bench) -> None:
    await b.add(b.many)
    await changes(b, "retry", await b.end(b.many, "f"))


@largest("changeJobs", "retry, before a list of a key")
async def retry_before_list(b: Bench) -> None:
    await b.functions.limits.set_key("", concurrency=f"{3 * b.many}")
    await b.add(3 * b.many, key="k")
    failed = await b.end(3 * b.many, "f")
    await b.add(b.many, key="k")
    await changes(b, "retry", failed)


@largest("changeJobs", "cancel")
async def cancel_jobs(b: Bench) -> None:
    await changes(b, "cancel", await b.add(b.many))


@largest("changeJobs", "promote")
async def promote_jobs(b: Bench) -> None:
    await changes(b, "promote", await b.add(b.many, delay=60_000))


@largest("changeJobs", "delay, keyed")
async def delay_jobs(b: Bench) -> None:
    await b.add_keyed(b.many, 300)
    await changes(b, "delay", [str(number + 1) for number in range(b.many)], "60000")


@largest("changeJobs", "move, payloads of 10 kB")
async def move_jobs(b: Bench) -> None:
    await changes(b, "move", await b.add(b.many, b"x" * 10_000), "glide:{elsewhere}")


@largest("changeJobs", "delete, payloads of 1 MB")
async def delete_jobs(b: Bench) -> None:
    await changes(b, "delete", await b.add(20, b"x" * MIB))


@largest("changeJobs", "edit, payloads of 2 kB")
async def edit_jobs(b: Bench) -> None:
    await changes(b, "edit", await b.add(b.many, delay=60_000), data=b"x" * 2_000)


async def many_operations(b: Bench) -> list[str]:
    """Create more operations than are listed."""
    ids = [f"op{number}" for number in range(1_010)]
    for one in ids:
        await b.functions.operations.create(one, b"x" * 4_000, "ticket", 500)
    return ids


@largest("createOperation")
async def create_operations(b: Bench) -> None:
    await many_operations(b)


@largest("getOperations")
async def get_operations(b: Bench) -> None:
    assert len(await b.functions.operations.get((await many_operations(b))[:100])) == 100


@largest("listOperations")
async def list_operations(b: Bench) -> None:
    await many_operations(b)
    assert len(await b.functions.operations.list_ids()) == 100


async def started(b: Bench) -> None:
    """Start an operation with as many jobs as an operation may have."""
    for start in range(0, 1_000_000, 50_000):
        await b.functions.operations.add_targets("op", start, b"x" * 250_000)
    await b.functions.operations.create("op", b"x" * 4_000, "ticket", 500)
    assert await b.functions.operations.start("op", "ticket", b"\x80", "n", NIL, b"x" * 8_000) == "started"


@largest("addTargets")
@largest("startOperation")
async def start_operation(b: Bench) -> None:
    await started(b)


@largest("getTargets")
async def get_targets(b: Bench) -> None:
    await started(b)
    assert await b.functions.operations.get_targets("op", 0)


@largest("advanceOperation")
async def advance_operation(b: Bench) -> None:
    await started(b)
    refused = {f"state {number}": 1 for number in range(20)}
    assert await b.functions.operations.advance("op", Advance(0, 500, 500, 480, refused)) == ("done", 500)


@largest("endOperation")
async def end_operation(b: Bench) -> None:
    await started(b)
    assert await b.functions.operations.end("op", "cancelled", "x" * 500, b"x" * 8_000) == "ok"


RULE = b"x" * 8_000


async def with_rules(b: Bench, states: int = 0) -> int:
    """Store as many rules as may exist, take the lease, and open as many episodes as may exist. Return the fence."""
    for number in range(200):
        assert await b.functions.alerts.put(f"rule{number}", RULE)
    fence = (await b.functions.alerts.begin("bench", 30_000)).fence
    for at in range(0, states, 20):
        await note(b, fence, at)
    return fence


async def note(b: Bench, fence: int, at: int, *, is_true: bool = True) -> list[str]:
    """Note as many targets as one call may, which have five webhooks each."""
    seen = [Observation("t" * 500 + str(number), is_true, f"e{number}", b"x" * 4_000) for number in range(at, at + 20)]
    return await b.functions.alerts.note(fence, "rule0", Holds(0, 0), 5, b"", seen)


@largest("putAlert")
@largest("listAlerts")
@largest("beginAlerts")
async def set_alerts(b: Bench) -> None:
    await with_rules(b, 500)
    assert not await b.functions.alerts.put("one more", RULE)
    assert len((await b.functions.alerts.begin("bench", 30_000)).states) == 500
    assert len((await b.functions.alerts.stored()).rules) == 200


@largest("noteAlerts")
async def note_alerts(b: Bench) -> None:
    fence = await with_rules(b, 500)
    assert await note(b, fence, 500) == [""] * 20  # as many are open as may be
    assert await note(b, fence, 0, is_true=False) == ["closed"] * 20


@largest("removeAlert")
async def remove_alert(b: Bench) -> None:
    await with_rules(b, 500)
    assert await b.functions.alerts.remove("rule0")


@largest("readEpisodes")
@largest("getEpisode")
@largest("noteNotification")
async def read_episodes(b: Bench) -> None:
    await with_rules(b, 500)
    assert len(await b.functions.alerts.episodes("open", 100)) == 100
    assert len(await b.functions.alerts.episodes("all", 100)) == 100
    assert await b.functions.alerts.episode("e0")
    assert await b.functions.alerts.note_notification("e0", "opened:1", "x" * 2_000)
