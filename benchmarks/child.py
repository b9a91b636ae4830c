"""One sample of one scenario in a fresh process: `python -m benchmarks.child URL SCENARIO SIZE...` prints JSON."""

from __future__ import annotations

import json
import sys

import uvloop

from .bench import open_bench
from .meter import Rows
from .scenarios import RUNS
from .slow_log import longest_calls


async def main(url: str, name: str, sizes: list[int]) -> Rows:
    """Run the scenario on the server at the URL."""
    async with open_bench(url) as bench:
        async with longest_calls(bench.wire, name) as longest:
            rows = await RUNS[name](bench, *sizes)
        return rows | longest


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], sys.argv[2], [int(text) for text in sys.argv[3:]]))))
