"""Pause, resume, stop and resize workers from outside."""

from __future__ import annotations

from glidemq_async.ops.errors import WorkerNotReached
from glidemq_async.ops.part import OpsPart
from glidemq_async.options.validation import positive_number
from glidemq_async.queues.inspection import tell_worker


class WorkerControl(OpsPart):
    """The methods of Ops that control single workers, by the names that `workers` returns.

    A command is a message to the worker, which obeys it immediately and shows its new state in `WorkerInfo`. A worker
    that starts again does not remember it. All methods raise QueueNotFound, and WorkerNotReached if the worker does not
    listen.
    """

    async def pause_worker(self, queue: str, name: str, *, reason: str = "") -> None:
        """Stop the claims of one worker. Its running jobs and all other workers continue."""
        await self._tell("pause worker", queue, name, "pause", reason)

    async def resume_worker(self, queue: str, name: str, *, reason: str = "") -> None:
        """End the pause of a worker, so that it claims jobs again."""
        await self._tell("resume worker", queue, name, "resume", reason)

    async def stop_worker(self, queue: str, name: str, *, reason: str = "") -> None:
        """Stop a worker as SIGTERM does. Jobs that exceed its `shutdown_timeout` return to the queue."""
        await self._tell("stop worker", queue, name, "stop", reason)

    async def set_worker_concurrency(self, queue: str, name: str, concurrency: int, *, reason: str = "") -> None:
        """Change the concurrency of a worker; see `Worker.set_concurrency`. If it cannot, the worker reports an error.

        Raises TypeError or ValueError unless `concurrency` is an integer of at least 1.
        """
        positive_number("concurrency", concurrency)
        await self._tell("set worker concurrency", queue, name, f"concurrency {concurrency}", reason)

    async def _tell(self, action: str, queue: str, name: str, command: str, reason: str) -> None:
        opened = await self.queue(queue)
        async with self.changing(action, queue, name, reason=reason, command=command):
            if await tell_worker(opened, name, command) < 1:
                raise WorkerNotReached(queue, name)
