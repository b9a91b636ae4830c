"""Explain why a job does not run."""

from __future__ import annotations

from glidemq_async.ops.part import OpsPart
from glidemq_async.queues.explanation import Explanation


class Explanations(OpsPart):
    """The method of Ops that explains why a job does not run."""

    async def explain(self, queue: str, job_id: str) -> Explanation:
        """Return why a job does not run; see `Queue.explain`. Raises QueueNotFound and JobNotFound."""
        return await (await self.queue(queue)).explain(job_id)
