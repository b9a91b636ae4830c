"""A queue of layout 1 with jobs in every state, and its comparison with the migrated queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from glidemq_async import Deduplication, JobOptions
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Record
from glidemq_async.options.stored_options import ReplyTo, pack_extra
from glidemq_async.stored.record import created_ms
from tests.migration.old_queue import OldJob, OldLease, OldQueue
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.servers import eventually
from tests.support.stores import RunningStore

PAUSED_KEY = "asleep"
LONG_AGO_MS = 100_000_000
OUTCOMES_OF_STATES = ("completed", "failed")
_COMPARED = (
    b"name", b"data", b"opts", b"failures", b"stalls", b"ended", b"result", b"reason", b"error", b"cause", b"progress",
    b"dedup", b"route", b"after", b"revoked", b"drop",
)  # fmt: skip


@dataclass
class Built:
    """The jobs of a queue, by the way in which they wait. The order of each list is the order of their start."""

    returned: list[str] = field(default_factory=list)
    """Jobs that were released, or whose worker has died, in the order of their return."""
    fifo: list[str] = field(default_factory=list)
    lifo: list[str] = field(default_factory=list)
    prioritized: list[str] = field(default_factory=list)
    keyed: list[list[str]] = field(default_factory=list)
    unordered: list[str] = field(default_factory=list)
    """Delayed and blocked jobs, and runs of dead workers that return to another place."""
    revoked: list[str] = field(default_factory=list)
    """Running jobs that fail instead of starting again."""
    ended: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def startable(self) -> list[str]:
        """The jobs that will start."""
        lists = [self.returned, self.fifo, self.lifo, self.prioritized, *self.keyed, self.unordered]
        return [job_id for each in lists for job_id in each]

    @property
    def ids(self) -> list[str]:
        """All jobs."""
        return [*self.startable, *self.revoked, *self.ended]


def _jobs(count: int, **options: Any) -> list[OldJob]:
    packed = pack_extra(JobOptions(**options)) if options else b""
    return [OldJob(number, extra=packed) for number in range(count)]


async def build(old: OldQueue, n: int) -> Built:
    """Store n jobs or a few more, in every state."""
    unit, made = n // 100, Built()
    await old.functions.dead_letters.set_queue(f"{old.name}-dead")
    await _end_some(old, made, unit)
    await _run_some(old, made, unit)
    await _wait(old, made, unit)
    rest = n - len(made.ids)
    made.fifo += await old.add([OldJob(number, opts=b"\x81\xa1a\x03" if number % 3 else b"") for number in range(rest)])
    await old.functions.queue.set_paused(True)
    made.records = dict(zip(made.ids, await old.functions.reading.get_records(made.ids), strict=True))
    # The old library has no flows.
    made.counts = {**await old.functions.reading.count_jobs(), "waiting-children": 0, "suspended": 0}
    return made


async def _end_some(old: OldQueue, made: Built, unit: int) -> None:
    made.ended += await old.add(_jobs(20 * unit))
    leases = await old.claim("ended", 20 * unit)
    completed, kept, failed, retried, put_off = (
        leases[: 12 * unit], leases[12 * unit : 13 * unit], leases[13 * unit : 17 * unit],
        leases[17 * unit : 19 * unit], leases[19 * unit :],
    )  # fmt: skip
    await old.settle("ended", completed, payload=b"\xa4done", option="-1 -1")
    await old.settle("ended", kept, option=" t3600000")
    await old.settle("ended", failed, "f", payload=b"\x93\xa1E\xa0\xa0", option=";unrecoverable;why")
    await old.settle("ended", retried, "r", payload=b"\x93\xa1E\xa0\xa0", option="3600000 why")
    await old.settle("ended", put_off, "d", option="3600000")
    late = [lease.id for lease in (*retried, *put_off)]
    made.unordered += late
    made.ended = [job_id for job_id in made.ended if job_id not in set(late)]
    [cancelled] = await old.add([OldJob("cancelled")])
    await old.call("revokeJob", cancelled, "changed my mind")
    made.ended.append(cancelled)


async def _run_some(old: OldQueue, made: Built, unit: int) -> None:
    """Store runs of workers that died or stopped. The queue has no other startable job."""
    others = await _run_other_sources(old, made, unit)
    first = await old.add(_jobs(6 * unit + 1))
    stalled = await old.claim("stalled", unit)
    released = await old.claim("stopped", 2 * unit)
    dead = await old.claim("dead", 2 * unit)
    [revoked] = await old.claim("dead", 1)
    await old.age("stalled", stalled, LONG_AGO_MS)
    assert await old.sweep() == {lease.id for lease in stalled}
    await old.settle("stopped", released, "b")
    # Some of the returned jobs are claimed once more, by a worker that dies too.
    again = await old.claim("dead again", unit)
    assert [lease.id for lease in again] == first[:unit]
    for lease in dead[:unit]:
        await old.call("updateJob", lease.id, lease.token, "progress", b"\x05")
    await old.call("revokeJob", revoked.id, "no longer needed")
    await old.age("dead again", again, LONG_AGO_MS)
    await old.age("dead", [*dead, revoked, *others], LONG_AGO_MS)
    [entry] = cast("list[bytes]", await old.store.ask("ZRANGE", f"{old.base}:stopping", 0, -1))
    await old.store.ask("ZADD", f"{old.base}:stopping", "XX", 1, entry)
    made.returned, made.revoked, made.fifo = first[: 5 * unit], [revoked.id], first[5 * unit + 1 :]


async def _run_other_sources(old: OldQueue, made: Built, unit: int) -> list[OldLease]:
    """Store runs of jobs that did not wait in FIFO order. Return those whose worker has died."""
    lines = [await old.add(_jobs(3, key=f"key-{number}")) for number in range(unit)]
    keyed = await old.claim("dead", unit)
    assert {lease.token[0] for lease in keyed} == {"k"}
    made.keyed += lines
    await _stop_removed_run(old, made)
    last = JobOptions(deduplication=Deduplication("last", mode="keep_last"))
    made.unordered += await old.add(_jobs(unit, lifo=True))
    made.unordered += await old.add([OldJob("owner", extra=pack_extra(last))])
    others = await old.claim("dead", unit + 1)
    made.unordered += await old.add([OldJob("follower", extra=pack_extra(last))])
    made.unordered += await old.add(_jobs(unit, priority=1))
    others += await old.claim("dead", unit)
    assert {lease.token[0] for lease in others} == {"s", "l"}
    return [*keyed, *others]


async def _stop_removed_run(old: OldQueue, made: Built) -> None:
    """Remove a running job whose key has a limit. Another job of the key waits for the end of the run."""
    await old.functions.limits.set_key("stopping", concurrency="1")
    removed, waiting = await old.add(_jobs(2, key="stopping"))
    [lease] = [one for one in await old.claim("dead", 1) if one.id == removed]
    await old.call("removeJob", lease.id)
    made.unordered.append(waiting)


async def _wait(old: OldQueue, made: Built, unit: int) -> None:
    """Store jobs that wait in each of the structures."""
    await old.functions.limits.pause_key(PAUSED_KEY, 3_600_000)
    await old.functions.limits.set_key("limited", rate="100000 1000")
    made.unordered += await old.add(_jobs(5 * unit, delay=3600))
    made.lifo = (await old.add(_jobs(5 * unit, lifo=True)))[::-1]
    urgent = {priority: await old.add(_jobs(2 * unit, priority=priority)) for priority in (5, 1, 3)}
    made.prioritized = [job_id for priority in sorted(urgent) for job_id in urgent[priority]]
    made.keyed += [await old.add(_jobs(2 * unit, key=key)) for key in (PAUSED_KEY, "limited")]
    awaited = pack_extra(JobOptions(), ReplyTo("client"))
    once = pack_extra(JobOptions(deduplication=Deduplication("once", ttl=3600)))
    await old.add([OldJob("awaited", "own", extra=awaited), OldJob("once", "9000000000", extra=once)])
    made.fifo += ["own", "9000000000", *await old.add(_jobs(unit, ttl=3600))]


def _created(record: Record) -> int:
    """Return the creation time of a record of either layout."""
    place = record[b"place"].decode()
    entry = place.split(" ")[1]
    if b"added" in record:
        return int(record[b"added"])
    if entry[0] == "s":
        return int(entry[1:].partition("-")[0])
    return created_ms(None, entry, record.get(b"route"))


async def compare(queue: AnyQueue, made: Built) -> None:
    """Verify that the migrated queue has the same jobs in the same states."""
    assert await queue.check() == []
    assert await queue.is_paused()
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    assert await functions.reading.count_jobs() == made.counts
    found = dict(zip(made.ids, await functions.reading.get_records(made.ids), strict=True))
    for job_id, before in made.records.items():
        after = found[job_id]
        assert {name: after.get(name) for name in _COMPARED} == {name: before.get(name) for name in _COMPARED}, job_id
        assert after[b"place"].split()[0] == before[b"place"].split()[0], job_id
        assert after.get(b"claim", b"").split()[:3] == before.get(b"claim", b"").split()[:3], job_id
        assert _created(after) == _created(before), job_id
        assert created_ms(after.get(b"added"), after[b"place"].decode().split()[1], after.get(b"route")), job_id


async def run_all(queue: AnyQueue, store: RunningStore, made: Built, seconds: float) -> None:
    """Run every job with a worker, and verify that each starts once and in its order."""
    fake_worker = FakeWorker(queue, store)
    reclaimed = await fake_worker.sweep()
    assert len(set(reclaimed)) == len(reclaimed)
    started: list[str] = []
    expected, done = len(made.startable), asyncio.Event()

    async def note(job: AnyJob) -> None:
        started.append(job.id)
        if len(started) >= expected:
            done.set()

    await queue.pause_key(PAUSED_KEY, 0)
    await queue.promote_jobs()
    async with worker_of(queue, note, concurrency=100):
        await queue.resume()
        async with asyncio.timeout(seconds):
            await done.wait()
        await eventually(lambda: _is_idle(queue), "every run must end")
    twice = {job_id for job_id, count in Counter(started).items() if count > 1}
    assert not twice
    assert set(started) == set(made.startable)
    for line in (made.returned, made.fifo, made.lifo, made.prioritized, *made.keyed):
        members = set(line)
        assert [job_id for job_id in started if job_id in members] == line
    # Nothing that waits in FIFO order starts before a returned job.
    returned, fifo = set(made.returned), set(made.fifo)
    both = [job_id in fifo for job_id in started if job_id in fifo or job_id in returned]
    assert both == sorted(both)
    assert await queue.check() == []


async def _is_idle(queue: AnyQueue) -> bool:
    counts = await queue.get_job_counts()
    return not any(count for state, count in counts.items() if state not in OUTCOMES_OF_STATES)
