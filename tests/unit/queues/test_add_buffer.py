"""How jobs that are added together are divided into calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from glidemq_async import JobOptions
from glidemq_async.errors import IncompatibleQueueError, QueueFull
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.grouped_adds import AddReply
from glidemq_async.queues.add_buffer import MAX_BYTES, MAX_JOBS, MIN_SHARED, Added, Adder, split_into_calls
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.queue import MAX_CHECKED_NAMES
from tests.support.helpers import AnyQueue


def request(size: int, name: str = "n") -> AddRequest:
    return AddRequest("", name, b"x" * size, b"", b"")


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1], [1]),
        ([1] * MAX_JOBS, [MAX_JOBS]),
        ([1] * (2 * MAX_JOBS + 1), [MAX_JOBS, MAX_JOBS, 1]),
        ([2 * MAX_BYTES, 1, 1], [1, 2]),
        ([1, 2 * MAX_BYTES, 1], [1, 1, 1]),
        ([MAX_BYTES // 2, MAX_BYTES // 2, 1], [2, 1]),
    ],
)
def test_jobs_are_split_at_the_limits_of_a_call(sizes: Sequence[int], parts: Sequence[int]) -> None:
    jobs = [request(size) for size in sizes]
    found = list(split_into_calls(jobs))
    assert [len(part) for part in found] == parts
    assert [job for part in found for job in part] == jobs


class Calls:
    """The calls of an adder, in place of a server. A call adds at most `most` jobs. It is refused if one is named "bad"
    or, among those that it would add, "full".
    """

    def __init__(self, adder: Adder, monkeypatch: pytest.MonkeyPatch, most: int = MAX_JOBS) -> None:
        self.most = most
        self.names: list[list[str]] = []
        self.gate = asyncio.Event()
        monkeypatch.setattr(adder, "_call", self._call)

    async def _call(self, jobs: Sequence[AddRequest]) -> AddReply:
        names = [job.name for job in jobs]
        self.names.append(names)
        await self.gate.wait()
        if "bad" in names:
            raise IncompatibleQueueError("refused")
        names = names[: self.most]
        if "full" in names:
            raise QueueFull("refused")
        return AddReply(
            7, [f"id of {name}" for name in names], {names.index("old"): "duplicate"} if "old" in names else {}
        )


@pytest.fixture
async def adder(queue: AnyQueue) -> Adder:
    return Adder(queue._client, "default")  # pyright: ignore[reportPrivateUsage]


async def test_callers_share_a_call_and_get_the_replies_to_their_own_jobs(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch)
    futures = [adder.submit([request(1, "first")])]
    await asyncio.sleep(0)
    futures += [adder.submit([request(1, name) for name in names]) for names in (["a", "b"], ["c"], ["d", "old"])]
    calls.gate.set()
    replies = [await future for future in futures]
    assert calls.names == [["first"], ["a", "b", "c", "d", "old"]]
    assert [list(reply.ids) for reply in replies[1:]] == [["id of a", "id of b"], ["id of c"], ["id of d", "id of old"]]
    assert [dict(reply.outcomes) for reply in replies[1:]] == [{}, {}, {1: "duplicate"}]


def numbered(adder: Adder, count: int) -> list[asyncio.Future[Added]]:
    """Submit plain jobs of this many callers."""
    return [adder.submit([request(1, str(number))]) for number in range(count)]


async def turns(count: int = 5) -> None:
    """Let the senders make their calls."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_many_callers_share_two_calls_in_flight(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(adder, monkeypatch)
    futures = numbered(adder, 20)
    await turns()
    assert calls.names == [[str(n) for n in range(10)], [str(n) for n in range(10, 20)]]
    later = numbered(adder, 20)
    await turns()
    assert len(calls.names) == 2
    calls.gate.set()
    assert [(await future).ids for future in (*futures, *later)] == [[f"id of {n}"] for n in [*range(20), *range(20)]]


async def test_callers_that_return_use_the_call_that_has_ended(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(adder, monkeypatch)
    first = calls.gate
    futures = numbered(adder, 20)
    await asyncio.sleep(0)
    calls.gate = asyncio.Event()  # of the second call and the later ones
    await turns()
    first.set()
    await asyncio.wait(futures[:10])
    numbered(adder, 7)
    await turns()
    assert [len(names) for names in calls.names] == [10, 10, 7]
    assert not futures[10].done()
    calls.gate.set()
    await adder.close()


async def test_few_callers_share_one_call(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(adder, monkeypatch)
    futures = numbered(adder, 2 * MIN_SHARED - 1)
    await turns()
    futures += numbered(adder, 2 * MIN_SHARED - 1)
    await turns(1)
    calls.gate.set()
    await asyncio.wait(futures)
    assert len(calls.names[0]) == 2 * MIN_SHARED - 1


@pytest.mark.parametrize(
    "part",
    [
        [request(1, "x"), request(1, "y")],
        [AddRequest("own", "x", b"", b"", b"")],
        [AddRequest("", "x", b"", b"", b"k1")],
    ],
    ids=["of one caller", "with an id", "with an ordering key"],
)
async def test_jobs_that_have_an_order_are_never_sent_beside_a_call(
    adder: Adder, monkeypatch: pytest.MonkeyPatch, part: list[AddRequest]
) -> None:
    calls = Calls(adder, monkeypatch)
    futures = [*numbered(adder, 20), adder.submit(part)]
    await turns()
    futures += numbered(adder, 20)
    await turns()
    assert [len(names) for names in calls.names] == [11, 9]
    calls.gate.set()
    await asyncio.wait(futures)
    assert calls.names[2][: len(part)] == [job.name for job in part]


@pytest.mark.parametrize(
    "bulk",
    [
        [*(("bulk", number) for number in range(20)), ("bulk", 20, JobOptions(durability="fsync"))],
        [("bulk", "x" * 20), ("bulk", "x" * (MAX_BYTES - 10))],
    ],
    ids=["of two durabilities", "with a large job"],
)
async def test_the_jobs_of_a_bulk_never_share_two_calls(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, bulk: list[JobInput[Any]]
) -> None:
    in_flight: list[Adder] = []
    parts = 0

    async def answer(adder: Adder, jobs: Sequence[AddRequest]) -> AddReply:
        nonlocal parts
        is_part = any(job.name == "bulk" for job in jobs)
        assert not (is_part and adder in in_flight)
        in_flight.extend([adder] * is_part)
        parts += is_part
        await turns(20 if is_part else 1)
        if is_part:
            in_flight.remove(adder)
        return AddReply(7, [str(at) for at in range(len(jobs))], {})

    await queue.connect()
    monkeypatch.setattr(Adder, "_answer", answer)
    adding = [queue.add("single", number) for number in range(20)]
    await asyncio.gather(*adding, queue.add_bulk(bulk))
    assert parts == 2


@pytest.mark.parametrize("plain", [0, 3], ids=["alone", "after plain jobs"])
async def test_jobs_that_have_an_order_wait_for_one_call_only(
    adder: Adder, monkeypatch: pytest.MonkeyPatch, plain: int
) -> None:
    calls = Calls(adder, monkeypatch)
    futures = [adder.submit([request(1, "first")])]
    await turns()
    futures += numbered(adder, plain)
    futures += [adder.submit([AddRequest("", "x", b"", b"", b"k1")]) for _ in range(40)]
    calls.gate.set()
    await asyncio.wait(futures)
    assert [len(names) for names in calls.names] == [1, plain + 40]


async def test_no_call_is_sent_beside_one_with_jobs_that_have_an_order(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch)
    futures = [adder.submit([request(1, str(number)) for number in range(20)]), *numbered(adder, 20)]
    await turns()
    assert len(calls.names) == 1
    calls.gate.set()
    await asyncio.wait(futures)


async def test_jobs_wait_for_the_direct_call_of_a_single_caller(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(adder, monkeypatch)
    monkeypatch.setattr(adder, "_answer", calls._call)  # pyright: ignore[reportPrivateUsage]
    calls.gate.set()
    await asyncio.wait(numbered(adder, 20))
    await adder.submit([request(1, "alone")])  # no other caller is left
    await turns()
    calls.gate = asyncio.Event()
    direct = asyncio.ensure_future(adder.add(request(1, "direct")))
    await turns()
    sent = len(calls.names)
    assert calls.names[-1] == ["direct"]
    futures = numbered(adder, 20)
    await turns()
    assert len(calls.names) == sent
    calls.gate.set()
    await direct
    await asyncio.wait(futures)


async def test_close_waits_for_both_calls(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(adder, monkeypatch)
    first = calls.gate
    futures = numbered(adder, 20)
    await asyncio.sleep(0)
    calls.gate = asyncio.Event()
    await turns()
    closing = asyncio.ensure_future(adder.close())
    first.set()
    await asyncio.wait(futures[:10])
    await turns()
    assert not closing.done()
    calls.gate.set()
    await closing
    assert all(future.done() for future in futures)


async def test_a_cancelled_call_leaves_the_other_one_and_later_jobs_alone(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch)
    futures = numbered(adder, 20)
    await turns()
    later = adder.submit([request(1, "later")])
    next(iter(adder._senders)).cancel()  # pyright: ignore[reportPrivateUsage]
    await turns()
    calls.gate.set()
    await asyncio.wait([*futures, later])
    assert sorted([len(future.result().errors) for future in futures]) == [0] * 10 + [1] * 10
    assert not (await later).errors


@pytest.mark.parametrize("started", [0, 5], ids=["before the calls", "during the calls"])
async def test_no_sender_starts_after_all_tasks_were_cancelled(
    adder: Adder, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    Calls(adder, monkeypatch)
    tasks = [asyncio.ensure_future(adder.add(request(1, str(number)))) for number in range(600)]
    await turns(1 + started)
    senders = [*adder._senders]  # pyright: ignore[reportPrivateUsage]
    for task in [*tasks, *senders]:
        task.cancel()
    await asyncio.gather(*tasks, *senders, return_exceptions=True)
    assert not adder._senders  # pyright: ignore[reportPrivateUsage]
    await adder.close()


async def test_the_rest_of_a_call_that_ends_early_joins_the_next_call(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch, most=3)
    calls.gate.set()
    futures = [adder.submit([request(1, name) for name in names]) for names in (["a", "b"], ["c", "d", "old"], ["e"])]
    replies = [await future for future in futures]
    assert calls.names == [["a", "b", "c", "d", "old", "e"], ["d", "old", "e"]]
    assert [list(reply.ids) for reply in replies] == [
        ["id of a", "id of b"],
        ["id of c", "id of d", "id of old"],
        ["id of e"],
    ]
    assert [dict(reply.outcomes) for reply in replies] == [{}, {2: "duplicate"}, {}]
    assert not any(reply.errors for reply in replies)


async def test_two_calls_in_flight_grow_again_after_calls_that_ended_early(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch, most=3)
    for most in (3, MAX_JOBS):
        calls.most = most
        calls.names.clear()
        futures = numbered(adder, 400)
        while not all(future.done() for future in futures):
            await turns()
            replied, calls.gate = calls.gate, asyncio.Event()
            replied.set()
    assert max(len(names) for names in calls.names) > 100


async def test_the_error_of_a_later_call_belongs_to_its_jobs_only(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch, most=2)
    calls.gate.set()
    reply = await adder.submit([request(1, name) for name in ["a", "old", "b", "full", "c"]])
    assert calls.names == [["a", "old", "b", "full", "c"], ["b", "full"]]
    assert (list(reply.ids), dict(reply.outcomes)) == (["id of a", "id of old", "", "", ""], {1: "duplicate"})
    assert {at: type(error) for at, error in reply.errors.items()} == dict.fromkeys([2, 3, 4], QueueFull)


async def test_only_the_job_that_does_not_fit_the_mode_is_refused(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(adder, monkeypatch)
    calls.gate.set()
    futures = [adder.submit([request(1, name) for name in names]) for names in (["a", "bad", "old"], ["b"])]
    first, second = [await future for future in futures]
    assert (list(first.ids), list(first.errors), dict(first.outcomes)) == (
        ["id of a", "", "id of old"],
        [1],
        {2: "duplicate"},
    )
    assert (list(second.ids), dict(second.errors)) == (["id of b"], {})


async def test_a_cancelled_sender_leaves_no_caller_waiting(adder: Adder, monkeypatch: pytest.MonkeyPatch) -> None:
    Calls(adder, monkeypatch)
    future = adder.submit([request(1, "a"), request(1, "b")])
    await asyncio.sleep(0)
    [sender] = adder._senders  # pyright: ignore[reportPrivateUsage]
    sender.cancel()
    errors = (await future).errors
    assert [type(error) for error in errors.values()] == [asyncio.CancelledError] * 2


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("apart", [True, False])
async def test_an_add_of_another_loop_is_refused_before_it_is_sent(
    adder: Adder, monkeypatch: pytest.MonkeyPatch, apart: bool, at_once: bool
) -> None:
    calls = Calls(adder, monkeypatch)
    # The storage can be open in the other loop, and then it would send the call there.
    monkeypatch.setattr(adder, "_answer", adder._call)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(adder, "_sends_at_once", lambda: at_once)
    calls.gate.set()

    async def add_there() -> Added:
        return await (adder.add_apart(request(1), []) if apart else adder.add(request(1)))

    with pytest.raises(RuntimeError, match="was opened in another event loop"):
        await asyncio.to_thread(asyncio.run, add_there())
    assert calls.names == []
    assert adder.is_free
    assert (await adder.add_apart(request(1, "here"), [])).ids == ["id of here"]


async def test_the_names_that_a_queue_remembers_are_bounded(queue: AnyQueue) -> None:
    await queue.add_bulk([(f"n{number}", None) for number in range(MAX_CHECKED_NAMES + 10)])
    assert len(queue._checked_names) == 10  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ValueError, match="job name must not be empty"):
        await queue.add("")


async def test_a_job_name_must_be_a_str(queue: AnyQueue) -> None:
    with pytest.raises(TypeError, match="job name must be a str"):
        await queue.add(["n"])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
