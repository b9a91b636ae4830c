"""Failed runs: further attempts and the delay between them, and how a handler decides the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from glidemq_async import Backoff, ExecutorError, JobFailed, RateLimited, RetryLater, UnrecoverableError, Worker
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, history, job_events, worker_of

Strategy: TypeAlias = Callable[[int, BaseException], Any]


class Flaky:
    """A handler that fails this many times first."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: ValueError("boom")) -> None:
        self.left = failures
        self.error = error
        self.attempts_seen: list[int] = []

    async def __call__(self, job: AnyJob) -> str:
        self.attempts_seen.append(job.attempts_made)
        if self.left:
            self.left -= 1
            raise self.error()
        return "done"


async def waits(queue: AnyQueue, job: AnyJob) -> list[int]:
    """Return the delays before each retry of a job, in milliseconds."""
    return [int(detail.split()[0]) for kind, detail in await job_events(queue, job.id) if kind == "retrying"]


@pytest.mark.everywhere
async def test_another_attempt_can_succeed(queue: AnyQueue) -> None:
    handler = Flaky(2)
    async with worker_of(queue, handler):
        job = await queue.add("n", attempts=3)
        assert await job.result(10) == "done"
    await job.refresh()
    assert (job.state, job.attempts_made, job.failed_reason) == ("completed", 3, None)
    assert handler.attempts_seen == [0, 1, 2]


@pytest.mark.everywhere
async def test_the_last_attempt_is_final(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(9)):
        job = await queue.add("n", attempts=2, backoff=0.02)
        with pytest.raises(JobFailed, match="boom"):
            await job.result(10)
    await job.refresh()
    assert (job.state, job.attempts_made, job.failed_reason) == ("failed", 2, "ValueError: boom")
    assert job.stacktrace is not None
    assert "raise self.error()" in job.stacktrace
    assert job.finished_at is not None
    assert [kind for kind, _ in await job_events(queue, job.id)] == [
        "added", "active", "retrying", "waiting", "active", "failed",
    ]  # fmt: skip


async def test_one_attempt_is_the_default(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(1)):
        job = await ended(await queue.add("n"))
    assert (job.state, job.attempts_made) == ("failed", 1)


async def test_a_very_long_backoff_is_not_retried_immediately(queue: AnyQueue) -> None:
    strategies: dict[str, Strategy] = {"never": lambda made, error: 1e18}
    async with worker_of(queue, Flaky(9), backoff_strategies=strategies) as worker:
        retrying = Heard(worker, "retrying")
        job = await queue.add("n", attempts=5, backoff=Backoff.custom("never"))
        await retrying.next()
        assert await job.get_state() == "delayed"
    await job.refresh()
    assert (job.state, job.attempts_made) == ("delayed", 1)
    assert await queue.check() == []
    await job.remove()


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (None, [0, 0, 0]),
        (0.01, [10, 10, 10]),
        (Backoff.fixed(0.01), [10, 10, 10]),
        (Backoff.exponential(0.01), [10, 20, 40]),
        (Backoff.exponential(0.01, factor=3), [10, 30, 90]),
        (Backoff.exponential(0.01, max=0.015), [10, 15, 15]),
        (Backoff.custom("odd"), [1, 3, 5]),
    ],
    ids=["none", "number", "fixed", "exponential", "factor", "max", "custom"],
)
async def test_the_delay_between_attempts_follows_the_backoff(
    queue: AnyQueue, backoff: Backoff | float | None, expected: list[int]
) -> None:
    strategies: dict[str, Strategy] = {"odd": lambda made, error: (2 * made - 1) / 1000}
    async with worker_of(queue, Flaky(3), backoff_strategies=strategies):
        job = await queue.add("n", attempts=4, backoff=backoff)
        assert await job.result(10) == "done"
    assert await waits(queue, job) == expected


async def test_jitter_spreads_the_delay(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(10_000), concurrency=40):
        jobs = await asyncio.gather(
            *(queue.add("n", attempts=2, backoff=Backoff.fixed(0.1, jitter=0.5, max=0.14)) for _ in range(40))
        )
        for job in jobs:
            await ended(job)
    found = [wait for job in jobs for wait in await waits(queue, job)]
    assert len(found) == 40
    assert all(50 <= wait <= 140 for wait in found)
    assert min(found) < 100 < max(found)


async def test_a_retry_waits_for_its_delay(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(1)) as worker:
        retrying = Heard(worker, "retrying")
        job = await queue.add("n", attempts=2, backoff=0.3)
        reported_job, error, delay = await retrying.next()
        assert (reported_job.id, str(error), delay) == (job.id, "boom", 0.3)
        assert await job.result(10) == "done"
    at = {event.kind: event.at for event in await history(queue) if event.kind in ("retrying", "active")}
    assert at["active"] - at["retrying"] >= timedelta(seconds=0.3)


async def test_a_job_between_two_attempts_is_delayed(timed: Timed) -> None:
    async with worker_of(timed.queue, Flaky(1)) as worker:
        retrying = Heard(worker, "retrying")
        job = await timed.queue.add("n", attempts=2, backoff=60)
        await retrying.next()
        assert await job.get_state() == "delayed"
        assert (job.failed_reason, job.attempts_made) == ("ValueError: boom", 1)
    await timed.clock.advance(MINUTE)
    assert await timed.run() == ["n"]


async def test_an_unknown_strategy_fails_the_job_and_is_named(queue: AnyQueue) -> None:
    strategies: dict[str, Strategy] = {"mine": lambda made, error: 0.0}
    async with worker_of(queue, Flaky(9), backoff_strategies=strategies):
        job = await queue.add("n", attempts=5, backoff=Backoff.custom("yours"))
        with pytest.raises(JobFailed, match=r"'yours'.*mine.*backoff_strategies") as caught:
            await job.result(10)
    assert "boom" in caught.value.traceback


async def _later() -> float:
    return 1.0


@pytest.mark.parametrize("answer", [float("nan"), "soon", None, True])
async def test_a_strategy_with_an_invalid_return_value_fails_the_job(queue: AnyQueue, answer: Any) -> None:
    strategies: dict[str, Strategy] = {"bad": lambda made, error: answer}
    async with worker_of(queue, Flaky(9), backoff_strategies=strategies):
        job = await ended(await queue.add("n", attempts=5, backoff=Backoff.custom("bad")))
    assert (job.state, job.attempts_made) == ("failed", 1)
    assert "return seconds" in (job.failed_reason or "")


async def test_a_strategy_that_returns_a_coroutine_fails_the_job_with_advice(queue: AnyQueue) -> None:
    strategies: dict[str, Strategy] = {"bad": lambda made, error: _later()}
    async with worker_of(queue, Flaky(9), backoff_strategies=strategies):
        job = await ended(await queue.add("n", attempts=5, backoff=Backoff.custom("bad")))
    assert "backoff strategy 'bad' returned <coroutine" in (job.failed_reason or "")


async def test_a_negative_delay_ends_the_retries(queue: AnyQueue) -> None:
    strategies: dict[str, Strategy] = {"twice": lambda made, error: 0.001 if made < 2 else -1}
    async with worker_of(queue, Flaky(9), backoff_strategies=strategies):
        job = await ended(await queue.add("n", attempts=5, backoff=Backoff.custom("twice")))
    assert (job.state, job.attempts_made, job.failed_reason) == ("failed", 2, "ValueError: boom")


@pytest.mark.everywhere
async def test_an_unrecoverable_error_ends_the_attempts(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(9, lambda: UnrecoverableError("no such customer"))):
        job = await ended(await queue.add("n", attempts=5))
    assert (job.state, job.attempts_made) == ("failed", 1)
    assert job.failed_reason == "UnrecoverableError: no such customer"


@pytest.mark.everywhere
@pytest.mark.parametrize("error", [RetryLater, RateLimited])
async def test_retry_later_counts_no_attempt(queue: AnyQueue, error: type[RetryLater | RateLimited]) -> None:
    handler = Flaky(4, lambda: error(0.05))
    async with worker_of(queue, handler):
        job = await queue.add("n", attempts=1)
        assert await job.result(10) == "done"
    await job.refresh()
    assert (job.attempts_made, handler.attempts_seen) == (1, [0] * 5)
    kind = "delayed" if error is RetryLater else "limited"
    assert [found for found, _ in await job_events(queue, job.id)].count(kind) == 4


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (lambda: SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError, "CancelledError"),
        (lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions)"),
        (lambda: ValueError("a\nb\x1fc"), "ValueError: a b c"),
        (lambda: ValueError("x" * 10_000), "ValueError: " + "x" * 488),
        (lambda: ValueError("\ud800"), "ValueError: ?"),
    ],
    ids=["exit", "cancel", "group", "control", "long", "surrogate"],
)
async def test_any_exception_of_a_handler_is_its_failure(
    queue: AnyQueue, error: Callable[[], BaseException], reason: str
) -> None:
    async with worker_of(queue, Flaky(1, error)):
        job = await ended(await queue.add("n"))
        assert (job.state, job.failed_reason) == ("failed", reason)
        assert await (await queue.add("n")).result(10) == "done"


async def test_an_exception_without_a_text_is_named_by_its_type(queue: AnyQueue) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async with worker_of(queue, Flaky(1, Mute)):
        job = await ended(await queue.add("n"))
    assert (job.state, job.failed_reason) == ("failed", "Mute")


async def test_attempts_are_counted_across_workers(timed: Timed) -> None:
    handler = Flaky(3)
    job = await timed.queue.add("n", attempts=4, backoff=60)
    for made in range(1, 4):
        worker = worker_of(timed.queue, handler)
        retrying = Heard(worker, "retrying")
        async with worker:
            await retrying.next()
        await job.refresh()
        assert (job.attempts_made, job.state) == (made, "delayed")
        await timed.clock.advance(MINUTE)
    async with worker_of(timed.queue, handler):
        assert await job.result(10) == "done"
    assert handler.attempts_seen == [0, 1, 2, 3]


async def _attempts(queue: AnyQueue, error: Callable[[], BaseException], **rules: Any) -> tuple[int, str | None]:
    """Run a job whose handler always raises, with three attempts. Return the number of its runs and the cause of its
    failure.
    """
    async with worker_of(queue, Flaky(9, error), **rules):
        job = await ended(await queue.add("n", attempts=3))
    assert job.state == "failed"
    return job.attempts_made, job.failure_cause


def grouped(*errors: Exception) -> Callable[[], BaseException]:
    return lambda: ExceptionGroup("several", errors)


@pytest.mark.parametrize(
    ("error", "rules", "attempts"),
    [
        (ConnectionResetError, {"retry_on": ConnectionError}, 3),
        (ValueError, {"retry_on": (ConnectionError, TimeoutError)}, 1),
        (ValueError, {"retry_on": ()}, 1),
        (UnicodeError, {"give_up_on": ValueError}, 1),
        (KeyError, {"give_up_on": [ValueError]}, 3),
        (ConnectionResetError, {"retry_on": OSError, "give_up_on": (ConnectionError,)}, 1),
        (grouped(ConnectionError(), TimeoutError()), {"retry_on": (ConnectionError, TimeoutError)}, 3),
        (grouped(ConnectionError(), KeyError()), {"retry_on": ConnectionError}, 1),
        (grouped(ConnectionError(), KeyError()), {"give_up_on": KeyError}, 1),
        (grouped(KeyError()), {"retry_on": ExceptionGroup}, 3),
        (asyncio.CancelledError, {"retry_on": ConnectionError}, 1),
        (lambda: ExecutorError("its process died"), {"retry_on": ConnectionError}, 3),
        (lambda: ExecutorError("its process died"), {"give_up_on": ExecutorError}, 1),
        (lambda: UnrecoverableError("never"), {"retry_on": UnrecoverableError}, 1),
    ],
)
async def test_the_type_of_the_exception_decides_on_a_retry(
    queue: AnyQueue, error: Callable[[], BaseException], rules: dict[str, Any], attempts: int
) -> None:
    cause = "retries_exhausted" if attempts == 3 else "unrecoverable"
    assert await _attempts(queue, error, **rules) == (attempts, cause)


@pytest.mark.parametrize("rules", [{"retry_on": "ValueError"}, {"give_up_on": [int]}, {"retry_on": ValueError("x")}])
def test_a_rule_that_is_not_an_exception_type_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(rules))} must be an exception type"):
        Worker("q", Flaky(0), "memory://", **rules)


async def test_retry_later_can_count_the_attempt(queue: AnyQueue) -> None:
    def later() -> BaseException:
        error = RetryLater(0.02, count=True)
        error.__cause__ = ConnectionError("refused")
        return error

    async with worker_of(queue, Flaky(9, later)) as worker:
        retrying = Heard(worker, "retrying")
        job = await ended(await queue.add("n", attempts=2, backoff=60))
        _, error, delay = await retrying.next()
    assert (job.state, job.attempts_made, job.failure_cause) == ("failed", 2, "retries_exhausted")
    assert job.failed_reason == "ConnectionError: refused"
    assert (repr(error), delay) == ("ConnectionError('refused')", 0.02)


async def test_retry_later_without_a_cause_is_a_readable_failure(queue: AnyQueue) -> None:
    async with worker_of(queue, Flaky(9, lambda: RetryLater(30, count=True))):
        job = await ended(await queue.add("n"))
    assert (job.failed_reason, job.attempts_made) == ("RetryLater: retry in 30 s", 1)


def test_a_count_that_is_not_a_bool_is_refused() -> None:
    with pytest.raises(TypeError, match="count must be True or False, got 3"):
        RetryLater(1, count=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
