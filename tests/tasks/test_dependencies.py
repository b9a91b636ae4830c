"""Dependencies: created when needed, once per job or worker, and closed in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Self

import pytest

from glidemq_async import Depends, GlideMQ, JobFailed, current_job
from glidemq_async.storage import Storage

PATIENCE = 30


class Log(list[str]):
    """The recorded events, in order."""


log = Log()


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


@pytest.fixture
async def mq(storage: Storage, name: str) -> GlideMQ:
    return GlideMQ(storage, queue=name)


def settings() -> str:
    log.append("settings")
    return "s"


async def session(config: str = Depends(settings)) -> AsyncGenerator[str]:
    log.append(f"open {current_job().name}")
    try:
        yield f"session({config})"
    except ValueError as error:
        log.append(f"saw {error}")
        # Swallowed here, but a dependency cannot turn a failure into a success.
    finally:
        log.append("close session")


@asynccontextmanager
async def transaction(of: str = Depends(session), config: str = Depends(settings)) -> AsyncGenerator[str]:
    log.append("begin")
    yield f"transaction({of}, {config})"
    log.append("commit")


def sync() -> Generator[int]:
    log.append("sync")
    yield 1
    log.append("sync over")


async def coroutine() -> int:
    return 2


class Client:
    """An async context manager."""

    def __init__(self) -> None:
        self.is_open = False

    async def __aenter__(self) -> Self:
        log.append("client")
        self.is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        log.append("client over")
        self.is_open = False


async def test_each_kind_is_created_once_per_job_and_closed_in_reverse(mq: GlideMQ) -> None:
    @mq.task
    async def work(
        a: int,
        t: str = Depends(transaction),
        s: str = Depends(session),
        n: int = Depends(sync),
        *,
        m: int = Depends(coroutine),
        c: Client = Depends(Client),
    ) -> list[Any]:
        log.append("work")
        return [a, t, s, n, m, c.is_open]

    async with mq, mq.worker():
        job = await work.add(0)
        assert await job.result(PATIENCE) == [0, "transaction(session(s), s)", "session(s)", 1, 2, True]
    opened = ["settings", "open work", "begin", "sync", "client"]
    assert log == [*opened, "work", "client over", "sync over", "commit", "close session"]


async def test_a_dependency_sees_a_failure_and_cannot_swallow_it(mq: GlideMQ) -> None:
    @mq.task
    async def work(t: str = Depends(transaction)) -> None:
        raise ValueError("broken")

    async with mq, mq.worker():
        with pytest.raises(JobFailed, match="ValueError: broken"):
            await (await work.add()).result(PATIENCE)
    assert log[-2:] == ["saw broken", "close session"]
    assert "commit" not in log


async def test_an_exception_at_the_close_of_a_dependency_fails_the_run(mq: GlideMQ) -> None:
    async def fragile() -> AsyncGenerator[None]:
        yield
        raise RuntimeError("commit failed")

    @mq.task
    async def work(_t: None = Depends(fragile)) -> int:
        return 1

    async with mq, mq.worker():
        with pytest.raises(JobFailed, match="commit failed"):
            await (await work.add()).result(PATIENCE)


async def test_a_timeout_includes_dependencies_and_closes_them(mq: GlideMQ) -> None:
    @mq.task(timeout=0.2)
    async def work(s: str = Depends(session)) -> None:
        await asyncio.Event().wait()

    async with mq, mq.worker():
        with pytest.raises(JobFailed, match=r"timeout of 0\.2 s"):
            await (await work.add()).result(PATIENCE)
    assert log[-1] == "close session"


async def test_a_thread_gets_dependencies_created_in_the_loop(mq: GlideMQ) -> None:
    @mq.task
    def work(s: str = Depends(session)) -> str:
        return s

    async with mq, mq.worker():
        assert await (await work.add()).result(PATIENCE) == "session(s)"


async def test_a_dependency_of_the_worker_is_created_once_and_closed_with_it(mq: GlideMQ) -> None:
    failures = ["first"]

    async def pool() -> AsyncGenerator[str]:
        if failures:
            raise RuntimeError(failures.pop())
        with pytest.raises(RuntimeError, match="no current job"):
            current_job()
        log.append("pool")
        # A cancel scope must be left in the task that entered it.
        async with asyncio.timeout(None):
            yield "pool"
        log.append("pool over")

    async def cache(of: str = Depends(pool, scope="worker")) -> AsyncGenerator[str]:
        log.append("cache")
        yield f"cache({of})"
        log.append("cache over")

    @mq.task(attempts=2)
    async def work(c: str = Depends(cache, scope="worker"), p: str = Depends(pool, scope="worker")) -> list[str]:
        return [c, p]

    async with mq:
        async with mq.worker(concurrency=5):
            jobs = await work.add_many([()] * 10)
            for job in jobs:
                assert await job.result(PATIENCE) == ["cache(pool)", "pool"]
        assert log == ["pool", "cache", "cache over", "pool over"]


async def test_an_interrupted_job_leaves_a_shared_dependency_to_others(mq: GlideMQ) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await go.wait()
        return "slow"

    @mq.task
    async def work(s: str = Depends(slow, scope="worker")) -> str:
        return s

    async with mq, mq.worker(concurrency=2):
        first, second = await work.add_many([(), ()])
        await began.wait()
        await first.revoke()
        with pytest.raises(JobFailed, match="revoked"):
            await first.result(PATIENCE)
        go.set()
        assert await second.result(PATIENCE) == "slow"


async def test_a_cancelled_provider_is_called_again(mq: GlideMQ) -> None:
    first = True

    async def pool() -> str:
        nonlocal first
        if first:
            first = False
            # As if a provider awaited a task that was cancelled.
            raise asyncio.CancelledError
        return "pool"

    @mq.task
    async def work(p: str = Depends(pool, scope="worker")) -> str:
        return p

    async with mq, mq.worker():
        with pytest.raises(JobFailed, match="CancelledError"):
            await (await work.add()).result(PATIENCE)
        assert await (await work.add()).result(PATIENCE) == "pool"


async def test_overrides_replace_providers(mq: GlideMQ) -> None:
    @mq.task
    async def work(t: str = Depends(transaction), n: int = Depends(sync, scope="worker")) -> list[Any]:
        return [t, n]

    async with mq:
        with mq.override(session, lambda: "fake"), mq.override(sync, lambda: 7):
            job = await work.add()
            await mq.run_worker(until_empty=True)
            assert await job.result(PATIENCE) == ["transaction(fake, s)", 7]
        job = await work.add()
        await mq.run_worker(until_empty=True)
        assert await job.result(PATIENCE) == ["transaction(session(s), s)", 1]


async def test_annotated_dependencies_are_provided_too(mq: GlideMQ) -> None:
    @mq.task
    async def work(a: int, *, c: Annotated[int, Depends(coroutine)] = 0) -> int:
        return a + c

    async with mq, mq.worker():
        assert await (await work.add(1)).result(PATIENCE) == 3


def test_invalid_dependencies_are_refused_at_the_declaration() -> None:
    mq = GlideMQ("memory://")

    def needy(a: int) -> int:
        return a

    def one(b: int = 0) -> int:
        return b

    def two(a: int = Depends(one)) -> int:
        return a

    one.__defaults__ = (Depends(two),)

    def of_worker(s: str = Depends(session)) -> str:
        return s

    def before(a: int = Depends(coroutine), b: int = 0) -> None: ...
    def lacking(a: int = Depends(needy)) -> None: ...
    def circle(a: int = Depends(one)) -> None: ...
    def longer(a: str = Depends(of_worker, scope="worker")) -> None: ...

    for function, message in (
        (before, "move the dependency 'a' after 'b'"),
        (lacking, "needy needs 'a'"),
        (circle, "form a cycle: .*one -> .*two -> .*one"),
        (longer, "has the scope 'worker' and cannot depend on session"),
    ):
        with pytest.raises(TypeError, match=message):
            mq.task(function)
    with pytest.raises(TypeError, match="must be a function or class"):
        Depends(3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValueError, match="scope must be"):
        Depends(settings, scope="app")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
