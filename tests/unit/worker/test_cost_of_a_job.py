"""A plain job costs a worker only the function calls of its own life. Features that it does not use cost none."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from glidemq_async import JobOptions
from tests.support.helpers import AnyJob, AnyQueue, worker_of

JOBS = (200, 1_200)
"""Two numbers of jobs. The difference of their costs does not contain the start and the end of the worker."""
MOST_CALLS = 8
"""Function calls per job. A resumption of a coroutine counts too. 6.7 were measured on Python 3.11, 6.2 on 3.13."""
MOST_CALLS_WITH_OPTIONS = 14.5


async def nothing(_job: AnyJob) -> None:
    """A handler without work."""


async def calls_of(queue: AnyQueue, jobs: int, options: JobOptions) -> Counter[str]:
    """Return the number of calls of each Python function while a worker drains the queue."""
    await queue.add_bulk([("n", None, options) for _ in range(jobs)])
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found[f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        async with worker_of(queue, nothing, concurrency=100) as worker:
            await worker.until_empty()
    finally:
        sys.setprofile(None)
    return found


async def fewest_calls(queue: AnyQueue, jobs: int, options: JobOptions) -> Counter[str]:
    """Return the cheapest of three drains. On a busy machine the periodic work of the worker adds calls."""
    return min([await calls_of(queue, jobs, options) for _ in range(3)], key=lambda counted: sum(counted.values()))


@pytest.mark.only_on("memory")
@pytest.mark.parametrize(
    ("options", "most"),
    [(JobOptions(), MOST_CALLS), (JobOptions(attempts=3), MOST_CALLS_WITH_OPTIONS)],
    ids=["plain", "with attempts"],
)
async def test_a_job_costs_few_function_calls(queue: AnyQueue, options: JobOptions, most: float) -> None:
    few, many = [await fewest_calls(queue, jobs, options) for jobs in JOBS]
    per_job = {name: (count - few[name]) / (JOBS[1] - JOBS[0]) for name, count in many.items()}
    total = sum(per_job.values())
    ranked = sorted(per_job.items(), key=lambda item: -item[1])
    assert total <= most, "\n".join(f"{count:6.2f} {name}" for name, count in ranked[:40])
