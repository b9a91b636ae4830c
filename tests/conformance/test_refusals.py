"""Bad input is refused before anything is sent. The error names the input and the remedy."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

import pytest

from glidemq_async import (
    Backoff,
    Deduplication,
    JobFailed,
    JobOptions,
    JsonSerializer,
    KeepJobs,
    PayloadTooLarge,
    Queue,
    QueueEvents,
    SerializationError,
)
from glidemq_async.storage import Storage, open_storage
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.recording_storage import Relay

pytestmark = pytest.mark.only_on("memory")
NAN = float("nan")


@dataclasses.dataclass
class Point:
    x: int


def circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"delya": 3}, TypeError, "delya.*delay"),
    ({"nonsense": 3}, TypeError, "nonsense"),
    ({"delay": -1}, ValueError, "delay.*-1"),
    ({"delay": NAN}, ValueError, "delay.*nan"),
    ({"delay": float("inf")}, ValueError, "delay"),
    ({"delay": "5"}, TypeError, "delay"),
    ({"delay": True}, TypeError, "delay"),
    ({"delay": 1e300}, ValueError, "delay"),
    ({"delay": timedelta(seconds=-1)}, ValueError, "delay"),
    ({"at": datetime(2030, 1, 1)}, ValueError, "time zone"),  # noqa: DTZ001
    ({"at": 1_700_000_000}, TypeError, "at"),
    ({"at": datetime(1960, 1, 1, tzinfo=UTC)}, ValueError, "1970"),
    ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError, "cannot be combined"),
    ({"priority": -1}, ValueError, "priority.*-1"),
    ({"priority": 2**21 + 1}, ValueError, "priority.*2097153"),
    ({"priority": 1.5}, TypeError, "priority"),
    ({"priority": True}, TypeError, "priority"),
    ({"priority": None}, TypeError, "priority"),
    ({"lifo": 1}, TypeError, "lifo"),
    ({"lifo": True, "priority": 1}, ValueError, "lifo.*priority=1"),
    ({"lifo": True, "key": "k"}, ValueError, "lifo.*key='k'"),
    ({"key": ""}, ValueError, "key"),
    ({"key": 7}, TypeError, "key"),
    ({"key": "a\nb"}, ValueError, "key.*control"),
    ({"key": "x" * 513}, ValueError, "key.*512"),
    ({"cost": 0}, ValueError, "cost.*0"),
    ({"cost": -1}, ValueError, "cost"),
    ({"cost": NAN}, ValueError, "cost"),
    ({"cost": "1"}, TypeError, "cost"),
    ({"deduplication": "d"}, TypeError, "deduplication"),
    ({"deduplication": {"id": "d"}}, TypeError, "deduplication"),
    ({"deduplication": Deduplication("d", mode="debounce")}, ValueError, "'debounce' needs"),
    ({"attempts": 0}, ValueError, "attempts.*0"),
    ({"attempts": 1.5}, TypeError, "attempts"),
    ({"attempts": True}, TypeError, "attempts"),
    ({"backoff": -1}, ValueError, "backoff"),
    ({"backoff": "exponential"}, TypeError, "backoff"),
    ({"timeout": 0}, ValueError, "timeout"),
    ({"timeout": NAN}, ValueError, "timeout"),
    ({"ttl": 0}, ValueError, "ttl"),
    ({"ttl": -3}, ValueError, "ttl"),
    ({"lock_duration": 0.5}, ValueError, "lock_duration"),
    ({"lock_duration": 100_000}, ValueError, "lock_duration"),
    ({"keep_completed": -1}, ValueError, "keep_completed"),
    ({"keep_failed": 1.5}, TypeError, "keep_failed"),
    ({"headers": ["a"]}, TypeError, "headers"),
    ({"headers": {"a": 1}}, TypeError, "headers"),
    ({"headers": {"a": "x" * 70_000}}, PayloadTooLarge, "headers"),
    ({"durability": "disk"}, ValueError, "durability.*disk"),
    ({"job_id": ""}, ValueError, "job_id"),
    ({"job_id": 7}, TypeError, "job_id"),
    ({"job_id": "a\nb"}, ValueError, "job_id.*control"),
    ({"job_id": "x" * 513}, ValueError, "job_id.*512"),
    ({"job_id": "\ud800"}, ValueError, "job_id.*surrogate"),
]


@pytest.mark.parametrize(("options", "error", "words"), BAD_OPTIONS)
async def test_bad_options_are_refused(
    storage: Storage, name: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    relay = Relay(storage)
    async with Queue[Any, Any](name, relay) as queue:
        relay.calls.clear()
        for call in (queue.add("n", 1, **options), queue.add_and_wait("n", 1, **options)):
            with pytest.raises(error, match=words):
                await call
        with pytest.raises(error, match=words):
            JobOptions(**options)
        assert relay.calls == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [("", ValueError), (7, TypeError), ("a\x00b", ValueError), ("x" * 600, ValueError), (None, TypeError)],
)
async def test_bad_job_names_are_refused(queue: AnyQueue, bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="job name"):
        await queue.add(bad)
    assert await queue.count() == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("", ValueError),
        ("a{b", ValueError),
        ("a}b", ValueError),
        ("a:b", ValueError),
        ("a\nb", ValueError),
        ("x" * 257, ValueError),
        (7, TypeError),
        (None, TypeError),
    ],
)
async def test_bad_queue_names_are_refused(storage: Storage, bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="queue name"):
        Queue(bad, storage)
    with pytest.raises(error, match="queue name"):
        QueueEvents(bad, storage)
    with pytest.raises(error, match="prefix"):
        Queue("q", storage, prefix=bad)


async def test_bad_settings_of_a_queue_are_refused(storage: Storage) -> None:
    bad: Any = Queue
    for mode in ("keyd", "", 7):
        with pytest.raises(ValueError, match=r'None, "global" or "keyed"'):
            bad("q", storage, mode=mode)
    with pytest.raises(TypeError, match="storage"):
        bad("q", 7)
    with pytest.raises(TypeError, match="default_options"):
        bad("q", storage, default_options={"attempts": 3})
    with pytest.raises(TypeError, match="serializer"):
        bad("q", storage, serializer=7)
    for limit, error in ((-1, ValueError), (0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="payload_limit"):
            bad("q", storage, payload_limit=limit)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "emails",
        "http://host",
        "redis://h:99999",
        "redis+cluster://a/3",
        "redis+sentinel://a:1",
        "file://relative/x",
        "memory:///path",
        "redis://a,b",
        "redis://host/0?tls=1",
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="The forms are"):
        open_storage(url) if url else open_storage(" ")


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"a": [1, {"where": PurePosixPath("/a")}]}, "$.a[1].where", "str"),
        ({"a": {"b c": {1, 2}}}, "$.a['b c']", "list"),
        ([1j], "$[0]", "plain values"),
        ({"p": Point(1)}, "$.p", "asdict"),
        (object(), "$", "plain values"),
        (2**70, "$", "64"),
        ("\ud800", "$", "surrogate"),
        ({(1, 2): 3}, "$", "key"),
        (circle(), "$[0]", "nested too deeply"),
    ],
)
async def test_the_error_locates_a_value_that_cannot_be_encoded(
    queue: AnyQueue, value: Any, path: str, words: str
) -> None:
    for call in (queue.add("n", value), queue.add_and_wait("n", value)):
        with pytest.raises(SerializationError, match=words) as caught:
            await call
        assert caught.value.path.startswith(path)
    assert await queue.count() == 0


async def test_json_refuses_values_without_a_json_form(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, serializer=JsonSerializer()) as queue:
        for value in ({"a": b"bytes"}, {"a": NAN}):
            with pytest.raises(SerializationError) as caught:
                await queue.add("n", value)
            assert caught.value.path == "$.a"


async def test_a_payload_over_the_limit_is_refused(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.add("n", b"x" * (1024 * 1024 - 5))
        with pytest.raises(PayloadTooLarge, match=r"data.*1048577.*1048576") as caught:
            await queue.add("n", b"x" * (1024 * 1024 - 4))
        assert (caught.value.size, caught.value.limit) == (1_048_577, 1_048_576)
        assert await queue.count() == 1
    async with Queue[Any, Any](name + "-small", storage, payload_limit=10) as small:
        with pytest.raises(PayloadTooLarge):
            await small.add("n", "x" * 10)
    async with Queue[Any, Any](name + "-large", storage, payload_limit=5_000_000) as large:
        job = await large.add("n", b"x" * 4_000_000)
        stored = await large.get_job(job.id)
        assert stored is not None
        assert len(stored.data) == 4_000_000


@pytest.mark.parametrize(
    ("result", "error_type", "words"),
    [({"a": {1}}, "SerializationError", r"\$\.a"), (b"x" * 2_000_000, "PayloadTooLarge", "2000005.*1048576")],
    ids=["form", "size"],
)
async def test_a_result_that_cannot_be_stored_fails_the_job_for_good(
    queue: AnyQueue, result: Any, error_type: str, words: str
) -> None:
    async def answer(job: AnyJob) -> Any:
        return result

    async with worker_of(queue, answer):
        with pytest.raises(JobFailed, match=words) as caught:
            await queue.add_and_wait("n", attempts=3, wait_timeout=10)
        assert caught.value.error_type == error_type
        job = (await queue.get_jobs("failed"))[0]
        assert job.attempts_made == 1


async def test_the_error_names_another_serializer(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, serializer=JsonSerializer()) as writer:
        job = await writer.add("n", {"a": 1})
    async with Queue[Any, Any](name, storage) as reader:
        stored = await reader.get_job(job.id)
        assert stored is not None
        with pytest.raises(SerializationError, match=f"data of job {job.id}"):
            _ = stored.data


async def test_bad_timeouts_are_refused(queue: AnyQueue) -> None:
    for patience, error in ((-1, ValueError), (NAN, ValueError), ("5", TypeError)):
        bad: Any = patience
        with pytest.raises(error, match="wait_timeout"):
            await queue.add_and_wait("n", wait_timeout=bad)
    assert await queue.count() == 0
    job = await queue.add("n")
    for patience, error in ((-1, ValueError), (NAN, ValueError), ("5", TypeError)):
        bad = patience
        with pytest.raises(error, match="timeout"):
            await job.result(bad)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: KeepJobs(age=-1),
        lambda: KeepJobs(count=-1),
        lambda: Backoff.fixed(-1),
        lambda: Backoff.exponential(1, jitter=2),
        lambda: Backoff.exponential(1, factor=0.5),
    ],
)
def test_bad_values_are_refused_by_their_constructors(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"-1|2|0\.5"):
        bad()
