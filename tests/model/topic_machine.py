"""Random publishes to two topics, feeders that die or are slow, repeated calls, replays and retention.

The machine knows which messages it has published, and applies the same rules to lists. It demands that each
subscription gets exactly the messages that fit, in order and once, apart from those that it counts as lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, cast

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannels
from glidemq_async.functions.topics import Kept, MessageRead, NewMessage, TopicPosition
from glidemq_async.stored.names import QueueKeys
from glidemq_async.topics.subjects import fits, subscription_queue, topic_queue
from tests.model.driver import Driver, run

NOW: Final = 1_700_000_000_000
TOPICS: Final = ("one", "two")
SUBJECTS: Final = ("a", "a.b", "a.b.c", "b.b", "c.a.b")
PATTERNS: Final = ((), ("a.>",), ("a.*", "!a.c"), ("!*.b",), ("*.b", "c.>"))
FEEDERS: Final = 3
BACKLOG: Final = 25
MOST: Final = 40
MOST_ROUNDS: Final = 500


@dataclass
class Feeder:
    """One worker as it feeds: what it knows, which may be outdated."""

    name: str
    position: TopicPosition | None = None
    room: int = 0
    epoch: int = 0
    found: MessageRead | None = None


@dataclass
class Subscribed:
    """A subscription, and what it must have received."""

    topic: str
    name: str
    patterns: tuple[str, ...]
    functions: Functions
    feeders: list[Feeder]
    next: int = 0
    """The number of messages of the topic before its cursor."""
    expected: list[str] = field(default_factory=list)
    lost: int = 0


class TopicMachine:
    """Takes random steps, and compares."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.random = Random(seed)
        self.driver = driver
        driver.reset(NOW)
        driver.end_calls_early(seed % 2 == 1)
        self.now = NOW
        # With every third seed the topics keep few messages.
        self.kept = Kept(MOST) if seed % 3 == 0 else Kept(unread=seed % 3 == 1)
        self.topics = {name: self._functions(topic_queue(name)) for name in TOPICS}
        self.published: dict[str, list[tuple[str, str]]] = {name: [] for name in TOPICS}
        self.subscriptions = [self._subscribe(topic, number) for topic in TOPICS for number in range(3)]

    def _functions(self, queue: str) -> Functions:
        return Functions(self.driver, QueueKeys("model", queue).base, RequestChannels())

    def _subscribe(self, topic: str, number: int) -> Subscribed:
        name = f"s{number}"
        functions = self._functions(subscription_queue(topic, name))
        run(functions.queue.open(None))
        feeders = [Feeder(f"{name}-{each}") for each in range(FEEDERS)]
        found = Subscribed(topic, name, self.random.choice(PATTERNS), functions, feeders)
        run(self.topics[topic].topics.join(name, subscription_queue(topic, name), found.patterns, "now"))
        return found

    # -- actions --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.driver.delivery = self.random.choice(("once", "twice"))
        self.now += self.random.randrange(3)
        self.driver.set_clock(self.now)
        kind = self.random.random()
        if kind < 0.1:
            self.publish()
        elif kind < 0.85:
            self.feed(self.random.choice(self.subscriptions))
        elif kind < 0.92:
            self.take(self.random.choice(self.subscriptions))
        elif kind < 0.97:
            self.replay(self.random.choice(self.subscriptions))
        else:
            self.wait_for_holds()

    def publish(self) -> None:
        topic = self.random.choice(TOPICS)
        known = self.published[topic]
        new = [
            NewMessage(
                self.random.choice(SUBJECTS),
                self.random.choice(("", "k")),
                self.random.choice((b"", b"headers")),
                f"{topic}{len(known) + n}".encode(),
            )
            for n in range(self.random.randint(1, 12))
        ]
        run(self.topics[topic].topics.publish(new, self.kept))
        known += [(one.subject, (one.data + one.headers).decode()) for one in new]

    def feed(self, one: Subscribed) -> None:
        """Let one of the feeders make its next call. It may have been slow, and others may have fed meanwhile."""
        feeder = self.random.choice(one.feeders)
        if self.random.random() < 0.05:  # it dies, and another process with the same slot begins
            feeder.position = feeder.found = None
        elif feeder.position is None or feeder.room == 0:
            self._open(one, feeder)
        elif feeder.found is None:
            feeder.found = run(
                self.topics[one.topic].topics.read(
                    one.name, feeder.position, one.patterns, min(feeder.room, self.random.randint(1, 8)), feeder.epoch
                )
            )
        else:
            self._add(one, feeder, feeder.found)

    def _open(self, one: Subscribed, feeder: Feeder) -> None:
        base = self.topics[one.topic].caller.base
        reply = run(one.functions.feeds.open(feeder.name, base, None, BACKLOG))
        if reply.status == "new":
            queue = subscription_queue(one.topic, one.name)
            start = run(self.topics[one.topic].topics.join(one.name, queue, one.patterns, "now"))
            reply = run(one.functions.feeds.open(feeder.name, base, start, BACKLOG))
        feeder.position, feeder.room, feeder.epoch, feeder.found = reply.position, reply.room, reply.epoch, None

    def _add(self, one: Subscribed, feeder: Feeder, found: MessageRead) -> None:
        assert feeder.position is not None
        jobs = [
            (
                TopicPosition(message.entry, message.number),
                AddRequest(
                    "",
                    message.subject,
                    message.data + message.headers,
                    b"",
                    b"k" + message.key.encode() if message.key else b"",
                ),
            )
            for message in found.messages
        ]
        state = run(one.functions.feeds.read())
        reply = run(one.functions.feeds.add(feeder.name, feeder.position, found.end, found.lost, BACKLOG, jobs))
        assert (reply.position is not None) == (state is not None and state.position == feeder.position)
        if reply.position is not None:
            self._note(one, found.lost, reply.position.number)
        feeder.position, feeder.room, feeder.epoch, feeder.found = reply.position, reply.room, reply.epoch, None

    def _note(self, one: Subscribed, lost: int, reached: int) -> None:
        """Apply the accepted call to the lists."""
        if lost:
            # What is lost was removed by the limit of the topic.
            assert self.kept.most
            assert one.next + lost <= len(self.published[one.topic]) - self.kept.most + 12
            one.lost += lost
            one.next += lost
        passed = self.published[one.topic][one.next : reached]
        one.expected += [data for subject, data in passed if fits(one.patterns, subject)]
        one.next = reached
        assert len(one.expected) <= BACKLOG

    def take(self, one: Subscribed) -> None:
        """Remove the waiting jobs, so that there is room again."""
        if self.random.random() < 0.5:
            self.compare(one)
            run(one.functions.cleaning.drain("", delayed=False))
            one.expected.clear()

    def replay(self, one: Subscribed) -> None:
        """Move the cursor to a random message that is kept."""
        calls = self.topics[one.topic].topics
        state = run(calls.describe())
        number = self.random.randint(state.total - state.length, state.total)
        found = run(calls.read("", TopicPosition("0-0", 0), (), 500))
        assert found is not None
        numbers = [message.number for message in found.messages]
        entry = found.messages[numbers.index(number + 1)].entry if number + 1 in numbers else "now"
        rewound = run(calls.rewind(one.name, entry))
        assert rewound is not None
        assert rewound[0].number == (number if number + 1 in numbers else state.total)
        if self.random.random() < 0.9:  # otherwise the caller dies between the two calls
            fed = run(one.functions.feeds.read())
            moved = run(one.functions.feeds.move(*rewound))
            assert moved == (fed is not None)
            one.next = rewound[0].number
        elif run(one.functions.feeds.read()) is None:
            one.next = rewound[0].number

    def wait_for_holds(self) -> None:
        self.now += 6_000

    # -- comparing ------------------------------------------------------------------------------------------------

    def compare(self, one: Subscribed) -> None:
        """Compare the jobs of a subscription with what it must have received."""
        found: list[str] = []
        base = one.functions.caller.base
        rows = cast("list[tuple[bytes, list[bytes]]]", self.driver.wire.send("XRANGE", f"{base}:fifo", "-", "+"))
        found += [fields[1].decode() for _, fields in rows]
        for job_id in cast("list[bytes]", self.driver.wire.send("ZRANGE", f"{base}:keyed", 0, -1)):
            text = self.driver.wire.send("HGET", f"{base}:compact", job_id)
            assert isinstance(text, bytes)
            found.append(text.decode().rpartition("\x1f")[2])
        assert sorted(found) == sorted(one.expected)
        state = run(one.functions.feeds.read())
        if state is not None:
            assert (state.position.number, state.lost) == (one.next, one.lost)
            topic = run(self.topics[one.topic].topics.describe())
            assert state.position.order <= TopicPosition(topic.last, topic.total).order, "I24"

    def finish(self) -> int:
        """Let each subscription come to the end of its topic. Return the number of messages."""
        self.driver.delivery = "once"
        for one in self.subscriptions:
            for _ in range(MOST_ROUNDS):
                if one.next == len(self.published[one.topic]):
                    break
                self.compare(one)
                run(one.functions.cleaning.drain("", delayed=False))
                one.expected.clear()
                self.wait_for_holds()
                self.driver.set_clock(self.now)
                feeder = Feeder("last")
                self._open(one, feeder)
                assert feeder.position is not None
                calls = self.topics[one.topic].topics
                feeder.found = run(calls.read(one.name, feeder.position, one.patterns, feeder.room, feeder.epoch))
                assert feeder.found is not None
                self._add(one, feeder, feeder.found)
            assert one.next == len(self.published[one.topic])
            self.compare(one)
        return sum(map(len, self.published.values()))


def run_topics(driver: Driver, seed: int, steps: int) -> int:
    """Take this many random steps, and let all subscriptions come to the end. Return the number of messages."""
    machine = TopicMachine(driver, seed)
    for _ in range(steps):
        machine.step()
    return machine.finish()
