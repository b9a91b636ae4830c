"""Limits of a queue and of its keys: concurrency, rates, pauses."""

from __future__ import annotations

from glidemq_async.queue_part import Data, QueuePart, Result


class Limits(QueuePart[Data, Result]):
    """The methods of Queue for this."""
