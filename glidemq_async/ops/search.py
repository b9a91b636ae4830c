"""Search the jobs of one queue or of all queues, in pages of bounded work."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from glidemq_async.durations import from_ms
from glidemq_async.errors import IncompatibleQueueError
from glidemq_async.filters.fields import AnyJob, Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.ops.rows import JobRow, row_of
from glidemq_async.queues.finding import matching, page_of, present_of

MOST_SEARCHED: Final = 10_000
"""Number of jobs that one page looks at."""
LONGEST_SECONDS: Final = 2.0
"""Seconds after which a page ends, although fewer jobs than its limit were found."""
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class JobPage:
    """Found jobs. `cursor` continues the search, None at its end. `searched` is the number of jobs that were looked at.

    A page that has a cursor can have fewer jobs than its limit, or none, because the work of one search is limited.
    """

    jobs: list[JobRow]
    cursor: str | None
    searched: int
    as_of: datetime


@dataclass(slots=True)
class SearchPlace:
    """The place at which a search continues: queue, number of the state, cursor of the list, and jobs to skip there."""

    queue: str = ""
    state: int = 0
    cursor: str = ""
    skip: int = 0

    @property
    def text(self) -> str:
        """The text that callers get as the cursor. They do not read it."""
        packed = json.dumps([self.queue, self.state, self.cursor, self.skip]).encode()
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str | None) -> SearchPlace:
        """Return the place of a cursor. Raises ValueError if no search has returned it."""
        if not text:
            return cls()
        try:
            queue, state, cursor, skip = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            return cls(str(queue), int(state), str(cursor), int(skip))
        except (ValueError, TypeError, binascii.Error) as error:
            raise ValueError(f"the cursor {text[:40]!r} was not returned by a search; start without one") from error


class Search:
    """One page of a search."""

    def __init__(self, connections: Connections, wanted: Filter, limit: int, place: SearchPlace) -> None:
        self._connections = connections
        self._plan = FilterPlan(wanted)
        self._limit = limit
        self._place = place
        self._found: list[JobRow] = []
        self._met: set[tuple[str, str]] = set()
        self._searched = 0
        self._deadline = asyncio.get_running_loop().time() + LONGEST_SECONDS

    async def run(self) -> JobPage:
        """Return the page. Raises QueueNotFound if the filter names one queue that does not exist."""
        names = await self._connections.searched_queues(self._plan, known=bool(self._place.queue))
        as_of = from_ms(await self._connections.system.reading.now())
        is_complete = True
        for name in names:
            if name < self._place.queue:
                continue
            if name != self._place.queue:
                self._place = SearchPlace(name)
            try:
                is_complete = await self._search_queue(name)
            except (IncompatibleQueueError, QueueNotFound):
                continue  # a queue of another program, or one that was removed now, does not hide the others
            if not is_complete:
                break
        return JobPage(self._found, None if is_complete else self._place.text, self._searched, as_of)

    async def _search_queue(self, name: str) -> bool:
        """Search one queue. Return False if the page is full."""
        queue = await self._connections.queue(name)
        present = await present_of(queue, self._plan)
        if self._plan.only_id is not None:
            return self._note(await matching(queue, [self._plan.only_id], self._plan, present), 1)
        for number, state in enumerate(self._plan.states):
            if number < self._place.state:
                continue
            if number > self._place.state:
                self._place = SearchPlace(name, number)
            while True:
                following, ids, looked = await page_of(queue, state, self._place.cursor, self._plan)
                if not await self._search_page(name, ids, present):
                    return False
                if not following:
                    break
                # The server has looked at these jobs, and left out the ones with another name.
                self._searched += looked - len(ids)
                # The step can be shorter than the one that an earlier page has begun, because its time is limited.
                self._place = SearchPlace(name, number, following, max(0, self._place.skip - len(ids)))
                if self._is_long_enough():
                    return False
        return True

    async def _search_page(self, name: str, ids: list[str], present: Present) -> bool:
        queue = await self._connections.queue(name)
        for start in range(self._place.skip, len(ids), AT_ONCE):
            piece = ids[start : start + AT_ONCE]
            if not self._note(await matching(queue, piece, self._plan, present), len(piece), piece, start):
                return False
        return True

    def _note(self, jobs: list[AnyJob], looked: int, piece: list[str] | None = None, start: int = 0) -> bool:
        """Note the jobs that were found. Return False if the page is full before all of them are noted."""
        for job in jobs:
            if (job.queue, job.id) in self._met:
                continue
            if len(self._found) == self._limit:
                reached = piece.index(job.id) if piece else 0
                self._place.skip = start + reached
                self._searched += reached
                return False
            self._met.add((job.queue, job.id))
            self._found.append(row_of(job))
        self._searched += looked
        return True

    def _is_long_enough(self) -> bool:
        return self._searched >= MOST_SEARCHED or asyncio.get_running_loop().time() > self._deadline
