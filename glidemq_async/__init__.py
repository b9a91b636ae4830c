"""An asyncio job queue on Redis and Valkey Functions.

The names below are the public surface; see README.md for a first example and ARCHITECTURE.md for the design.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidemq_async.abort import AbortSignal
    from glidemq_async.backoff import Backoff
    from glidemq_async.budget import JobBudget
    from glidemq_async.bulk_outcome import BulkOutcome
    from glidemq_async.codecs import Codec, Compression, Encryption, PayloadContext, Signing, generate_key
    from glidemq_async.context import current_job
    from glidemq_async.deduplication import Deduplication
    from glidemq_async.errors import (
        CodecError,
        CycleError,
        EmbeddedServerMissing,
        ExecutorError,
        GlideMQError,
        HandlerError,
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
        UnknownTaskError,
        UnrecoverableError,
        UnsupportedDurability,
    )
    from glidemq_async.executors import Permissions
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
    from glidemq_async.sync_job import SyncJob
    from glidemq_async.sync_queue import SyncQueue
    from glidemq_async.tasks import AppWorker, BoundTask, Depends, GlideMQ, Middleware, Task
    from glidemq_async.version import __version__
    from glidemq_async.worker import BatchOptions, Execution, Health, HealthServer, Worker, WorkerPool
else:
    from glidemq_async import lazy

    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            ".abort": "AbortSignal",
            ".backoff": "Backoff",
            ".bulk_outcome": "BulkOutcome",
            ".codecs": "Codec Compression Encryption PayloadContext Signing generate_key",
            ".context": "current_job",
            ".deduplication": "Deduplication",
            ".errors": (
                "CodecError CycleError EmbeddedServerMissing ExecutorError GlideMQError HandlerError "
                "IncompatibleQueueError JobFailed JobNotFound JobStateError LeaseLost LibraryVersionError "
                "PayloadTooLarge PermissionDenied QueueBusy QueueClosed QueueFull RateLimited ResultTimeout "
                "RetryLater SchedulerNotFound SerializationError StorageUnavailable UnknownTaskError "
                "UnrecoverableError UnsupportedDurability"
            ),
            ".executors": "Permissions",
            ".functions": "",
            ".functions.callers": "Finding",
            ".inspection": "MetricPoint Metrics WorkerInfo",
            ".integrations": "",
            ".job": "Job",
            ".letter": "DeadLetter FailureCause",
            ".limits": "KeyLimits",
            ".budget": "JobBudget",
            ".options": "JobOptions KeepJobs",
            ".queue": "Queue",
            ".queue_events": "EventGap QueueEvent QueueEvents",
            ".rates": "RateLimit TokenBucket",
            ".schedule": "Schedule",
            ".schedulers": "JobScheduler",
            ".serialization": "JsonSerializer MsgpackSerializer Serializer",
            ".storage": "",
            ".sync_job": "SyncJob",
            ".sync_queue": "SyncQueue",
            ".tasks": "AppWorker BoundTask Depends GlideMQ Middleware Task",
            ".telemetry": "",
            ".testing": "",
            ".version": "__version__",
            ".worker": "BatchOptions Execution Health HealthServer Worker WorkerPool",
        },
    )

__all__ = [
    "AbortSignal",
    "AppWorker",
    "Backoff",
    "BatchOptions",
    "BoundTask",
    "BulkOutcome",
    "Codec",
    "CodecError",
    "Compression",
    "CycleError",
    "DeadLetter",
    "Deduplication",
    "Depends",
    "EmbeddedServerMissing",
    "Encryption",
    "EventGap",
    "Execution",
    "ExecutorError",
    "FailureCause",
    "Finding",
    "GlideMQ",
    "GlideMQError",
    "HandlerError",
    "Health",
    "HealthServer",
    "IncompatibleQueueError",
    "Job",
    "JobBudget",
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
    "Middleware",
    "MsgpackSerializer",
    "PayloadContext",
    "PayloadTooLarge",
    "PermissionDenied",
    "Permissions",
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
    "Signing",
    "StorageUnavailable",
    "SyncJob",
    "SyncQueue",
    "Task",
    "TokenBucket",
    "UnknownTaskError",
    "UnrecoverableError",
    "UnsupportedDurability",
    "Worker",
    "WorkerInfo",
    "WorkerPool",
    "__version__",
    "current_job",
    "generate_key",
]
