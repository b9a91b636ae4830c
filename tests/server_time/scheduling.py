"""Cases of the functions of job schedulers."""

from __future__ import annotations

from glidemq_async.client.scheduler_runner import FIRE_TIMES_A_CALL
from glidemq_async.functions.schedulers import Firing, SchedulerTemplate
from tests.server_time.bench import MIB, NIL, Bench, largest


def template(data: bytes = NIL, spec: bytes = b"spec") -> SchedulerTemplate:
    """Return a job and a schedule as an upsert stores them."""
    return SchedulerTemplate(spec, None, False, "n", data, b"", b"", "default")


async def schedulers(b: Bench, count: int, data: bytes = NIL, at: int | None = None) -> list[str]:
    """Store this many schedulers with fire times in the past."""
    ids = [f"scheduler{n}" for n in range(count)]
    for n, scheduler_id in enumerate(ids):
        await b.functions.schedulers.upsert("p", scheduler_id, None, template(data), 1_000 + n if at is None else at)
    return ids


@largest("upsertScheduler")
async def upsert(b: Bench) -> None:
    await schedulers(b, 10, b"x" * MIB)


@largest("removeScheduler")
async def remove(b: Bench) -> None:
    for scheduler_id in await schedulers(b, 5, b"x" * MIB):
        await b.functions.schedulers.remove(scheduler_id)


@largest("pauseScheduler")
async def pause(b: Bench) -> None:
    (scheduler_id,) = await schedulers(b, 1, b"x" * MIB)
    assert await b.functions.schedulers.pause(scheduler_id)


@largest("resumeScheduler")
async def resume(b: Bench) -> None:
    (scheduler_id,) = await schedulers(b, 1, b"x" * MIB)
    await b.functions.schedulers.pause(scheduler_id)
    _, (found,) = await b.functions.scheduler_list.get([scheduler_id])
    assert found is not None
    assert await b.functions.schedulers.resume("p", found, 5_000)


@largest("triggerScheduler")
async def trigger(b: Bench) -> None:
    (scheduler_id,) = await schedulers(b, 1, b"x" * MIB)
    await b.crowd()
    assert await b.functions.schedulers.trigger(scheduler_id, "default")


@largest("takeSchedules")
async def take(b: Bench) -> None:
    for n in range(100):
        await b.functions.schedulers.upsert("p", f"s{n}", None, template(spec=b"x" * 1_000), 1_000 + n)
    await b.fill("ZADD", "schedules", [word for n in range(b.many) for word in (5_000 + n, f"later{n}")])
    reply = await b.functions.schedulers.take("p")
    assert len(reply.due) == 100
    await b.functions.schedulers.take("p", (reply.due[-1].fire_time, reply.due[-1].id))
    await b.functions.schedulers.take("q", None, 77)


@largest("leaveSchedules")
async def leave(b: Bench) -> None:
    await schedulers(b, 5)
    await b.functions.schedulers.leave("p")


@largest("listSchedulers")
async def list_all(b: Bench) -> None:
    await b.fill("ZADD", "schedules", [word for n in range(b.many) for word in (5_000, f"later{n}")])
    assert (await b.functions.scheduler_list.list_ids("0"))[1]


@largest("getSchedulers")
async def get(b: Bench) -> None:
    await b.functions.scheduler_list.get(await schedulers(b, 20, b"x" * MIB))


async def fire(b: Bench, fire_times: int) -> None:
    """Fire every due scheduler."""
    for _ in range(100):
        due = (await b.functions.schedulers.take("p")).due
        if not due:
            return
        firings = [Firing(one, tuple(one.fire_time + n for n in range(fire_times)), 0, None) for one in due]
        await b.functions.schedulers.fire(firings[: FIRE_TIMES_A_CALL // fire_times], "default")


@largest("fireSchedulers", "many")
async def fire_many(b: Bench) -> None:
    await schedulers(b, 200)
    await b.crowd()
    await fire(b, 1)


@largest("fireSchedulers", "many fire times")
async def fire_slots(b: Bench) -> None:
    await schedulers(b, 4)
    await b.crowd()
    await fire(b, FIRE_TIMES_A_CALL)


@largest("fireSchedulers", "large")
async def fire_large(b: Bench) -> None:
    await schedulers(b, 20, b"x" * MIB)
    await b.crowd()
    await fire(b, 1)
