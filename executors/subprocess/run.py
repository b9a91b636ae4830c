"""One run of one job in one child: serves the handler's calls, and ends the run when it must stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from glidemq_async.errors import ExecutorError, HandlerError
from glidemq_async.executors.subprocess.frames import Frame
from glidemq_async.executors.subprocess.pool import PooledChild
from glidemq_async.executors.subprocess.remote_errors import error_from_values, error_to_values
from glidemq_async.executors.subprocess.system import how_it_ended
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.remote_steps import plain_journal, record_plain
from glidemq_async.payloads.serialization import MsgpackSerializer

SLACK: Final = 256 * 1024
"""Bytes of a frame in addition to the largest payload: an error with its traceback, a few short fields."""
_SIGXCPU: Final = 24
"""The number of the signal on Linux, which has permissions, and on macOS."""
_LAST_SECONDS: Final = 5.0
"""Maximum time between the last step (a kill, or the end of its channel) and the report that a child has ended."""


class ChildOutcome(NamedTuple):
    """The end of a run in its child. `kind` is "done", "failed", "cancelled", "silent", "died", or "lost".

    "lost" means that the process died before it had started the job.
    """

    kind: str
    value: object = None
    memory: int = 0
    is_worn: bool = False
    """True if its process has too little processor time left for another job."""

    def result(self) -> object:
        """Return the result, or raise the error of the run."""
        if self.kind == "done":
            return self.value
        assert isinstance(self.value, BaseException)  # noqa: S101 - every other kind has one
        raise self.value


# The order in `stop` matters. The abort frame is sent first, so a handler can end by itself with the right reason.
# SIGTERM follows after half of the grace: the child ignores it unless it has read the abort, because service managers
# send SIGTERM to every process. SIGKILL needs no cooperation. The process is replaced even if the run ended by itself,
# because threads or programs of the handler may still run.
class ChildRun:
    """The run of a job in a child, from the worker's side."""

    def __init__(self, child: PooledChild, job: Job[Any, Any], silence: float | None, cpu: int | None = None) -> None:
        self._child = child
        self._number = child.run
        """The number of the run in its process. A frame with another number is from an earlier job and is dropped."""
        self._cpu = cpu
        self._job = job
        self._silence = silence
        self._begun = False
        """True if the process has reported the start of the job."""

    async def serve(self) -> ChildOutcome:
        """Serve the calls of the handler until the run has ended."""
        channel = self._child.channel
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    if channel.is_full:
                        # A process that does not read the replies to its calls must not fill the worker's memory.
                        await channel.drained()
                    frame = await channel.receive()
            except TimeoutError:
                return ChildOutcome("silent")
            if frame is None:
                return await self._died()
            # A frame of an earlier job: its thread or its coroutine still runs in the process, or the frame was on its
            # way when that job was stopped. If it were accepted, the log line or the outcome of one job would reach
            # another one.
            if frame[1:2] != [self._number]:
                continue
            if frame[0] == "begun":
                self._begun = True
                continue
            if frame[0] == "call":
                channel.send("answer", *frame[2:3], *await self._answer(frame))
                continue
            try:
                return _outcome(frame)
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
                return self._broke(ExecutorError(f"the process of the job sent an invalid outcome: {error!r}"))

    async def _answer(self, frame: Frame) -> tuple[list[Any] | None, object]:
        """Execute a call of the handler. Return its error as plain values, or None, and its result."""
        result: object = "ok"
        try:
            _, _, _, kind, value = frame
            if kind == "log":
                await self._job.log(value)
            elif kind == "progress":
                await self._job.update_progress(MsgpackSerializer().loads(value))
            elif kind == "data":
                await self._job.update_data(MsgpackSerializer().loads(value))
            elif kind == "chunk":
                await self._job.stream(MsgpackSerializer().loads(value))
            elif kind == "journal":
                result = await plain_journal(self._job)
            elif kind == "step":
                identity, packed = value
                result = await record_plain(self._job, identity, packed)
            elif kind != "heartbeat":
                raise ExecutorError(f"the process of the job made an unknown call {kind!r}")
        except Exception as error:  # noqa: BLE001 - the handler gets any error
            return error_to_values(error), None
        return None, result

    async def _died(self) -> ChildOutcome:
        if self._child.channel.broken is not None:
            return self._broke(self._child.channel.broken)
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                # Shielded, because the pool waits for the same future. A timeout here would cancel it for all.
                ending = await asyncio.shield(self._child.ending)
        except TimeoutError:
            return self._broke(ExecutorError("the process of the job closed its channel to the worker"))
        how = ending.why or how_it_ended(ending.status)
        status = -int(signal.SIGKILL) if ending.status is None else ending.status
        text = f"the process of the job {how} before the job had ended"
        if self._cpu is not None and status == -_SIGXCPU:
            text += f": it had used the processor time of Permissions(cpu={self._cpu})"
        return ChildOutcome("died" if self._begun else "lost", ExecutorError(text, exit_status=status))

    def _broke(self, error: ExecutorError) -> ChildOutcome:
        return ChildOutcome("died", error)

    async def stop(
        self,
        serving: asyncio.Task[ChildOutcome],
        reason: str,
        grace: float,
        send: Callable[[PooledChild, signal.Signals], None],
    ) -> ChildOutcome:
        """End the run: set its abort signal, send SIGTERM after half the grace, and SIGKILL after all of it.

        If this call is cancelled, it sends SIGKILL immediately.
        """
        self._child.channel.send("abort", self._job.id, reason)
        try:
            for step in (signal.SIGTERM, signal.SIGKILL):
                if grace > 0:
                    await asyncio.wait({serving}, timeout=grace / 2)
                if serving.done():
                    return serving.result()
                send(self._child, step)
            await asyncio.wait({serving}, timeout=_LAST_SECONDS)
        except asyncio.CancelledError:
            send(self._child, signal.SIGKILL)
            serving.cancel()
            raise
        if not serving.done():
            serving.cancel()
            return self._broke(ExecutorError("the process of the job cannot be ended"))
        return serving.result()


def _outcome(frame: Frame) -> ChildOutcome:
    kind, _, value, memory, is_worn = frame
    if kind == "done":
        return ChildOutcome("done", MsgpackSerializer().loads(value), int(memory), bool(is_worn))
    if kind == "failed":
        return ChildOutcome("failed", error_from_values(value), int(memory), bool(is_worn))
    if kind == "cancelled":
        return ChildOutcome("cancelled", HandlerError("CancelledError", "", ""), int(memory), bool(is_worn))
    raise ValueError(f"unknown kind {kind!r}")
