"""Subscriptions: each message becomes one job of each subscription, whoever feeds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from glidemq_async import (
    BroadcastWorker,
    CodecError,
    Encryption,
    GlideMQ,
    JobOptions,
    Queue,
    Topic,
    current_job,
    generate_key,
)
from glidemq_async.errors import JobNotFound
from glidemq_async.storage import Storage
from glidemq_async.topics.reader import MessageReader
from glidemq_async.topics.topic import functions_of
from glidemq_async.worker import feeder
from tests.support.helpers import AnyJob, history, soon, until
from tests.support.recording_storage import Relay
from tests.support.servers import eventually


@pytest.fixture
async def app(storage: Storage) -> AsyncIterator[GlideMQ]:
    made = GlideMQ(storage)
    yield made
    await made.close()


@pytest.mark.everywhere
async def test_each_message_becomes_one_job_of_each_subscription(app: GlideMQ, name: str) -> None:
    paid: list[Any] = []
    audit: list[Any] = []

    @app.subscribe(name, "order.paid.*", name="invoices", attempts=5)
    async def invoice(order: dict[str, int]) -> None:
        paid.append((order["id"], current_job().headers["subject"]))

    @app.subscribe(name, name="audit")
    async def note(order: Any) -> None:
        audit.append(order)

    async with app, app.worker(handle_signals=False):
        topic = app.topic(name)
        for number in range(20):
            await topic.publish(f"order.paid.{'eu' if number % 2 else 'us'}", {"id": number})
        await topic.publish("order.sent.eu", {"id": 20})
        await until(lambda: len(paid) == 20 and len(audit) == 21)
        info = await topic.info()
        assert {one.name: one.queue for one in info.subscriptions} == {
            "audit": f"{name}.audit",
            "invoices": f"{name}.invoices",
        }
    assert sorted(number for number, _ in paid) == [*range(20)]
    assert ("order.paid.eu" if paid[1][0] % 2 else "order.paid.us") == paid[1][1]
    assert invoice.queue == f"{name}.invoices"
    assert note.name == f"{name}.audit"


async def test_a_run_until_empty_includes_the_messages(app: GlideMQ, name: str) -> None:
    seen: list[int] = []

    @app.task
    async def publish(number: int) -> None:
        await app.topic(name).publish("a", number)

    @app.subscribe(name, "a", backlog=50)
    async def read(number: int) -> None:
        seen.append(number)

    async with app:
        await app.topic(name).publish_many([("a", number) for number in range(2_000)])
        await publish.add(2_000)
        await app.run_worker(until_empty=True, handle_signals=False)
    assert sorted(seen) == [*range(2_001)]
    assert read.queue == f"{name}.read"


async def test_a_worker_whose_queue_is_full_of_messages_does_not_end_as_empty(
    app: GlideMQ, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "LONGEST_CROWDED", 60.0)
    monkeypatch.setattr(feeder, "CROWDED_SECONDS", 60.0)
    seen: list[int] = []
    may_end = asyncio.Event()

    @app.subscribe(name, "a", backlog=50)
    async def read(number: int) -> None:
        await may_end.wait()
        seen.append(number)

    async with app:
        await app.topic(name).publish_many([("a", number) for number in range(1_000)])
        async with app.worker(concurrency=1) as running:
            # The worker moves messages until its queue is full, and would look at the topic again in a minute.
            await eventually(lambda: has_jobs(app, f"{name}.read", 50), "a full queue")
            may_end.set()
            await running.workers[0].until_empty()
    assert sorted(seen) == [*range(1_000)]
    assert read.queue == f"{name}.read"


async def has_jobs(app: GlideMQ, queue: str, number: int) -> bool:
    """Return whether a queue has this number of jobs."""
    return sum((await app.queue(queue).get_job_counts()).values()) >= number


async def test_a_subscription_begins_where_it_says(app: GlideMQ, name: str) -> None:
    found: dict[str, list[int]] = {"early": [], "late": []}

    @app.subscribe(name, name="early", start="beginning")
    async def early(number: int) -> None:
        found["early"].append(number)

    @app.subscribe(name, name="late")
    async def late(number: int) -> None:
        found["late"].append(number)

    async with Topic(name, app.storage) as topic:
        await topic.publish("a", 1)
        async with app:
            # Registered when the app is opened, before any worker runs.
            await topic.publish("a", 2)
        await app.run_worker(until_empty=True, handle_signals=False)
    assert found == {"early": [1, 2], "late": [2]}


@pytest.mark.everywhere
async def test_failed_messages_are_retried_in_their_own_queue(app: GlideMQ, name: str) -> None:
    runs: list[str] = []

    @app.subscribe(name, name="bad", attempts=2)
    async def bad(value: Any) -> None:
        runs.append("bad")
        raise ValueError("no")

    @app.subscribe(name, name="good")
    async def good(value: Any) -> None:
        runs.append("good")

    async with app:
        await app.topic(name).publish("a", None, key="k")
        await app.run_worker(until_empty=True, handle_signals=False)
        assert sorted(runs) == ["bad", "bad", "good"]
        [failed] = await app.queue(bad.queue).get_jobs("failed")
        assert failed.headers["message_id"] == (await app.topic(name).info()).last
        assert failed.key == "k"
        assert (await app.queue(good.queue).get_job_counts())["completed"] == 1


async def test_the_backlog_bounds_the_waiting_jobs(app: GlideMQ, name: str) -> None:
    @app.subscribe(name, backlog=30)
    async def read(number: int) -> None: ...

    async with app:
        queue = app.queue(read.queue)
        await queue.pause()
        async with app.worker(handle_signals=False):
            await app.topic(name).publish_many([("a", number) for number in range(500)])
            await until_waiting(queue, 30)
            await asyncio.sleep(0.2)
            assert (await queue.get_job_counts())["waiting"] == 30
            assert (await app.topic(name).subscription("read").info()).lag == 470
            await queue.resume()
            await until_completed(queue, 500)


async def until_waiting(queue: Queue[Any, Any], number: int) -> None:
    async with asyncio.timeout(10):
        while (await queue.get_job_counts())["waiting"] < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_completed(queue: Queue[Any, Any], number: int) -> None:
    async with asyncio.timeout(20):
        while (await queue.get_job_counts())["completed"] < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.everywhere
async def test_a_replay_makes_new_jobs(app: GlideMQ, name: str) -> None:
    seen: list[tuple[str, int]] = []

    @app.subscribe(name)
    async def read(number: int) -> None:
        seen.append((current_job().id, number))

    topic = app.topic(name)
    async with app:
        with pytest.raises(JobNotFound):
            await app.topic(name).subscription("other").replay()
        topic = app.topic(name)
        ids = await topic.publish_many([("a", number) for number in range(5)])
        await topic.subscription("read").replay(ids[1])
        await app.run_worker(until_empty=True, handle_signals=False)
        assert [number for _, number in seen] == [1, 2, 3, 4]
        await topic.subscription("read").replay(ids[3])
        await app.run_worker(until_empty=True, handle_signals=False)
        assert [number for _, number in seen] == [1, 2, 3, 4, 3, 4]
        assert len({job_id for job_id, _ in seen}) == 6
        await topic.subscription("read").replay("beginning")
        await topic.subscription("read").replay("now")
        await app.run_worker(until_empty=True, handle_signals=False)
        assert len(seen) == 6


async def test_lost_messages_are_counted_and_noted(app: GlideMQ, name: str) -> None:
    @app.subscribe(name)
    async def read(number: int) -> None: ...

    async with app:
        topic = app.topic(name, max_messages=10)
        await topic.publish_many([("a", number) for number in range(100)])
        await app.run_worker(until_empty=True, handle_signals=False)
        info = await topic.subscription("read").info()
        assert (info.lost, info.jobs, info.lag) == (90, 10, 0)
        assert (await app.queue(read.queue).get_job_counts())["completed"] == 10
        [lost] = [event for event in await history(app.queue(read.queue)) if event.kind == "lost"]
        assert lost.detail == "90"
        with pytest.raises(ValueError, match="other settings"):
            app.topic(name, max_messages=5)


async def test_a_message_that_does_not_fit_fails_alone(app: GlideMQ, name: str) -> None:
    seen: list[int] = []

    @app.subscribe(name)
    async def read(number: int, factor: int = 2) -> None:
        seen.append(number * factor)

    async with app:
        await app.topic(name).publish_many([("a", "text"), ("a", 1)])
        await app.run_worker(until_empty=True, handle_signals=False)
        assert seen[-1] == 2


async def test_bad_subscriptions_are_refused_when_they_are_declared(app: GlideMQ) -> None:
    with pytest.raises(ValueError, match="before its end"):
        app.subscribe("t", "a.>.b")
    with pytest.raises(ValueError, match="wildcard"):
        app.subscribe("t", "a.b*")
    with pytest.raises(ValueError, match="start"):
        app.subscribe("t", start="yesterday")
    with pytest.raises(TypeError, match="queue"):
        app.subscribe("t", queue="q")  # type: ignore[call-overload]

    async def two(a: int, b: int) -> None: ...

    with pytest.raises(TypeError, match="only required argument"):
        app.subscribe("t")(two)


@pytest.mark.everywhere
async def test_broadcast_workers_of_one_name_share_and_each_name_gets_all(storage: Storage, name: str) -> None:
    found: dict[str, list[Any]] = {"a": [], "b": []}

    async def note_a(job: AnyJob) -> None:
        found["a"].append((job.name, job.data))

    async def note_b(job: AnyJob) -> None:
        found["b"].append((job.name, job.data))

    options = {"subjects": ["order.*", "!order.test"], "start_from": "0-0", "handle_signals": False}
    async with (
        Topic(name, storage) as topic,
        BroadcastWorker(name, note_a, storage, subscription="a", **options),  # type: ignore[arg-type]
        BroadcastWorker(name, note_a, storage, subscription="a", **options),  # type: ignore[arg-type]
        BroadcastWorker(
            name, note_b, storage, subscription="b", job_options=JobOptions(attempts=3), handle_signals=False
        ),
    ):
        await topic.publish_many([("order.paid", 1), ("order.test", 2), ("audit", 3)])
        await until(lambda: len(found["a"]) == 1 and len(found["b"]) == 3)
    assert found["a"] == [("order.paid", 1)]


async def test_another_worker_feeds_after_a_close(storage: Storage, name: str) -> None:
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def note(job: AnyJob) -> None:
        seen.put_nowait(job.data)

    def worker() -> BroadcastWorker:
        return BroadcastWorker(name, note, storage, subscription="s", handle_signals=False)

    async with Topic(name, storage) as topic:
        first = worker()
        await first.start()
        async with worker():
            await topic.publish("a", 1)
            assert await soon(seen.get()) == 1
            await first.close()
            await topic.publish("a", 2)
            assert await soon(seen.get()) == 2


# -- readers without a subscription ---------------------------------------------------------------------------------


@pytest.mark.everywhere
async def test_an_ephemeral_subscription_is_called_in_each_process(app: GlideMQ, storage: Storage, name: str) -> None:
    other = GlideMQ(storage)
    seen: list[tuple[str, int]] = []

    @app.subscribe(name, "cache.>", ephemeral=True)
    async def forget(number: int) -> None:
        if number == 1:
            raise ValueError("logged, and the next one follows")
        seen.append(("first", number))

    @other.subscribe(name, ephemeral=True)
    def also(number: int) -> None:
        seen.append(("second", number))

    await app.topic(name).publish("cache.a", 0)
    async with app, other:
        await other.topic(name).publish_many([("cache.a", 1), ("b", 2), ("cache.b", 3)])
        await until(lambda: len(seen) == 4)
    assert sorted(seen) == [("first", 3), ("second", 1), ("second", 2), ("second", 3)]
    assert (forget.received, also.received, forget.missed) == (2, 3, 0)
    with pytest.raises(TypeError, match="attempts"):
        app.subscribe(name, ephemeral=True, attempts=3)  # type: ignore[call-overload]


async def test_a_reader_gets_messages_from_its_start_and_counts_the_missed_ones(storage: Storage, name: str) -> None:
    async with Topic(name, storage, max_messages=5) as topic:
        await topic.publish_many([("a", number) for number in range(8)])
        reading = topic.listen("a", start="beginning")
        first = await anext(reading)
        assert (first.data, first.number, first.missed) == (3, 4, 0)
        for number in range(4, 8):
            assert (await anext(reading)).data == number
        await topic.publish_many([("a", number) for number in range(8, 20)])
        found = await soon(anext(reading))
        assert (found.data, found.missed) == (15, 7)
        assert found.published_at.tzinfo is not None
        await reading.aclose()


def noting_reads(read: asyncio.Event) -> Callable[[str, object, object], Awaitable[None]]:
    """Return a hook that sets an event when a reader receives a reply. If it is empty, the reader then waits."""

    async def note(function: str, _args: object, _reply: object) -> None:
        if function == "readMessages":
            read.set()

    return note


async def test_a_waiting_reader_is_woken(storage: Storage, name: str) -> None:
    relay, read = Relay(storage), asyncio.Event()
    relay.after_call = noting_reads(read)
    async with Topic(name, relay) as topic:
        reading = topic.listen()
        waiting = asyncio.ensure_future(anext(reading))
        await soon(read.wait())
        await topic.publish("a", 1)
        assert (await soon(waiting)).data == 1
        await reading.aclose()


# -- values ---------------------------------------------------------------------------------------------------------


@dataclass
class Order:
    """An order of the tests."""

    id: int
    at: datetime


async def test_values_of_classes_are_published_and_read_by_their_annotation(app: GlideMQ, name: str) -> None:
    seen: list[Order] = []
    sent = Order(5, datetime(2026, 1, 2, tzinfo=UTC))

    @app.subscribe(name)
    async def read(order: Order) -> None:
        seen.append(order)

    @app.subscribe(name, ephemeral=True)
    async def note(order: Order) -> None:
        seen.append(order)

    async with app:
        await app.topic(name).publish("a", sent)
        await app.run_worker(until_empty=True, handle_signals=False)
        await until(lambda: len(seen) == 2)
    assert seen == [sent, sent]


async def test_encrypted_messages_become_encrypted_jobs(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, codecs=[Encryption({"k1": generate_key()})])
    seen: list[str] = []

    @app.subscribe(name)
    async def read(text: str) -> None:
        seen.append(text)

    async with app, Topic(name, storage) as stranger:
        await app.topic(name).publish("a", "secret")
        reading = stranger.listen(start="beginning")
        with pytest.raises(CodecError):
            await anext(reading)
        await app.run_worker(until_empty=True, handle_signals=False)
    assert seen == ["secret"]
    await app.close()


async def test_a_subscription_of_a_keyed_app_takes_messages_without_a_key(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, mode="keyed")
    seen: list[int] = []

    @app.subscribe(name)
    async def read(number: int) -> None:
        seen.append(number)

    async with app:
        await app.topic(name).publish_many([("a", 1), ("a", 2, "k")])
        await app.run_worker(until_empty=True, handle_signals=False)
    assert sorted(seen) == [1, 2]


async def test_a_reader_that_is_woken_and_cancelled_together_ends(storage: Storage, name: str) -> None:
    relay, read = Relay(storage), asyncio.Event()
    relay.after_call = noting_reads(read)
    async with Topic(name, relay) as topic:
        reader = MessageReader(relay, functions_of(topic), ())
        await reader.open("now")
        for _ in range(3):
            read.clear()
            reading = asyncio.ensure_future(reader.next())
            await soon(read.wait())
            reader._on_message(b"")  # pyright: ignore[reportPrivateUsage]
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(reading)
        await reader.close()
