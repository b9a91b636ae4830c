"""The types of replies that have no dataclass in the operations core."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from glidemq_async.ops.alerts.episodes import AlertEpisode
from glidemq_async.ops.alerts.webhooks import WebhookReply
from glidemq_async.ops.bulk.documents import Operation
from glidemq_async.ops.failures import FailureGroup
from glidemq_async.ops.history import HistoryEntry
from glidemq_async.ops.queue_rows import QueueSummary, QueueWorker, ScheduleRow
from glidemq_async.ops.settings import Setting


@dataclass(frozen=True, slots=True)
class QueueList:
    """The queues that the user may see."""

    queues: list[QueueSummary]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class WorkerList:
    """The live workers."""

    workers: list[QueueWorker]


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """The job schedulers, the next ones first."""

    schedules: list[ScheduleRow]


@dataclass(frozen=True, slots=True)
class AddedJob:
    """The outcome of adding a job. With "duplicate" and "completed", `id` names the earlier job that is used
    instead."""

    queue: str
    id: str
    outcome: Literal["added", "duplicate", "completed"]


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The state of a job, and its result or its error if it has ended."""

    queue: str
    id: str
    state: str
    result: Any = None
    error_type: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made. `count` is the number of changed jobs, if it is known."""

    action: str
    queue: str
    target: str
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Who:
    """The user of the request, and its rights."""

    name: str
    role: Literal["viewer", "operator", "admin"]
    queues: list[str]
    payloads: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class SettingList:
    """The settings of a queue."""

    settings: list[Setting]


@dataclass(frozen=True, slots=True)
class FailureList:
    """Groups of failures, the one that failed last first. `more` is true if the limit has left some out."""

    failures: list[FailureGroup]
    more: bool


@dataclass(frozen=True, slots=True)
class HistoryDocument:
    """The history of a job, the oldest entry first."""

    queue: str
    id: str
    entries: list[HistoryEntry]


@dataclass(frozen=True, slots=True)
class OperationList:
    """Bulk operations, the newest first."""

    operations: list[Operation]


@dataclass(frozen=True, slots=True)
class EpisodeList:
    """Episodes of alerts, the newest first."""

    episodes: list[AlertEpisode]


@dataclass(frozen=True, slots=True)
class WebhookReplies:
    """The replies of the webhooks of a rule to a test."""

    replies: list[WebhookReply]
