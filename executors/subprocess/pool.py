"""The child processes of one executor: started when they are needed, kept warm, and replaced when they are used up."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from glidemq_async.errors import ExecutorError
from glidemq_async.executors.subprocess.channel import Channel, Flow
from glidemq_async.executors.subprocess.frames import PROTOCOL, Frame
from glidemq_async.executors.subprocess.guard_client import Ending, GuardClient
from glidemq_async.executors.subprocess.output import Output
from glidemq_async.executors.subprocess.receiving import Receiver
from glidemq_async.executors.subprocess.records import Levels
from glidemq_async.executors.subprocess.remote_errors import error_from_values
from glidemq_async.executors.subprocess.system import how_it_ended

PREPARE_SECONDS: Final = 60.0
"""Maximum time in which a child must start, including imports and set-up."""
_HELLO_LIMIT: Final = 1024 * 1024
"""Maximum size in bytes of a frame from a child before its jobs set the limit."""
_END_SECONDS: Final = 2.0
"""Maximum time in which a child must end after a request."""
_IDLE_SECONDS: Final = 0.5
"""Maximum time in which idle and retired children must end when the pool is stopped immediately."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
"""Pause before a child is started after a failed start; doubled for each further failure."""
_MOST_FAILURES: Final = 10
"""Maximum of counted failures. The pause does not grow any more beyond it."""

_log = logging.getLogger(__name__)


class PooledChild:
    """One child process, from the worker's side."""

    def __init__(self, number: int, channel: Channel, ending: asyncio.Future[Ending], records: Receiver) -> None:
        self.number = number
        self.pid = 0
        self.channel = channel
        self.ending = ending
        self.records = records
        self.levels: Levels | None = None
        """The levels that were last sent to it."""
        self.output: Output | None = None
        self.jobs = 0
        self.run = 0
        """The number of its current run."""

    def begin_run(self) -> None:
        """Count another job, and number its run."""
        self.jobs += 1
        # A random number. The process is free for its next job as soon as the worker has read the outcome of the last
        # one, and that job may have written more frames. They arrive during the next run. With consecutive numbers, a
        # hostile job could so send a result for the next job.
        self.run = secrets.randbits(48)

    @property
    def is_alive(self) -> bool:
        """True if it can run a job."""
        return self.channel.is_open and not self.ending.done()


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The number of children, and the configuration that each of them starts with."""

    processes: int
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    output: Callable[[], Output]
    flow: Flow


# A child is starting, idle or assigned to one run. It is never in two of these states: such a child would run two jobs
# concurrently. It is never in none of them: such a child would occupy a process for ever. Four events can break this:
#
# - A run is cancelled in the moment in which the pool assigns a child to it. `take` then finds a finished future. It
#   passes the child on before it lets the cancellation continue.
# - A child dies. `take` and `_offer` check `is_alive`. If the child dies later, its channel ends, and its run notices.
# - A start fails. The pool refuses one waiting run and waits longer before the next start. `_started` calls `_grow`
#   after each attempt, so each of the other waiting runs gets an attempt.
# - `retire` and `end` remove a child from the tables before its process has ended. The guard knows the number of the
#   child until it has reaped the process, so a late signal cannot reach another process. `stop` waits for these ends.
class Pool:
    """Assigns children to runs, each child to one run at a time."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._guard = GuardClient(settings.config, settings.environment)
        self._guard_starts = asyncio.Lock()
        self._children: set[PooledChild] = set()
        self._ending: set[asyncio.Future[Ending]] = set()
        self._retired: set[asyncio.Future[Ending]] = set()
        self._idle: list[PooledChild] = []
        self._waiters: deque[asyncio.Future[PooledChild]] = deque()
        self._starts: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._is_closed = False
        self._reported_lacking: list[str] = []

    async def take(self) -> PooledChild:
        """Wait for a free child. Raises ExecutorError when none can be started."""
        while self._idle:
            # Prefer the child that was used last: the others may be swapped out.
            child = self._idle.pop()
            if child.is_alive:
                return child
        waiter: asyncio.Future[PooledChild] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._grow()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._offer(waiter.result())
            raise

    def give_back(self, child: PooledChild) -> None:
        """Make a child available again, unless it was asked to end in the meantime."""
        if child in self._children:
            self._offer(child)

    def retire(self, child: PooledChild) -> None:
        """Ask a child to end, and replace it by another one."""
        self._forget(child)
        child.channel.send("stop")
        self._retired.add(child.ending)
        child.ending.add_done_callback(self._retired.discard)
        asyncio.get_running_loop().call_later(_END_SECONDS, self.signal, child, signal.SIGKILL)
        # Start the replacement now, so that the next job need not wait for it.
        self._grow(spare=1)

    def end(self, child: PooledChild) -> None:
        """Kill a child and its process group."""
        self._forget(child)
        self.signal(child, signal.SIGKILL)
        self._grow()

    def signal(self, child: PooledChild, what: signal.Signals) -> None:
        """Send a signal to a child and its process group, unless it has ended."""
        if not child.ending.done():
            self._guard.signal(child.number, what)

    async def stop(self, grace: float) -> None:
        """Ask idle children to end, and kill the rest after `grace` seconds. No process is left when it returns."""
        self._is_closed = True
        if grace > 0 and (busy := [child.ending for child in self._children if child not in self._idle]):
            await asyncio.wait(busy, timeout=grace)
        await self._cancel_starts()
        while self._waiters:
            self._refuse(ExecutorError("the subprocess executor was stopped"))
        await self._stop_unused(max(grace, _IDLE_SECONDS))
        # Ends every process below it, also those that `retire` and `end` have removed from the tables.
        await self._guard.stop()
        for child in list(self._children):
            child.channel.close()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _cancel_starts(self) -> None:
        # The starts are ended before the guard. A start that continued would find a dead guard and start another one.
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)

    async def _stop_unused(self, seconds: float) -> None:
        """Wait until the idle and the retired children have exported their spans and ended, at most this long."""
        for child in self._idle:
            child.channel.send("stop")
        if unused := [*(child.ending for child in self._idle), *self._retired]:
            await asyncio.wait(unused, timeout=seconds)

    # -- handing out ------------------------------------------------------------------------------------------------

    def _offer(self, child: PooledChild) -> None:
        if not child.is_alive:
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(child)
                return
        self._idle.append(child)

    def _refuse(self, error: ExecutorError) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                return

    def _grow(self, spare: int = 0) -> None:
        """Start a child for each waiting run, up to the limit, and make sure that `spare` are idle or starting."""
        # Cancelled waiters stay in the queue until `_offer` or `_refuse` meets them, so they are not counted. Children
        # that are starting now will serve waiting runs, so they are subtracted.
        wanted = max(sum(not waiter.done() for waiter in self._waiters), spare - len(self._idle))
        room = self._settings.processes - len(self._children) - len(self._starts)
        for _ in range(min(wanted - len(self._starts), room)):
            if not self._is_closed:
                start = asyncio.create_task(self._start())
                self._starts.add(start)
                start.add_done_callback(self._started)

    def _started(self, start: asyncio.Task[None]) -> None:
        self._starts.discard(start)
        self._grow()

    # -- starting ---------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._failures:
            # A new attempt would probably fail as well. Without a pause, thousands of jobs could fail in a short time.
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures))
        try:
            child = await self._make()
        except Exception as error:  # noqa: BLE001 - after any error, waiting runs must not wait for ever
            self._failures = min(self._failures + 1, _MOST_FAILURES)
            self._refuse(_refusal(error))
        else:
            self._failures = 0
            self._offer(child)

    async def _make(self) -> PooledChild:
        # Several children may start at the same time after the guard has died. Only one of the starts may make a new
        # guard.
        async with self._guard_starts:
            if not self._guard.is_alive:
                await self._guard.stop()
                self._guard = GuardClient(self._settings.config, self._settings.environment)
                await self._guard.start()
        output = self._settings.output()
        try:
            number, sock, ending = self._guard.start_child(output.writing)
        except BaseException:
            output.close_child_ends()
            output.gone()
            raise
        output.close_child_ends()
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        records = Receiver()
        try:
            channel = await Channel.over(sock, _HELLO_LIMIT, aside=records.take, flow=self._settings.flow)
        except BaseException:
            sock.close()
            output.gone()
            raise
        child = PooledChild(number, channel, ending, records)
        child.output = output
        self._children.add(child)
        ending.add_done_callback(partial(self._ended, child))
        try:
            await self._await_ready(child)
        except BaseException:
            self.end(child)
            raise
        return child

    async def _await_ready(self, child: PooledChild) -> None:
        """Wait until a child is ready. Raises ExecutorError if it fails to start."""
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                hello = await _receive_hello(child)
        except TimeoutError:
            raise ExecutorError(
                f"a process was not ready after {PREPARE_SECONDS:g} s; check that its set-up function returns"
            ) from None
        _check_hello(hello)
        child.pid, lacking = hello[2:4]
        child.records.pid = child.pid
        if lacking and lacking != self._reported_lacking:
            self._reported_lacking = lacking
            _log.warning("not all permissions are enforced: %s", "; ".join(lacking))

    def _ended(self, child: PooledChild, ending: asyncio.Future[Ending]) -> None:
        del ending
        self._forget(child)
        if child.output is not None:
            child.output.gone()
        # A process that is being killed may still have the other end of the channel open.
        asyncio.get_running_loop().call_later(0.2, child.channel.close)
        self._grow()

    def _forget(self, child: PooledChild) -> None:
        self._children.discard(child)
        with suppress(ValueError):
            self._idle.remove(child)


def _refusal(error: Exception) -> ExecutorError:
    """Return the error of a run whose child could not be started."""
    if isinstance(error, ExecutorError):
        return error
    refusal = ExecutorError(f"no process could be started: {error!r}")
    refusal.__cause__ = error
    return refusal


async def _receive_hello(child: PooledChild) -> Frame:
    """Return the first frame of a child. Raises ExecutorError if its process ends before."""
    hello = await child.channel.receive()
    if hello is None:
        ending = await asyncio.shield(child.ending)
        raise ExecutorError(f"a process {ending.why or how_it_ended(ending.status)} before it was ready")
    return hello


def _check_hello(hello: Frame) -> None:
    """Raise ExecutorError unless the first frame of a child reports that it is ready."""
    if hello[0] == "unprepared":
        error = error_from_values(hello[1])
        raise ExecutorError(f"a process could not be prepared: {type(error).__name__}: {error}") from error
    if hello[:2] != ["ready", PROTOCOL]:
        raise ExecutorError(
            f"a process uses protocol {hello[1:2]} and this worker {PROTOCOL}: the library was probably replaced "
            "while the worker ran; restart the worker"
        )
