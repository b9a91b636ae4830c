"""Cases of the functions that record, read and remove steps."""

from __future__ import annotations

from collections.abc import Sequence

from glidemq_async.client.run_writer import MAX_ITEMS
from glidemq_async.functions.lease import Held
from glidemq_async.functions.steps import StepGroup
from tests.server_time.bench import AT_ONCE, MIB, Bench, largest

STEP = b"x" * 200
REPLY = "workflow.reply\x1f=question"
LIMITS = (10_000, 16 * MIB)


async def record(b: Bench, groups: Sequence[StepGroup]) -> None:
    """Record steps in as many calls as the server needs."""
    b.functions.caller.consumer = "bench"
    while groups:
        statuses = await b.functions.steps.record(groups)
        assert {*statuses} == {"ok"}
        groups = groups[len(statuses) :]


async def step(b: Bench, held: Sequence[Held], names: Sequence[str] = ("a",), value: bytes = STEP) -> None:
    """Record these steps of each run."""
    at_once = MAX_ITEMS // len(names)
    steps = [(name, value) for name in names]
    for start in range(0, len(held), at_once):
        await record(b, [StepGroup(run.id, run.entry, *LIMITS, steps) for run in held[start : start + at_once]])


@largest("recordSteps")
async def record_steps(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await step(b, held)
    for start in range(0, 9_750, 250):
        await step(b, held[:1], [f"step {start + number}" for number in range(250)])


@largest("recordSteps", "large steps")
async def record_large_steps(b: Bench) -> None:
    await b.add(1)
    held = await b.claim(1)
    for number in range(15):
        await step(b, held, [str(number)], b"x" * MIB)


@largest("readSteps")
async def read_steps(b: Bench) -> None:
    await b.add(3)
    held = await b.claim(3)
    for start in range(0, 10_000, 250):
        await step(b, held[:1], [f"step {start + number}" for number in range(250)])
    for number in range(15):
        await step(b, held[1:2], [str(number)], b"x" * MIB)
    await step(b, held[2:], [f"small {number}" for number in range(250)], b"x")
    for run, count in zip(held, (10_000, 15, 250), strict=True):
        assert len((await b.functions.steps.read(run.id)).steps) == count


@largest("recordSteps", "replies")
async def record_replies(b: Bench) -> None:
    await b.add(1)
    held = await b.claim(1)
    await step(b, held, [f"workflow.reply\x1f={number}" for number in range(16)], b"x" * 65_536)
    await step(b, held, [f"workflow.reply\x1f={number}" for number in range(250)])


@largest("readReplies")
async def read_replies(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await step(b, held[:3], [REPLY], b"x" * MIB)
    await step(b, held[3:], [REPLY])
    for wanted in (held[:AT_ONCE], held[-AT_ONCE:]):
        at = 0
        while at < len(wanted):
            at += len(await b.functions.watching.read_replies([(run.id, REPLY) for run in wanted[at:]]))


@largest("checkJournals")
async def check_journals(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await step(b, held)
    for start in range(0, len(held), 200):
        assert not await b.functions.check_marks.journals([run.id for run in held[start : start + 200]])


@largest("settleAndClaim", "jobs with steps that complete")
async def complete_jobs_with_steps(b: Bench) -> None:
    await b.add(b.many)
    held = await b.claim(b.many)
    await step(b, held)
    await b.settle(held, "c", "-1 -1")


@largest("settleAndClaim", "large journals that are not kept")
async def forget_large_journals(b: Bench) -> None:
    await b.add(40)
    held = await b.claim(40)
    for number in range(3):
        await step(b, held, [str(number)], b"x" * (MIB // 2))
    await b.settle(held, "c", "-1 -1")


@largest("obliterateQueue", "journals")
async def remove_journals(b: Bench) -> None:
    await b.add(b.many)
    await step(b, await b.claim(b.many))
    cursor = "go"
    while cursor:
        names = ["meta2", "events", "idle", "stepped"]
        cursor = (await b.functions.obliterate.step("" if cursor == "go" else cursor, names, force=True)).cursor


async def fail_with_steps(b: Bench) -> str:
    """Let a job with a large journal fail among many. Return its id."""
    await b.add(1)
    held = await b.claim(1)
    for start in range(0, 9_750, 250):
        await step(b, held, [f"step {start + number}" for number in range(250)])
    await b.settle(held, "f", "")
    await b.crowd()
    return held[0].id


@largest("restartRun")
async def restart_run(b: Bench) -> None:
    assert await b.functions.mending.restart(await fail_with_steps(b)) == "ok"


@largest("acceptRun")
async def accept_run(b: Bench) -> None:
    assert await b.functions.mending.accept(await fail_with_steps(b), "accepted", STEP) == "ok"


@largest("restoreSteps")
async def restore_steps(b: Bench) -> None:
    await b.add(b.many, delay=60_000)
    for start in range(0, 9_750, 250):
        steps = [(f"step {start + number}", STEP) for number in range(250)]
        assert await b.functions.mending.restore("1", steps) == "ok"


@largest("restoreSteps", "large steps")
async def restore_large_steps(b: Bench) -> None:
    await b.add(1, delay=60_000)
    for start in range(15):
        assert await b.functions.mending.restore("1", [(f"step {start}", b"x" * MIB)]) == "ok"
