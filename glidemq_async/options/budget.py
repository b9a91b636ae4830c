"""The budget of a run: how much it may write of its job, and how long it may stop its queue, in every executor."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError
from glidemq_async.options.validation import positive_number

_BURST: Final = 5.0
"""Seconds of each flow that may be used at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBudget:
    """How much one run may write of its job, and how long it may stop its queue. An option of Worker.

    It keeps a runaway or hostile job from filling the server and from pushing other events out of the queue's history.
    A run may use five seconds' worth at once.

    - `log_lines`: lines of the job's log a second. A run that logs faster waits.
    - `log_line`: characters of one line. The rest of a longer line is replaced by its length.
    - `updates`: updates of the progress and of the data a second. Of faster progress only the latest value is stored,
      at the next opportunity or at the end of the run. Faster updates of the data wait.
    - `bytes`: bytes of all these a second. A run that writes more waits; progress is treated as above.
    - `rest`: the longest time in seconds for which RateLimited may stop the key or the queue. The job runs again after
      it, and can raise RateLimited again.

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

    @property
    def rest_ms(self) -> int:
        """The longest rest in milliseconds."""
        return round(cast("float", self.rest) * 1000)


class _Flow:
    """Lets `rate` a second pass, and up to five seconds' worth at once.

    What passes may be larger than what is left: the next one waits for it. So nothing is too large to ever pass.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = self._left = rate * _BURST
        self._at = time.monotonic()

    def wait(self) -> float:
        """Return the seconds until the next one may pass, 0 if it may now."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        # A little more than computed: the clock of the loop may be coarse.
        return 0.0 if self._left > 0 else -self._left / self._rate + 0.001

    def spend(self, amount: float) -> None:
        """Count what passes."""
        self._left -= amount


class Meter:
    """What one run has used of its budget. Made with the first line or update: a run without any has none."""

    def __init__(self, budget: JobBudget) -> None:
        self._longest = budget.log_line
        self._lines = _Flow(budget.log_lines)
        self._updates = _Flow(budget.updates)
        self._bytes = _Flow(budget.bytes)
        self._held: builtins.bytes | None = None
        self._write: Callable[[builtins.bytes], Awaitable[None]] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def line(self, line: str) -> str:
        """Wait until a line of the log may be written, and return it, cut to its longest form."""
        if len(line) > self._longest:
            line = f"{line[: self._longest]}… (cut, {len(line)} characters)"
        await self._pass(self._lines, len(line))
        return line

    async def data(self, size: int) -> None:
        """Wait until an update of the data may be written."""
        await self._pass(self._updates, size)

    async def _pass(self, flow: _Flow, size: int) -> None:
        while wait := max(flow.wait(), self._bytes.wait()):  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(wait)
        flow.spend(1)
        self._bytes.spend(size)

    async def progress(self, packed: builtins.bytes, write: Callable[[builtins.bytes], Awaitable[None]]) -> None:
        """Write the progress now, or hold it until it may be written; a newer value replaces one that is held."""
        if self._flushing is None and not max(self._updates.wait(), self._bytes.wait()):
            self._updates.spend(1)
            self._bytes.spend(len(packed))
            await write(packed)
            return
        self._held, self._write = packed, write
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        # Without a turn for others a loop of updates would keep the event loop.
        await asyncio.sleep(0)

    async def _flush(self) -> None:
        while wait := max(self._updates.wait(), self._bytes.wait()):  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(wait)
        self._flushing = None
        await self.flush()

    async def flush(self) -> None:
        """Write the progress that is held. A run that no longer holds its job writes nothing."""
        held, self._held = self._held, None
        if held is None or self._write is None:
            return
        self._updates.spend(1)
        self._bytes.spend(len(held))
        with suppress(GlideMQError):
            await self._write(held)
