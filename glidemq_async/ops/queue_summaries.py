"""Reads the figures of many queues, and makes summaries of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import msgpack

from glidemq_async._internal.waits import together
from glidemq_async.client.queue_client import older_layout
from glidemq_async.durations import from_ms
from glidemq_async.functions.settings import StoredSettings
from glidemq_async.functions.summary import QueueFigures, read_summaries
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.queue_rows import LATE_SECONDS, READY, LimitsShown, Pause, QueueSummary
from glidemq_async.ops.settings import pause_of
from glidemq_async.storage import FunctionError
from glidemq_async.stored.names import QueueKeys
from glidemq_async.stored.record import State

AT_ONCE: Final = 40
"""Number of queues that one request reads. It takes 2 ms of the server's time, in which no other client gets a
reply."""
PARTS_AT_ONCE: Final = 2
"""Number of such readings in flight. The server reads the next queues while this process handles the last ones."""
CHART_MINUTES: Final = 60
TREND_MINUTES: Final = 30
_RATE_MINUTES: Final = 5
_Found: TypeAlias = dict[str, tuple[QueueFigures, Pause | None]]
_NO_TREND: Final = (0,) * TREND_MINUTES
_NO_LIMITS: Final = LimitsShown()


@dataclass(slots=True)
class _Seen:
    """The last reading of a queue: its time in ms, the number of jobs that had not ended, and the number of ends."""

    at: int
    open_jobs: int
    ended: Mapping[int, int] = field(default_factory=dict[int, int])
    rate: float | None = None


class QueueSummaries:
    """Reads the figures of queues, many with each call. All actors of a core share it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._names: list[str] = []
        self._bases: dict[str, str] = {}
        self._seen: dict[str, _Seen] = {}
        self._slots: dict[bytes, int] = {}
        self._dead_letters: dict[str, str] = {}
        """The queue that receives the dead letters of each queue."""
        self.unreadable: dict[str, str] = {}
        """Why queues cannot be read, by their name."""

    async def names(self) -> list[str]:
        """Return the names of the queues; see `Connections.known_names`."""
        names = await self._connections.known_names()
        if names is not self._names:
            self._names = names
            known = set(names)
            self._bases = {name: base for name, base in self._bases.items() if name in known}
            self._dead_letters = {name: target for name, target in self._dead_letters.items() if name in known}
            self._seen = {name: seen for name, seen in self._seen.items() if name in known}
            self.unreadable = {name: why for name, why in self.unreadable.items() if name in known}
        return names

    async def read(self, names: Sequence[str]) -> list[tuple[QueueFigures, QueueSummary]]:
        """Return the figures of these queues, and their summaries. A queue that cannot be read is left out."""
        found: _Found = {}
        parts = iter([names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)])
        await together(self._read_parts(parts, found) for _ in range(PARTS_AT_ONCE))
        for name, (figures, _) in found.items():
            self._dead_letters[name] = figures.dead_letter
        targets = set(self._dead_letters.values())
        rows = ((name, found[name]) for name in names if name in found)
        return [
            (figures, self._summary(name, figures, pause, is_target=name in targets)) for name, (figures, pause) in rows
        ]

    async def _read_parts(self, parts: Iterator[Sequence[str]], found: _Found) -> None:
        for names in parts:
            replies = await read_summaries(self._connections.storage, [self._base_of(name) for name in names])
            alone: list[tuple[str, QueueFigures | None]] = []
            for name, figures in zip(names, replies, strict=True):
                if figures is None or figures.paused:
                    alone.append((name, figures))
                else:
                    found[name] = figures, None
                    self.unreadable.pop(name, None)
            await together(self._read_alone(name, figures, found) for name, figures in alone)

    def _base_of(self, name: str) -> str:
        base = self._bases.get(name)
        if base is None:
            base = self._bases[name] = QueueKeys(self._connections.prefix, name).base
        return base

    async def _read_alone(self, name: str, known: QueueFigures | None, found: _Found) -> None:
        """Read the pause of a queue, and its figures if they are not known, or note why it cannot be read."""
        calls = self._connections.calls_of(name)
        try:
            figures = known or await calls.summary.read()
            pause = _pause(await calls.settings.get()) if figures.paused else None
        except FunctionError as error:
            # Such a queue belongs to another program, or to another version of this one.
            if error.code not in {"INCOMPATIBLE", "WRONGTYPE", "MIGRATE"}:
                raise
            self.unreadable[name] = older_layout(name) if error.code == "MIGRATE" else error.message
            return
        self.unreadable.pop(name, None)
        found[name] = figures, pause

    def _summary(self, name: str, figures: QueueFigures, pause: Pause | None, *, is_target: bool) -> QueueSummary:
        counts = cast("dict[State, int]", figures.counts)
        now, last = figures.now, figures.now // 60_000
        ended = _ended(figures)
        seconds = (_RATE_MINUTES - 1) * 60 + now % 60_000 / 1000
        out_rate = sum(ended.get(last - back, 0) for back in range(_RATE_MINUTES)) / max(seconds, 1) if ended else 0.0
        failed, total = sum(figures.failed.values()), sum(ended.values())
        ready = sum([counts[state] for state in READY])
        late = None if figures.next_fire is None else (now - figures.next_fire) / 1000
        return QueueSummary(
            name=name,
            counts=counts,
            oldest_waiting_seconds=None if figures.oldest is None else max(0.0, (now - figures.oldest) / 1000),
            in_rate=self._in_rate(name, figures, ended),
            out_rate=round(out_rate, 3),
            failed_last_hour=failed,
            failure_ratio=round(failed / total, 4) if total else 0.0,
            backlog_seconds=round(ready / out_rate, 1) if out_rate else (0.0 if not ready else None),
            workers=figures.alive,
            slots=self._slots_of(figures),
            running=counts["active"],
            paused=pause,
            limits=_limits(figures),
            trend=tuple(ended.get(last - back, 0) for back in reversed(range(TREND_MINUTES))) if ended else _NO_TREND,
            schedules=figures.schedules,
            late_schedule_seconds=late if late is not None and late > LATE_SECONDS else None,
            is_dead_letter=is_target and not figures.alive,
        )

    def _in_rate(self, name: str, figures: QueueFigures, ended: Mapping[int, int]) -> float | None:
        # Jobs that were added = the growth of the jobs that have not ended + the jobs that have ended since.
        counts = figures.counts
        open_jobs = sum(counts.values()) - counts["completed"] - counts["failed"]
        before = self._seen.get(name)
        if before is None or figures.now - before.at > CHART_MINUTES * 60_000:
            self._seen[name] = _Seen(figures.now, open_jobs, ended)
            return None
        passed = figures.now - before.at
        if passed < 1000:
            return before.rate
        since = before.at // 60_000
        gone = sum(count - before.ended.get(minute, 0) for minute, count in ended.items() if minute >= since)
        rate = round(max(0.0, (open_jobs - before.open_jobs + gone) / passed * 1000), 3)
        self._seen[name] = _Seen(figures.now, open_jobs, ended, rate)
        return rate

    def _slots_of(self, figures: QueueFigures) -> int:
        known = self._slots
        if len(known) > 10_000:
            known.clear()
        for info in figures.workers:
            if info not in known:
                known[info] = _concurrency(info)
        return sum(known[info] for info in figures.workers)


def _pause(stored: StoredSettings) -> Pause | None:
    found = pause_of(stored)
    return None if found.value is None else Pause(found.note or None, found.who or None, found.until)


def _ended(figures: QueueFigures) -> Mapping[int, int]:
    """Return the number of jobs that ended in each minute."""
    completed, failed = figures.completed, figures.failed
    if not failed:
        return completed
    return {minute: completed.get(minute, 0) + failed.get(minute, 0) for minute in completed.keys() | failed.keys()}


def _limits(figures: QueueFigures) -> LimitsShown:
    limits = figures.limits
    if not any(limits):
        return _NO_LIMITS
    is_stopped = limits.gate is not None and limits.gate > figures.now
    return LimitsShown(
        limits.concurrency,
        limits.rate_max,
        None if limits.rate_ms is None else limits.rate_ms / 1000,
        from_ms(limits.gate) if is_stopped and limits.gate is not None else None,
    )


def _concurrency(info: bytes) -> int:
    try:
        found = cast("dict[str, object]", msgpack.unpackb(info) or {}) if info else {}
    except ValueError:  # written by another program
        return 0
    count = found.get("concurrency", 0)
    return count if isinstance(count, int) else 0
