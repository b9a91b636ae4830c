"""The stored part of a failure's traceback: from the user's first frame on, or all of it if there is none."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from glidemq_async import GlideMQ, Job
from glidemq_async.executors import SubprocessExecutor
from glidemq_async.tasks import Depends
from glidemq_async.testing import Harness
from tests.support.helpers import AnyJob


def _raise() -> None:
    json.loads("{")  # the last frames do not belong to the user


def fail() -> None:
    _raise()


async def fail_awaited() -> None:
    _raise()


async def broken_provider() -> int:
    _raise()
    return 1


async def fail_by_provider(number: int = Depends(broken_provider)) -> int:
    return number


async def takes_one(number: int) -> int:
    return number


def lines_of(job: Job[Any, Any]) -> list[str]:
    return [line for line in (job.stacktrace or "").splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("tier", ["inline", "thread", "subprocess"])
async def test_the_traceback_of_a_task_begins_with_its_function(glidemq: Harness, tier: str) -> None:
    app = glidemq.use(GlideMQ())
    await app.task(executor=tier)(fail_awaited if tier == "inline" else fail).add()
    (job,) = await glidemq.drain(app)
    lines = lines_of(job)
    assert __file__ in lines[0]
    assert ", in fail" in lines[0]
    assert ", in _raise" in lines[1]
    assert "json" in lines[-1]


async def test_a_provider_belongs_to_the_user_too(glidemq: Harness) -> None:
    app = glidemq.use(GlideMQ())
    await app.task(fail_by_provider).add()
    (job,) = await glidemq.drain(app)
    assert ", in broken_provider" in lines_of(job)[0]


async def test_the_traceback_of_a_handler_begins_with_it(glidemq: Harness) -> None:
    async def handler(_job: AnyJob) -> None:
        _raise()

    await glidemq.queue("q").add("n")
    (job,) = await glidemq.drain("q", handler)
    assert ", in handler" in lines_of(job)[0]


async def test_an_error_of_the_library_has_only_its_message(glidemq: Harness) -> None:
    app = glidemq.use(GlideMQ())
    app.task(takes_one)
    await glidemq.queue("default").add("takes_one", {"a": [], "k": {"other": 1}})
    (job,) = await glidemq.drain(app)
    assert lines_of(job) == []
    assert (job.stacktrace or "").startswith("glidemq_async.errors.SerializationError: the stored arguments do not fit")


async def test_the_cause_of_an_error_of_the_library_keeps_the_frames_of_the_user(glidemq: Harness) -> None:
    app = glidemq.use(GlideMQ())

    @dataclass
    class Item:
        name: str

        def __post_init__(self) -> None:
            _raise()

    async def takes_item(item: Item) -> None: ...

    takes_item.__annotations__["item"] = Item
    app.task(takes_item)
    await glidemq.queue("default").add("takes_item", {"a": [{"name": "x"}], "k": {}})
    (job,) = await glidemq.drain(app)
    assert any(", in __post_init__" in line for line in lines_of(job)[:2])
    assert "argument 'item' of task 'takes_item' cannot be read" in (job.stacktrace or "")


def sleeps() -> None:
    threading.Event().wait(60)


async def test_a_timeout_in_another_process_has_only_its_message(glidemq: Harness) -> None:
    app = glidemq.use(GlideMQ())
    await app.task(executor=SubprocessExecutor(1, grace=0.1), timeout=0.1)(sleeps).add()
    (job,) = await glidemq.drain(app)
    assert (job.stacktrace or "").strip() == "TimeoutError: the run took longer than its timeout of 0.1 s"


@pytest.mark.parametrize("tier", ["inline", "subprocess"])
async def test_a_result_that_cannot_be_stored_has_no_frames_of_the_encoder(glidemq: Harness, tier: str) -> None:
    app = glidemq.use(GlideMQ())
    await app.task(executor=tier)(returns_an_object_later if tier == "inline" else returns_an_object).add()
    (job,) = await glidemq.drain(app)
    assert (job.failed_reason or "").startswith(
        f"SerializationError: result of job {job.id}, at $.deep[0], cannot be encoded as msgpack: found an object; send"
    )
    assert lines_of(job) == []


def returns_an_object() -> Any:
    return {"deep": [object()]}


async def returns_an_object_later() -> Any:
    return returns_an_object()
