"""Reports the jobs of flows to the instrumentation of their queues, as `Queue.add` reports its jobs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from glidemq_async.flows.plan import PlannedNode
from glidemq_async.instrumentation import Addition, Instruments
from glidemq_async.jobs.job import Job
from glidemq_async.queues.internals import addition_to
from glidemq_async.queues.queue import Queue

Additions: TypeAlias = list[Addition | None]
"""The addition of each job of a flow, None for a job of a queue without instrumentation."""


@contextmanager
def adding(
    plans: Sequence[Sequence[PlannedNode]], queue_named: Callable[[str], Queue[Any, Any]]
) -> Generator[list[Additions]]:
    """Call the hooks of the queues before and after the block, which adds these flows. Yield the additions of each."""
    by_queue: dict[str, tuple[Instruments, list[Addition]]] = {}

    def addition_of(planned: PlannedNode) -> Addition | None:
        found = addition_to(queue_named(planned.node.queue_name), planned.job_name, planned.node.options)
        if found is None:
            return None
        by_queue.setdefault(planned.node.queue_name, (found[0], []))[1].append(found[1])
        return found[1]

    additions = [[addition_of(planned) for planned in plan] for plan in plans]
    with ExitStack() as stack:
        for instruments, some in by_queue.values():
            stack.enter_context(instruments.adding(some))
        yield additions


def note_added(additions: Additions, jobs: Sequence[Job[Any, Any]]) -> None:
    """Set the jobs of the additions. A flow whose root existed has no further jobs."""
    for addition, job in zip(additions, jobs, strict=False):
        if addition is not None:
            addition.id, addition.outcome, addition.size = job.id, job.outcome, job.data_size
