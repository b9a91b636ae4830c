"""Typed signals: classes that are sent to jobs and received as instances."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import pytest
from pydantic import BaseModel

from glidemq_async import GlideMQ, SerializationError, current_job
from tests.support.helpers import reaches

mq = GlideMQ("memory://", queue="orders")


@mq.signal
@dataclass
class Approved:
    by: str
    at: datetime


@mq.signal(name="rejected")
class Rejected(BaseModel):
    reason: str


@mq.signal
class Counted(NamedTuple):
    number: int


@dataclass
class Unknown:
    by: str


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@mq.task
async def checkout() -> str:
    job = current_job()
    if job.resumed_by is None:
        await job.suspend(signals=[Approved, Rejected], timeout=60)
    for approved in job.received(Approved):
        return f"approved by {approved.by} at {approved.at:%H:%M}"
    [rejected] = job.received(Rejected)
    return f"rejected: {rejected.reason}"


@mq.task
async def count() -> list[int]:
    job = current_job()
    before = cast("list[int] | None", job.progress)
    numbers = [*(before or []), *(one.number for one in job.received(Counted))]
    if len(numbers) == 3:
        return numbers
    await job.update_progress(numbers)
    return await job.suspend(signals=[Counted], single=True)


@pytest.fixture
async def app() -> AsyncGenerator[GlideMQ[Any]]:
    async with mq, mq.worker(handle_signals=False):
        yield mq


async def test_typed_signals_are_received_as_instances(app: GlideMQ[Any]) -> None:
    first, second = await checkout.add(), await checkout.add()
    for job in (first, second):
        await reaches(job, "suspended")
    await first.refresh()
    assert first.suspension is not None
    assert first.suspension.signals == ("Approved", "rejected")
    assert await first.send(Approved("ada", NOON)) is True
    assert await first.result(10) == "approved by ada at 12:00"
    assert await app.queue("orders").send(second.id, Rejected(reason="too expensive")) is True
    assert await second.result(10) == "rejected: too expensive"


async def test_a_single_signal_is_taken_at_a_time(app: GlideMQ[Any]) -> None:
    job = await count.options(delay=60).add()
    for number in range(3):
        await job.send(Counted(number))
    await job.promote()
    assert await job.result(10) == [0, 1, 2]
    await job.refresh()
    assert job.fence == 4


async def test_wrong_values_are_refused(app: GlideMQ[Any]) -> None:
    job = await checkout.options(delay=60).add()
    with pytest.raises(TypeError, match=r"decorate the class with @mq\.signal"):
        await job.send(Unknown("ada"))
    with pytest.raises(TypeError, match=r"signal Approved: \.by must be str, got 7"):
        await job.send(Approved(7, NOON))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"decorate the class with @mq\.signal"):
        job.received(Unknown)
    await app.queue("orders").signal(job.id, "Approved", {"by": "ada"})
    await job.promote()
    await reaches(job, "failed")
    await job.refresh()
    assert job.failed_reason is not None
    assert job.failed_reason.startswith("SerializationError: a signal 'Approved' cannot be read as Approved")
    assert SerializationError.__name__ in job.failed_reason


def test_only_classes_with_fields_can_be_signals() -> None:
    class Plain:
        pass

    with pytest.raises(TypeError, match="must be a dataclass, a NamedTuple or a pydantic model"):
        mq.signal(Plain)
    with pytest.raises(TypeError, match="decorates a class"):
        mq.signal(cast("type[object]", "no class"))
    with pytest.raises(ValueError, match="must not be empty"):
        mq.signal(name="")(Unknown)
