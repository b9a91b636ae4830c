"""The FastAPI example with a clock: `python -m benchmarks.http_service PORT FILE` serves until it is stopped.

At its end it writes, for each million of order numbers, the time of every `add` and the processor time of the
process.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from glidemq_async import Queue

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "fastapi_service.py"
PHASE: Final = 1_000_000


class Clock:
    """Times the adds of each phase, and the processor time between its first and its last add."""

    def __init__(self) -> None:
        self.adds: defaultdict[int, list[float]] = defaultdict(list)
        self.spent: dict[int, tuple[float, float]] = {}

    def around(self, add: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same method, timed."""

        async def timed(*given: Any, **options: Any) -> Any:
            phase = int(options["job_id"].removeprefix("order-")) // PHASE
            first = self.spent.get(phase, (time.process_time(), 0.0))[0]
            started = time.perf_counter()
            job = await add(*given, **options)
            self.adds[phase].append(time.perf_counter() - started)
            self.spent[phase] = (first, time.process_time())
            return job

        return timed

    def write(self, file: Path) -> None:
        """Write the measurements."""
        found = {
            phase: {"adds": adds, "processor": self.spent[phase][1] - self.spent[phase][0]}
            for phase, adds in self.adds.items()
        }
        file.write_text(json.dumps(found))


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def main(port: str, file: str) -> None:
    """Serve the example on uvloop and httptools."""
    spec = importlib.util.spec_from_file_location("fastapi_service", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fastapi_service"] = module
    spec.loader.exec_module(module)
    clock = Clock()
    Queue.add = clock.around(Queue.add)  # type: ignore[method-assign, assignment]  # pyright: ignore[reportAttributeAccessIssue]
    # uvicorn raises the signal again after its shutdown. It must not end this process before the measurements are
    # written.
    signal.signal(signal.SIGTERM, _ignore)
    uvicorn.run(module.app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")
    clock.write(Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
