"""The budget of a run: limits on its log, progress, data and rate-limit pauses, in every executor."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError
from glidemq_async.options.validation import positive_number

_BURST: Final = 5.0
"""Number of seconds whose budget a run may use as a burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBudget:
    """Limits on the writes of one run to its job, and on its pauses of the queue. An option of Worker.

    The budget stops a faulty or hostile job from filling the server, and from displacing other events in the queue's
    history. A run may use the budget of five seconds as a burst.

    - `log_lines`: lines of the job's log per second. A run that logs faster waits.
    - `log_line`: maximum length of one line in characters. The rest of a longer line is replaced by its length.
    - `updates`: updates of the progress and of the data per second. If progress updates come faster, only the latest
      value is stored, as soon as the budget allows it or at the end of the run. Faster updates of the data wait.
    - `bytes`: total bytes of these writes per second. A run that exceeds it waits; progress is handled as above.
    - `rest`: the longest pause of the key or the queue that RateLimited may cause, in seconds. After the pause the job
      runs again and can raise RateLimited again.

    Raises TypeError or ValueError for a bad value.
    """

    log_lines: int = 1_000
    log_line: int = 16_384
    updates: int = 100
    bytes: int = 8 * 2**20
    rest: float | timedelta = 3_600.0

    def __post_init__(self) -> None:
        for name in ("log_lines", "log_line", "updates", "bytes"):
            positive_number(name, getattr(self, name))
        object.__setattr__(self, "rest", to_ms("rest", self.rest) / 1000)


# The balance may become negative, and only the next write waits for it. A bucket that waited before each write until
# the whole amount is there could never pass a write that is larger than the bucket.
class _Flow:
    """A token bucket that allows `rate` units per second and a burst of five seconds.

    A write may be larger than the remaining budget; the next write then waits. So even a write larger than the burst
    succeeds.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = self._left = rate * _BURST
        self._at = time.monotonic()

    def wait(self) -> float:
        """Return the seconds until the next write is allowed, 0 if it is allowed now."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        # Slightly more than computed, because the clock of the event loop may be coarse.
        return 0.0 if self._left > 0 else -self._left / self._rate + 0.001

    def spend(self, amount: float) -> None:
        """Count a write."""
        self._left -= amount


class Meter:
    """The used budget of one run. It is created by the first write, so runs without writes have none."""

    def __init__(self, budget: JobBudget) -> None:
        self._longest = budget.log_line
        self._lines = _Flow(budget.log_lines)
        self._updates = _Flow(budget.updates)
        self._bytes = _Flow(budget.bytes)
        self._held: builtins.bytes | None = None
        self._write: Callable[[builtins.bytes], Awaitable[None]] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def line(self, line: str) -> str:
        """Wait until the log may be written, and return the line, cut to the maximum length."""
        if len(line) > self._longest:
            line = f"{line[: self._longest]}… (cut, {len(line)} characters)"
        await self._pass(self._lines, len(line))
        return line

    async def data(self, size: int) -> None:
        """Wait until the data may be updated."""
        await self._pass(self._updates, size)

    async def chunk(self, size: int) -> None:
        """Wait until a chunk may be streamed. Only its size counts: an answer may have thousands of small chunks."""
        while wait := self._bytes.wait():  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(wait)
        self._bytes.spend(size)

    async def _pass(self, flow: _Flow, size: int) -> None:
        # A loop, because several coroutines of one run may wait here, and the first one to wake up may spend what the
        # others waited for.
        while wait := max(flow.wait(), self._bytes.wait()):  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(wait)
        flow.spend(1)
        self._bytes.spend(size)

    async def progress(self, packed: builtins.bytes, write: Callable[[builtins.bytes], Awaitable[None]]) -> None:
        """Write the progress now, or keep it until the budget allows it. A newer value replaces a kept one."""
        # Progress is a state and not a history, so a value that comes too fast replaces the one before and nothing
        # waits. One task writes the last value when the budget allows it. While it waits, newer values go through it
        # too. A direct write could otherwise arrive before the older value and be overwritten by it. The end of the run
        # calls `flush`, so the last value is never lost.
        if self._flushing is None and not max(self._updates.wait(), self._bytes.wait()):
            self._updates.spend(1)
            self._bytes.spend(len(packed))
            await write(packed)
            return
        self._held, self._write = packed, write
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        # Yield to the event loop. Otherwise a handler that updates in a loop would block it.
        await asyncio.sleep(0)

    async def _flush(self) -> None:
        while wait := max(self._updates.wait(), self._bytes.wait()):  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(wait)
        self._flushing = None
        await self.flush()

    async def flush(self) -> None:
        """Write the kept progress. Does nothing if the run has lost its lease."""
        held, self._held = self._held, None
        if held is None or self._write is None:
            return
        self._updates.spend(1)
        self._bytes.spend(len(held))
        # The outcome of the run reports a lost lease. The failure of this last write must not replace that error.
        with suppress(GlideMQError):
            await self._write(held)
