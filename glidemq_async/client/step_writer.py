"""Combines the steps that the runs of one worker record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from typing_extensions import override

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.client.run_writer import RunKey, RunWriter
from glidemq_async.errors import QueueClosed
from glidemq_async.functions.steps import StepCalls, StepGroup
from glidemq_async.options.steps import StepLimits


class StepWriter(RunWriter[tuple[str, bytes]]):
    """The steps of one client that have no reply yet."""

    def __init__(self, calls: StepCalls) -> None:
        super().__init__("step")
        self._calls = calls
        self.limits = StepLimits()
        self._receivers = BackgroundTasks()

    def record(self, job_id: str, entry: str, identity: str, packed: bytes) -> asyncio.Future[str]:
        """Record a step of a run. The future has the status. A cancelled caller does not take the record back."""
        return self.put(job_id, entry, (identity, packed), len(identity) + len(packed))

    def receive(self, job_id: str, entry: str, identity: str, packed: bytes, signal: bytes) -> asyncio.Future[str]:
        """Record a step that takes a signal out of the mailbox. The future has the status."""
        status: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        group = StepGroup(job_id, entry, self.limits.max_steps, self.limits.max_bytes, [(identity, packed)])
        receiving = self._receivers.start(self._receive(group, signal, status))
        # Not in the coroutine, which never runs if its task is cancelled before its first step.
        receiving.add_done_callback(partial(_end_unreceived, status))
        return status

    async def _receive(self, group: StepGroup, signal: bytes, status: asyncio.Future[str]) -> None:
        try:
            status.set_result(await self._calls.receive(group, signal))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            status.set_exception(error)

    @override
    async def close(self) -> None:
        """End the calls. The futures without a status raise QueueClosed."""
        await self._receivers.close()
        await super().close()

    @override
    async def _send(self, groups: Sequence[tuple[RunKey, list[tuple[str, bytes]]]]) -> list[str]:
        limits = self.limits
        return await self._calls.record(
            [StepGroup(*run, limits.max_steps, limits.max_bytes, steps) for run, steps in groups]
        )


def _end_unreceived(status: asyncio.Future[str], receiving: asyncio.Task[None]) -> None:
    del receiving
    if not status.done():
        status.set_exception(QueueClosed("the worker was closed before the signal was received"))
