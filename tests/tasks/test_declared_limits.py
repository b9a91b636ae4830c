"""The limits that code declares: workers store them, an operator holds others over them, and a deploy removes them."""

# Users write key functions as lambdas, whose parameters have no types.
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import logging
from typing import Any

import pytest

from glidemq_async import GlideMQ, KeyLimits, QueueFull, QueueLimits, RateLimit, TokenBucket
from glidemq_async.ops import Actor, Ops, Setting
from glidemq_async.storage import Storage
from glidemq_async.tasks.app import core_of


def app(storage: Storage, name: str, limits: QueueLimits | None = None, **of_task: Any) -> GlideMQ:
    """Return an app with one task, as one version of the code declares it."""
    mq = GlideMQ(storage, queue=name, version="2026.11")
    mq.queue(name, limits=limits)

    @mq.task(**of_task)
    async def load(tenant: str) -> None: ...

    return mq


async def deploy(mq: GlideMQ) -> None:
    """Start a worker of an app, and stop it again."""
    async with mq.worker():
        pass


async def shown(storage: Storage, queue: str) -> dict[str, Setting]:
    """Return the settings of a queue that the code declares or an operator holds, by name and key."""
    async with Ops(storage) as ops:
        found = {f"{one.name} {one.key}" if one.key is not None else one.name: one for one in await ops.settings(queue)}
    return {name: one for name, one in found.items() if one.origin != "none"}


async def test_a_worker_stores_the_limits_of_its_queue(storage: Storage, name: str) -> None:
    mq = app(storage, name, QueueLimits(concurrency=2, rate_limit=RateLimit(10, 60), max_waiting=1))
    async with mq:
        queue = mq.queue(name)
        assert await queue.get_global_concurrency() is None
        await deploy(mq)
        assert await queue.get_global_concurrency() == 2
        assert await queue.get_global_rate_limit() == RateLimit(10, 60)
        await queue.add("load")
        with pytest.raises(QueueFull):
            await queue.add("load")
        await queue.drain()
        found = await shown(storage, name)
        assert {setting: (one.value, one.origin, one.who) for setting, one in found.items()} == {
            "concurrency": ("2", "code", "version 2026.11"),
            "rate": ("10 per 60 s", "code", "version 2026.11"),
            "max_waiting": ("1", "code", "version 2026.11"),
        }


async def test_a_task_limits_each_key_or_its_own_key(storage: Storage, name: str) -> None:
    mq = app(storage, name, key=lambda tenant, **_: tenant, concurrency=2, token_bucket=TokenBucket(5, 1))

    @mq.task(key="nightly", rate_limit=RateLimit(1, 60))
    async def nightly() -> None: ...

    async with mq:
        await deploy(mq)
        every, own = [await mq.queue(name).get_key_limits(key) for key in (None, "nightly")]
        assert every == KeyLimits(2, None, TokenBucket(5, 1), None)
        assert own == KeyLimits(None, RateLimit(1, 60), None, None)
        assert (await shown(storage, name)).keys() == {"concurrency ", "bucket ", "rate nightly"}


async def test_a_limit_of_an_operator_holds_over_deploys_until_it_is_released(storage: Storage, name: str) -> None:
    first = app(storage, name, QueueLimits(concurrency=2), key=lambda tenant: tenant, concurrency=3)
    async with first, Ops(storage, actor=Actor("http", "ada")) as ops:
        await deploy(first)
        await ops.set_limits(name, concurrency=1, note="slow")
        await ops.set_key_limits(name, None, concurrency=1)
        second = app(storage, name, QueueLimits(concurrency=5), key=lambda tenant: tenant, concurrency=6)
        await deploy(second)
        queue = first.queue(name)
        assert await queue.get_global_concurrency() == 1
        assert (await queue.get_key_limits(None)).concurrency == 1
        found = (await shown(storage, name))["concurrency"]
        assert (found.value, found.declared, found.who, found.note) == ("1", "5", "ada", "slow")
        await ops.release_hold(name, "concurrency")
        await ops.release_hold(name, "concurrency", key="")
        assert await queue.get_global_concurrency() == 5
        assert (await queue.get_key_limits(None)).concurrency == 6


async def test_a_deploy_without_a_declaration_removes_only_what_the_code_has_set(storage: Storage, name: str) -> None:
    first = app(storage, name, QueueLimits(concurrency=2, max_waiting=9), key="k", rate_limit=RateLimit(1, 60))
    async with first, Ops(storage) as ops:
        queue = first.queue(name)
        await queue.connect()
        await queue.set_global_rate_limit(RateLimit(7, 60))
        await queue.set_key_limits("other", concurrency=4)
        await deploy(first)
        await ops.set_limits(name, max_waiting=5)
        await deploy(app(storage, name))
        assert await queue.get_global_concurrency() is None
        assert (await queue.get_key_limits("k")).rate_limit is None
        assert await queue.get_global_rate_limit() == RateLimit(7, 60)
        assert (await queue.get_key_limits("other")).concurrency == 4
        found = await shown(storage, name)
        assert [(setting, one.value, one.declared) for setting, one in found.items()] == [("max_waiting", "5", None)]


async def test_the_same_declaration_again_keeps_its_time_and_its_version(storage: Storage, name: str) -> None:
    limits = QueueLimits(concurrency=2)
    await deploy(app(storage, name, limits))
    before = (await shown(storage, name))["concurrency"]
    later = GlideMQ(storage, queue=name, version="2026.12")
    later.queue(name, limits=limits)
    later.task(name="load")(_run)
    await deploy(later)
    assert (await shown(storage, name))["concurrency"] == before


async def _run() -> None: ...


async def test_a_queue_opens_nothing_before_its_first_use(storage: Storage, name: str) -> None:
    mq = GlideMQ("redis://localhost:1")
    reports = mq.queue(name, limits=QueueLimits(concurrency=1))
    assert mq.queue(name) is reports
    assert repr(reports) == f"<Queue {name!r} of an app>"
    assert reports.name == name
    core_of(mq).relocate(storage)
    for _ in range(2):
        async with mq:
            assert (await reports.add("job")).name == "job"
            await reports.drain()
            assert mq.queue(name) is reports


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": 2}, r"'load': concurrency= limits .* have no key; add key='load' .* mq\.queue\('q', limits="),
        ({"token_bucket": TokenBucket(1, 1)}, r"'load': token_bucket= limits .* for a key of each tenant$"),
        ({"rate_limit": RateLimit(1, 1), "key": None}, "'load': rate_limit= limits"),
        ({"concurrency": 0, "key": "k"}, "concurrency must be from 1 to"),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        app(Storage, "q", **options)  # type: ignore[arg-type]  # nothing is opened


def test_bad_limits_are_refused() -> None:
    mq = GlideMQ()
    with pytest.raises(TypeError, match="limits must be QueueLimits, not 5"):
        mq.queue("q", limits=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="rate_limit must be a RateLimit, not 5"):
        mq.task(key="k", rate_limit=5)(_run)  # type: ignore[call-overload]  # pyright: ignore


def test_contradictions_are_refused() -> None:
    mq = GlideMQ(queue="q")
    mq.queue("q", limits=QueueLimits(concurrency=2))
    assert mq.queue("q", limits=QueueLimits(concurrency=2)) is mq.queue("q")
    with pytest.raises(ValueError, match=r"two different limits of queue 'q': .*concurrency=2.*concurrency=3"):
        mq.queue("q", limits=QueueLimits(concurrency=3))
    mq.task(name="a", key="k", concurrency=2)(_run)
    mq.task(name="b", key="k", concurrency=2, rate_limit=RateLimit(1, 1))(_run)
    with pytest.raises(ValueError, match=r"'b' and 'c' declare different limits \(rate\) for key 'k' of queue 'q'"):
        mq.task(name="c", key="k", rate_limit=RateLimit(2, 1))(_run)
    mq.task(name="d", key=lambda: "k", concurrency=3)(_run)
    with pytest.raises(ValueError, match="for each key of queue 'q'"):
        mq.task(name="e", key=lambda: "k", concurrency=4)(_run)
    mq.task(name="e", queue="other", key=lambda: "k", concurrency=4)(_run)
    assert "c" not in mq.tasks


def test_every_job_of_an_app_in_keyed_mode_has_a_key() -> None:
    mq = GlideMQ(queue="q", mode="keyed")
    mq.task(concurrency=2)(_run)
    assert core_of(mq).limits.of("q") == {"concurrency ": "2"}


async def test_limits_of_a_queue_without_tasks_are_reported(
    storage: Storage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    mq = app(storage, name)
    mq.queue(f"{name}s", limits=QueueLimits(concurrency=2))
    with caplog.at_level(logging.WARNING):
        await deploy(mq)
    [line] = [record.message for record in caplog.records if "not stored" in record.message]
    assert line.startswith(f"the settings of queue '{name}s' are not stored: no task of this app belongs to the queue")
    assert line.endswith(f"; did you mean {name!r}?")
