"""Ordering keys that a task computes from its arguments, whichever way its jobs are added."""

# Users write key functions as lambdas, whose parameters have no types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobOptions
from glidemq_async.storage import Storage


@pytest.fixture
async def mq(storage: Storage, name: str) -> AsyncIterator[GlideMQ]:
    """An app whose default key must not win over the key of a task."""
    async with GlideMQ(storage, queue=name, default_options=JobOptions(key="default")) as opened:
        yield opened


async def test_each_way_to_add_uses_the_key(mq: GlideMQ) -> None:
    @mq.task(key=lambda tenant, **_: tenant)
    async def load(tenant: str, rows: int = 1) -> int:
        return rows

    @mq.task(key=lambda number, tenant="nobody": f"{tenant}/{number}" if number else tenant)
    async def fixed(number: int, tenant: str) -> int:
        return number

    @mq.task(key=lambda rest=None, tenant="": tenant)
    async def after(rest: int, tenant: str) -> str:
        return tenant

    @mq.workflow(key=lambda tenant: f"run-{tenant}")
    async def run(tenant: str) -> int:
        return await load.call(tenant, rows=5)

    assert (await load.add("a", 2)).options.key == "a"
    assert (await load.add(tenant="b")).options.key == "b"
    assert [job.options.key for job in await load.add_many([("a",), {"tenant": "c"}])] == ["a", "c"]
    assert (await load.s("d").add()).options.key == "d"
    assert (await load.options(delay=0.001).add("e")).options.key == "e"
    assert (await load.options(key="own").add("a")).options.key == "own"
    assert (await load.options(key=None).add("a")).options.key is None
    assert (await fixed.add(3, "t")).options.key == "t/3"
    assert (await load.s("x").then(after, "f").add()).options.key == "f"
    with pytest.raises(
        TypeError, match=r"first argument is the result of another job.*'number'.*options\(key=\.\.\.\)"
    ):
        await load.s("x").then(fixed, "f").add()
    async with mq.worker():
        assert await load.map(["g", "h"]).results() == [1, 1]
        assert await (await run.start("i")).result(10) == 5
    keys = {(job.name, job.options.key) for job in await mq.queue(load.queue).get_jobs("completed")}
    assert {("load", "g"), ("load", "h"), ("load", "i"), ("run", "run-i")} <= keys


async def test_the_function_gets_values_of_their_type_and_defaults(mq: GlideMQ) -> None:
    seen: list[object] = []

    def key(at: datetime, *rest: int, mark: str, **others: int) -> None:
        seen.append((at, rest, mark, others))

    @mq.task(key=key)
    async def note(at: datetime, *rest: int, mark: str = "!", **others: int) -> None: ...

    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert (await note.add(at, 1, 2, more=3)).options.key is None
    assert seen == [(at, (1, 2), "!", {"more": 3})]


async def test_a_result_that_is_no_key_is_refused_before_anything_is_sent(mq: GlideMQ) -> None:
    answer: Any = lambda number: number if number > 1 else "k"  # noqa: E731

    @mq.task(key=answer)
    async def task(number: int) -> None: ...

    with pytest.raises(TypeError, match="task 'task': the function of key= must return a str or None, not 2"):
        await task.add_many([(1,), (2,)])
    assert sum((await mq.queue(task.queue).get_job_counts()).values()) == 0


async def later(tenant: str) -> str:
    return tenant


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (lambda tenant: tenant, "got an unexpected keyword argument 'rows'"),
        (lambda tenat, **_: tenat, "missing a required argument: 'tenat'"),
        (later, "key= must be a plain function"),
        (3, "key must be"),
    ],
)
def test_a_function_that_cannot_take_the_arguments_is_refused(key: Callable[..., Any], reason: str) -> None:
    async def load(tenant: str, rows: int = 1) -> None: ...

    with pytest.raises(TypeError, match=reason):
        GlideMQ("memory://").task(key=key)(load)


def test_a_subscription_takes_its_keys_from_the_messages() -> None:
    async def seen(message: int) -> None: ...

    key: Any = lambda message: "k"  # noqa: E731
    with pytest.raises(TypeError, match="publish messages with key="):
        GlideMQ("memory://").subscribe("orders", key=key)(seen)
