"""Calls whose arguments cannot be stored, or do not fit the signature of the task that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from glidemq_async import GlideMQ, JobFailed, SerializationError
from glidemq_async.storage import Storage


@pytest.fixture
async def mq(storage: Storage, name: str) -> AsyncIterator[GlideMQ]:
    async with GlideMQ(storage, queue=name) as opened:
        yield opened


async def test_an_argument_that_cannot_be_stored_is_named_as_in_the_call(mq: GlideMQ) -> None:
    @mq.task
    async def report(first: int, *rest: object, options: object = None) -> None: ...

    cases: list[tuple[tuple[object, ...], dict[str, object], str]] = [
        ((1, object()), {}, "task 'report': argument 'rest' cannot be encoded"),
        ((1,), {"options": {"deep": [object()]}}, r"argument 'options'\.deep\[0\] cannot be encoded"),
    ]
    for args, kwargs, words in cases:
        with pytest.raises(SerializationError, match=words) as caught:
            await report.add(*cast("Any", args), **cast("Any", kwargs))
        assert "$" not in str(caught.value)
    with pytest.raises(SerializationError, match="task 'report': argument 'first'"):
        await report.add_many([cast("Any", {"first": 2**80})])


@pytest.mark.parametrize("kind", ["inline", "thread", "subprocess"])
async def test_a_call_that_no_longer_fits_the_signature_fails_once(mq: GlideMQ, kind: str) -> None:
    function = {"inline": greet, "thread": greet_plainly, "subprocess": greet_plainly}[kind]
    mq.task(name="greet", executor=kind, attempts=5)(cast("Any", function))
    job = await mq.queue(mq.tasks["greet"].queue).add("greet", {"a": ["Ada"], "k": {}}, attempts=5)
    async with mq.worker(), asyncio.timeout(20):
        with pytest.raises(JobFailed) as caught:
            await job.result(20)
    await job.refresh()
    assert job.attempts_made == 1
    text = str(caught.value)
    for words in ("task 'greet'(first", "missing a required argument: 'last'", "version=2", "aliases="):
        assert words in text
    assert caught.value.traceback.count("\n") <= 1, "the failure must have no frames of the library"


async def greet(first: str, last: str) -> str:
    return f"{first} {last}"


def greet_plainly(first: str, last: str) -> str:
    return f"{first} {last}"
