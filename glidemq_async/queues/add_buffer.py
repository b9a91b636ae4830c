"""Combine concurrent adds. While a call is in flight, new adds collect and are sent by the next call.

An add waits only while another call is in flight. Each caller waits on a separate future, so cancelling one caller does
not affect the others. A cancelled add may have been stored.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from typing_extensions import override

from glidemq_async._internal import failpoints
from glidemq_async._internal.continued_work import ContinuedWork
from glidemq_async._internal.loops import elsewhere
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import IncompatibleQueueError, QueueClosed
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import PromptStore, Wait
from glidemq_async.functions.grouped_adds import AddReply
from glidemq_async.storage.protocol import FunctionError

Value = TypeVar("Value")

MAX_JOBS: Final = 250
"""Maximum number of jobs in one call. The server adds about as many plain jobs before it serves other clients."""
MAX_BYTES: Final = 1024 * 1024
"""Size of the payloads in bytes at which a call is full."""
MIN_SHARED: Final = 8
"""A second call is sent only while the call in flight has at least this many jobs."""


class Added(NamedTuple):
    """The reply for jobs that were submitted together."""

    ids: Sequence[str]
    """An id for each job."""
    outcomes: Mapping[int, str]
    """The outcomes of the jobs that were not added, by position."""
    now: int
    """The server's time in milliseconds."""
    errors: Mapping[int, BaseException] = {}
    """The errors of the jobs that are not stored, or perhaps not stored, by position."""


class _Entry(NamedTuple):
    """Jobs of one caller that one call can hold. One future for all of them costs less than one for each."""

    jobs: Sequence[AddRequest]
    size: int
    future: asyncio.Future[Added]
    is_plain: bool
    """True for a single plain job that is not a part of a bulk."""


def split_into_calls(jobs: Sequence[AddRequest]) -> Iterator[Sequence[AddRequest]]:
    """Yield parts of the jobs, each of which one call can hold. A large payload is alone."""
    start = size = 0
    for position, job in enumerate(jobs):
        size += len(job.data)
        if position > start and (size > MAX_BYTES or position - start == MAX_JOBS):
            yield jobs[start:position]
            start, size = position, len(job.data)
    if start < len(jobs):
        yield jobs[start:]


# No timer waits for more jobs. An add that finds nothing in flight is sent immediately, so a single caller loses no
# time. Adds that come during a call share the next one. The more callers there are, the larger the batches become,
# without a setting.
#
# Each durability has a separate buffer, because `WAIT` holds up a whole call. Plain adds do not wait behind it.
#
# With one call in flight, the client would wait while the server works, and the server would wait while the client
# prepares the next call. So two calls are in flight if there are many callers. The first call takes half of the jobs in
# the buffer. The server executes the calls in the order in which they were sent. This order is lost if the first call
# is repeated after an error, or if it ends early and the rest of its jobs is sent later. So only single plain jobs are
# sent in two calls: they come from different callers, and concurrent adds have no order.
class CallBuffer(ABC):
    """The buffer of the adds of one client and one durability.

    `owner` is the name of the client in errors, and `loop` is its event loop. Without one, the buffer belongs to the
    loop of its first add.
    """

    _shares_calls: ClassVar = False
    """True if many callers may share two calls in flight."""

    def __init__(self, owner: str, wait: Wait, loop: asyncio.AbstractEventLoop | None) -> None:
        self._owner = owner
        self._loop = loop
        self._wait: Wait = wait
        self._line: deque[_Entry] = deque()
        self._max_added = MAX_JOBS
        """Maximum number of jobs in the next call, adapted to the number that the server added in the last one."""
        self._sending = False
        self._is_shared = False
        """True if a second call may be sent while the current call has no reply."""
        # True if the last call carried several jobs. Their callers have just received their replies and are likely to
        # add again, so the next job waits one iteration of the loop for them instead of being sent alone.
        self._crowded = False
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._senders: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def is_free(self) -> bool:
        """True if no other add is in flight or expected, so that the next one does not share its call."""
        return not (self._sending or self._crowded or self._closed)

    async def add(self, job: AddRequest) -> Added:
        """Add one job. A single caller sends it directly, without a second task."""
        # The direct way saves a task and a turn of the event loop for a program that adds one job after another. It
        # must not overtake other adds, so it is taken only when no call is in flight and the buffer is empty.
        # `_sending` is set before the await, so an add that comes during the call goes into the buffer, and `_send_on`
        # sends it afterwards.
        if self._sending or self._crowded or self._closed:
            added = await self.submit([job])
            if added.errors:
                raise added.errors[0]
            return added
        self._running_loop()
        self._sending = True
        self._all_sent.clear()
        try:
            reply = await (self._call([job]) if failpoints.armed else self._answer([job]))
        finally:
            self._send_on()
        return Added(reply.ids, reply.outcomes, reply.now)

    async def add_apart(self, job: AddRequest, sent: list[asyncio.Future[Added]]) -> Added:
        """Add one job in a call that the cancellation of the caller does not reach.

        After a cancellation `sent` has the future of the reply, if the job was sent or may be.
        """
        if self._sending or self._crowded or self._closed or failpoints.armed or not self._sends_at_once():
            future = self.submit([job])
            sent.append(future)
            added = await asyncio.shield(future)
        else:
            self._running_loop()
            self._sending = True
            self._all_sent.clear()
            work = ContinuedWork(self._add_one(job))
            try:
                added = await work
            except asyncio.CancelledError:
                if work.rest is not None:
                    sent.append(work.rest)
                raise
        if added.errors:
            raise added.errors[0]
        return added

    async def _add_one(self, job: AddRequest) -> Added:
        """Add one job in a separate call. Its error is a part of the result."""
        try:
            reply = await self._answer([job])
        except Exception as error:  # noqa: BLE001 - for the caller
            return Added([], {}, 0, {0: error})
        finally:
            self._send_on()
        return Added(reply.ids, reply.outcomes, reply.now)

    def _sends_at_once(self) -> bool:
        """Return whether a call would send its request now; see `PromptStore.sends_at_once`."""
        return False

    def submit(self, jobs: Sequence[AddRequest], *, in_order: bool = False) -> asyncio.Future[Added]:
        """Append jobs to the buffer, at most as many as one call can hold. The future always gets a result.

        With `in_order` they are added before the jobs that are submitted later, unless a call fails.
        """
        if self._closed:
            raise QueueClosed(f"{self._owner} is closed; create a new one")
        entry = _entry(jobs, self._running_loop(), in_order=in_order)
        self._line.append(entry)
        if not self._sending or self._may_send_beside():
            self._send_on()
        return entry.future

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. Raises RuntimeError if it is not the one of this buffer."""
        # This loop could send a job from another loop. It would then set the result of a future of the other loop from
        # this thread, and the other loop might not wake up.
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise elsewhere(self._loop, self._owner)
            self._loop = loop
        return loop

    async def close(self) -> None:
        """Refuse further jobs, and wait for the replies of those in the buffer."""
        self._closed = True
        await self._all_sent.wait()

    def _send_on(self) -> None:
        """Start the next call if jobs have collected and another call is allowed."""
        # An add that finds `_sending` set relies on another task to send its job. Two rules keep it from waiting for
        # ever. First, every task that sends ends here, even if it is cancelled or its call fails: `add` and `_send_all`
        # call this method in a `finally`, and `_forget` does if the task never began. Second, nothing is awaited
        # between the look at `_line` and the change of `_sending`. With an await there, a job could be appended after
        # the look, find `_sending` still set, and have no sender.
        #
        # A loop that shuts down cancels the senders and all callers. No sender may start then for the jobs of these
        # callers: nobody would await it, and asyncio would log that it was destroyed.
        while self._line and self._line[0].future.cancelled():
            self._line.popleft()
        self._sending = bool(self._line or self._senders)
        if not self._sending:
            self._all_sent.set()
        elif self._line and (not self._senders or self._may_send_beside()):
            self._all_sent.clear()
            self._is_shared = False  # until the sender has taken its jobs
            sender = asyncio.create_task(self._send_all())
            self._senders.add(sender)
            sender.add_done_callback(self._forget)  # also if it is cancelled before its first step

    def _may_send_beside(self) -> bool:
        """Return whether the first job in the buffer may be sent while another call has no reply."""
        return self._is_shared and len(self._senders) == 1 and self._line[0].is_plain

    async def _send_all(self) -> None:
        try:
            while self._line and (len(self._senders) == 1 or self._line[0].is_plain):
                await self._send(self._next_batch())
        finally:
            self._forget(asyncio.current_task())

    def _forget(self, sender: asyncio.Task[None] | None) -> None:
        if sender in self._senders:
            self._senders.remove(sender)
            self._send_on()

    def _next_batch(self) -> list[_Entry]:
        batch: list[_Entry] = []
        count = size = 0
        is_alone = len(self._senders) == 1
        is_plain = True
        most = self._most_entries(is_alone=is_alone)
        while self._line and len(batch) < most:
            entry = self._line[0]
            count += len(entry.jobs)
            size += entry.size
            if batch and (size > MAX_BYTES or count > MAX_JOBS):
                break  # send a large payload alone, so that only its own caller waits for it
            if not (entry.is_plain or is_alone):
                break
            if is_plain and not entry.is_plain:
                is_plain = False
                most += len(self._line)  # no second call takes the others
            batch.append(self._line.popleft())
        self._crowded = len(batch) > 1
        self._is_shared = self._shares_calls and is_plain and len(batch) >= MIN_SHARED
        if self._line and is_alone and self._is_shared:
            self._send_on()
        return batch

    def _most_entries(self, *, is_alone: bool) -> int:
        """Return how many plain entries the next call takes: half of them if a second call takes the others."""
        waiting = len(self._line)
        if is_alone and self._shares_calls and waiting >= 2 * MIN_SHARED:
            return (waiting + 1) // 2
        return waiting

    async def _add_all(self, jobs: Sequence[AddRequest]) -> Added:
        """Add the jobs in as many calls as they need."""
        now, ids, outcomes = await self._call_for_some(jobs)
        try:
            while (done := len(ids)) < len(jobs):
                now, more, others = await self._call_for_some(jobs[done:])
                outcomes |= {done + at: outcome for at, outcome in others.items()}
                ids += more
        except Exception as error:  # noqa: BLE001 - the jobs of the earlier calls are stored
            rest = range(len(ids), len(jobs))
            return Added([*ids, *("" for _ in rest)], outcomes, now, dict.fromkeys(rest, error))
        return Added(ids, outcomes, now)

    # The reply is compared with the jobs of the same call. While the call was in flight, the other one may have changed
    # the maximum.
    async def _call_for_some(self, jobs: Sequence[AddRequest]) -> AddReply:
        """Make one call with the first jobs. Send fewer jobs per call if the server has ended this one early."""
        sent = jobs[: self._max_added]
        reply = await self._call(sent)
        added = len(reply.ids)
        if added < len(sent):
            self._max_added = added
        elif self._max_added < MAX_JOBS:
            self._max_added = min(2 * self._max_added, MAX_JOBS)
        return reply

    async def _call(self, jobs: Sequence[AddRequest]) -> AddReply:
        if failpoints.armed:
            failpoints.hit("add.before_send")
        reply = await self._answer(jobs)
        if failpoints.armed:
            failpoints.hit("add.after_reply")
        return reply

    @abstractmethod
    async def _answer(self, jobs: Sequence[AddRequest]) -> AddReply:
        """Make one call with these jobs. The reply may have fewer ids than jobs."""

    async def _send(self, batch: Sequence[_Entry]) -> None:
        jobs = batch[0].jobs if len(batch) == 1 else [job for entry in batch for job in entry.jobs]
        try:
            reply = await self._add_all(jobs)
        except BaseException as error:
            if isinstance(error, IncompatibleQueueError) and len(jobs) > 1:
                # The mode of the queue was set after the jobs were checked. Find the job that does not fit it.
                await self._send_singly(batch)
                return
            _refuse(batch, error)
            # A cancellation of the sender (a loop that shuts down). The callers have their error now, and the task must
            # still end as cancelled.
            if not isinstance(error, Exception):
                raise
            return
        ids, outcomes, now, errors = reply
        start = 0
        for jobs, _, future, _ in batch:
            end = start + len(jobs)
            # The future of a cancelled caller is done already. Its jobs are sent all the same: the call may have been
            # in flight when the caller was cancelled, so a cancelled add may have stored its jobs in any case.
            if not future.done():
                future.set_result(
                    Added(
                        ids[start:end],
                        _between(outcomes, start, end) if outcomes else outcomes,
                        now,
                        _between(errors, start, end) if errors else errors,
                    )
                )
            start = end

    async def _send_singly(self, batch: Sequence[_Entry]) -> None:
        singles = [[_entry([job], self._running_loop()) for job in entry.jobs] for entry in batch]
        try:
            for of_entry in singles:
                for single in of_entry:
                    await self._send([single])
        except BaseException as error:
            _refuse(batch, error)
            raise
        for entry, of_entry in zip(batch, singles, strict=True):
            if not entry.future.done():
                entry.future.set_result(_joined([single.future.result() for single in of_entry]))


class Adder(CallBuffer):
    """The buffer of adds of one queue client and one durability."""

    _shares_calls = True

    def __init__(self, client: QueueClient, wait: Wait) -> None:
        super().__init__(f"queue {client.queue!r}", wait, client.loop)
        self._client = client
        storage = client.storage
        self._store = storage if wait == "default" and isinstance(storage, PromptStore) else None

    @override
    def _sends_at_once(self) -> bool:
        return self._store is not None and self._store.sends_at_once(self._client.keys.base)

    @override
    async def _answer(self, jobs: Sequence[AddRequest]) -> AddReply:
        # UNDECLARED means that the queue was obliterated or lost since this client declared its mode. The server
        # refuses such a call before it writes anything, so the same jobs can be sent again as a new call. A job added
        # to a queue without its mode could break the promise of that mode.
        while True:
            functions = self._client.functions
            meant = functions.caller.incarnation
            try:
                if len(jobs) == 1:
                    return await functions.add.one(jobs[0], self._wait)
                return await functions.add.some(jobs, self._wait)
            except FunctionError as error:
                if error.code != "UNDECLARED":
                    raise self._client.refused(error) from None
            await self._client.open_again(meant)


def _entry(jobs: Sequence[AddRequest], loop: asyncio.AbstractEventLoop, *, in_order: bool = False) -> _Entry:
    size = len(jobs[0].data) if len(jobs) == 1 else sum([len(job.data) for job in jobs])
    is_plain = len(jobs) == 1 and not (jobs[0].id or jobs[0].extra or in_order)
    return _Entry(jobs, size, loop.create_future(), is_plain)


def _refuse(batch: Sequence[_Entry], error: BaseException) -> None:
    """Give the error of a call to each caller. It is a part of the result, because a bulk lists its errors."""
    for entry in batch:
        if not entry.future.done():
            entry.future.set_result(Added([], {}, 0, dict.fromkeys(range(len(entry.jobs)), error)))


def _between(by_position: Mapping[int, Value], start: int, end: int) -> dict[int, Value]:
    return {at - start: value for at, value in by_position.items() if start <= at < end}


def _joined(singles: Sequence[Added]) -> Added:
    """Return the replies to single jobs as one reply. A job with an error has no id."""
    return Added(
        [single.ids[0] if single.ids else "" for single in singles],
        {at: single.outcomes[0] for at, single in enumerate(singles) if single.outcomes},
        max(single.now for single in singles),
        {at: single.errors[0] for at, single in enumerate(singles) if single.errors},
    )
