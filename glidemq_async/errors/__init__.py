"""The exceptions of the library. All of them derive from `GlideMQError`.

Each message gives the state, the cause and the remedy. The modules of storage/ translate the errors of connections and
of the server to these classes.
"""

# GlideMQError                             base.py
# ├── StorageUnavailable (ConnectionError)  server.py
# │   └── EmbeddedServerMissing
# ├── IncompatibleQueueError
# │   └── OldWorkersRunning
# ├── LibraryVersionError
# ├── UnsupportedDurability
# ├── QueueFull                             queues.py
# ├── QueueBusy
# ├── QueueClosed
# ├── SchedulerNotFound (LookupError)
# ├── FilterError (ValueError)
# ├── CycleError (ValueError)
# ├── PayloadTooLarge (ValueError)          payloads.py
# ├── SerializationError (TypeError, ValueError)
# │   └── CodecError
# ├── JobNotFound (LookupError)             jobs.py
# ├── StreamForgotten (LookupError)
# ├── JobFailed
# ├── JobStateError
# ├── BatchFailed (ExceptionGroup)
# ├── ResultTimeout (TimeoutError)
# ├── MailboxFull
# ├── DuplicateSignal
# ├── NoReply
# ├── JournalFull                           workflows.py
# ├── StepFailed
# ├── WorkflowDiverged
# ├── WorkflowExists
# ├── LeaseLost                             runs.py
# ├── UnknownTaskError (LookupError)
# ├── ExecutorError
# ├── HandlerError
# ├── PermissionDenied
# └── ControlFlow                           control_flow.py: raised by a handler to control the next step of its job
#     ├── UnrecoverableError
#     ├── RetryLater
#     ├── RateLimited
#     ├── Postponed
#     ├── Suspended
#     └── WaitingForChildren

from __future__ import annotations

from glidemq_async.errors.base import BulkOutcome as BulkOutcome
from glidemq_async.errors.base import GlideMQError
from glidemq_async.errors.control_flow import (
    ControlFlow,
    Postponed,
    RateLimited,
    RetryLater,
    Suspended,
    UnrecoverableError,
    WaitingForChildren,
)
from glidemq_async.errors.jobs import (
    BatchFailed,
    DuplicateSignal,
    JobFailed,
    JobNotFound,
    JobStateError,
    MailboxFull,
    NoReply,
    ResultTimeout,
    StreamForgotten,
)
from glidemq_async.errors.payloads import CodecError, PayloadTooLarge, SerializationError
from glidemq_async.errors.queues import CycleError, FilterError, QueueBusy, QueueClosed, QueueFull, SchedulerNotFound
from glidemq_async.errors.runs import ExecutorError, HandlerError, LeaseLost, PermissionDenied, UnknownTaskError
from glidemq_async.errors.server import (
    EmbeddedServerMissing,
    IncompatibleQueueError,
    LibraryVersionError,
    OldWorkersRunning,
    StorageUnavailable,
    UnsupportedDurability,
)
from glidemq_async.errors.workflows import JournalFull, StepFailed, WorkflowDiverged, WorkflowExists

__all__ = [
    "BatchFailed",
    "CodecError",
    "ControlFlow",
    "CycleError",
    "DuplicateSignal",
    "EmbeddedServerMissing",
    "ExecutorError",
    "FilterError",
    "GlideMQError",
    "HandlerError",
    "IncompatibleQueueError",
    "JobFailed",
    "JobNotFound",
    "JobStateError",
    "JournalFull",
    "LeaseLost",
    "LibraryVersionError",
    "MailboxFull",
    "NoReply",
    "OldWorkersRunning",
    "PayloadTooLarge",
    "PermissionDenied",
    "Postponed",
    "QueueBusy",
    "QueueClosed",
    "QueueFull",
    "RateLimited",
    "ResultTimeout",
    "RetryLater",
    "SchedulerNotFound",
    "SerializationError",
    "StepFailed",
    "StorageUnavailable",
    "StreamForgotten",
    "Suspended",
    "UnknownTaskError",
    "UnrecoverableError",
    "UnsupportedDurability",
    "WaitingForChildren",
    "WorkflowDiverged",
    "WorkflowExists",
]

# The classes are known by the name of this package, wherever their modules are: in tracebacks, in telemetry and in
# pickles, and to the worker that reads the error of a child process.
for _name in (*__all__, "BulkOutcome"):
    globals()[_name].__module__ = __name__
