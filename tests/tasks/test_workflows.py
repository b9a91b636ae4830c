"""Workflows: their steps are executed once for each run, in any order, and a change of their code is detected."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from glidemq_async import (
    Backoff,
    GlideMQ,
    Job,
    JobFailed,
    Middleware,
    SerializationError,
    StepFailed,
    UnrecoverableError,
    Workflow,
    WorkflowExists,
    current_job,
    workflows,
)
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import AnyTask
from glidemq_async.workflows.run import OnDivergence
from tests.support.helpers import PATIENCE

calls: list[Any] = []
"""The executions of steps in this test."""


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    calls.clear()


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


@dataclass
class Receipt:
    order: str
    cents: int


def again_after_the_first_run() -> None:
    """Fail the first run of the job."""
    if current_job().fence == 1:
        raise ValueError("again")


async def run(mq: GlideMQ[Any], workflow: Workflow[..., Any], *args: Any) -> Any:
    """Run a workflow to its end, and check its queue."""
    async with mq:
        handle = await workflow.start(*args)
        await mq.run_worker(until_empty=True, handle_signals=False)
        try:
            return await handle.result(PATIENCE)
        finally:
            assert not await mq.queue(workflow.queue).check()


async def test_steps_are_executed_once_and_keep_their_types(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def charge(order: str, cents: int = 5) -> Receipt:
        calls.append((order, cents))
        return Receipt(order, cents)

    @mq.step
    def label(receipt: Receipt) -> str:
        calls.append(receipt)
        return f"label of {receipt.order}"

    @mq.workflow(attempts=2)
    async def checkout(order: str) -> list[str]:
        receipt = await charge(order, cents=7)
        assert receipt == Receipt(order, 7)
        async with asyncio.TaskGroup() as group:
            labels = [group.create_task(label(Receipt(order, cents))) for cents in (2, 1)]
        again_after_the_first_run()
        assert await charge(order, 7) == Receipt(order, 7)  # an equal call, the second of this run
        return [await each for each in labels]

    assert await run(mq, checkout, "a") == ["label of a", "label of a"]
    assert sorted(map(str, calls)) == sorted(map(str, [("a", 7), Receipt("a", 2), Receipt("a", 1), ("a", 7)]))


async def test_outside_of_a_workflow_a_step_is_an_ordinary_function(mq: GlideMQ[Any]) -> None:
    @mq.step(attempts=3)
    async def fails(number: int) -> int:
        calls.append(number)
        raise ValueError("once")

    @mq.step
    def plain(number: int) -> int:
        return number + 1

    with pytest.raises(ValueError, match="once"):
        await fails(1)
    assert calls == [1]
    assert await plain(1) == 2
    assert plain.function(1) == 2
    with pytest.raises(RuntimeError, match=r"\.function"):
        await asyncio.to_thread(plain.sync, 1)


async def test_a_workflow_is_an_ordinary_function_when_it_is_called(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def charge() -> int:
        return 7

    @mq.workflow
    async def checkout() -> int:
        return await charge()

    assert await checkout() == 7
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        await workflows.now()


async def test_a_step_inside_of_a_step_belongs_to_it(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def inner() -> str:
        calls.append("inner")
        return "x"

    @mq.step
    async def outer() -> str:
        return await inner() + await inner()

    @mq.workflow(attempts=2)
    async def flow() -> str:
        found = await outer()
        again_after_the_first_run()
        return found

    async with mq:
        handle = await flow.start()
        await mq.run_worker(until_empty=True, handle_signals=False)
        assert await handle.result(PATIENCE) == "xx"
        assert [step.name for step in await handle.steps()] == ["outer"]
    assert calls == ["inner", "inner"]


async def test_threads_of_a_workflow_call_steps(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def double(number: int) -> int:
        calls.append(number)
        return number * 2

    @mq.workflow(attempts=2)
    async def flow() -> list[int]:
        found = await asyncio.gather(*(asyncio.to_thread(double.sync, number) for number in range(3)))
        again_after_the_first_run()
        return found

    assert await run(mq, flow) == [0, 2, 4]
    assert sorted(calls) == [0, 1, 2]


async def test_a_step_with_attempts_is_repeated_and_its_failure_recorded(mq: GlideMQ[Any]) -> None:
    @mq.step(attempts=3, backoff=Backoff.fixed(0.001))
    async def charge(cents: int) -> int:
        calls.append(cents)
        if cents == 1 and len(calls) == 3:
            return 9
        raise ConnectionError("card terminal")

    @mq.workflow(attempts=2)
    async def checkout() -> list[Any]:
        found: list[Any] = [await charge(1)]
        try:
            await charge(2)
        except StepFailed as failure:
            found.append((failure.step, failure.error_type, failure.message, "charge" in failure.traceback))
        again_after_the_first_run()
        return found

    assert await run(mq, checkout) == [9, ["charge", "ConnectionError", "card terminal", True]]
    assert calls == [1, 1, 1, 2, 2, 2]


async def test_an_uncaught_failure_ends_the_run_and_a_retry_repeats_the_step(mq: GlideMQ[Any]) -> None:
    works: list[bool] = []

    @mq.step
    async def before() -> None:
        calls.append("before")

    @mq.step(attempts=1)
    async def charge() -> str:
        calls.append("charge")
        if not works:
            raise ConnectionError("card terminal")
        return "paid"

    @mq.workflow(attempts=5)
    async def checkout() -> str:
        await before()
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(charge())
        return paid.result()

    async with mq, mq.worker(handle_signals=False):
        handle = await checkout.start()
        with pytest.raises(JobFailed, match="step 'charge' has failed: ConnectionError: card terminal"):
            await handle.result(PATIENCE)
        await handle.job.refresh()
        assert (handle.job.attempts_made, handle.job.failure_cause) == (1, "unrecoverable")
        assert calls == ["before", "charge"]
        works.append(True)
        await handle.job.retry()
        assert await handle.result(PATIENCE) == "paid"
        assert [step.status for step in await handle.steps()] == ["completed", "completed"]
    assert calls == ["before", "charge", "charge"]


async def test_each_attempt_of_a_step_has_a_timeout(mq: GlideMQ[Any]) -> None:
    @mq.step(attempts=2, timeout=0.02)
    async def slow() -> str:
        calls.append("slow")
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "fast"

    @mq.workflow
    async def flow() -> str:
        return await slow()

    assert await run(mq, flow) == "fast"


async def test_times_numbers_and_ids_are_recorded(mq: GlideMQ[Any]) -> None:
    seen: list[Any] = []

    @mq.step
    async def branch(number: int) -> int:
        await asyncio.sleep(0.001 * (number if current_job().fence == 1 else 3 - number))
        return number

    @mq.step
    async def use(number: int, token: UUID) -> None:
        calls.append(number)

    async def one(number: int) -> tuple[datetime, float, UUID]:
        await branch(number)
        token = await workflows.uuid4()
        await use(number, token)
        return await workflows.now(), await workflows.random(), token

    @mq.workflow(attempts=2)
    async def flow() -> None:
        seen.append([*await asyncio.gather(*map(one, range(3))), await workflows.now(), await workflows.now(key="k")])
        again_after_the_first_run()

    await run(mq, flow)
    assert seen[0] == seen[1]
    assert len({str(each) for each in seen[0]}) == 5
    assert calls == [0, 1, 2]


async def test_a_sleep_ends_at_the_same_time_in_each_run(mq: GlideMQ[Any]) -> None:
    @mq.workflow(attempts=2)
    async def flow() -> float:
        began = time.monotonic()
        await workflows.sleep(1)
        again_after_the_first_run()
        return time.monotonic() - began

    began = time.monotonic()
    assert await run(mq, flow) < 0.9
    assert time.monotonic() - began > 0.99


async def test_a_key_identifies_a_step(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def charge(when: float) -> float:
        calls.append(when)
        return when

    @mq.workflow(attempts=2)
    async def flow() -> list[float]:
        found = [await charge.with_key(key)(time.time()) for key in ("a", "b", "a")]
        again_after_the_first_run()
        return found

    found = await run(mq, flow)
    assert found == [*calls, calls[0]]
    with pytest.raises(ValueError, match="step key"):
        charge.with_key("")


async def test_a_run_is_started_once_for_its_id(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def flow(number: int) -> int:
        return number

    async with mq:
        first = await flow.start(1, id="order-1", on_conflict="refuse")
        again = await flow.start(2, id="order-1")
        assert (first.id, again.id, await again.state()) == ("order-1", "order-1", "waiting")
        with pytest.raises(WorkflowExists, match=r"'order-1': a job with this id is waiting.*on_conflict"):
            await flow.start(2, id="order-1", on_conflict="refuse")
        await mq.run_worker(until_empty=True, handle_signals=False)
        assert await again.result(PATIENCE) == 1
        assert await (await flow.start(2, id="order-1")).result(PATIENCE) == 1
        with pytest.raises(WorkflowExists, match="is completed"):
            await flow.start(2, id="order-1", on_conflict="refuse")
        with pytest.raises(ValueError, match="on_conflict"):
            await flow.start(2, on_conflict="replace")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="task 'flow'"):
            await flow.start()


@pytest.mark.parametrize("body", [lambda: 0, 7])
def test_a_workflow_must_be_a_coroutine_function(mq: GlideMQ[Any], body: Any) -> None:
    with pytest.raises(TypeError, match="coroutine function"):
        mq.workflow(body)


def test_bad_options_are_refused(mq: GlideMQ[Any]) -> None:
    async def body() -> None:
        pass

    with pytest.raises(ValueError, match="on_divergence must be one of park, warn, fail, got 'ignore'"):
        mq.workflow(on_divergence="ignore")(body)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unknown workflow option 'executor'"):
        mq.workflow(executor="thread")(body)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unknown step option 'attempt': did you mean 'attempts'"):
        mq.step(attempt=1)(body)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="custom"):
        mq.step(backoff=Backoff.custom("x"))(body)
    with pytest.raises(ValueError, match=r"'workflow\.', which the library uses"):
        mq.step(name="workflow.now")(body)
    with pytest.raises(TypeError, match="a step must be a function"):
        mq.step(7)  # type: ignore[call-overload]


async def test_a_step_checks_its_arguments_and_its_result(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def charge(order: str, cents: int) -> Receipt:
        return "no receipt"  # type: ignore[return-value]

    bad: Any = charge

    @mq.workflow
    async def flow() -> None:
        with pytest.raises(TypeError, match="step 'charge': argument 'cents' must be int"):
            await bad("a", "b")
        with pytest.raises(TypeError, match=r"step 'charge'.*missing"):
            await bad("a")
        with pytest.raises(TypeError, match=r"step 'charge'.*'other'"):
            await bad("a", 1, other=1)
        with pytest.raises(SerializationError, match="step 'charge': its result must be Receipt"):
            await charge("a", 1)

    await run(mq, flow)


Body = Callable[[], Coroutine[Any, Any, Any]]


class Deployments:
    """A workflow whose code is replaced while its job exists."""

    def __init__(self, storage: Storage, queue: str) -> None:
        self._storage = storage
        self._queue = queue
        steps = self._app()

        @steps.step(attempts=2)
        async def charge(cents: int) -> int:
            calls.append(f"charge {cents}")
            return cents

        @steps.step
        async def ship(item: str) -> str:
            await asyncio.sleep(0)
            calls.append(f"ship {item}")
            return item

        @steps.step
        async def label(text: str) -> None:
            calls.append(f"label {text}")

        self.charge, self.ship, self.label = charge, ship, label

    def _app(self) -> GlideMQ[Any]:
        return GlideMQ(self._storage, queue=self._queue)

    async def old(self) -> None:
        """Run the old code: it records three steps, and fails."""
        await self.charge(100)
        await asyncio.gather(self.ship("a"), self.ship("b"))
        raise UnrecoverableError("the old code fails here")

    async def start(self) -> str:
        """Run the old code in a new job. Return the id of the job."""
        app = self._app()
        flow = app.workflow(name="flow")(self.old)
        async with app:
            handle = await flow.start()
            await app.run_worker(until_empty=True, handle_signals=False)
            assert await handle.state() == "failed"
        assert sorted(calls) == ["charge 100", "ship a", "ship b"]
        calls.clear()
        return handle.id

    async def retry(self, job_id: str, body: Body, on_divergence: OnDivergence = "park") -> Job[Any, Any]:
        """Run the job again with other code. Return the job."""
        app = self._app()
        app.workflow(name="flow", on_divergence=on_divergence)(body)
        async with app:
            job = await app.queue(self._queue).get_job(job_id)
            assert job is not None
            await job.retry()
            await app.run_worker(until_empty=True, handle_signals=False)
            await job.refresh()
            assert not await app.queue(self._queue).check()
        return job


@pytest.fixture
def deployed(storage: Storage, name: str) -> Deployments:
    return Deployments(storage, name)


async def test_code_may_insert_and_reorder_steps(deployed: Deployments) -> None:
    async def new() -> Any:
        await deployed.label("new")
        await deployed.ship("b")
        await workflows.uuid4()
        return [await deployed.ship("a"), await deployed.ship("c"), await deployed.charge(100)]

    job = await deployed.retry(await deployed.start(), new)
    assert (job.state, job.return_value) == ("completed", ["a", "c", 100])
    assert calls == ["label new", "ship c"]


async def test_a_recorded_step_with_other_arguments_is_refused_before_it_is_executed(deployed: Deployments) -> None:
    async def new() -> None:
        try:
            await deployed.charge(120)
        except Exception:  # noqa: BLE001 - as a program that compensates for any failure
            await deployed.ship("back")
        async with asyncio.TaskGroup() as group:
            group.create_task(deployed.charge(120))

    job_id = await deployed.start()
    job = await deployed.retry(job_id, new)
    assert (job.state, job.failure_cause) == ("failed", "diverged")
    assert "recorded charge(100); asked instead for charge(120)" in str(job.failed_reason)
    assert "run.accept()" in str(job.failed_reason)
    assert calls == []
    # The earlier code still finds its steps.
    job = await deployed.retry(job_id, deployed.old)
    assert "the old code fails here" in str(job.failed_reason)
    assert calls == []


async def test_concurrent_tasks_may_ask_for_recorded_steps_after_a_new_one(deployed: Deployments) -> None:
    async def late(item: str) -> str:
        await asyncio.sleep(0)
        return await deployed.ship(item)

    async def new() -> Any:
        return [await deployed.charge(100), *await asyncio.gather(deployed.ship("c"), late("a"), late("b"))]

    job = await deployed.retry(await deployed.start(), new)
    assert job.return_value == [100, "c", "a", "b"]
    assert calls == ["ship c"]


@pytest.mark.parametrize(("on_divergence", "cause"), [("park", "diverged"), ("fail", "unrecoverable")])
async def test_a_step_that_is_not_asked_for_any_more_fails_the_run(
    deployed: Deployments, on_divergence: OnDivergence, cause: str
) -> None:
    async def new() -> None:
        await deployed.charge(100)
        await deployed.ship("b")

    job = await deployed.retry(await deployed.start(), new, on_divergence)
    assert (job.state, job.failure_cause) == ("failed", cause)
    assert "recorded ship('a'); asked instead for nothing" in str(job.failed_reason)
    assert calls == []


async def test_a_divergence_may_only_be_logged(deployed: Deployments, caplog: pytest.LogCaptureFixture) -> None:
    async def new() -> int:
        return await deployed.charge(120)

    with caplog.at_level(logging.WARNING):
        job = await deployed.retry(await deployed.start(), new, "warn")
    assert (job.state, job.return_value) == ("completed", 120)
    assert calls == ["charge 120"]
    [text] = [record.getMessage() for record in caplog.records if "has changed" in record.getMessage()]
    # Steps of the same millisecond have no order.
    recorded, asked = text.split("; ", 1)
    assert all(call in recorded for call in ("charge(100)", "ship('a')", "ship('b')"))
    assert asked.startswith("asked instead for charge(120)")


class Auditing(Middleware):
    """Loads the journal of a run before its workflow begins."""

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        await job.step("audit", audit)


async def audit() -> None: ...


async def test_the_same_code_may_ask_for_other_steps_after_a_step_of_a_middleware(mq: GlideMQ[Any]) -> None:
    numbers: list[int] = []

    @mq.step
    async def note(number: int) -> int:
        return number

    @mq.workflow(attempts=2)
    async def changing() -> int:
        numbers.append(len(numbers))
        found = await note(numbers[-1])
        if not found:
            raise RuntimeError("again")
        return found

    mq.add_middleware(Auditing())
    async with mq, mq.worker():
        run = await changing.start()
        assert await run.result(PATIENCE) == 1
