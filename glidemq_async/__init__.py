"""An asyncio job queue on Redis and Valkey Functions.

The names below are the public surface; see README.md for a first example and ARCHITECTURE.md for the design.
"""

from glidemq_async.abort import AbortSignal
from glidemq_async.backoff import Backoff
from glidemq_async.deduplication import Deduplication
from glidemq_async.errors import (
    CycleError,
    EmbeddedServerMissing,
    ExecutorError,
    GlideMQError,
    IncompatibleQueueError,
    JobFailed,
    JobNotFound,
    JobStateError,
    LeaseLost,
    LibraryVersionError,
    PayloadTooLarge,
    PermissionDenied,
    QueueBusy,
    QueueClosed,
    QueueFull,
    RateLimited,
    ResultTimeout,
    RetryLater,
    SchedulerNotFound,
    SerializationError,
    StorageUnavailable,
    UnrecoverableError,
    UnsupportedDurability,
)
from glidemq_async.functions.callers import Finding
from glidemq_async.inspection import MetricPoint, Metrics, WorkerInfo
from glidemq_async.job import Job
from glidemq_async.letter import DeadLetter, FailureCause
from glidemq_async.limits import KeyLimits
from glidemq_async.options import JobOptions, KeepJobs
from glidemq_async.queue import Queue
from glidemq_async.queue_events import EventGap, QueueEvent, QueueEvents
from glidemq_async.rates import RateLimit, TokenBucket
from glidemq_async.schedule import Schedule
from glidemq_async.schedulers import JobScheduler
from glidemq_async.serialization import JsonSerializer, MsgpackSerializer, Serializer
from glidemq_async.worker import BatchOptions, Execution, Worker, WorkerPool

__all__ = [
    "AbortSignal",
    "Backoff",
    "BatchOptions",
    "CycleError",
    "DeadLetter",
    "Deduplication",
    "EmbeddedServerMissing",
    "EventGap",
    "Execution",
    "ExecutorError",
    "FailureCause",
    "Finding",
    "GlideMQError",
    "IncompatibleQueueError",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobOptions",
    "JobScheduler",
    "JobStateError",
    "JsonSerializer",
    "KeepJobs",
    "KeyLimits",
    "LeaseLost",
    "LibraryVersionError",
    "MetricPoint",
    "Metrics",
    "MsgpackSerializer",
    "PayloadTooLarge",
    "PermissionDenied",
    "Queue",
    "QueueBusy",
    "QueueClosed",
    "QueueEvent",
    "QueueEvents",
    "QueueFull",
    "RateLimit",
    "RateLimited",
    "ResultTimeout",
    "RetryLater",
    "Schedule",
    "SchedulerNotFound",
    "SerializationError",
    "Serializer",
    "StorageUnavailable",
    "TokenBucket",
    "UnrecoverableError",
    "UnsupportedDurability",
    "Worker",
    "WorkerInfo",
    "WorkerPool",
]
