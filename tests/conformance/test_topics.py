"""Topics: publishing, reading with patterns, positions and retention, and the move of messages into a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async.errors import PayloadTooLarge, QueueClosed
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.feeds import FeedReply
from glidemq_async.functions.topics import MessageRead, TopicPosition
from glidemq_async.storage import Storage
from glidemq_async.topics.topic import Topic, decode_message, functions_of
from tests.support.helpers import AnyQueue

START = TopicPosition("0-0", 0)


@pytest.fixture
async def topic(storage: Storage, name: str) -> AsyncIterator[Topic]:
    async with Topic(name, storage) as opened:
        yield opened


async def read(topic: Topic, after: TopicPosition, *patterns: str, most: int = 250) -> MessageRead:
    found = await functions_of(topic).topics.read("", after, patterns, most)
    assert found is not None
    return found


async def subjects(topic: Topic, *patterns: str) -> list[str]:
    return [message.subject for message in (await read(topic, START, *patterns)).messages]


@pytest.mark.everywhere
async def test_messages_are_read_in_order_with_their_data(topic: Topic) -> None:
    first = await topic.publish("order.paid.eu", {"total": 5}, key="c-7")
    others = await topic.publish_many([("order.paid.us", [1, 2]), ("order.sent", None, "c-8")])
    found = await read(topic, START)
    assert [message.entry for message in found.messages] == [first, *others]
    assert [message.number for message in found.messages] == [1, 2, 3]
    assert [message.key for message in found.messages] == ["c-7", "", "c-8"]
    assert [decode_message(topic, message) for message in found.messages] == [{"total": 5}, [1, 2], None]
    assert found.end == TopicPosition(others[-1], 3)
    assert found.total == 3
    assert found.lost == 0


async def test_concurrent_publishes_share_calls_and_keep_their_ids(topic: Topic) -> None:
    ids = await asyncio.gather(*(topic.publish(f"n.{number}", number) for number in range(600)))
    assert len({*ids}) == 600
    numbers: list[Any] = []
    end = START
    while len(numbers) < 600:
        found = await read(topic, end)
        for message in found.messages:
            assert ids[int(message.subject[2:])] == message.entry
            numbers.append(decode_message(topic, message))
        end = found.end
    assert sorted(numbers) == list(range(600))


@pytest.mark.everywhere
async def test_patterns_select_messages(topic: Topic) -> None:
    sent = ["order", "order.paid", "order.paid.eu", "order.sent.eu", "audit.login"]
    await topic.publish_many([(subject, None) for subject in sent])
    assert await subjects(topic) == sent
    assert await subjects(topic, "order.*") == ["order.paid"]
    assert await subjects(topic, "order.>") == ["order.paid", "order.paid.eu", "order.sent.eu"]
    assert await subjects(topic, "order.*.eu") == ["order.paid.eu", "order.sent.eu"]
    assert await subjects(topic, ">") == sent
    assert await subjects(topic, "!audit.>") == sent[:-1]
    assert await subjects(topic, "order.>", "!*.paid.>", "audit.*") == ["order.paid", "order.sent.eu", "audit.login"]
    assert await subjects(topic, "orders.*") == []


async def test_a_read_ends_after_its_rows(topic: Topic) -> None:
    ids = await topic.publish_many([("a", number) for number in range(10)])
    found = await read(topic, START, most=4)
    assert [message.entry for message in found.messages] == ids[:4]
    assert found.end == TopicPosition(ids[3], 4)
    found = await read(topic, found.end, "b")
    assert found.messages == []
    assert found.end == TopicPosition(ids[9], 10)


@pytest.mark.everywhere
async def test_a_bad_subject_is_refused_before_anything_is_sent(topic: Topic) -> None:
    for subject in ("", "a..b", ".a", "a.", "a b", "a.*", ">", "!a", "a\n", "x" * 256, ".".join("a" * 17)):
        with pytest.raises(ValueError, match=r"subject|token"):
            await topic.publish(subject)
    with pytest.raises(TypeError, match="subject"):
        await topic.publish(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="each message"):
        await topic.publish_many([("a",)])  # type: ignore[list-item]
    with pytest.raises(PayloadTooLarge):
        await topic.publish("a", b"x" * 1024 * 1024)
    assert (await topic.info()).published == 0


async def test_a_closed_topic_refuses(storage: Storage, name: str) -> None:
    topic = Topic(name, storage)
    await topic.publish("a")
    await topic.close()
    with pytest.raises(QueueClosed):
        await topic.publish("a")


@pytest.mark.everywhere
async def test_positions_are_found(topic: Topic) -> None:
    locate = functions_of(topic).topics.locate
    assert await locate("now") == START
    first, second = await topic.publish_many([("a", 1), ("a", 2)])
    while await topic.publish("a", 3) < f"{int(second.partition('-')[0]) + 1}":
        pass
    third = (await topic.info()).last
    assert await locate("beginning") == START
    assert await locate(first) == START
    assert await locate(second) == TopicPosition(first, 1)
    assert (await locate("now")).entry == third
    after = int(second.partition("-")[0]) + 1
    assert (await locate(str(after))).entry >= second
    assert (await locate(str(after + 10_000_000))).entry == third


async def test_the_number_of_kept_messages_is_exact(storage: Storage, name: str) -> None:
    async with Topic(name, storage, max_messages=5) as topic:
        await topic.publish_many([("a", number) for number in range(12)])
        info = await topic.info()
        assert (info.published, info.stored) == (12, 5)
        found = await read(topic, START)
        assert found.lost == 7
        assert [decode_message(topic, message) for message in found.messages] == [7, 8, 9, 10, 11]
        assert (await read(topic, TopicPosition(found.messages[0].entry, 8))).lost == 0


async def test_a_smaller_number_is_reached_in_steps(storage: Storage, name: str) -> None:
    async with Topic(name, storage) as topic:
        await topic.publish_many([("a", number) for number in range(2_000)])
    async with Topic(name, storage, max_messages=10) as topic:
        for _ in range(5):
            await topic.publish("a", None)
        assert (await topic.info()).stored == 10


@pytest.mark.everywhere
async def test_read_messages_are_removed_when_every_subscription_has_read_them(storage: Storage, name: str) -> None:
    async with Topic(name, storage, until_read=True) as topic:
        calls = functions_of(topic).topics
        for subscriber in ("one", "two"):
            assert await calls.join(subscriber, f"{name}.{subscriber}", ["a"], "beginning") == START
        ids = await topic.publish_many([("a", number) for number in range(10)])
        await calls.read("one", TopicPosition(ids[9], 10), ["a"], 10)
        assert (await topic.info()).stored == 10
        await calls.read("two", TopicPosition(ids[5], 6), ["a"], 10)
        info = await topic.info()
        assert info.stored == 4
        assert {one.name: one.lag for one in info.subscriptions} == {"one": 0, "two": 4}
        assert await topic.remove_subscription("two")
        assert not await topic.remove_subscription("two")
        assert await calls.read("two", START, ["a"], 10) is None


async def test_old_messages_are_removed(timed: Any, name: str) -> None:
    async with Topic(name, timed.queue.storage, max_age=60) as topic:
        await topic.publish_many([("a", number) for number in range(10)])
        await timed.clock.advance(59_000)
        await topic.publish("a", 10)
        assert (await topic.info()).stored == 11
        await timed.clock.advance(2_000)
        await topic.publish("a", 11)
        assert (await topic.info()).stored == 2


async def test_joining_twice_keeps_the_position(topic: Topic, name: str) -> None:
    calls = functions_of(topic).topics
    await topic.publish("a")
    position = await calls.join("one", f"{name}.one", ["a"], "now")
    await topic.publish("a")
    assert await calls.join("one", f"{name}.one", ["b"], "now") == position
    [one] = (await topic.info()).subscriptions
    assert one.patterns == ("b",)
    assert one.lag == 1
    assert datetime.now(UTC) - one.read_at < timedelta(minutes=1)


# -- the queue of a subscription ------------------------------------------------------------------------------------


def extra(key: str) -> bytes:
    return b"k" + key.encode() if key else b""


def jobs(found: MessageRead) -> list[tuple[TopicPosition, AddRequest]]:
    return [
        (
            TopicPosition(one.entry, one.number),
            AddRequest("", "work", one.data, b"", b"k" + one.key.encode() if one.key else b""),
        )
        for one in found.messages
    ]


async def opened(functions: Functions, holder: str = "w1") -> FeedReply:
    base = functions.caller.base.replace("{", "{topic/")
    return await functions.feeds.open(holder, base, START, 1_000)


@pytest.mark.everywhere
async def test_jobs_and_cursor_change_together(topic: Topic, queue: AnyQueue, functions: Functions) -> None:
    await topic.publish_many([("a", 1), ("a", 2, "k")])
    assert (await functions.feeds.open("w1", "t", None, 100)).status == "new"
    assert await opened(functions) == FeedReply("ok", START, 1_000)
    found = await read(topic, START)
    fed = await functions.feeds.add("w1", START, found.end, 0, 1_000, jobs(found))
    assert fed == FeedReply("ok", found.end, 998)
    # The same messages from a worker that was slower.
    again = await functions.feeds.add("w2", START, found.end, 0, 1_000, jobs(found))
    assert again.status == "moved"
    counts = await queue.get_job_counts()
    assert counts["waiting"] + counts["key-waiting"] == 2
    state = await functions.feeds.read()
    assert state is not None
    assert (state.position, state.fed, state.lost) == (found.end, 2, 0)


async def test_one_worker_feeds_at_a_time(functions: Functions) -> None:
    assert (await opened(functions, "w1")).status == "ok"
    assert (await opened(functions, "w2")).status == "held"
    await functions.feeds.close("w2")
    assert (await opened(functions, "w2")).status == "held"
    await functions.feeds.close("w1")
    assert (await opened(functions, "w2")).status == "ok"


async def test_the_room_counts_waiting_delayed_and_keyed_jobs(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("a", 1)
    await queue.add("a", 1, delay=60)
    await queue.add_bulk([("a", 1), ("a", 2)])
    await queue.add("a", 1, key="k")
    assert (await opened(functions)).room == 995


async def test_lost_messages_are_counted_once(queue: AnyQueue, functions: Functions) -> None:
    await opened(functions)
    end = TopicPosition("5-0", 7)
    for _ in range(2):
        await functions.feeds.add("w1", START, end, 7, 1_000, [])
    state = await functions.feeds.read()
    assert state is not None
    assert (state.position, state.lost) == (end, 7)
    [finding] = await queue.check()
    assert finding.invariant == "I24"
    await functions.feeds.move(START, 1)


async def test_a_moved_cursor_refuses_the_calls_of_the_former_one(topic: Topic, functions: Functions) -> None:
    assert not await functions.feeds.move(START, 1)
    await topic.publish_many([("a", 1), ("a", 2)])
    await opened(functions)
    found = await read(topic, START)
    await functions.feeds.add("w1", START, found.end, 0, 1_000, jobs(found))
    assert await functions.feeds.move(START, 1)
    assert (await functions.feeds.add("w1", found.end, found.end, 0, 1_000, [])).status == "moved"
    assert (await functions.feeds.add("w1", START, found.end, 0, 1_000, jobs(found))).status == "ok"


async def test_a_call_that_ends_early_stores_how_far_it_came(queue: AnyQueue, functions: Functions) -> None:
    await opened(functions)
    many = [
        (TopicPosition(f"{number}-0", number), AddRequest("", "work", b"\xc0" * 100, b"", b"k" + str(number).encode()))
        for number in range(1, 4_001)
    ]
    position, calls = START, 0
    while position.number < 4_000:
        rest = many[position.number :]
        fed = await functions.feeds.add("w1", position, TopicPosition("9999-0", 4_000), 0, 10_000, rest)
        assert fed.position is not None
        position, calls = fed.position, calls + 1
    assert calls > 1
    assert (await queue.get_job_counts())["key-waiting"] == 4_000
    await functions.feeds.move(START, 1)
