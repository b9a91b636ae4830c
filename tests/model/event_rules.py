"""The rules of a queue's events: which events the model expects, and what they contain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.parts import Job

WITH_NAMES = frozenset({"completed", "failed", "retrying"})
OF_LIVES = frozenset({"all", "added", "waiting"})
"""Without one of these events, a reader cannot tell that a job has another life."""


@dataclass
class EventRules:
    """The rules that apply, by setting."""

    rules: dict[str, str] = field(default_factory=dict[str, str])

    def set(self, name: str, value: str) -> None:
        """Set a rule; "" removes it."""
        self.rules[name] = value

    @property
    def off(self) -> frozenset[str]:
        """The kinds that are switched off, or "all"."""
        return frozenset(self.rules.get("events_off", "").split())

    def is_on(self, kind: str) -> bool:
        """Return whether the queue writes events of this kind."""
        return kind not in self.off and ("all" not in self.off or kind == "obliterated")

    def content(self, kind: str, job: Job | None) -> str:
        """Return what an event contains beside its detail."""
        asked = self.rules.get("event_content", "")
        if not asked or kind not in WITH_NAMES or job is None:
            return ""
        named = f"{job.name}|{job.key or ''}"
        if kind != "completed":
            return named
        result = job.result or ""
        return f"{named}|{len(result)}" + (f"|{result}" if asked == "value" else "")

    def tells(self, job: Job, now: int) -> bool:
        """Return whether a progress has an event now, and note that it had one."""
        interval = int(self.rules.get("progress_interval") or 0)
        if not self.is_on("progress") or (
            interval and job.progress_at is not None and now - job.progress_at < interval
        ):
            return False
        if interval:
            job.progress_at = now
        return True
