"""Completion on a public object shows only names that a user may use, and each of them is documented."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

import glidemq_async
from glidemq_async import (
    AbortSignal,
    AppWorker,
    AwaitedTask,
    Backoff,
    BatchOptions,
    BatchProgress,
    BoundTask,
    Broadcast,
    BroadcastWorker,
    BulkOutcome,
    CallFailure,
    Chunk,
    ChunkGap,
    ClosedGate,
    Codec,
    Compression,
    DagNode,
    DeadLetter,
    Deduplication,
    Dependencies,
    Encryption,
    EventGap,
    EventRules,
    Execution,
    Explanation,
    FailureGroup,
    FanIn,
    Filter,
    Finding,
    FlowCall,
    FlowJob,
    FlowProducer,
    GlideMQ,
    Health,
    HealthServer,
    HistoryEntry,
    Job,
    JobBatch,
    JobBudget,
    JobNode,
    JobOptions,
    JobOutcome,
    JobRef,
    JobScheduler,
    JobUpdate,
    JsonSerializer,
    KeepJobs,
    KeyLimits,
    MetricPoint,
    Metrics,
    Middleware,
    MsgpackSerializer,
    PayloadContext,
    Permissions,
    Producer,
    Queue,
    QueueEvent,
    QueueEvents,
    QueueLimits,
    RateLimit,
    RecordedStep,
    Restarted,
    RunHandle,
    Schedule,
    Serializer,
    ServerlessPool,
    Signal,
    Signing,
    Step,
    StepLimits,
    StreamLimits,
    SubscriptionInfo,
    Suspension,
    SyncJob,
    SyncJobBatch,
    SyncProducer,
    SyncQueue,
    SyncTaskMap,
    Task,
    TaskMap,
    TokenBucket,
    Topic,
    TopicInfo,
    TopicListener,
    TopicMessage,
    TopicSubscription,
    Worker,
    WorkerInfo,
    WorkerOptions,
    WorkerPool,
    Workflow,
    executors,
    generate_key,
    instrumentation,
    storage,
    telemetry,
    testing,
)
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.executors import Executor, FunctionCall, InlineExecutor, SubprocessExecutor, ThreadExecutor
from glidemq_async.functions.add import AddRequest
from glidemq_async.instrumentation import (
    Addition,
    Instrumentation,
    Instruments,
    QueueDepth,
    RunJob,
    RunReport,
    WorkerPart,
)
from glidemq_async.jobs.snapshot import job_of_add
from glidemq_async.options.job_options import JobOptionsDict
from glidemq_async.payloads import codecs
from glidemq_async.payloads.codecs import CodecChain
from glidemq_async.storage import (
    ClusterStorage,
    Endpoint,
    FileStorage,
    MemoryStorage,
    RedisStorage,
    SentinelStorage,
    Storage,
    Subscription,
)
from glidemq_async.stored.failure import Failure
from glidemq_async.telemetry import (
    HttpEndpoint,
    JobFilter,
    JobLogging,
    JsonFormatter,
    OpenTelemetry,
    Page,
    Prometheus,
)
from glidemq_async.testing import Harness, MovableClock
from glidemq_async.worker.options import WorkerOptionsDict

JOB = """
    abort attempts_made change_delay change_priority chunks created_at data data_size dead_letter due_at
    failed_reason failure_cause failure_group fence finished_at get_children_values get_dependencies get_state get_steps
    gone headers
    heartbeat id key lifo log move_to_delayed move_to_waiting_children name options outcome parent
    parents priority processed_at progress
    promote queue received refresh remove result resume resumed_by retry return_value revoke send send_and_wait signal
    signals stacktrace stalled_count state step step_name stream suspend suspension sync update_data update_progress
    update_result_ttl waited watch worker_version
"""


def job() -> Job[Any, Any]:
    client = QueueClient("q", "memory://", prefix=DEFAULT_PREFIX, mode=None)
    return job_of_add(client, AddRequest("", "n", b"\xc0", b"", b""), "1", 1)


QUEUE = """
    add add_and_wait add_bulk check chunks clean close connect count count_dead_letter_jobs drain explain find
    get_dead_letter_jobs get_dead_letter_queue get_deduplication_job_id get_depth get_failure_groups
    get_event_rules get_global_concurrency get_global_rate_limit get_job get_job_counts get_job_history get_job_logs
    get_job_scheduler get_job_schedulers get_jobs get_key_limits get_mailbox get_max_waiting get_metrics get_workers
    has_chunks is_paused iter_find iter_jobs name obliterate operation pause pause_job_scheduler pause_key promote_jobs
    release_deduplication remove remove_global_rate_limit remove_job_scheduler replay_dead_letter_jobs resume
    resume_job resume_job_scheduler retry_jobs revoke search_jobs send send_and_wait
    set_dead_letter_queue set_events
    set_global_concurrency set_global_rate_limit set_history set_key_limits set_max_waiting signal storage sync
    trigger_job_scheduler update_result_ttl upsert_job_scheduler
"""
APP = """
    add_middleware close connect cron override queue queues run_worker signal state step storage subscribe
    sync task tasks topic worker workflow
"""
TOPIC = "check close connect info listen name publish publish_many remove_subscription storage subscription"
TASK = """
    add add_and_wait add_many aliases call executor function map name options queue result s signature starmap sync
    version wait_options
"""
WORKER = """
    broken close health is_paused name on pause queue resume run running set_concurrency start stop storage
    until_empty
"""
JOB_OPTIONS = " ".join([*JobOptionsDict.__annotations__, "with_headers"])
STORAGE = """
    call call_after_silence clone close connect loop read_each read_stream scan sends_at_once subscribe timeout transact
    url
"""
HARNESS = """
    added assert_added assert_nothing_added clock close connect drain eager finish queue send send_and_wait storage
    sync use
"""
EXECUTION = "error job message result result_ttl state traceback"
HOOKS = "after_add after_run after_step before_add before_run before_step settled worker_started worker_stopped"


FORMATTER = """
    converter datefmt default_msec_format default_time_format format formatException formatMessage formatStack
    formatTime usesTime
"""
"""The names of a `logging.Formatter`."""


async def handler(job: Job[Any, Any]) -> None: ...


async def send() -> None: ...


def worker() -> Worker[Any, Any]:
    return Worker("q", handler, "memory://")


def app() -> GlideMQ[Any]:
    return GlideMQ("memory://")


def task() -> Task[[], None]:
    return app().task(send)


def app_worker() -> AppWorker:
    mq = app()
    mq.task(handler)
    return mq.worker()


LIST = "append clear copy count extend index insert pop remove reverse sort"


PUBLIC: dict[Any, tuple[Callable[[], object], str]] = {
    Job: (job, JOB),
    JobBatch: (lambda: JobBatch([job()]), f"{LIST} as_ended counts failures progress results sync"),
    Queue: (lambda: Queue[Any, Any]("q", "memory://"), QUEUE),
    Producer: (lambda: Producer[Any]("q", "memory://"), "add add_bulk close is_closed name sync"),
    ServerlessPool: (ServerlessPool, "close_all fingerprint get_producer size"),
    QueueEvents: (lambda: QueueEvents("q", "memory://"), "close connect position sync"),
    GlideMQ: (app, APP),
    Topic: (lambda: Topic("t", "memory://"), TOPIC),
    Broadcast: (lambda: Broadcast("t", "memory://"), TOPIC),
    BroadcastWorker: (lambda: BroadcastWorker("t", print, "memory://", subscription="s"), WORKER),
    TopicListener: (lambda: TopicListener(handler, "t", ()), "function missed patterns received topic"),
    TopicSubscription: (lambda: Topic("t", "memory://").subscription("s"), "info name queue replay"),
    FlowProducer: (lambda: FlowProducer("memory://"), "add add_bulk add_children add_dag close connect"),
    Task: (task, TASK),
    Step: (lambda: app().step(send), "function name sync with_key"),
    Workflow: (lambda: app().workflow(send), "function name queue start task"),
    RunHandle: (
        lambda: RunHandle(job()),
        "accept cancel fork id job restart result retry send send_and_wait signal state steps",
    ),
    BoundTask: (
        lambda: task().options(delay=1),
        "add add_and_wait add_many call map options starmap sync wait_options",
    ),
    AwaitedTask: (lambda: task().wait_options(wait_timeout=1), "add_and_wait sync"),
    TaskMap: (lambda: app().task(handler).map([job()]), "as_ended outcomes results sync"),
    Worker: (worker, WORKER),
    WorkerPool: (lambda: WorkerPool([worker()]), "broken close run start stop workers"),
    AppWorker: (app_worker, "broken close on pause resume run set_concurrency start stop workers"),
    HealthServer: (lambda: HealthServer([], 0), "close port start"),
    WorkerOptions: (WorkerOptions, " ".join(WorkerOptionsDict.__annotations__)),
    JobOptions: (JobOptions, JOB_OPTIONS),
    Execution: (lambda: Execution(job(), None, None, Failure("", "", "")), EXECUTION),
    AbortSignal: (AbortSignal, "is_set reason wait wait_in_thread"),
    Compression: (Compression, "decode encode required tag"),
    Encryption: (lambda: Encryption({"k": generate_key()}), "decode encode required tag"),
    Signing: (lambda: Signing({"k": generate_key()}), "decode encode required tag"),
    JsonSerializer: (JsonSerializer, "dumps loads"),
    MsgpackSerializer: (MsgpackSerializer, "dumps loads"),
    Middleware: (Middleware, "after_add after_run before_add before_run on_failure"),
    CodecChain: (lambda: CodecChain(()), "decode encode"),
    Harness: (Harness, HARNESS),
    MovableClock: (lambda: MovableClock(MemoryStorage()), "advance move_to now sync"),
    InlineExecutor: (InlineExecutor, "awaits_handlers is_elastic may_share occupied run runs_here start stop"),
    ThreadExecutor: (lambda: ThreadExecutor(1), "occupied run runs_here start stop when_ended"),
    SubprocessExecutor: (lambda: SubprocessExecutor(1), "check_handler grace occupied run start stop"),
    RedisStorage: (lambda: RedisStorage(Endpoint()), f"{STORAGE} endpoint"),
    ClusterStorage: (lambda: ClusterStorage([], Endpoint()), STORAGE),
    SentinelStorage: (lambda: SentinelStorage([], "service", Endpoint()), STORAGE),
    MemoryStorage: (MemoryStorage, f"{STORAGE} socket"),
    FileStorage: (lambda: FileStorage("/nowhere"), f"{STORAGE} directory exists"),
    Addition: (lambda: Addition("q", "n", {}), "headers id name outcome queue size"),
    Instrumentation: (Instrumentation, HOOKS),
    Instruments: (lambda: Instruments(()), "adding executing_step running settled start stop"),
    RunReport: (RunReport, "error outcome seconds"),
    OpenTelemetry: (OpenTelemetry, f"{HOOKS} watch"),
    Prometheus: (Prometheus, f"{HOOKS} endpoint page pages refresh registry watch"),
    HttpEndpoint: (lambda: HttpEndpoint({}), "close port start"),
    JobLogging: (JobLogging, HOOKS),
    JobFilter: (JobFilter, "filter name nlen"),
    JsonFormatter: (JsonFormatter, FORMATTER),
}

JOB_METHODS = """
    change_delay change_priority chunks get_children_values get_dependencies get_state get_steps heartbeat log
    move_to_delayed move_to_waiting_children promote refresh
    remove result resume retry revoke send send_and_wait signal stream step suspend update_data
    update_progress update_result_ttl watch
"""
VALUES: dict[Any, str] = {
    Backoff: "custom delay exponential factor fixed initial jitter kind max name",
    BatchOptions: "size wait",
    BatchProgress: "counts ended fraction total",
    BulkOutcome: "refused stored unknown",
    Chunk: "position value",
    ChunkGap: "missed position",
    Codec: "decode encode required tag",
    DagNode: "data deps job_name name on_failure options queue_name",
    Dependencies: "completed failed ignored pending",
    CallFailure: "error_type job_id message queue",
    FanIn: "calls shape then",
    FlowCall: "add call children data definition job_options on_failure options otherwise policy then",
    Filter: "of_queue terms",
    FlowJob: "children data name on_failure options queue_name",
    JobNode: "children job",
    JobRef: "count index job_id queue",
    DeadLetter: "attempts_made cause failed_at job_id queue reason",
    Deduplication: "id mode ttl",
    Endpoint: "at connection_class db host options password path port tls username where",
    EventGap: "missed position",
    EventRules: "content max_events off progress_interval",
    Explanation: "gates is_next job_id queue state summary",
    QueueLimits: "concurrency max_waiting rate_limit",
    ClosedGate: "by count kind since text until",
    Executor: "occupied run start stop",
    Finding: "count index invariant message subject",
    FunctionCall: "args function kwargs",
    Health: "alive problems ready running",
    JobBudget: "bytes log_line log_lines rest updates",
    JobOutcome: "error job value",
    JobScheduler: "data fired id is_paused last_at last_job_id name next_at options schedule skipped",
    JobUpdate: "log missed_lines progress state",
    KeepJobs: "age count",
    KeyLimits: "concurrency paused_until rate_limit token_bucket",
    MetricPoint: "count mean_seconds minute",
    Metrics: "count points",
    PayloadContext: "count id index kind name queue",
    Page: "body content_type count index status",
    Permissions: "cpu environment file_size memory network open_files processes read strict subprocess write",
    QueueEvent: "at detail job_id key kind name position size value",
    RateLimit: "duration max",
    RecordedStep: "arguments code error finished_at key name result run started_at status",
    Restarted: "position run",
    RunJob: "data_size headers queue waited",
    Schedule: """
        after_completion catch_up cron end every immediately jitter limit missed next_after overlap start tz
    """,
    Serializer: "dumps loads",
    StepLimits: "max_bytes max_steps",
    StreamLimits: "max_bytes max_chunks ttl ttl_ms",
    Signal: "data name question sent_at",
    Suspension: "children deadline reason signals",
    Storage: "call clone close connect read_stream scan subscribe url",
    Subscription: "close reset",
    SyncJob: JOB_METHODS,
    SyncJobBatch: "as_ended counts failures results",
    SubscriptionInfo: "count index jobs lag lost name patterns position queue read_at",
    TopicInfo: "count first index last name published stored subscriptions",
    TopicMessage: "data headers id key missed number published_at subject topic",
    SyncTaskMap: "as_ended outcomes results",
    SyncProducer: "add add_bulk close",
    SyncQueue: " ".join({*QUEUE.split()} - {"name", "storage", "sync"}),
    TokenBucket: "capacity refill_rate",
    QueueDepth: "count counts index oldest_waiting_seconds workers",
    WorkerPart: "count depth index name queue running",
    HistoryEntry: "actor at ended_at error group kind log note number outcome started_at version worker",
    FailureGroup: (
        "began_with count error_type fingerprint first_at last_at message name place queue sample_job_id trend versions"
    ),
    WorkerInfo: "concurrency host last_seen name pid running slots started_at state tasks version",
}
"""The public names of protocols and of classes whose instances have no other names than their class."""

INTERNAL_WORDS = ("Used by", "For workers", "For tests", "For tasks", "For queues", "For executors")


def shown(kind: type) -> set[str]:
    """Return the public names of a class, with the fields of a dataclass."""
    names = {*dir(kind), *getattr(kind, "__dataclass_fields__", {})}
    return {name for name in names if not name.startswith("_")}


def public_classes() -> set[type]:
    """Return the classes that the public packages export, without the exceptions."""
    packages = (glidemq_async, codecs, executors, instrumentation, storage, telemetry, testing)
    found = [getattr(package, name) for package in packages for name in package.__all__]
    return {one for one in found if inspect.isclass(one) and not issubclass(one, BaseException)}


def test_every_public_class_is_listed() -> None:
    assert {kind.__name__ for kind in public_classes()} == {kind.__name__ for kind in [*PUBLIC, *VALUES]}


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_completion_shows_the_public_names(kind: type) -> None:
    make, names = PUBLIC[kind]
    assert shown(kind) <= set(names.split())
    made = make()
    visible = {name for name in dir(made) if not name.startswith("_")}
    assert visible == set(names.split())


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_values_show_the_public_names(kind: type) -> None:
    assert shown(kind) == set(VALUES[kind].split())


@pytest.mark.parametrize("kind", [*PUBLIC, *VALUES], ids=lambda kind: kind.__name__)
def test_every_name_is_documented_for_users(kind: type) -> None:
    undocumented: list[str] = []
    for name in sorted(shown(kind) - set(dir(logging.Formatter))):
        member = inspect.getattr_static(kind, name, None)
        text = inspect.getdoc(member) or ""
        if name in getattr(kind, "__dataclass_fields__", {}) or (inspect.ismemberdescriptor(member) and not text):
            text = field_text(kind, name)
        if not text or any(word in text for word in INTERNAL_WORDS):
            undocumented.append(name)
    assert undocumented == []


def field_text(kind: type, name: str) -> str:
    """Return the description of a field: the docstring of the class if it names the field, or the text below it."""
    if f"`{name}`" in (kind.__doc__ or ""):
        return kind.__doc__ or ""
    found = re.search(rf'^    {name}: .*\n    """(.*)', inspect.getsource(kind), re.MULTILINE)
    return found[1] if found else ""
