"""Job schedulers: jobs that a queue adds by itself, by cron or interval."""

from __future__ import annotations

from glidemq_async.queue_part import Data, QueuePart, Result


class Schedulers(QueuePart[Data, Result]):
    """The methods of Queue for this."""
