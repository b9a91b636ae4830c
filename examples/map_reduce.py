"""A map and reduce over rows: the rows are summed in pieces by workers, and the sums are added here.

The rows come from a generator, so neither this process nor the server ever holds all of them.
"""

import asyncio
import sys
from collections.abc import Iterator

from glidemq_async import GlideMQ

mq = GlideMQ()
PIECE = 100


@mq.task(queue="sums")
async def total(rows: list[int]) -> int:
    return sum(rows)


def pieces(rows: int) -> Iterator[list[int]]:
    """Read the rows of a large table in pieces."""
    for first in range(0, rows, PIECE):
        yield list(range(first, min(first + PIECE, rows)))


async def main(rows: int) -> None:
    """Add up the numbers of all rows."""
    async with mq, mq.worker():
        result = 0
        async for outcome in total.map(pieces(rows), at_once=200):
            result += outcome.value
        print(f"{rows:,} rows: {result:,}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
