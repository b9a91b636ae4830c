"""The lines of ordering keys: texts of one hash, lists behind the long ones, and zsets behind long lists."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from glidemq_async import JobOptions, TokenBucket
from glidemq_async.functions.outcomes import Released
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue, echo, worker_of
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere
LONG = 60
"""More jobs than the text of a line holds. The others are in a list."""
LONGEST_LIST = 1_000
"""The length from which a list gets no more jobs at its end. The next ones are in a zset behind it."""
RS = b"\x1e"
NUMBERS_OF_A_CALL = 1_000
"""By how much the sequences of the jobs of two calls differ."""
NOT_THERE = "a compact job whose location is key-waiting c but it is not there"
NOT_READY = "0 jobs wait and 1 more may run, but the key is ready"


async def add_keyed(queue: AnyQueue, *keys: str) -> list[str]:
    """Add a job of each key with one call, and return the ids."""
    jobs = await queue.add_bulk([("n", number, JobOptions(key=key)) for number, key in enumerate(keys)])
    return [job.id for job in jobs]


async def remove(queue: AnyQueue, job_id: str) -> None:
    """Remove a waiting job."""
    job = await queue.get_job(job_id)
    assert job is not None
    await job.remove()


async def run_order(fake_worker: FakeWorker, slots: int = 10) -> list[str]:
    """Claim and complete all jobs. Return their ids in the order of the claims."""
    order: list[str] = []
    while leases := await fake_worker.claim(slots):
        order += [lease.id for lease in leases]
        await fake_worker.complete(*leases)
    return order


async def run_order_of(number: int, fake_worker: FakeWorker) -> list[str]:
    """Claim and complete this number of jobs one by one. Return their ids in the order of the claims."""
    order: list[str] = []
    for _ in range(number):
        [lease] = await fake_worker.claim()
        order.append(lease.id)
        await fake_worker.complete(lease)
    return order


async def make_old(store: RunningStore, base: str, *, reload: bool = True) -> None:
    """Give the lines the form of earlier builds: each line is a zset. With `reload`, a build has just been replaced."""
    texts = cast("list[bytes]", await store.ask("HGETALL", f"{base}:key_lines"))
    for key, text in zip(texts[::2], texts[1::2], strict=True):
        rest, later = f"{base}:keyq:{key.decode()}", f"{base}:keyz:{key.decode()}"
        items = text.lstrip(b"lmpqr").split(RS)
        if text.startswith((b"l", b"m")):
            items += cast("list[bytes]", await store.ask("LRANGE", rest, 0, -1))
            await store.ask("DEL", rest)
            if await store.ask("EXISTS", later):
                await store.ask("RENAME", later, rest)
        for item in items:
            priority, colon, member = item.partition(b":")
            pair = (priority, member) if colon else (b"0", item)
            await store.ask("ZADD", rest, *pair)
    await store.ask("DEL", f"{base}:key_lines")
    if reload:
        await store.ask("FUNCTION", "FLUSH")


@everywhere
async def test_a_line_that_is_longer_than_its_text_keeps_its_order(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["k"] * LONG)
    ids += await add_keyed(queue, *["k"] * 3)
    assert await store.ask("EXISTS", f"{fake_worker.base}:keyq:k") == 1
    assert await queue.check() == []
    for removed in (ids[1], ids[-1], ids[LONG // 2], ids[0]):
        await remove(queue, removed)
        ids.remove(removed)
        assert await queue.check() == []
    first = await fake_worker.claim(5)
    assert [lease.id for lease in first] == ids[:1]
    late = await queue.add("n", key="k", delay=60)
    await late.promote()
    assert await queue.check() == []
    await fake_worker.complete(*first)
    assert await run_order(fake_worker) == [*ids[1:], late.id]
    assert await store.ask("EXISTS", f"{fake_worker.base}:key_lines", f"{fake_worker.base}:keyq:k") == 0
    assert await queue.check() == []


async def kinds_behind(store: RunningStore, fake_worker: FakeWorker, key: str = "k") -> list[str]:
    """Return what is behind the text of the line of a key, in order."""
    kinds = [await store.ask("TYPE", f"{fake_worker.base}:{name}:{key}") for name in ("keyq", "keyz")]
    texts = [kind.decode() if isinstance(kind, bytes) else str(kind) for kind in kinds]
    return [text for text in texts if text != "none"]


@everywhere
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("limited", [False, True])
async def test_the_jobs_behind_a_long_list_are_in_a_zset(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, at_once: bool, limited: bool
) -> None:
    if limited:
        await queue.set_key_limits(None, concurrency=3)
    ids = await add_keyed(queue, *["k"] * LONG)
    assert await kinds_behind(store, fake_worker) == ["list"]
    for number in (LONGEST_LIST, LONG) if at_once else [260] * 6:
        ids += await add_keyed(queue, *["k"] * number)
        assert await queue.check() == []
    assert await kinds_behind(store, fake_worker) == ["list", "zset"]
    for removed in (ids[LONG], ids[-1], ids[-2], ids[LONGEST_LIST]):
        ids.remove(removed)
        await remove(queue, removed)
    assert await queue.check() == []
    assert await run_order(fake_worker, 2) == ids
    assert await kinds_behind(store, fake_worker) == []
    ids = await add_keyed(queue, *["k"] * LONG)
    assert await kinds_behind(store, fake_worker) == ["list"]
    assert await run_order(fake_worker, 2) == ids
    assert await queue.check() == []


@everywhere
async def test_the_lists_of_several_keys_become_long_in_one_call(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    keys = ["a", "b", "c"]
    ids = await add_keyed(queue, *keys * (LONGEST_LIST + LONG))
    ids += await add_keyed(queue, *keys)
    assert [await kinds_behind(store, fake_worker, key) for key in keys] == [["list", "zset"]] * 3
    assert await queue.check() == []
    order = await run_order(fake_worker)
    assert [sorted(order[at : at + 3]) for at in range(0, len(order), 3)] == [
        sorted(ids[at : at + 3]) for at in range(0, len(ids), 3)
    ]


@everywhere
@pytest.mark.parametrize("first", ["list", "zset"])
async def test_all_jobs_of_a_list_or_of_the_zset_behind_it_can_be_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, first: str
) -> None:
    ids = await add_keyed(queue, *["k"] * LONG)
    ids += [(await queue.add("n", key="k", priority=1)).id for _ in range(3)]
    assert await kinds_behind(store, fake_worker) == ["list", "zset"]
    texts = cast("bytes", await store.ask("HGET", f"{fake_worker.base}:key_lines", "k")).split(RS)
    in_list, in_zset = ids[len(texts) : LONG], ids[LONG:]
    for removed in in_list if first == "list" else in_zset:
        await remove(queue, removed)
        ids.remove(removed)
    assert await kinds_behind(store, fake_worker) == ["zset" if first == "list" else "list"]
    assert await queue.check() == []
    late = await add_keyed(queue, "k", "k")
    assert await queue.check() == []
    before = len(texts) if first == "list" else LONG
    assert await run_order(fake_worker) == [*ids[:before], *late, *ids[before:]]


@everywhere
@pytest.mark.parametrize("position", [0, 1, 7, 20, -2, -1])
async def test_a_job_returns_to_its_position_inside_of_a_list(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, position: int
) -> None:
    """A change of the priority and back lets a job return to its line."""
    ids = await add_keyed(queue, *["k"] * LONG)
    text = cast("bytes", await store.ask("HGET", f"{fake_worker.base}:key_lines", "k"))
    job_id = ids[len(text.split(RS)) :][position]
    job = await queue.get_job(job_id)
    assert job is not None
    await job.change_priority(3)
    assert await kinds_behind(store, fake_worker) == ["list", "zset"]
    assert await queue.check() == []
    await job.change_priority(0)
    assert await queue.check() == []
    assert await run_order(fake_worker) == ids


@everywhere
async def test_a_job_returns_to_its_position_behind_a_list(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    ids = await add_keyed(queue, *["k"] * (LONGEST_LIST + LONG))
    ids += await add_keyed(queue, *["k"] * LONG)
    job = await queue.get_job(ids[-2])
    assert job is not None
    await job.change_priority(3)
    await job.change_priority(0)
    assert await queue.check() == []
    assert await run_order(fake_worker, 1) == ids


@everywhere
@pytest.mark.parametrize("seed", range(4))
async def test_jobs_that_return_in_one_call_get_their_positions(
    queue: AnyQueue, fake_worker: FakeWorker, seed: int
) -> None:
    await queue.set_key_limits(None, concurrency=LONG)
    ids = await add_keyed(queue, *["k"] * LONG)
    leases = await fake_worker.claim(LONG)
    random.Random(seed).shuffle(leases)
    while leases:
        reply = await fake_worker.settle_all([(lease, Released()) for lease in leases])
        leases = leases[reply.settled :]
    assert await queue.check() == []
    assert await run_order(fake_worker) == ids


@everywhere
async def test_a_job_explains_its_position_behind_a_list(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    ids = await add_keyed(queue, *["k"] * LONG)
    urgent = await queue.add("n", key="k", priority=1)
    for position, job_id in ((LONG // 2, ids[LONG // 2]), (LONG, urgent.id)):
        gates = (await queue.explain(job_id)).gates
        assert [gate.count for gate in gates if gate.kind == "behind"] == [position]
    assert await run_order(fake_worker) == [*ids, urgent.id]


@everywhere
async def test_a_new_line_of_one_call_is_not_stored_in_one_text(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["k"] * LONG)
    text = cast("bytes", await store.ask("HGET", f"{fake_worker.base}:key_lines", "k"))
    assert len(text.split(RS)) < LONG / 10
    assert await run_order(fake_worker) == ids


@everywhere
@pytest.mark.parametrize("others", [0, 3])
async def test_a_job_with_a_priority_enters_a_line_with_a_list(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, others: int
) -> None:
    """The same call adds `others`, which have no priority and come before it."""
    ids = await add_keyed(queue, *["k"] * LONG)
    options = [*[JobOptions(key="k")] * others, JobOptions(key="k", priority=2), JobOptions(key="k")]
    last = [job.id for job in await queue.add_bulk([("n", None, each) for each in options])]
    assert await kinds_behind(store, fake_worker) == ["list", "zset"]
    assert await queue.check() == []
    assert await run_order(fake_worker) == [*ids, *last[:others], last[-1], last[others]]


@everywhere
async def test_a_job_that_returns_gets_its_old_position_in_a_line_with_a_list(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.set_key_limits(None, concurrency=LONG)
    ids = await add_keyed(queue, *["k"] * LONG)
    first = await fake_worker.claim(LONG // 2)
    assert await kinds_behind(store, fake_worker) == ["list"]
    for lease in reversed(first):
        await fake_worker.settle_as(lease, Released())
        assert await queue.check() == []
    assert await run_order(fake_worker) == ids


@everywhere
async def test_a_job_returns_to_its_position_before_a_list(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """The jobs that were after it in the text were removed."""
    await queue.set_key_limits(None, concurrency=2)
    first, second, *others = await add_keyed(queue, *["k"] * LONG)
    leases = await fake_worker.claim(2)
    await fake_worker.settle_as(leases[0], Released())
    for job_id in others[: LONG // 6]:
        await remove(queue, job_id)
    await fake_worker.settle_as(leases[1], Released())
    assert await queue.check() == []
    assert await run_order(fake_worker) == [first, second, *others[LONG // 6 :]]


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_a_list_stays_short_when_many_jobs_return_before_it(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, is_reversed: bool
) -> None:
    await queue.set_key_limits(None, concurrency=2 * LONGEST_LIST)
    ids = await add_keyed(queue, *["k"] * (LONGEST_LIST + 4 * LONG))
    leases: list[Lease] = []
    while len(leases) < len(ids):
        leases += await fake_worker.claim(len(ids) - len(leases))
    ids += await add_keyed(queue, *["k"] * LONG)
    if is_reversed:
        leases.reverse()
    while leases:
        reply = await fake_worker.settle_all([(lease, Released()) for lease in leases[:LONG]])
        del leases[: reply.settled]
    assert cast("int", await store.ask("LLEN", f"{fake_worker.base}:keyq:k")) <= LONGEST_LIST + LONG
    assert await queue.check() == []
    assert await run_order(fake_worker, LONGEST_LIST) == ids


@everywhere
async def test_a_promoted_job_waits_behind_all_jobs_of_a_long_line(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    expected = await add_keyed(queue, *["k"] * LONG)
    order: list[str] = []
    # The text of the line becomes shorter with each run, and full again when the next jobs move into it.
    for _ in range(LONG):
        order += await run_order_of(1, fake_worker)
        late = await queue.add("n", key="k", delay=60)
        await late.promote()
        expected.append(late.id)
    assert await queue.check() == []
    assert order + await run_order(fake_worker) == expected


@everywhere
async def test_all_jobs_of_a_long_line_can_be_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["k"] * LONG)
    for first in ids:
        await remove(queue, first)
    assert await store.ask("EXISTS", f"{fake_worker.base}:key_lines", f"{fake_worker.base}:keyq:k") == 0
    assert await queue.check() == []
    ids = await add_keyed(queue, "k", "k")
    assert await run_order(fake_worker) == ids


@everywhere
@pytest.mark.parametrize("priority", [0, 5])
async def test_jobs_can_be_removed_from_the_end_of_a_long_line(
    queue: AnyQueue, fake_worker: FakeWorker, priority: int
) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(key="k", priority=priority)) for number in range(LONG)])
    for last in jobs[:0:-1]:
        await last.remove()
    assert await queue.check() == []
    assert await run_order(fake_worker) == [jobs[0].id]


@everywhere
@pytest.mark.parametrize("before", ["x", "7:"])
async def test_ids_that_look_like_items_of_a_line_are_not_mistaken_for_them(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, before: str
) -> None:
    """The line stores each job as "<sequence><hint><id>"."""

    async def line() -> list[str]:
        text = cast("bytes", await store.ask("HGET", f"{fake_worker.base}:key_lines", "k"))
        return [item.decode() for item in text.split(RS)]

    await queue.add("n", key="k", job_id="1:a")
    [first] = await line()
    later_item = f"{int(first[:16]) + NUMBERS_OF_A_CALL + 1}{first[16]}later"
    ids = [f"{before}{later_item}", "later", "last"]
    await queue.add_bulk([("n", None, JobOptions(key="k", job_id=own)) for own in ids])
    assert later_item in await line()
    urgent = await queue.add("n", key="k", priority=2, job_id="2:b")
    assert await queue.check() == []
    await remove(queue, "later")
    assert await queue.check() == []
    await remove(queue, "last")
    assert await queue.check() == []
    assert await run_order(fake_worker) == ["1:a", ids[0], urgent.id]


@everywhere
async def test_a_call_adds_several_jobs_of_a_key(queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker) -> None:
    new = await add_keyed(queue, *["a", "b", "a", "c", "a", "c"] * 4)
    more = await add_keyed(queue, *["a", "d", "a", "d", "b"] * 4)
    ids: dict[str, list[str]] = {key: [] for key in "abcd"}
    for key, one in zip(["a", "b", "a", "c", "a", "c"] * 4 + ["a", "d", "a", "d", "b"] * 4, new + more, strict=True):
        ids[key].append(one)
    assert await queue.check() == []
    order = await run_order(fake_worker)
    assert {key: [one for one in order if one in line] for key, line in ids.items()} == ids
    assert await store.ask("EXISTS", f"{fake_worker.base}:key_lines") == 0


@everywhere
async def test_a_call_adds_two_jobs_of_one_key_and_one_job_of_each_other(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *"abcdefghijklmnopqrst", "a")
    assert await queue.check() == []
    order = await run_order(fake_worker)
    assert sorted(order) == sorted(ids)
    assert order.index(ids[0]) < order.index(ids[-1])


@everywhere
async def test_a_long_line_is_ordered_by_priority(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    jobs = [("n", n, JobOptions(key="k", priority=n * 7 % 5)) for n in range(LONG)]
    added = await queue.add_bulk(jobs)
    assert await queue.check() == []
    by_priority = sorted(range(LONG), key=lambda n: (n * 7 % 5, n))
    assert await run_order(fake_worker) == [added[n].id for n in by_priority]
    assert await queue.check() == []


@everywhere
async def test_a_job_overtakes_the_jobs_of_a_long_line_with_a_lower_priority(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    """Each of these jobs moves the last job of the text to the jobs behind the text."""
    jobs = [await queue.add("n", key="k", priority=LONG - number) for number in range(LONG // 3)]
    assert await store.ask("EXISTS", f"{fake_worker.base}:keyq:k") == 1
    assert await queue.check() == []
    order = await run_order(fake_worker, 1)
    assert order == [job.id for job in reversed(jobs)]


@everywhere
async def test_jobs_that_move_into_the_text_of_their_line_keep_their_priority(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(key="k", priority=5)) for number in range(LONG)])
    for job in jobs:
        urgent = await queue.add("n", key="k", priority=1)
        assert await run_order_of(2, fake_worker) == [urgent.id, job.id]
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("limited", [False, True])
async def test_lines_of_earlier_builds_are_found(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, limited: bool
) -> None:
    if limited:
        await queue.set_key_limits(None, concurrency=2)
    ids = await add_keyed(queue, *["a", "b"] * 40)
    urgent = await queue.add("n", key="a", priority=1)
    await make_old(store, fake_worker.base)
    assert await queue.check() == []
    await remove(queue, ids[0])
    assert await queue.check() == []
    ids += await add_keyed(queue, "a", "c", "a")
    assert await queue.check() == []
    order = await run_order(fake_worker, 3)
    of_a = [*ids[2:80:2], ids[80], ids[82]]
    assert [one for one in order if one in {*of_a, urgent.id}] == [*of_a, urgent.id]
    assert [one for one in order if one in ids[1:80:2]] == ids[1:80:2]
    assert await store.ask("EXISTS", f"{fake_worker.base}:keyq:a", f"{fake_worker.base}:key_lines") == 0
    assert await queue.check() == []
    await worker_of(queue, echo).run(until_empty=True)


@everywhere
async def test_a_call_adds_jobs_of_keys_with_and_without_a_line_of_an_earlier_build(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["a"] * 3)
    await make_old(store, fake_worker.base)
    ids += await add_keyed(queue, "b", "a", "c")
    assert await queue.check() == []
    order = await run_order(fake_worker)
    assert sorted(order) == sorted(ids)
    assert [one for one in order if one not in {ids[3], ids[5]}] == [*ids[:3], ids[4]]


@everywhere
@pytest.mark.parametrize("number", [3, LONG])
async def test_a_call_adds_two_jobs_of_a_key_with_a_line_of_an_earlier_build(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, number: int
) -> None:
    ids = await add_keyed(queue, *["k"] * number)
    await make_old(store, fake_worker.base)
    ids += await add_keyed(queue, "k", "k")
    assert await queue.check() == []
    assert await run_order(fake_worker) == ids


@everywhere
async def test_the_last_job_of_a_line_of_an_earlier_build_can_be_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["k"] * 20)
    await make_old(store, fake_worker.base)
    await remove(queue, ids[-1])
    assert await queue.check() == []
    assert await run_order(fake_worker) == ids[:-1]


@everywhere
async def test_the_end_of_a_run_starts_the_next_job_of_a_line_of_an_earlier_build(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, "a", "a", "b", "b", "c")
    leases = await fake_worker.claim(3)
    await make_old(store, fake_worker.base)
    await fake_worker.complete(*leases)
    assert await queue.check() == []
    assert sorted(await run_order(fake_worker)) == sorted([ids[1], ids[3]])


@everywhere
@pytest.mark.parametrize("options", [{"priority": 2}, {"delay": 60}], ids=["with a priority", "delayed"])
async def test_a_job_enters_a_line_of_an_earlier_build(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, options: dict[str, Any]
) -> None:
    ids = await add_keyed(queue, *["k"] * 3)
    await make_old(store, fake_worker.base)
    late = await queue.add("n", key="k", **options)
    if "delay" in options:
        await late.promote()
    assert await queue.check() == []
    assert await run_order(fake_worker) == [*ids, late.id]


@everywhere
@pytest.mark.parametrize("number", [5, LONG])
async def test_jobs_that_a_bucket_cannot_pay_for_stay_in_their_line(
    queue: AnyQueue, fake_worker: FakeWorker, number: int
) -> None:
    await queue.set_key_limits(None, concurrency=number, token_bucket=TokenBucket(2, 1))
    ids = await add_keyed(queue, *["k"] * number)
    leases = await fake_worker.claim(number)
    assert [lease.id for lease in leases] == ids[:2]
    assert await queue.check() == []
    assert [job.id for job in await queue.get_jobs("rate-limited")] == ids[2:3]
    await queue.set_key_limits(None, concurrency=number, token_bucket=None)
    assert [lease.id for lease in await fake_worker.claim(number)] == ids[2:]
    assert await queue.check() == []


@everywhere
@pytest.mark.parametrize("limited", [False, True])
async def test_a_claim_finds_a_line_without_a_text(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, limited: bool
) -> None:
    if limited:
        await queue.set_key_limits(None, concurrency=2)
    ids = await add_keyed(queue, "a", "b", "a")
    await make_old(store, fake_worker.base, reload=False)
    assert "I28" in {finding.invariant for finding in await queue.check()}
    assert sorted(await run_order(fake_worker)) == sorted(ids)
    assert await queue.check() == []


@pytest.mark.parametrize(
    ("command", "findings"),
    [
        (("HSET", "{base}:key_lines", "k", "r1000000000001000c1"), {"its line and keyq do not agree", NOT_THERE}),
        (
            ("HSET", "{base}:key_lines", "k", "1000000000001001c2\x1e1000000000001000c1"),
            {"its line is not in order", NOT_THERE},
        ),
        (
            ("HSET", "{base}:key_lines", "k", "r"),
            {"its line is empty", "its line and keyq do not agree", NOT_READY, NOT_THERE},
        ),
        (("HSET", "{base}:key_lines", "k", "1:1000000000001000c1"), {"its line hides a priority", NOT_THERE}),
        (("HDEL", "{base}:key_lines", "k"), {NOT_THERE}),
        (
            ("HSET", "{base}:key_lines", "other", "1000000000001000c1"),
            {
                "in a line of key other but not a job of it",
                "1 jobs wait and 1 more may run, but the key is neither ready nor sleeping",
            },
        ),
        (("ZADD", "{base}:keyq:k", "0", "0000000000000000c1"), {"its line and keyq do not agree"}),
        (("ZADD", "{base}:keyz:k", "0", "0000000000000000c1"), {"its line and keyq do not agree"}),
    ],
)
async def test_a_check_finds_damaged_lines(
    queue: AnyQueue, store: RunningStore, command: tuple[str, ...], findings: set[str]
) -> None:
    await add_keyed(queue, "k", "k", "k")
    assert await queue.check() == []
    await store.ask(*(word.format(base=f"glide:{{{queue.name}}}") for word in command))
    assert {finding.message for finding in await queue.check()} == findings
    await queue.obliterate(force=True)


@pytest.mark.parametrize("first", [True, False])
async def test_a_check_finds_a_foreign_job_behind_a_list(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, first: bool
) -> None:
    """It is the first one of the zset, and so not after the list, or the last one."""
    await add_keyed(queue, *["k"] * LONG)
    await queue.add("n", key="k", priority=1)
    await queue.add("n", key="other")
    text = cast("bytes", await store.ask("HGET", f"{fake_worker.base}:key_lines", "other"))
    member = b"0" * 16 + text[16:] if first else text
    await store.ask("ZADD", f"{fake_worker.base}:keyz:k", "0" if first else "2", member)
    messages = {finding.message for finding in await queue.check()}
    assert "in a line of key k but not a job of it" in messages
    assert ("its list is not in order" in messages) is first
    await queue.obliterate(force=True)


async def test_a_check_reads_the_whole_line_behind_a_long_list(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add_keyed(queue, *["k"] * (LONGEST_LIST + LONG))
    ids += await add_keyed(queue, *["k"] * 2 * LONGEST_LIST)
    assert await queue.check() == []
    assert await queue.get_job(ids[-1])
    await store.ask("HDEL", f"{fake_worker.base}:compact", ids[-1])
    assert {finding.subject for finding in await queue.check()} >= {ids[-1]}
    await queue.obliterate(force=True)
