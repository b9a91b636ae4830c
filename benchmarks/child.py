"""One sample of one scenario in a fresh process: `python -m benchmarks.child SOCKET SCENARIO SIZE...` prints JSON."""

from __future__ import annotations

import json
import sys

import uvloop

from .bench import open_bench
from .meter import Rows
from .scenarios import RUNS


async def main(socket: str, name: str, sizes: list[int]) -> Rows:
    """Run the scenario on the server behind the socket."""
    async with open_bench(socket) as bench:
        return await RUNS[name](bench, *sizes)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], sys.argv[2], [int(text) for text in sys.argv[3:]]))))
