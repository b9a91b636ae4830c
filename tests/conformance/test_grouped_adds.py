"""Jobs with generated ids that need no record are sent to the server in groups of equal jobs."""

from __future__ import annotations

from typing import Any, Literal

import msgpack
import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, Caller
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from tests.support.helpers import AnyJob, AnyQueue, counts, history, worker_of

KINDS: tuple[dict[str, Any], ...] = (
    {}, {}, {"lifo": True}, {"lifo": True}, {"priority": 3}, {"priority": 3}, {"priority": 70_000}, {"key": "a"},
    {"key": "b"}, {"key": "a"}, {"attempts": 3}, {"attempts": 3, "lifo": True}, {"attempts": 3, "priority": 3},
    {"attempts": 3, "key": "a"}, {"lock_duration": 90, "key": "é"},
)  # fmt: skip
"""Options of jobs. Neighbours differ and repeat, so that groups have one job and more."""

LIFO = msgpack.packb({"lifo": True})


def caller_of(queue: AnyQueue) -> Caller:
    return Functions(queue.storage, f"glide:{{{queue.name}}}").caller


@pytest.mark.everywhere
async def test_jobs_of_all_kinds_keep_their_order_and_their_options(queue: AnyQueue) -> None:
    given = [(f"n{number // 4}", number, JobOptions(**KINDS[number % len(KINDS)])) for number in range(200)]
    jobs = await queue.add_bulk(given)
    first = int(jobs[0].id)
    assert [job.id for job in jobs] == [str(first + number) for number in range(200)]
    for (name, data, options), job in zip(given, jobs, strict=True):
        found = await queue.get_job(job.id)
        assert found is not None
        assert (found.name, found.data, found.options) == (name, data, options)
    added = [event for event in await history(queue) if event.kind == "added"]
    assert [(event.job_id, event.name, event.key) for event in added] == [
        (job.id, name, options.key) for job, (name, _, options) in zip(jobs, given, strict=True)
    ]
    assert await queue.check() == []
    await worker_of(queue, _nothing).run(until_empty=True)
    assert await counts(queue) == {"completed": 200}


async def _nothing(_: AnyJob) -> None:
    pass


async def test_jobs_start_in_the_order_of_their_kind(queue: AnyQueue) -> None:
    """A step of a call has 64 jobs, and jobs of one key in a step enter its line together."""
    options: list[dict[str, Any]] = [{"lifo": True}, {"priority": 2}, {"priority": 1}, {"key": "a"}, {"key": "b"}, {}]
    await queue.add_bulk([(f"{number % 6}", number, JobOptions(**options[number % 6])) for number in range(600)])
    started: dict[str, list[int]] = {}

    async def note(job: AnyJob) -> None:
        started.setdefault(job.name, []).append(job.data)

    await worker_of(queue, note, concurrency=1).run(until_empty=True)
    for kind in range(6):
        expected = list(range(kind, 600, 6))
        assert started[str(kind)] == (expected[::-1] if kind == 0 else expected)


async def test_generated_ids_leave_out_the_ids_that_users_chose(queue: AnyQueue) -> None:
    [first] = await queue.add_bulk([("n", 0, JobOptions(lifo=True))])
    taken = [str(int(first.id) + skip) for skip in (1, 3, 4)]
    await queue.add_bulk([("n", 0, JobOptions(job_id=id_, delay=60)) for id_ in taken])
    jobs = await queue.add_bulk([("n", number, JobOptions(priority=3)) for number in range(100)])
    ids = {job.id for job in jobs}
    assert len(ids) == 100
    assert ids.isdisjoint([first.id, *taken])
    assert [job.data for job in [await queue.get_job(job.id) for job in jobs] if job] == list(range(100))
    assert await queue.check() == []


@pytest.mark.parametrize(("mode", "refusal"), [("global", "job 4 .* has a key"), ("keyed", "job 1 .* has no key")])
async def test_a_call_that_does_not_fit_the_mode_adds_nothing(
    storage: Storage, name: str, mode: Literal["global", "keyed"], refusal: str
) -> None:
    async with Queue[Any, Any](name, storage, mode=mode) as queue:
        groups: list[Arg] = [
            "n",
            b"",
            b"",
            1,
            b"\xc0",
            "n",
            b"",
            LIFO,
            2,
            b"\xc0",
            b"\xc0",
            "n",
            b"",
            b"k",
            1,
            "a",
            b"\xc0",
        ]
        with pytest.raises(FunctionError, match=refusal) as caught:
            await caller_of(queue).once("addGroups", ["*", *groups])
        assert caught.value.code == "INCOMPATIBLE"
        assert await counts(queue) == {}


@pytest.mark.parametrize(
    "groups",
    [
        [],
        ["n", b"", b"", 0],
        ["n", b"", b"", 2, b"\xc0"],
        ["n", b"", b"", 1, b"\xc0", "n"],
        ["n", b"", b"k", 1, b"\xc0"],
        ["n", b"", msgpack.packb({"delay": 1}), 1, b"\xc0"],
        ["n", b"", msgpack.packb({"priority": 0}), 1, b"\xc0"],
        ["n", b"", msgpack.packb({"lifo": True, "ttl": 1}), 1, b"\xc0"],
        ["n", b"", b"p", 1, b"0", b"\xc0"],
        ["n", b"", b"p", 1, b"high", b"\xc0"],
        ["n", b"", b"p", 2, b"1", b"\xc0", b"1.5", b"\xc0"],
        ["n", b"", b"p", 2, b"1", b"\xc0", b"2"],
        ["n", b"", msgpack.packb({"key": "a"}), 1, b"\xc0"],
        ["n", b"", msgpack.packb({"priority": 1, "key": "a"}), 1, b"\xc0"],
        ["n", b"", b"", 1, b"\xc0", "n", b"", msgpack.packb({"dedup": {"id": "d"}}), 1, b"\xc0"],
    ],
)
async def test_a_call_with_another_form_adds_nothing(queue: AnyQueue, groups: list[Arg]) -> None:
    await queue.connect()
    with pytest.raises(FunctionError) as caught:
        await caller_of(queue).once("addGroups", ["*", *groups])
    assert caught.value.code == "ARGUMENT"
    assert await counts(queue) == {}
    assert await history(queue) == []
