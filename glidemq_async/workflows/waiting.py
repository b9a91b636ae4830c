"""The waits of one run: for signals and for instants. A run that only waits is suspended, and frees its slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.errors import SerializationError, Suspended
from glidemq_async.functions.signals import BufferedSignal
from glidemq_async.jobs.context import other_variables
from glidemq_async.jobs.journal import Journal
from glidemq_async.jobs.signals import MOST_NAMES
from glidemq_async.jobs.step_recorder import HandedOver, Received
from glidemq_async.stored.hand_over import StoredSignal
from glidemq_async.workflows.child_waits import ChildWaits, End
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.idle import is_idle

T = TypeVar("T")

RECEIVE: Final = "workflow.receive"
GRACE: Final = 0.2
"""Seconds for which a run only waits before it is suspended. A signal within this time costs no further run."""
LONGEST_GRACE: Final = 1.0
"""Maximum seconds between two looks at a run that waits and does something else too."""
SHORT: Final = 1.0
"""Seconds up to which a wait keeps the slot, because another run would cost more."""
LEAVE_SECONDS: Final = 5.0
"""Seconds for which the function of a suspended run may clean up."""
_TOKEN: Final = "workflow "  # noqa: S105

_log = logging.getLogger(__name__)


Found: TypeAlias = list[Any] | Received | HandedOver
"""The result of a wait. The list is empty if no signal was received."""


class Given(NamedTuple):
    """The values that the resume of a job gives to its runs."""

    cause: str = ""
    token: str = ""
    signals: Sequence[StoredSignal] = ()


@dataclass(slots=True, eq=False)
class _OpenWait:
    """One wait. `names` is None for any signal, and empty for anything else. `deadline` is in ms since the epoch."""

    names: frozenset[str] | None
    deadline: int | None
    is_call: bool = False
    """True for a wait for the end of a child."""
    expiry: asyncio.TimerHandle | None = None
    future: asyncio.Future[Found] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_step(self) -> bool:
        """True if the wait is a step that executes."""
        return self.is_call or self.names != frozenset()


def _never() -> bool:
    return False


class _MailReader:
    """Reads the mailbox of a job in the background, one call at a time, and passes the signals on."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[BufferedSignal]]],
        receive: Callable[[Sequence[BufferedSignal]], None],
    ) -> None:
        self._read = read
        self._receive = receive
        self._reader = BackgroundTasks(_note_failure)
        self._is_asked = self._is_reading = False

    def look(self) -> None:
        """Read the mailbox, again if a read is in flight. The waits of one turn of the event loop share a call."""
        self._is_asked = True
        if not self._is_reading:
            self._is_reading = True
            self._reader.start(self._read_all())

    def cancel(self) -> None:
        """End the reads."""
        self._reader.cancel()
        self._is_asked = self._is_reading = False

    async def _read_all(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                self._receive(await self._read())
        finally:
            self._is_reading = False


# A job receives a signal once, although a run may be repeated. The resume hands it over to all runs until the job is
# suspended again, and the journal tells which of these signals a run has received. A recorded receipt names the
# suspension by its token, and the signal by its position. A signal that no run has received when the job is suspended
# again returns to the mailbox in the same call.
class Waiting:
    """The waits of a run, and the suspension of a run that only waits."""

    def __init__(self, journal: Journal, given: Given, clock: RunClock) -> None:
        self._journal = journal
        self._clock = clock
        self._given = given if given.token.startswith(_TOKEN) else Given()
        self._left: dict[int, StoredSignal] | None = None
        """The signals that no run has received yet, by position. None until a wait needs them."""
        self._waits: dict[asyncio.Future[Found], _OpenWait] = {}
        self._mail = _MailReader(journal.mailbox, self._receive)
        self.children = ChildWaits()
        self._timer: asyncio.TimerHandle | None = None
        self._main: asyncio.Task[Any] | None = None
        self._outer = self._context = Context()
        """The context in which the function was started, and its own one."""
        self._suspended: asyncio.Future[Suspended] = asyncio.get_running_loop().create_future()

    async def signal(self, names: frozenset[str] | None, deadline: int | None) -> Found:
        """Wait for a signal. Return what the journal records, see `_taken`, or [] if the deadline has come."""
        if (position := self._position_of(names)) is not None:
            return HandedOver(self._taken(position))
        wait = _OpenWait(names, deadline)
        self._mail.look()
        return await self._until(wait)

    async def instant(self, deadline: int) -> None:
        """Wait until an instant, in ms since the epoch by the clock of the run."""
        if deadline > self._reached():
            await self._until(_OpenWait(frozenset(), deadline))

    async def end_of_child(self, child_id: str, follow: Callable[[], Awaitable[End]]) -> End:
        """Wait until a child has ended. `follow` waits for its end, while the run is not suspended."""
        wait = _OpenWait(frozenset(), None, is_call=True)
        child = self.children.open(child_id, follow, wait.future)
        try:
            await self._until(wait)
            return child.end
        finally:
            self.children.close(child)

    async def _until(self, wait: _OpenWait) -> Found:
        if wait.deadline is not None and wait.deadline <= max(self._reached(), self._clock.now_ms()):
            return []
        if len(self._names() | (wait.names or frozenset())) > MOST_NAMES:
            raise ValueError(f"a run waits for at most {MOST_NAMES} names of signals at a time")
        self._waits[wait.future] = wait
        self._look_later(GRACE)
        self._arm(wait)
        try:
            return await wait.future
        except asyncio.CancelledError:
            self._put_back(wait.future)
            raise
        finally:
            del self._waits[wait.future]
            _disarm(wait)

    def _arm(self, wait: _OpenWait) -> None:
        if wait.deadline is not None:
            delay = (wait.deadline - self._clock.now_ms()) / 1000
            wait.expiry = wait.future.get_loop().call_later(delay, _end_late, wait.future)

    def _unreceived(self) -> dict[int, StoredSignal]:
        if self._left is None:
            received = {position for token, position in _receipts(self._journal) if token == self._given.token}
            self._left = {n: one for n, one in enumerate(self._given.signals) if n not in received}
        return self._left

    def _taken(self, position: int) -> list[Any]:
        """Return a signal that a wait receives: [token, position, name, data, sent ms], and its question if it asks.

        Raises SerializationError.
        """
        one = self._unreceived()[position]
        found = [self._given.token, position, *_stored_form(self._journal, one)]
        del self._unreceived()[position]
        return found

    def _put_back(self, future: asyncio.Future[Found]) -> None:
        """Let another wait receive the signal of a wait that was cancelled in the turn in which the signal came."""
        # A signal of the mailbox is still there, because only the record of its receipt takes it out.
        if not future.done() or future.cancelled() or future.exception() is not None:
            return
        if isinstance(found := future.result(), HandedOver):
            token, position = cast("list[Any]", found.result)[:2]
            if token == self._given.token:
                self._unreceived()[position] = self._given.signals[position]

    # A signal that comes while the run executes is in the mailbox. The call that records its receipt takes it out of
    # there, so the job receives it once.
    def _receive(self, mailbox: Sequence[BufferedSignal]) -> None:
        """Give signals of the mailbox to the waits, in their order."""
        if self._suspended.done():
            return
        receiving = list(self._journal.recorder.receiving)
        for one in mailbox:
            stored = one.stored()
            if stored in receiving:
                receiving.remove(stored)
            elif (wait := self._waiting_for(one.name)) is not None:
                _hand_out(wait.future, self._journal, one, stored)

    def _waiting_for(self, name: str) -> _OpenWait | None:
        waits = (wait for wait in self._waits.values() if not wait.future.done())
        return next((wait for wait in waits if wait.names is None or name in wait.names), None)

    def _reached(self) -> int:
        """Return the deadline at which the job was resumed. The clock of the run may be behind."""
        return int(self._given.token.rpartition(" ")[2]) if self._given.cause == "timeout" else 0

    def _names(self) -> set[str]:
        return {name for wait in self._waits.values() for name in wait.names or ()}

    # -- suspending -----------------------------------------------------------------------------------------------

    async def drive(self, work: Callable[[], Coroutine[Any, Any, T]], keep: Callable[[], bool] = _never) -> T:
        """Run the function of a workflow. Raises Suspended if the run only waits, and the errors of the function.

        `keep` is called when the function could stay in memory. It returns whether it does; `go_on` continues it then.
        """
        self._outer, self._context = copy_context(), copy_context()
        self._main = main = asyncio.get_running_loop().create_task(work(), context=self._context)
        return cast("T", await self._drive(main, keep))

    async def go_on(self, given: Given, clock: RunClock, keep: Callable[[], bool]) -> Any:
        """Continue the function of a suspended run in the next run, with what its resume has given. See `drive`."""
        # No run has received one of these signals, because this one follows the suspension immediately.
        self._given, self._clock, self._left = given, clock, dict(enumerate(given.signals))
        self._suspended = asyncio.get_running_loop().create_future()
        self._renew_context()
        self.children.go_on()
        for wait in list(self._waits.values()):
            if not wait.is_call and not self._give(wait):
                self._arm(wait)
        # A wait that begins from now on looks later too.
        if left := [wait for wait in self._waits.values() if not wait.future.done()]:
            self._look_later(GRACE)
            if any(wait.names != frozenset() for wait in left):
                self._mail.look()
        return await self._drive(cast("asyncio.Task[Any]", self._main), keep)

    def _give(self, wait: _OpenWait) -> bool:
        """End a wait of the function that continues, with a signal or by its deadline. Return False if it continues."""
        position = self._position_of(wait.names)
        if position is not None:
            try:
                wait.future.set_result(HandedOver(self._taken(position)))
            except SerializationError as error:
                wait.future.set_exception(error)
        elif wait.deadline is not None and wait.deadline <= max(self._reached(), self._clock.now_ms()):
            wait.future.set_result([])
        return wait.future.done()

    def _position_of(self, names: frozenset[str] | None) -> int | None:
        """Return the position of the first signal with one of these names, which no run has received."""
        for position, one in self._unreceived().items():
            if names is None or one.name in names:
                return position
        return None

    def _renew_context(self) -> None:
        """Give the function the context variables of the present run, but not the ones that it has set itself."""
        # For example the span of the run, to which the spans of its steps belong. But the function and its tasks keep
        # the job object of the first run, which the later runs update.
        outer = copy_context()
        for variable, value in other_variables(outer):
            if self._context.get(variable) is self._outer.get(variable):
                self._context.run(variable.set, value)
        self._outer = outer

    # A worker may keep a function for a suspension that is over: another worker has run the job since, or an operator
    # has started it again. The function must then not continue, because it does not know what has happened since:
    #
    # - The token of the suspension contains the number of its run. A job that was suspended again has another token.
    # - The fencing token counts the claims. If it has increased by more than one, another run has received the same
    #   signals and may have recorded steps before it lost its lease.
    #
    # The lease of the new run protects everything else: a function that goes on in a worker whose run was taken over
    # records nothing, like any other run.
    def can_go_on(self, given: Given, fence: int) -> bool:
        """Return whether the run with this fencing token, resumed with `given`, can continue the function."""
        main = self._main
        if main is None or not self._suspended.done() or self._suspended.result().step != given.token:
            return False
        if fence != self._journal.run + 1:
            return False
        return not self._journal.has_refused and not main.done() and is_idle(main, self._waits)

    async def leave(self) -> None:
        """Cancel the function of a suspended run, and wait until it has ended."""
        if self._main is not None:
            await self._leave(self._main)

    async def _drive(self, main: asyncio.Task[Any], keep: Callable[[], bool]) -> Any:
        try:
            await self._ended_or_waiting(main)
        finally:
            self._mail.cancel()
            if self._timer is not None:
                self._timer.cancel()
        if not self._suspended.done():
            self.children.end()
            if not main.cancelled():
                main.exception()  # retrieved, in case that `confirm` raises
            await self._journal.recorder.confirm()
            return main.result()
        suspended = self._suspended.result()
        suspended.is_warm = keep()
        if not suspended.is_warm:
            await self._leave(main)
        raise suspended

    async def _ended_or_waiting(self, main: asyncio.Task[Any]) -> None:
        # `asyncio.wait` would do the same. It takes a tenth of the time in which a warm run continues.
        while not main.done() and not self._suspended.done():
            ended = main.get_loop().create_future()
            wake = partial(_wake, ended)
            main.add_done_callback(wake)
            self._suspended.add_done_callback(wake)
            try:
                await ended
            except asyncio.CancelledError:
                # The function decides how the run ends, as if it ran in this task.
                main.cancel()
            finally:
                main.remove_done_callback(wake)
                self._suspended.remove_done_callback(wake)

    def _look_later(self, delay: float) -> None:
        if self._timer is None and self._main is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay, self._look, min(2 * delay, LONGEST_GRACE))

    def _look(self, following: float) -> None:
        self._timer = None
        if not self._waits or self._suspended.done():
            return
        # The run must not be suspended after such an error: the job would forget a signal that the journal lacks.
        if (error := self._journal.recorder.lost_receipt()) is not None:
            for future in self._waits:
                if not future.done():
                    future.set_exception(error)
        elif self._can_suspend():
            # In this turn of the loop, because a wait may end in the next one.
            self._suspended.set_result(self._plan())
            self._journal.close()
            self.children.pause()
            for wait in self._waits.values():
                _disarm(wait)  # the function may stay in memory, and only the next run may continue it
        else:
            if any(wait.names != frozenset() for wait in self._waits.values()):
                self._mail.look()
            self._look_later(following)

    def _can_suspend(self) -> bool:
        # A wait that has ended continues the run in the next turn of the loop.
        if self.children.is_reading or any(future.done() for future in self._waits):
            return False
        waiting = sum(wait.is_step for wait in self._waits.values())
        if self._main is None or len(self._journal.recorder.running) > waiting:
            return False
        deadline = self._deadline()
        if deadline is not None and deadline - self._clock.now_ms() <= SHORT * 1000:
            return False
        return is_idle(self._main, self._waits)

    def _deadline(self) -> int | None:
        return min((wait.deadline for wait in self._waits.values() if wait.deadline is not None), default=None)

    async def _leave(self, main: asyncio.Task[Any]) -> None:
        """End the function, which may clean up but can ask for no further step."""
        for wait in list(self._waits):
            wait.cancel()
        main.cancel()
        await asyncio.wait([main], timeout=LEAVE_SECONDS)
        if not main.done():
            _log.warning("the function of a suspended workflow still runs %g s after its cancellation", LEAVE_SECONDS)
        elif not main.cancelled() and (error := main.exception()) is not None:
            _log.debug("the function of a suspended workflow failed while it was cancelled: %r", error)

    def _plan(self) -> Suspended:
        deadline = self._deadline()
        any_name = any(wait.names is None for wait in self._waits.values())
        names = None if any_name else tuple(sorted(self._names()))
        calls = len(self.children)
        return Suspended(
            _reason(names, calls)[:500],
            timeout_ms=None if deadline is None else max(0, deadline - self._clock.now_ms()),
            signals=names,
            single=True,
            step=f"{_TOKEN}{self._journal.run} {deadline or 0}",
            gives_back=bool(self._unreceived()),
            known_ends=self.children.known_ends if calls else None,
        )


def _note_failure(error: BaseException) -> None:
    # The suspension of the run looks into the mailbox too.
    _log.debug("the mailbox of a run could not be read: %r", error)


def _hand_out(future: asyncio.Future[Found], journal: Journal, signal: BufferedSignal, stored: bytes) -> None:
    """Give a wait a signal of the mailbox."""
    try:
        # It was handed over by no suspension, so it has no token.
        future.set_result(Received(["", -1, *_stored_form(journal, signal)], stored))
    except SerializationError as error:
        future.set_exception(error)


def _stored_form(journal: Journal, signal: StoredSignal | BufferedSignal) -> list[object]:
    """Return [name, data, sent ms] of a signal, and its question if it asks. Raises SerializationError."""
    found = [signal.name, journal.payload_of(signal), signal.sent]
    return [*found, signal.question] if signal.question else found


def _reason(names: tuple[str, ...] | None, calls: int) -> str:
    """Return a text that names the signals and calls for which a run waits, "" for an instant."""
    awaited = ["any signal"] if names is None else list(names)
    if calls:
        awaited.append("a called task" if calls == 1 else f"{calls} called tasks")
    return f"waits for {', '.join(awaited)}" if awaited else ""


def _receipts(journal: Journal) -> list[tuple[str, int]]:
    """Return the token and the position of each received signal."""
    return [(one[0], one[1]) for one in cast("list[list[Any]]", journal.results_of(RECEIVE)) if one]


def _disarm(wait: _OpenWait) -> None:
    if wait.expiry is not None:
        wait.expiry.cancel()
        wait.expiry = None


def _wake(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _end_late(future: asyncio.Future[Found]) -> None:
    if not future.done():
        future.set_result([])
