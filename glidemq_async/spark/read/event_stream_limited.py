"""kind=events as a stream that takes no more at once than it is told to; needs Spark 4.2."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from glidemq_async.spark.read import offsets
from glidemq_async.spark.read.event_stream import EventStream
from glidemq_async.spark.read.offsets import Offset


class LimitedEventStream(EventStream, SupportsTriggerAvailableNow):
    """Spark says where the query stands, and how much it wants."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that maxOffsetsPerTrigger sets."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch, the start itself when there is nothing to read."""
        planner = self._planner()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return planner.run(self._advance(planner, start, rows))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix how far this run reads, so that it ends however much is added meanwhile."""
        planner = self._planner()

        async def now() -> None:
            self._targets = await planner.positions(await planner.queue_names(), "latest", "latest")

        planner.run(now())

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return how far the query could have read, for its progress: the difference is its lag."""
        planner = self._planner()

        async def now() -> Offset:
            return offsets.to_offset(await planner.positions(await planner.queue_names(), "latest", "latest"))

        return planner.run(now())
