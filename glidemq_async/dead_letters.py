"""Dead letters: jobs that failed for good, why, and running them again."""

from __future__ import annotations

from glidemq_async.generics import Data, Result
from glidemq_async.queue_part import QueuePart


class DeadLetters(QueuePart[Data, Result]):
    """The methods of Queue for this."""
