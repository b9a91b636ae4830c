"""Job schedulers: jobs that a queue adds by itself, by cron or interval."""

from __future__ import annotations

from glidemq_async.generics import Data, Result
from glidemq_async.queue_part import QueuePart


class Schedulers(QueuePart[Data, Result]):
    """The methods of Queue for this."""
