"""How jobs that are added together are divided into calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from glidemq_async.errors import IncompatibleQueueError, QueueFull
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.grouped_adds import AddReply
from glidemq_async.queues.add_buffer import MAX_BYTES, MAX_JOBS, Adder, split_into_calls
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
    sender = adder._sender  # pyright: ignore[reportPrivateUsage]
    assert sender is not None
    sender.cancel()
    errors = (await future).errors
    assert [type(error) for error in errors.values()] == [asyncio.CancelledError] * 2


async def test_the_names_that_a_queue_remembers_are_bounded(queue: AnyQueue) -> None:
    await queue.add_bulk([(f"n{number}", None) for number in range(MAX_CHECKED_NAMES + 10)])
    assert len(queue._checked_names) == 10  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ValueError, match="job name must not be empty"):
        await queue.add("")


async def test_a_job_name_must_be_a_str(queue: AnyQueue) -> None:
    with pytest.raises(TypeError, match="job name must be a str"):
        await queue.add(["n"])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
