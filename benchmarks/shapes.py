"""The shapes of the queues in which many or few jobs wait.

Both queues of a comparison have the same shape: jobs of the same kind, and the same number of jobs for each key. They
keep it while jobs are claimed and added, because a new job gets the key of a job that was completed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from glidemq_async.options.job_options import JobOptionsDict

from . import kinds
from .driven import FILL_BATCH, Driven, OptionsOf

LINE: Final = 100
PHASES: Final = 8
GROUP: Final = 25
FEW: Final = 1_000
FEW_IN_LINES: Final = GROUP * PHASES * LINE


class Shape(NamedTuple):
    """How the jobs of a queue wait. `few` is the number of jobs in the smaller queue, 0 if there is none."""

    few: int
    fill: Callable[[Driven, int], Awaitable[int]]
    """Add about this number of jobs. Return their number."""


def _same(options_of: OptionsOf) -> Callable[[Driven, int], Awaitable[int]]:
    async def fill(queue: Driven, jobs: int) -> int:
        ids = await queue.add(jobs, options_of, FILL_BATCH)
        queue.late.append(ids[jobs // 2 :])
        return jobs

    return fill


def key(number: int) -> str:
    """Return a key. All keys have the same length, because they are parts of texts that the server stores."""
    return f"k{number:07d}"


async def _lines(queue: Driven, jobs: int) -> int:
    """Fill the queue with lines of LINE jobs.

    The server stores the first jobs of a line in a text, and refills an empty text with PHASES jobs. So the costs of a
    claim repeat every PHASES jobs of a line. All lines that are filled together would get there at the same time, and
    the figures would depend on the number of turns. So this function adds the lines in PHASES parts. After each part,
    all lines lose their first jobs and get new ones. Keys start in turns, so the parts must alternate in this order:
    each block of the order contains a group of lines of each part.
    """
    group = max(1, min(GROUP, jobs // (LINE * PHASES)))
    blocks = max(1, jobs // (LINE * PHASES * group))
    keys = 0
    for part in range(PHASES):
        for _ in range(blocks):
            await queue.replace(await queue.work(part * group))
            ids = await queue.add(group * LINE, partial(_of_group, keys, group), FILL_BATCH)
            queue.late.append(ids[len(ids) // 2 :])
            keys += group
    # No line is as it was filled when each one has used up the text that the fill wrote.
    for _ in range(PHASES * blocks):
        await queue.replace(await queue.work(PHASES * group))
    return keys * LINE


def _of_group(first: int, group: int, number: int) -> JobOptionsDict:
    return {"key": key(first + number % group)}


SINGLE: Final = "keyed, 1 job for each key"
LINES: Final = f"keyed, {LINE} jobs for each key"
SHAPES: Final = {
    "plain": Shape(FEW, _same(kinds.plain)),
    "prioritized": Shape(0, _same(kinds.prioritized)),
    SINGLE: Shape(FEW, _same(lambda number: {"key": key(number)})),
    LINES: Shape(FEW_IN_LINES, _lines),
}
"""Every shape by its name in the rows."""
COMPARED: Final = tuple(name for name, shape in SHAPES.items() if shape.few)
"""The shapes whose costs are compared between many and few waiting jobs."""
STEPS: Final = ("addJob", "settleAndClaim")
CHANGES: Final = {"revoke": "revokeJob", "change_priority": "changePriority", "remove": "removeJob"}


def job_of(shape: str) -> str:
    """Return the text for a job of a shape in a sentence: "plain job", or "keyed job (1 job for each key)"."""
    kind, comma, keys = shape.partition(", ")
    return f"{kind} job ({keys})" if comma else f"{kind} job"
