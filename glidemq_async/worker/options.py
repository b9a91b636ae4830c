"""The options of a worker: their defaults, checks and flags of `glidemq worker`, each stated once.

The command line imports this module to build its flags, so it imports the executors only when it checks one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict, Unpack, cast

from glidemq_async.client.warm_runs import DEFAULT_WARM_RUNS
from glidemq_async.options import validation as checks
from glidemq_async.options.retry_rules import ErrorTypes, RetryRules
from glidemq_async.options.table import Flag
from glidemq_async.options.validation import Check
from glidemq_async.stored.names import check_name
from glidemq_async.worker.strategies import BackoffStrategy, checked_strategies

if TYPE_CHECKING:
    from datetime import timedelta

    from glidemq_async.executors.protocol import Executor
    from glidemq_async.instrumentation import Instrumentation
    from glidemq_async.options.batch import BatchOptions
    from glidemq_async.options.budget import JobBudget
    from glidemq_async.options.steps import StepLimits
    from glidemq_async.options.streams import StreamLimits
    from glidemq_async.payloads.codecs import Codec
    from glidemq_async.payloads.serialization import Serializer
    from glidemq_async.worker.execution import AfterExecution

__all__ = ["OPTIONS", "WorkerKeywords", "WorkerOption", "WorkerOptions", "WorkerOptionsDict", "worker_options"]


_LONGEST_VERSION: Final = 64


class WorkerOptionsDict(TypedDict, total=False):
    """The options of a worker as keywords, for `**options: Unpack[WorkerOptionsDict]`; see WorkerOptions."""

    concurrency: int | None
    executor: str | Executor | None
    lock_duration: float | timedelta
    max_stalled: int
    poll_interval: float | timedelta
    shutdown_timeout: float | timedelta
    backoff_strategies: Mapping[str, BackoffStrategy] | None
    retry_on: ErrorTypes | None
    give_up_on: ErrorTypes | None
    budget: JobBudget | None
    stream_limits: StreamLimits | None
    step_limits: StepLimits | None
    warm_runs: int
    dead_letter_queue: str | None
    after_execution: AfterExecution | None
    payload_limit: int | None
    handle_signals: bool
    health_port: int | None
    name: str | None
    version: str | None


class WorkerKeywords(WorkerOptionsDict, total=False):
    """The keywords of Worker: its options, and the settings of its processor and its connection."""

    batch: BatchOptions | None
    prefix: str
    mode: Literal["global", "keyed"] | None
    serializer: Serializer | None
    codecs: Sequence[Codec]
    timeout: float | timedelta | None
    instrumentation: Sequence[Instrumentation]


class WorkerOption(NamedTuple):
    """One option: its default, its check, and its flag if `glidemq worker` has one."""

    default: object
    check: Check
    flag: Flag | None = None


def _executor(name: str, value: Any) -> str | Executor | None:
    from glidemq_async.executors.registry import check_executor

    del name  # its errors name it
    check_executor(value)
    return cast("str | Executor | None", value)


def _budget(name: str, value: Any) -> JobBudget | None:
    from glidemq_async.options.budget import JobBudget

    if value is not None and not isinstance(value, JobBudget):
        raise TypeError(f"{name} must be a JobBudget, got {value!r}")
    return value


def _stream_limits(name: str, value: Any) -> StreamLimits | None:
    from glidemq_async.options.streams import StreamLimits

    if value is not None and not isinstance(value, StreamLimits):
        raise TypeError(f"{name} must be StreamLimits, got {value!r}")
    return value


def _step_limits(name: str, value: Any) -> StepLimits | None:
    from glidemq_async.options.steps import StepLimits

    if value is not None and not isinstance(value, StepLimits):
        raise TypeError(f"{name} must be StepLimits, got {value!r}")
    return value


def _strategies(name: str, value: Any) -> Mapping[str, BackoffStrategy]:
    del name  # its errors name it
    return checked_strategies(value)


def _error_types(name: str, value: Any) -> ErrorTypes | None:
    RetryRules.checked(**{"retry_on": None, "give_up_on": None, name: value})
    return cast("ErrorTypes | None", value)


def _after_execution(name: str, value: Any) -> AfterExecution | None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function of one Execution, got {value!r}")
    return cast("AfterExecution | None", value)


def _dead_letter_queue(name: str, value: Any) -> str | None:
    return None if value is None else check_name(name, value)


def _version(name: str, value: Any) -> str | None:
    return None if value is None else check_version(name, value)


def check_version(name: str, value: object) -> str:
    """Return the version of a worker's code. Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    if len(value) > _LONGEST_VERSION or not value.isprintable() or " " in value:
        raise ValueError(
            f"{name} must be at most {_LONGEST_VERSION} printable characters without spaces, got {value!r}"
        )
    return value


def own_version(given: str | None) -> str:
    """Return the version of a worker's code: the given one, or `$GLIDEMQ_VERSION`. Raises ValueError."""
    return check_version("$GLIDEMQ_VERSION", os.environ.get("GLIDEMQ_VERSION", "")) if given is None else given


def _worker_name(name: str, value: Any) -> str | None:
    return check_name(f"worker {name}", value) if value else None


# One table, because an option is needed in five forms: keyword of Worker, keyword of `mq.worker`, field of
# WorkerOptions, flag of `glidemq worker`, and check. The keywords of type checkers and the fields of the class must be
# written out, so a test compares them with this table.
OPTIONS: Final[Mapping[str, WorkerOption]] = {
    "concurrency": WorkerOption(
        None,
        checks.optional_positive_number,
        Flag("Maximum number of running jobs in each process.", int, "-c", least=1),
    ),
    "executor": WorkerOption(None, _executor),
    "lock_duration": WorkerOption(
        30.0,
        checks.lease,
        Flag("Lease of a run in seconds. After it, other workers run the jobs of a dead worker.", float),
    ),
    "max_stalled": WorkerOption(
        3, checks.count, Flag("Number of times that a job may lose its lease before it fails.", int, least=0)
    ),
    "poll_interval": WorkerOption(
        5.0, checks.positive_seconds, Flag("Seconds between two checks of an idle worker for jobs.", float)
    ),
    "shutdown_timeout": WorkerOption(
        30.0, checks.seconds, Flag("Seconds for which running jobs continue after the first SIGTERM.", float, least=0)
    ),
    "backoff_strategies": WorkerOption(checked_strategies(None), _strategies),
    "retry_on": WorkerOption(None, _error_types),
    "give_up_on": WorkerOption(None, _error_types),
    "budget": WorkerOption(None, _budget),
    "stream_limits": WorkerOption(None, _stream_limits),
    "step_limits": WorkerOption(None, _step_limits),
    "warm_runs": WorkerOption(
        DEFAULT_WARM_RUNS, checks.count, Flag("Number of suspended workflows that stay in memory.", int, least=0)
    ),
    "dead_letter_queue": WorkerOption(
        None, _dead_letter_queue, Flag("Queue that receives a copy of each job that fails permanently.", str)
    ),
    "after_execution": WorkerOption(None, _after_execution),
    "payload_limit": WorkerOption(None, checks.optional_positive_number),
    "handle_signals": WorkerOption(True, checks.boolean),
    "health_port": WorkerOption(
        None,
        checks.optional_port,
        Flag("Serve /healthz and /readyz for all processes on this port.", int, least=1, most=checks.LAST_PORT),
    ),
    "name": WorkerOption(None, _worker_name),
    "version": WorkerOption(None, _version, Flag("Version of the worker's code. Default: $GLIDEMQ_VERSION.", str)),
}


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class WorkerOptions:
    """The options of `Worker` and of `mq.worker`. Each is also a keyword there, which replaces the one given here.

    Durations are in seconds; a timedelta is converted. `dataclasses.replace` returns a changed copy.

    - `concurrency`: the maximum number of running jobs, or of running batches. None means 1 for a Worker, and 100 per
      queue for the worker of an app.
    - `executor`: "inline" (the default for coroutine functions), "thread" (the default for plain functions),
      "subprocess" (for both, one process per running job), the name of a registered executor, or an Executor; see
      docs/executors.md.
    - `lock_duration`: the lease of a run (30), from 1 s to 24 h. It is renewed while the job runs. After it, other
      workers run the jobs of a dead worker.
    - `max_stalled`: how often a job may lose its lease (because its worker died) before it fails as "stalled" (3). A
      job that kills its own process more often than this fails too, even if attempts are left.
    - `poll_interval`: how often an idle worker checks for jobs itself (5), in case a wake-up was lost.
    - `shutdown_timeout`: how long running jobs may take to end after the worker stops (30). Then they are released.
    - `backoff_strategies`: plain functions by name, for `Backoff.custom(name)`. Each takes (attempts made, error) and
      returns the seconds until the next attempt, or a negative number to end the retries.
    - `retry_on`: exception types that are retried while attempts are left; all other types fail the job without another
      attempt. None retries every type. `give_up_on`: exception types that fail the job without another attempt, even
      if `retry_on` includes them. Both include subclasses.
    - `budget`: a JobBudget, which limits the writes of one run (log, progress, data) and the pauses that its
      RateLimited may cause. None means JobBudget().
    - `stream_limits`: StreamLimits, which limit the stream of chunks of one job. None means StreamLimits().
    - `step_limits`: StepLimits, which limit the recorded steps of one job. None means StepLimits().
    - `warm_runs`: how many suspended workflows of a queue stay in memory (1,000), so that their next run continues
      where they wait, if this worker gets it. 0 lets each run start the function again.
    - `dead_letter_queue`: the name of a queue that receives a copy of each job that fails permanently. It is stored
      with the queue and applies to all its workers; the last worker that starts sets it. None keeps the stored name. To
      remove it, call `queue.set_dead_letter_queue(None)`.
    - `after_execution`: a function of an Execution, called after a job's last run, before its outcome is stored. It may
      change the stored values and the retention. An exception from it is reported as "error" and has no other effect.
    - `payload_limit`: the maximum size of one result in bytes. None means the limit of the app, else 1 MiB.
    - `handle_signals`: False leaves SIGTERM and SIGINT to the program around the worker (True).
    - `health_port`: a port for `GET /healthz` and `/readyz`, for example for Kubernetes; see HealthServer.
    - `name`: the name of the worker, by default host and process id. A random part is appended.
    - `version`: the version of the code that the worker runs, for example "2026.11.3": at most 64 characters without
      spaces. None means `$GLIDEMQ_VERSION`, or "" without that variable. Failure groups, histories and `get_workers`
      show it, and filters compare it.

    Raises TypeError for an unknown option or a wrong type, ValueError for a bad value; both name the option.
    """

    concurrency: int | None
    executor: str | Executor | None
    lock_duration: float
    max_stalled: int
    poll_interval: float
    shutdown_timeout: float
    backoff_strategies: Mapping[str, BackoffStrategy] = field(hash=False)  # a mapping has no hash
    retry_on: ErrorTypes | None
    give_up_on: ErrorTypes | None
    budget: JobBudget | None
    stream_limits: StreamLimits | None
    step_limits: StepLimits | None
    warm_runs: int
    dead_letter_queue: str | None
    after_execution: AfterExecution | None
    payload_limit: int | None
    handle_signals: bool
    health_port: int | None
    name: str | None
    version: str | None

    # Written by hand, because a generated `__init__` would state each default and each type again, and would check
    # nothing. The class is frozen, so the fields are set through `object`.
    def __init__(self, **options: Unpack[WorkerOptionsDict]) -> None:
        given = cast("dict[str, object]", options)
        checks.refuse_unknown(given, OPTIONS, "worker")
        for name, option in OPTIONS.items():
            value = option.check(name, given[name]) if name in given else option.default
            object.__setattr__(self, name, value)


def worker_options(
    options: WorkerOptions | None, keywords: Mapping[str, object], valid: type = WorkerOptionsDict, of: str = "worker"
) -> tuple[WorkerOptions, dict[str, Any]]:
    """Return `options` with the keywords that are options in their place, and the other keywords of `valid`.

    `valid` is a TypedDict. Raises TypeError for any other keyword, which its message calls an option of `of`, and the
    errors of WorkerOptions.
    """
    checks.refuse_unknown(keywords, valid.__annotations__, of)
    former: dict[str, object] = {}
    if isinstance(options, WorkerOptions):
        former = {name: getattr(options, name) for name in OPTIONS}
    elif options is not None:
        raise TypeError(f"options must be WorkerOptions, got {options!r}; or pass each option as a keyword")
    chosen = former | {name: value for name, value in keywords.items() if name in OPTIONS}
    rest = {name: value for name, value in keywords.items() if name not in OPTIONS}
    # The values of `options` are checked a second time. Each check accepts and returns its own result unchanged.
    return WorkerOptions(**cast("WorkerOptionsDict", chosen)), rest
