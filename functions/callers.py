"""The callers of the function library, which take and return plain Python.

They contain no policy. The queue and the worker decide what to send and how to handle a reply.
"""

from __future__ import annotations

from glidemq_async.functions.add import AddCalls
from glidemq_async.functions.alerts import AlertCalls
from glidemq_async.functions.audit import AuditCalls
from glidemq_async.functions.bulk import BulkCalls
from glidemq_async.functions.calling import Caller, FunctionStore, RequestChannels
from glidemq_async.functions.changes import ChangeCalls
from glidemq_async.functions.checking import CheckCalls
from glidemq_async.functions.checking_marks import MarkCheckCalls
from glidemq_async.functions.children import ChildCalls
from glidemq_async.functions.cleaning import CleaningCalls
from glidemq_async.functions.dead_letters import DeadLetterCalls
from glidemq_async.functions.event_rules import EventRuleCalls
from glidemq_async.functions.explain import ExplainCalls
from glidemq_async.functions.failure_groups import FailureGroupCalls
from glidemq_async.functions.feeds import FeedCalls
from glidemq_async.functions.flows import FlowCalls
from glidemq_async.functions.graphs import GraphCalls
from glidemq_async.functions.grouped_adds import GroupedAddCalls
from glidemq_async.functions.history import HistoryCalls
from glidemq_async.functions.inbox import InboxCalls
from glidemq_async.functions.job_history import JobHistoryCalls
from glidemq_async.functions.job_waiters import JobWaiterCalls
from glidemq_async.functions.jobs import JobCalls
from glidemq_async.functions.key_limits import LimitCalls
from glidemq_async.functions.known_tasks import KnownTaskCalls
from glidemq_async.functions.lease import LeaseCalls
from glidemq_async.functions.mending import MendingCalls
from glidemq_async.functions.metrics import MetricsCalls
from glidemq_async.functions.migration import MigrationCalls
from glidemq_async.functions.notices import NoticeCalls
from glidemq_async.functions.obliterate import ObliterateCalls
from glidemq_async.functions.operations import OperationCalls
from glidemq_async.functions.outbox import OutboxCalls
from glidemq_async.functions.queue import QueueCalls
from glidemq_async.functions.reading import ReadingCalls
from glidemq_async.functions.replaying import ReplayingCalls
from glidemq_async.functions.result_ttl import ResultTtlCalls
from glidemq_async.functions.retention import RetentionCalls
from glidemq_async.functions.scheduler_list import SchedulerListCalls
from glidemq_async.functions.schedulers import SchedulerCalls
from glidemq_async.functions.searching import SearchingCalls
from glidemq_async.functions.settings import SettingCalls
from glidemq_async.functions.settle import SettleCalls
from glidemq_async.functions.signals import SignalCalls
from glidemq_async.functions.stalled import StalledCalls
from glidemq_async.functions.steps import StepCalls
from glidemq_async.functions.streaming import StreamingCalls
from glidemq_async.functions.successors import DeduplicationCalls
from glidemq_async.functions.summary import SummaryCalls
from glidemq_async.functions.tokens import TokenCalls
from glidemq_async.functions.topics import TopicCalls
from glidemq_async.functions.updates import UpdateCalls
from glidemq_async.functions.watching import WatchingCalls
from glidemq_async.functions.worker_list import WorkerListCalls
from glidemq_async.functions.writes import WriteCalls


class Functions:
    """The calls to one queue. Each attribute has the calls of the functions of one Lua file, through one caller."""

    # All parts share one caller. It holds the incarnation of the open queue and the name of the worker, which
    # `QueueCalls.open` and the worker set once for the calls of all parts.
    def __init__(self, storage: FunctionStore, base: str, channels: RequestChannels | None = None) -> None:
        self.caller = caller = Caller(storage, base, channels)
        self.queue = QueueCalls(caller)
        self.migration = MigrationCalls(caller)
        self.grouped_adds = GroupedAddCalls(caller)
        self.add = AddCalls(caller, self.grouped_adds)
        self.notices = NoticeCalls(caller)
        self.settle = SettleCalls(caller)
        self.leases = LeaseCalls(caller)
        self.stalled = StalledCalls(caller)
        self.jobs = JobCalls(caller)
        self.changes = ChangeCalls(caller)
        self.updates = UpdateCalls(caller)
        self.signals = SignalCalls(caller)
        self.streaming = StreamingCalls(caller)
        self.steps = StepCalls(caller)
        self.mending = MendingCalls(caller)
        self.watching = WatchingCalls(caller)
        self.topics = TopicCalls(caller)
        self.feeds = FeedCalls(caller)
        self.result_ttl = ResultTtlCalls(caller)
        self.job_waiters = JobWaiterCalls(caller)
        self.deduplication = DeduplicationCalls(caller)
        self.settings = SettingCalls(caller)
        self.limits = LimitCalls(caller)
        self.retention = RetentionCalls(caller)
        self.schedulers = SchedulerCalls(caller)
        self.scheduler_list = SchedulerListCalls(caller)
        self.reading = ReadingCalls(caller)
        self.worker_list = WorkerListCalls(caller)
        self.searching = SearchingCalls(caller)
        self.explain = ExplainCalls(caller)
        self.known_tasks = KnownTaskCalls(caller)
        self.metrics = MetricsCalls(caller)
        self.failure_groups = FailureGroupCalls(caller)
        self.job_history = JobHistoryCalls(caller)
        self.check = CheckCalls(caller)
        self.check_marks = MarkCheckCalls(caller)
        self.cleaning = CleaningCalls(caller)
        self.obliterate = ObliterateCalls(caller)
        self.dead_letters = DeadLetterCalls(caller)
        self.replaying = ReplayingCalls(caller)
        self.outbox = OutboxCalls(caller)
        self.flows = FlowCalls(caller)
        self.children = ChildCalls(caller)
        self.graphs = GraphCalls(caller)
        self.inbox = InboxCalls(caller)
        self.history = HistoryCalls(caller)
        self.writes = WriteCalls(caller)
        self.audit = AuditCalls(caller)
        self.summary = SummaryCalls(caller)
        self.tokens = TokenCalls(caller)
        self.bulk = BulkCalls(caller)
        self.operations = OperationCalls(caller)
        self.event_rules = EventRuleCalls(caller)
        self.alerts = AlertCalls(caller)
