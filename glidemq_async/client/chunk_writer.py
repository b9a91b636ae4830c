"""Combines the chunks that the runs of one worker stream."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from glidemq_async.client.run_writer import RunKey, RunWriter
from glidemq_async.functions.streaming import ChunkGroup, StreamingCalls
from glidemq_async.options.streams import StreamLimits


class ChunkWriter(RunWriter[bytes]):
    """The chunks of one client that have no reply yet."""

    def __init__(self, calls: StreamingCalls) -> None:
        super().__init__("chunk")
        self._calls = calls
        self.limits = StreamLimits()

    async def write(self, job_id: str, entry: str, payload: bytes) -> str:
        """Append a chunk to the stream of a job. Return the status once the server has stored or refused it."""
        return await self.put(job_id, entry, payload, len(payload))

    @override
    async def _send(self, groups: Sequence[tuple[RunKey, list[bytes]]]) -> list[str]:
        limits = self.limits
        return await self._calls.append(
            [ChunkGroup(*run, limits.max_chunks, limits.max_bytes, limits.ttl_ms, chunks) for run, chunks in groups]
        )
