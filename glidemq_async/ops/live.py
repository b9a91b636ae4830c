"""Live documents. All viewers of a process share one reader. The reader stops when the last viewer has left."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async._internal.problems import problem_of
from glidemq_async.client.job_tail import Changes
from glidemq_async.errors import GlideMQError
from glidemq_async.ops.documents import as_document

TICK_SECONDS: Final = 1.0
"""Seconds between two readings."""
MOST_SHARE: Final = 0.02
"""The share of a processor that the readings take at most. The interval grows if they need more."""
LONGEST_PAUSE: Final = 10.0
"""Longest interval in seconds. The time of a reading includes other work of the thread, such as pages that open."""
LINGER_SECONDS: Final = 10.0
"""Seconds after the last viewer has left for which the readings continue."""
MOST_TOPICS: Final = 500
"""Maximum number of topics that are read. Topics without viewers are forgotten first."""
LOST: Final = "lost"
"""The topic of the document that viewers get while the store cannot be read."""

Read = Callable[[str], Awaitable[object]]
_log = logging.getLogger(__name__)


class TooManyTopics(GlideMQError):
    """Raised when viewers of this process watch 500 topics."""

    def __init__(self) -> None:
        super().__init__(f"this process reads {MOST_TOPICS} topics, and no more; close some pages, or ask again later")


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document of a topic. `id` resumes after it. `text` is its JSON. A snapshot replaces all earlier documents."""

    id: str
    topic: str
    text: str
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class View:
    """A part of each document. `apply` gets the topic and the document. Views with equal keys show the same part."""

    key: Hashable
    apply: Callable[[str, Any], Any]


WHOLE: Final = View(None, lambda _topic, document: document)


class _Topic:
    """A topic with viewers: its last document, and the tick in which that has changed."""

    def __init__(self, name: str, read: Read) -> None:
        self.name = name
        self.viewers = 0
        self.began = 0
        self.changed = 0
        self._read = read
        self._document: object = None
        self._texts: dict[Hashable, str] = {}

    async def read(self, tick: int) -> None:
        """Read the document again."""
        try:
            document = await self._read(self.name)
        except LookupError as error:  # a queue or job that was removed
            document = {"gone": str(error)}
        self.began = self.began or tick
        if document != self._document or not self.changed:
            self._document, self.changed = document, tick
            self._texts.clear()

    def text(self, since: int, view: View) -> str:  # noqa: ARG002 - a topic of rows needs it
        """Return the document for a viewer that has the one of the tick `since`, 0 for none."""
        found = self._texts.get(view.key)
        if found is None:
            found = self._texts[view.key] = dumps(view.apply(self.name, self._document))
        return found


class _RowTopic(_Topic):
    """A topic whose document is a list of rows with names. Viewers get the rows that have changed."""

    def __init__(self, name: str, read: Read) -> None:
        super().__init__(name, read)
        self._rows: dict[str, tuple[int, Any]] = {}
        self._gone: dict[str, int] = {}

    async def read(self, tick: int) -> None:
        """Read the rows again."""
        rows = {row.name: row for row in cast("Sequence[Any]", await self._read(self.name))}
        self.began = self.began or tick
        changes = {name: row for name, row in rows.items() if name not in self._rows or self._rows[name][1] != row}
        gone = [name for name in self._rows if name not in rows]
        if not changes and not gone and self.changed:
            return
        for name in gone:
            del self._rows[name]
            self._gone[name] = tick
        for name, row in changes.items():
            self._rows[name] = tick, row
            self._gone.pop(name, None)
        self.changed = tick
        self._texts.clear()

    def text(self, since: int, view: View) -> str:
        """Return the rows that have changed after a tick."""
        key = (since, view.key)
        found = self._texts.get(key)
        if found is None:
            rows = [row for changed, row in self._rows.values() if changed > since]
            removed = [name for name, at in self._gone.items() if since and at > since]
            shown = view.apply(self.name, rows)
            found = self._texts[key] = dumps({self.name: shown, "removed": removed})
        return found


class Live:
    """The live documents of a core.

    `readers` has a function for each kind of topic: `queue` for topics such as `queue:mail`. `rows` are the kinds of
    which only changed rows are sent.
    """

    def __init__(self, readers: Mapping[str, Read], *, rows: Sequence[str] = ()) -> None:
        self._readers = readers
        self._kinds_of_rows = frozenset(rows)
        self._topics: dict[str, _Topic] = {}
        self._tick = 0
        self._epoch = ""
        self._changes = Changes()
        self._error: tuple[int, str] | None = None
        self._task = BackgroundTasks()
        self._is_reading = self._is_closed = False
        self.readings = 0
        """The number of readings of the store so far."""

    async def subscribe(
        self, topics: Sequence[str], *, after: str | None = None, view: View = WHOLE
    ) -> AsyncGenerator[LiveDocument]:
        """Iterate over the documents of topics, at most one of each topic in a tick.

        A slow viewer gets the newest documents and none in between. `after` is the id of the last document that the
        viewer has. If this process does not know it, the viewer gets all documents as snapshots. Raises ValueError for
        an unknown topic, and TooManyTopics.
        """
        with self._watch(topics) as watched:
            since = self._position(after)
            last = dict.fromkeys(watched, since)
            while not self._is_closed:
                seen = self._changes.count
                for document in self._documents(watched, last, view):
                    yield document
                await self._changes.wait(seen)

    @property
    def is_reading(self) -> bool:
        """True while the documents are read."""
        return self._is_reading

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of topics."""
        return frozenset(self._readers)

    async def close(self) -> None:
        """End the readings, and all iterators with them."""
        self._is_closed = True
        self._changes.add()
        await self._task.close()

    def _documents(self, watched: Mapping[str, _Topic], last: dict[str, int], view: View) -> Iterator[LiveDocument]:
        tick = self._tick
        identity = f"{self._epoch}-{tick}"
        if self._error is not None and self._error[0] > max(last.values()):
            text = dumps({"detail": self._error[1]})
            yield LiveDocument(identity, LOST, text, is_snapshot=False)
            return
        for name, topic in watched.items():
            since = last[name] if topic.began <= last[name] else 0
            if topic.changed > since:
                yield LiveDocument(identity, name, topic.text(since, view), is_snapshot=since == 0)
            if topic.changed:
                last[name] = tick

    def _position(self, after: str | None) -> int:
        epoch, _, tick = (after or "").rpartition("-")
        return int(tick) if epoch == self._epoch and tick.isdecimal() and int(tick) <= self._tick else 0

    @contextmanager
    def _watch(self, names: Sequence[str]) -> Generator[dict[str, _Topic]]:
        watched = {name: self._topic(name) for name in dict.fromkeys(names)}
        for topic in watched.values():
            topic.viewers += 1
        if not self._is_reading:
            self._is_reading = True
            self._epoch, self._tick, self._error = uuid.uuid4().hex[:8], 0, None
            self._task.start(self._run())
        try:
            yield watched
        finally:
            for topic in watched.values():
                topic.viewers -= 1

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is not None:
            return found
        kind = name.partition(":")[0]
        if kind not in self._readers:
            raise ValueError(f"there is no topic {name!r}; the topics are {', '.join(sorted(self._readers))}")
        if len(self._topics) >= MOST_TOPICS:
            self._forget_unwatched()
        make = _RowTopic if kind in self._kinds_of_rows else _Topic
        found = self._topics[name] = make(name, self._readers[kind])
        return found

    def _forget_unwatched(self) -> None:
        self._topics = {name: topic for name, topic in self._topics.items() if topic.viewers}
        if len(self._topics) >= MOST_TOPICS:
            raise TooManyTopics

    async def _run(self) -> None:
        try:
            left_at = time.monotonic()
            while True:
                watched = [topic for topic in self._topics.values() if topic.viewers]
                if watched:
                    left_at = time.monotonic()
                elif time.monotonic() - left_at > LINGER_SECONDS:
                    return
                used = time.thread_time()
                await self._read(watched)
                used = time.thread_time() - used
                await asyncio.sleep(min(max(TICK_SECONDS, used / MOST_SHARE), LONGEST_PAUSE))
        finally:
            self._is_reading = False
            self._topics.clear()

    async def _read(self, watched: Sequence[_Topic]) -> None:
        tick = self._tick + 1
        try:
            for topic in watched:
                await topic.read(tick)
                self.readings += 1
            self._error = None
        except GlideMQError as error:
            _log.warning("the live documents cannot be read: %s", problem_of(error))
            self._error = tick, problem_of(error)
        self._tick = tick
        self._changes.add()


def dumps(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(as_document(value), ensure_ascii=False, separators=(",", ":"))
