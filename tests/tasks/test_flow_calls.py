"""Calls of tasks that depend on each other: each gets the results of the calls before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from glidemq_async import CallFailure, GlideMQ, JobFailed, UnrecoverableError, chain, chord, group, together
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE


@dataclass
class Page:
    text: str


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


async def outcome(mq: GlideMQ[Any], call: Any) -> Any:
    """Add a flow, run its jobs, and return its result."""
    async with mq:
        job = await call.add()
        await mq.run_worker(until_empty=True, handle_signals=False)
        return await job.result(PATIENCE)


async def test_a_result_becomes_the_first_argument_of_the_next_call(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def fetch(url: str) -> Page:
        return Page(f"text of {url}")

    @mq.task
    async def parse(page: Page, *, upper: bool = False) -> list[str]:
        return (page.text.upper() if upper else page.text).split()

    @mq.task
    def count(words: list[str]) -> int:
        return len(words)

    assert await outcome(mq, fetch.s("a").then(parse, upper=True)) == ["TEXT", "OF", "A"]
    assert await outcome(mq, fetch.s("b c").then(parse).then(count)) == 4
    assert await outcome(mq, chain(fetch.s("d"), parse, count)) == 3


async def test_results_of_several_calls_become_one_argument(mq: GlideMQ[Any], name: str) -> None:
    @mq.task
    async def square(number: int) -> int:
        return number * number

    @mq.task(queue=f"{name}-words")
    async def word(text: str) -> str:
        return text

    @mq.task
    async def total(numbers: list[int], plus: int = 0) -> int:
        return sum(numbers) + plus

    @mq.task
    async def label(pair: tuple[int, str], sign: str) -> str:
        return f"{pair[0]}{sign}{pair[1]}"

    squares = [square.s(number) for number in range(5)]
    assert await outcome(mq, group(squares).then(total, plus=1)) == 31
    assert await outcome(mq, chord(squares, total)) == 30
    assert await outcome(mq, together(square.s(3), word.s("x")).then(label, "-")) == "9-x"


async def test_a_failed_call_fails_the_calls_after_it(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def broken(number: int) -> int:
        raise UnrecoverableError("no")

    @mq.task
    async def double(number: int) -> int:
        return 2 * number

    @mq.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(JobFailed, match=r"broken .*: UnrecoverableError: no"):
        await outcome(mq, broken.s(1).then(double))
    calls = [broken.s(1).on_failure("ignore"), double.s(2)]
    assert await outcome(mq, group(calls).then(total)) == 4
    with pytest.raises(ValueError, match=r"may leave its place in the tuple empty; use otherwise"):
        together(double.s(1), broken.s(1).on_failure("ignore"))
    with pytest.raises(ValueError, match="must be one of fail, wait, ignore"):
        double.s(1).on_failure("collect")  # type: ignore[arg-type]


async def test_another_task_runs_instead_of_a_failed_call(mq: GlideMQ[Any], name: str) -> None:
    handled: list[CallFailure] = []

    @mq.task
    async def fetch(url: str) -> Page:
        if url == "bad":
            raise UnrecoverableError("no page")
        return Page(url)

    @mq.task
    async def replacement(failure: CallFailure, text: str) -> Page:
        handled.append(failure)
        return Page(text)

    @mq.task
    async def length(page: Page) -> int:
        return len(page.text)

    assert await outcome(mq, fetch.s("good").otherwise(replacement, "x")) == Page("good")
    assert not handled
    assert await outcome(mq, fetch.s("bad").otherwise(replacement, text="none").then(length)) == 4
    [failure] = handled
    assert (failure.queue, failure.error_type, failure.message) == (name, "UnrecoverableError", "no page")
    assert failure.job_id


async def test_a_revoked_call_is_replaced_too(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @mq.task
    async def replacement(failure: CallFailure) -> str:
        return f"instead of {failure.job_id}"

    async with mq:
        job = await slow.s(0).otherwise(replacement).add()
        [child] = (await job.get_dependencies()).pending
        found = await mq.queue(child.queue).get_job(child.job_id)
        assert found is not None
        assert await found.revoke()
        await mq.run_worker(until_empty=True, handle_signals=False)
        assert await job.result(PATIENCE) == f"instead of {child.job_id}"


async def test_a_call_that_does_not_fit_is_refused_before_it_is_sent(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def double(number: int) -> int:
        return 2 * number

    with pytest.raises(TypeError, match="double"):
        double.s()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="double"):
        double.s(1).then(double, 2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="at least one call"):
        group([])


async def test_a_call_has_the_options_of_its_task_and_its_own(mq: GlideMQ[Any]) -> None:
    @mq.task(attempts=3)
    async def double(number: int) -> int:
        return 2 * number

    async with mq:
        job = await double.s(1).then(double).options(priority=5, job_id="mine").add()
        assert (job.id, job.options.attempts, job.options.priority) == ("mine", 3, 5)
        assert repr(double.s(1).then(double)) == "<FlowCall of task " + repr(double.name) + " after 1 calls>"
