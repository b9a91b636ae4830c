"""Completion on a public object shows only names that a user may use, and each of them is documented."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import glidemq_async
from glidemq_async import (
    AbortSignal,
    AppWorker,
    BoundTask,
    Execution,
    GlideMQ,
    HealthServer,
    Job,
    JobOptions,
    Queue,
    QueueEvents,
    Task,
    Worker,
    WorkerOptions,
    WorkerPool,
)
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.functions.add import AddRequest
from glidemq_async.jobs.snapshot import job_of_add
from glidemq_async.options.job_options import JobOptionsDict
from glidemq_async.storage import ClusterStorage, Endpoint, FileStorage, MemoryStorage, RedisStorage, SentinelStorage
from glidemq_async.stored.failure import Failure
from glidemq_async.worker.options import WorkerOptionsDict

JOB = """
    abort attempts_made change_delay change_priority created_at data data_size dead_letter due_at failed_reason
    failure_cause fence finished_at get_state gone headers heartbeat id key lifo log name options outcome priority
    processed_at progress promote queue refresh remove result retry return_value revoke stacktrace stalled_count state
    sync update_data update_progress update_result_ttl waited
"""


def job() -> Job[Any, Any]:
    client = QueueClient("q", "memory://", prefix=DEFAULT_PREFIX, mode=None)
    return job_of_add(client, AddRequest("", "n", b"\xc0", b"", b""), "1", 1)


QUEUE = """
    add add_and_wait add_bulk check clean close connect count drain get_dead_letter_jobs get_dead_letter_queue
    get_deduplication_job_id get_global_concurrency get_global_rate_limit get_job get_job_counts get_job_logs
    get_job_scheduler get_job_schedulers get_jobs get_key_limits get_metrics get_workers is_paused iter_jobs name
    obliterate pause pause_job_scheduler pause_key promote_jobs release_deduplication remove remove_global_rate_limit
    remove_job_scheduler replay_dead_letter_jobs resume resume_job_scheduler retry_jobs revoke search_jobs
    set_dead_letter_queue set_global_concurrency set_global_rate_limit set_key_limits storage sync
    trigger_job_scheduler update_result_ttl upsert_job_scheduler
"""
APP = "add_middleware close connect cron override queue queues run_worker state storage sync task tasks worker"
TASK = "add add_many aliases executor function name options queue result signature sync version"
WORKER = "broken close health name on queue run running start stop storage until_empty"
JOB_OPTIONS = " ".join([*JobOptionsDict.__annotations__, "with_headers"])
STORAGE = "call clone close connect loop read_stream scan subscribe timeout url"
EXECUTION = "error job message result result_ttl state traceback"


async def handler(job: Job[Any, Any]) -> None: ...


def worker() -> Worker[Any, Any]:
    return Worker("q", handler, "memory://")


def app() -> GlideMQ[Any]:
    return GlideMQ("memory://")


def task() -> Task[[], None]:
    async def send() -> None: ...

    return app().task(send)


def app_worker() -> AppWorker:
    mq = app()
    mq.task(handler)
    return mq.worker()


PUBLIC: dict[Any, tuple[Callable[[], object], str]] = {
    Job: (job, JOB),
    Queue: (lambda: Queue[Any, Any]("q", "memory://"), QUEUE),
    QueueEvents: (lambda: QueueEvents("q", "memory://"), "close connect position sync"),
    GlideMQ: (app, APP),
    Task: (task, TASK),
    BoundTask: (lambda: task().options(delay=1), "add add_many options sync"),
    Worker: (worker, WORKER),
    WorkerPool: (lambda: WorkerPool([worker()]), "broken close run start stop workers"),
    AppWorker: (app_worker, "broken close on run start stop workers"),
    HealthServer: (lambda: HealthServer([], 0), "close port start"),
    WorkerOptions: (WorkerOptions, " ".join(WorkerOptionsDict.__annotations__)),
    JobOptions: (JobOptions, JOB_OPTIONS),
    Execution: (lambda: Execution(job(), None, None, Failure("", "", "")), EXECUTION),
    AbortSignal: (AbortSignal, "is_set reason wait wait_in_thread"),
    RedisStorage: (lambda: RedisStorage(Endpoint()), f"{STORAGE} endpoint"),
    ClusterStorage: (lambda: ClusterStorage([], Endpoint()), STORAGE),
    SentinelStorage: (lambda: SentinelStorage([], "service", Endpoint()), STORAGE),
    MemoryStorage: (MemoryStorage, f"{STORAGE} socket"),
    FileStorage: (lambda: FileStorage("/nowhere"), f"{STORAGE} directory exists"),
}

PLUMBING = re.compile(r"to_wire|from_wire|same_slots|\w+_ms")
INTERNAL_WORDS = ("Used by", "For workers", "For tests", "For tasks", "For queues", "For executors")


def shown(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_completion_shows_the_public_names(kind: type) -> None:
    make, names = PUBLIC[kind]
    assert shown(kind) <= set(names.split())
    made = make()
    visible = {name for name in dir(made) if not name.startswith("_")}
    assert visible == set(names.split())


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_name_is_documented_for_users(kind: type) -> None:
    undocumented: list[str] = []
    for name in sorted(shown(kind)):
        text = inspect.getdoc(inspect.getattr_static(kind, name)) or ""
        if name in getattr(kind, "__dataclass_fields__", {}):  # the docstring of the class describes the fields
            text = text or name * (f"`{name}`" in (kind.__doc__ or ""))
        if not text or any(word in text for word in INTERNAL_WORDS):
            undocumented.append(name)
    assert undocumented == []


def test_no_other_public_class_shows_stored_forms() -> None:
    found: dict[str, str] = {}
    for name in dir(glidemq_async):
        kind = getattr(glidemq_async, name)
        plumbing = sorted(filter(PLUMBING.fullmatch, shown(kind))) if inspect.isclass(kind) else []
        if plumbing:
            found[name] = " ".join(plumbing)
    assert found == {}
