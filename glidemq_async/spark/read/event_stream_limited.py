"""kind=events as a stream with limits per batch; needs Spark 4.2."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from glidemq_async.spark.read import offsets
from glidemq_async.spark.read.event_stream import EventStream
from glidemq_async.spark.read.offsets import Offset


class LimitedEventStream(EventStream, SupportsTriggerAvailableNow):
    """Stream for Spark 4.2 and newer, which passes the position of the query and the limit of the batch."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of maxOffsetsPerTrigger."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch, or `start` if there is nothing to read."""
        planner = self._planner()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return planner.run(self._advance(planner, start, rows))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a run with availableNow, so that it ends even if events are added continuously."""
        planner = self._planner()

        async def now() -> None:
            self._targets = await planner.positions(await planner.queue_names(), "latest", "latest")

        planner.run(now())

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of all stored events. Spark reports its distance from the position of the query as the lag."""
        planner = self._planner()

        async def now() -> Offset:
            return offsets.to_offset(await planner.positions(await planner.queue_names(), "latest", "latest"))

        return planner.run(now())
