"""Cases of the functions for topics and for the queues of their subscriptions."""

from __future__ import annotations

from functools import cache

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.topics import MAX_MESSAGES, Kept, NewMessage, TopicPosition
from glidemq_async.topics.subjects import MAX_PATTERNS, MAX_TOKENS
from tests.server_time.bench import MIB, NIL, Bench, largest

BEGIN = TopicPosition("0-0", 0)
ALL = Kept()
ROWS = 250
MANY_SUBSCRIPTIONS = 200
LONG = ".".join(["token"] * MAX_TOKENS)
PATTERNS = [".".join(["*"] * (MAX_TOKENS - 1) + [f"other{number}"]) for number in range(MAX_PATTERNS)]


@cache
def messages(count: int, size: int = 100, *, distinct: bool = False) -> list[NewMessage]:
    return [
        NewMessage(f"{LONG}{number}" if distinct else "order.paid.eu", f"k{number % 50}", b"h" * 100, b"x" * size)
        for number in range(count)
    ]


async def publish(topic: Functions, count: int, kept: Kept = ALL, *, size: int = 100, distinct: bool = False) -> None:
    found = messages(count, size, distinct=distinct)
    step = max(1, min(MAX_MESSAGES, MIB // size))
    for start in range(0, count, step):
        await topic.topics.publish(found[start : start + step], kept)


async def read_all(topic: Functions, patterns: list[str], name: str = "") -> None:
    position, total = BEGIN, 1
    while position.number < total:
        found = await topic.topics.read(name, position, patterns, ROWS)
        assert found is not None
        position, total = found.end, found.total


@largest("publishMessages")
async def publish_many(b: Bench) -> None:
    await publish(b.functions, 20 * b.many)


@largest("publishMessages", "large messages")
async def publish_large(b: Bench) -> None:
    await publish(b.functions, 20, size=MIB)


@largest("publishMessages", "removes many")
async def publish_and_remove(b: Bench) -> None:
    await publish(b.functions, 20 * b.many)
    for _ in range(40):
        await publish(b.functions, MAX_MESSAGES, Kept(10, 1))


@largest("readMessages")
async def read(b: Bench) -> None:
    await publish(b.functions, 5 * b.many)
    await read_all(b.functions, [])


@largest("readMessages", "large messages")
async def read_large(b: Bench) -> None:
    await publish(b.functions, 10, size=MIB)
    await read_all(b.functions, ["none"])
    await read_all(b.functions, [])


@largest("readMessages", "many patterns and subjects")
async def read_with_patterns(b: Bench) -> None:
    await publish(b.functions, 2 * b.many, distinct=True)
    await read_all(b.functions, PATTERNS)


@largest("readMessages", "many subscriptions, until read")
async def read_until_all_have_read(b: Bench) -> None:
    for number in range(MANY_SUBSCRIPTIONS):
        await b.functions.topics.join(f"s{number}", "q", PATTERNS, "beginning")
    await publish(b.functions, 5 * b.many, Kept(0, 0, unread=True))
    end = TopicPosition(f"{2**50}-0", 5 * b.many)
    for number in range(MANY_SUBSCRIPTIONS):
        await b.functions.topics.read(f"s{number}", end, PATTERNS, ROWS)


@largest("joinTopic")
async def join(b: Bench) -> None:
    await publish(b.functions, 5 * b.many)
    for number in range(MANY_SUBSCRIPTIONS):
        await b.functions.topics.join(f"s{number}", "q", PATTERNS, "now")


@largest("rewindTopic")
async def rewind(b: Bench) -> None:
    await publish(b.functions, 20 * b.many)
    await b.functions.topics.join("s", "q", PATTERNS, "now")
    for start in ("beginning", "now", "5", "5-5"):
        assert await b.functions.topics.rewind("s", start) is not None


@largest("leaveTopic")
async def leave(b: Bench) -> None:
    await b.functions.topics.join("s", "q", PATTERNS, "now")
    await b.functions.topics.leave("s")


@largest("locateMessages")
async def locate(b: Bench) -> None:
    await publish(b.functions, max(100_000, 20 * b.many))
    for start in ("now", "beginning", "5", str(2**50), "5-5"):
        await b.functions.topics.locate(start)


@largest("describeTopic")
async def describe(b: Bench) -> None:
    await publish(b.functions, 5 * b.many)
    for number in range(MANY_SUBSCRIPTIONS):
        await b.functions.topics.join(f"s{number}", "q", PATTERNS, "now")
    await b.functions.topics.describe()


@largest("openFeed")
async def open_feed(b: Bench) -> None:
    await b.add(b.many)
    await b.functions.feeds.open("w", "t", BEGIN, 100)


async def feed(b: Bench, count: int, data: bytes = NIL, **extra: object) -> None:
    """Feed jobs in calls of 250."""
    await b.crowd()
    await b.functions.feeds.open("w", "t", BEGIN, 2**40)
    position = BEGIN
    while position.number < count:
        last = min(count, position.number + max(1, min(ROWS, MIB // len(data))))
        jobs = [
            (
                TopicPosition(f"{n}-0", n),
                AddRequest("", "n", data, b"", msgpack.packb({**extra, "key": f"k{n}"}) if extra else b""),
            )
            for n in range(position.number + 1, last + 1)
        ]
        reply = await b.functions.feeds.add("w", position, jobs[-1][0], 1, 2**40, jobs)
        assert reply.position is not None
        position = reply.position


@largest("feedJobs")
async def feed_jobs(b: Bench) -> None:
    await feed(b, 5 * b.many)


@largest("feedJobs", "with keys")
async def feed_keyed(b: Bench) -> None:
    await feed(b, 2 * b.many, cost=1000)


@largest("feedJobs", "large jobs")
async def feed_large(b: Bench) -> None:
    await feed(b, 20, b"x" * MIB)


@largest("closeFeed")
async def close_feed(b: Bench) -> None:
    await b.functions.feeds.open("w", "t", BEGIN, 100)
    await b.functions.feeds.close("w")


@largest("moveFeed")
async def move_feed(b: Bench) -> None:
    await b.functions.feeds.open("w", "t", BEGIN, 100)
    await b.functions.feeds.move(TopicPosition("5-0", 5), 1)


@largest("readFeed")
async def read_feed(b: Bench) -> None:
    await b.functions.feeds.open("w", "t", BEGIN, 100)
    assert await b.functions.feeds.read() is not None
