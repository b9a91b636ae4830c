"""Jobs are found with filters, and every term means what docs/finding.md says."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import Filter, FilterError, Queue
from glidemq_async.payloads.codecs import Encryption, generate_key
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of
from tests.support.random_filters import add_facts, random_facts, random_filter
from tests.support.stores import RunningStore

ORDERS = 60


async def found(queue: AnyQueue, text: str, **options: Any) -> set[str]:
    """Return the ids of the jobs that a filter selects."""
    ids = [job.id for job in await queue.find(text, **options)]
    assert len(ids) == len(set(ids))
    assert {job.id async for job in queue.iter_find(Filter(text))} >= set(ids)
    return set(ids)


async def failing(job: AnyJob) -> Any:
    if "bad" in job.name:
        raise ValueError("no such Image")
    return {"size": job.data["n"]}


@pytest.mark.everywhere
async def test_every_field(queue: AnyQueue) -> None:
    async with worker_of(queue, failing):
        for number, name in enumerate(("resize", "resize bad")):
            await ended(await queue.add(name, {"n": number, "to": {"name": "ada", "tags": ["x", 7]}}, job_id=name))
    await queue.add("send", {"n": 3, "to": None, "ok": True}, job_id="keyed", key="tenant-7")
    await queue.add("send", "text", job_id="later", delay=3_600)
    await queue.add("send", {"n": "3", "a.b": {"c": 1}}, job_id="urgent", priority=2)
    expected = {
        "": {"resize", "resize bad", "keyed", "later", "urgent"},
        "state:failed": {"resize bad"},
        "state:failed,delayed": {"resize bad", "later"},
        "-state:failed,delayed": {"resize", "keyed", "urgent"},
        "state:failed -state:failed": set[str](),
        "name:resize": {"resize"},
        "name:resize*": {"resize", "resize bad"},
        'name:"resize*"': set[str](),
        "id:keyed,later": {"keyed", "later"},
        "id:keyed": {"keyed"},
        "id:keyed state:failed": set[str](),
        "id:unknown": set[str](),
        "key:tenant-*": {"keyed"},
        "-key:*": {"resize", "resize bad", "later", "urgent"},
        'error:"NO SUCH"': {"resize bad"},
        "cause:retries_exhausted": {"resize bad"},
        "attempts:>=1": {"resize", "resize bad"},
        "attempts:0": {"keyed", "later", "urgent"},
        "stalls:>0": set[str](),
        "priority:>0": {"urgent"},
        "added:<1m": {"resize", "resize bad", "keyed", "later", "urgent"},
        "added:>1m": set[str](),
        "ended:<1m": {"resize", "resize bad"},
        "started:<1m -state:completed": {"resize bad"},
        "due:>59m due:<1h1m": {"later"},
        "data.n:3": {"keyed", "urgent"},
        'data.n:"3"': {"urgent"},
        "data.n:>=1": {"resize bad", "keyed"},
        "data.to:null": {"keyed"},
        "data.ok:true": {"keyed"},
        "data.to.name:a*": {"resize", "resize bad"},
        "data.to.tags:7": {"resize", "resize bad"},
        "data.to.tags.0:x": {"resize", "resize bad"},
        'data."a.b".c:1': {"urgent"},
        "data:text": {"later"},
        "data.missing:*": set[str](),
        "-data.n:*,0,1,3": {"later"},
        "result.size:0": {"resize"},
        "image": {"resize bad"},
        "tenant -later": {"keyed"},
        f"queue:{queue.name} state:delayed": {"later"},
        "queue:other": set[str](),
    }
    assert {text: await found(queue, text) for text in expected} == expected


async def test_the_limit_the_order_and_the_direction(queue: AnyQueue) -> None:
    for number in range(700):
        await queue.add("n" if number % 2 else "m", number)
    assert [job.data for job in await queue.find("name:n", 3)] == [1, 3, 5]
    assert [job.data for job in await queue.find("name:n", 2, newest_first=True)] == [699, 697]
    assert [job.data for job in await queue.find("data:>600 name:m", 2)] == [602, 604]
    assert await queue.find("", 0) == []
    with pytest.raises(ValueError, match="limit"):
        await queue.find("", -1)
    with pytest.raises(FilterError):
        await queue.find("nothing:x")


async def test_ages_are_measured_by_the_servers_clock(timed: Timed) -> None:
    queue = timed.queue
    await queue.add("n", job_id="old")
    await timed.clock.advance(2 * 3_600_000)
    await queue.add("n", job_id="new")
    assert await found(queue, "added:>1h") == {"old"}
    assert await found(queue, "added:<1h") == {"new"}
    [newest] = await queue.find("id:new")
    assert newest.created_at is not None
    between = (newest.created_at - timedelta(hours=1)).isoformat()
    assert await found(queue, f"added:<{between}") == {"old"}
    today = newest.created_at.date()
    assert "new" in await found(queue, f"added:{today}")
    assert await found(queue, f"added:>{today}") == set()
    assert "new" in await found(queue, f"added:<={today}")
    assert "new" in await found(queue, f"added:>={today}")


async def test_sealed_payloads_match_no_term_about_them(store: RunningStore, name: str) -> None:
    codec = Encryption({"k": generate_key()})
    async with Queue[Any, Any](name, store.url, codecs=[codec]) as writer, Queue[Any, Any](name, store.url) as reader:
        await writer.add("n", {"n": 1}, job_id="sealed")
        assert await found(writer, "data.n:1") == {"sealed"}
        assert await found(reader, "data.n:1") == set()
        assert await found(reader, "-data.n:1") == {"sealed"}
        assert await found(reader, "name:n") == {"sealed"}


@pytest.mark.parametrize("seed", range(2))
async def test_random_filters_select_what_a_plain_comparison_selects(queue: AnyQueue, seed: int) -> None:
    draw = random.Random(seed)
    facts = {f"{number}": random_facts(draw) for number in range(ORDERS)}
    await add_facts(queue, facts)
    for _ in range(100):
        text, test = random_filter(draw)
        wanted = {job_id for job_id, fact in facts.items() if test(fact)}
        assert await found(queue, text, limit=ORDERS) == wanted, text
