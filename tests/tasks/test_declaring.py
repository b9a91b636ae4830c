"""Invalid tasks are refused at their declaration, with the reason."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from glidemq_async import Compression, GlideMQ, Schedule
from glidemq_async.executors import Permissions
from glidemq_async.tasks import Depends
from glidemq_async.tasks.app import core_of


async def coroutine() -> None: ...


def function() -> None: ...


def needs(a: int) -> None: ...


def provided(a: str = Depends(lambda: "x")) -> None: ...


def generator() -> Generator[int]:
    yield 1


async def async_generator() -> AsyncGenerator[int]:
    yield 1


class Callable_:  # noqa: N801
    def __call__(self) -> None: ...


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], type[Exception], str]] = [
    (coroutine, {"attemps": 2}, TypeError, "attempts"),
    (coroutine, {"attempts": 0}, ValueError, "attempts"),
    (coroutine, {"job_id": "1"}, ValueError, "job_id='1' applies to a single job"),
    (coroutine, {"queue": "a:b"}, ValueError, "queue name"),
    (coroutine, {"name": ""}, ValueError, "task name"),
    (coroutine, {"version": 0}, ValueError, "version"),
    (coroutine, {"aliases": "old"}, TypeError, "aliases must be a list"),
    (coroutine, {"aliases": ["coroutine"]}, ValueError, "two tasks"),
    (coroutine, {"executor": "thread"}, TypeError, "threads run only plain functions"),
    (function, {"executor": "inline"}, TypeError, "block the event loop"),
    (function, {"executor": 3}, TypeError, "executor must be"),
    (function, {"executor": "thread", "permissions": Permissions()}, TypeError, "cannot enforce permissions"),
    (provided, {"executor": "subprocess"}, TypeError, "in the worker's process"),
    (Callable_(), {}, TypeError, "must be a function"),
    (generator, {}, TypeError, "generator function.*return a list"),
    (async_generator, {}, TypeError, "generator function.*return a list"),
]


@pytest.mark.parametrize(
    ("made", "options", "kind", "message"), REFUSED, ids=[f"{options}, {message}" for _, options, _, message in REFUSED]
)
def test_invalid_tasks_are_refused(
    made: Callable[..., Any], options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    mq = GlideMQ("memory://")
    with pytest.raises(kind, match=message):
        mq.task(**options)(made)
    assert not mq.tasks


def test_invalid_crons_are_refused() -> None:
    mq = GlideMQ("memory://")
    with pytest.raises(TypeError, match="its argument 'a' has no default"):
        mq.cron("@daily")(needs)
    with pytest.raises(ValueError, match="cron"):
        mq.cron("nonsense")
    with pytest.raises(ValueError, match="tz cannot be combined with a Schedule"):
        mq.cron(Schedule(every=3), tz="UTC")
    with pytest.raises(TypeError, match="timezone"):
        mq.cron("@daily", timezone="UTC")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert not mq.tasks


def test_duplicate_task_names_and_queues_without_tasks_are_refused() -> None:
    mq = GlideMQ("memory://")
    with pytest.raises(ValueError, match="no tasks"):
        mq.worker()
    mq.task(coroutine)
    with pytest.raises(ValueError, match=r"the job name 'coroutine' is used by two tasks: tests\.tasks"):
        mq.task(coroutine)
    with pytest.raises(ValueError, match="no task of this app belongs to queue 'emials'; its queues are default"):
        mq.worker(["emials"])
    with pytest.raises(TypeError, match="must be a list"):
        mq.worker("default")
    with pytest.raises(TypeError, match="lock_duration"):
        mq.worker(lock_durations=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert (mq.queues, list(mq.tasks)) == (frozenset({"default"}), ["coroutine"])


def test_a_task_shows_its_signature() -> None:
    mq = GlideMQ("memory://", queue="emails")

    @mq.task
    def send(to: str, db: str = Depends(lambda: "x")) -> str:
        """Send it."""
        return f"{to} {db}"

    assert (send.name, send.queue, send.executor, str(send.signature)) == (
        "send",
        "emails",
        "thread",
        "(to: str) -> str",
    )
    assert (send.__doc__, send.function.__name__, repr(send)) == ("Send it.", "send", "<Task 'send' of queue 'emails'>")
    assert send("a", db="y") == "a y"
    with pytest.raises(TypeError, match="so 'db' has no provider"):
        send("a")


def test_an_unknown_option_is_refused_with_its_kind() -> None:
    mq = GlideMQ("memory://")
    wrong: Any = {"attemps": 3}
    with pytest.raises(TypeError, match="unknown task option 'attemps': did you mean 'attempts'"):
        mq.task(**wrong)
    with pytest.raises(TypeError, match="unknown cron option 'attemps'"):
        mq.cron("* * * * *", **wrong)
    mq.task(coroutine)
    late: Any = {"lock_duraton": 3}
    with pytest.raises(TypeError, match="unknown worker option 'lock_duraton': did you mean 'lock_duration'"):
        mq.worker(**late)


def test_bad_arguments_of_an_app_are_refused_at_its_construction() -> None:
    with pytest.raises(ValueError, match=r"'rediss//x' is not a storage URL: it has no scheme"):
        GlideMQ("rediss//x")
    with pytest.raises(ValueError, match="the scheme 'http' is unknown"):
        core_of(GlideMQ("memory://")).relocate("http://x")
    codecs: Any = "gzip"
    with pytest.raises(TypeError, match="codecs must be a sequence of codecs"):
        GlideMQ("memory://", codecs=codecs)
    codecs = Compression()
    with pytest.raises(TypeError, match="codecs must be a sequence of codecs"):
        GlideMQ("memory://", codecs=codecs)
