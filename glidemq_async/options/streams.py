"""The limits of the streams that the runs of a worker write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from glidemq_async.durations import to_ms
from glidemq_async.options.validation import positive_number


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Limits on the stream of chunks of one job. An option of Worker.

    - `max_chunks`: the number of chunks that the server keeps (10,000). The oldest ones are trimmed, and readers that
      have not read them get a ChunkGap.
    - `max_bytes`: the total size of the kept chunks in bytes (8 MiB). The last chunk is always kept.
    - `ttl`: the time in seconds for which the stream can be read after the end of the job (3,600).

    Raises TypeError or ValueError for a bad value.
    """

    max_chunks: int = 10_000
    max_bytes: int = 8 * 2**20
    ttl: float | timedelta = 3_600.0

    def __post_init__(self) -> None:
        positive_number("max_chunks", self.max_chunks)
        positive_number("max_bytes", self.max_bytes)
        object.__setattr__(self, "ttl", to_ms("ttl", self.ttl, allow_zero=False) / 1000)

    @property
    def ttl_ms(self) -> int:
        """The `ttl` in milliseconds."""
        return to_ms("ttl", self.ttl)
