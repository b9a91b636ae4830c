"""Combines the steps that the runs of one worker record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from typing_extensions import override

from glidemq_async.client.run_writer import RunKey, RunWriter
from glidemq_async.functions.steps import StepCalls, StepGroup
from glidemq_async.options.steps import StepLimits


class StepWriter(RunWriter[tuple[str, bytes]]):
    """The steps of one client that have no reply yet."""

    def __init__(self, calls: StepCalls) -> None:
        super().__init__("step")
        self._calls = calls
        self.limits = StepLimits()

    def record(self, job_id: str, entry: str, identity: str, packed: bytes) -> asyncio.Future[str]:
        """Record a step of a run. The future has the status. A cancelled caller does not take the record back."""
        return self.put(job_id, entry, (identity, packed), len(identity) + len(packed))

    @override
    async def _send(self, groups: Sequence[tuple[RunKey, list[tuple[str, bytes]]]]) -> list[str]:
        limits = self.limits
        return await self._calls.record(
            [StepGroup(*run, limits.max_steps, limits.max_bytes, steps) for run, steps in groups]
        )
