"""Blocking methods for the parts of a queue. `SyncQueue` in `queue.py` adds the methods of `Queue`."""

from __future__ import annotations

from typing import Any, Generic, cast

from glidemq_async._internal.blocking import BlockingContext, blocking
from glidemq_async._internal.generics import Data, Result
from glidemq_async.filters.filter import Filter
from glidemq_async.queues.base import QueuePart
from glidemq_async.queues.cleaning import Cleaning
from glidemq_async.queues.dead_letters import DeadLetters
from glidemq_async.queues.event_rules import EventSettings
from glidemq_async.queues.explanation import Explaining
from glidemq_async.queues.failures import Failures
from glidemq_async.queues.finding import JobSearch
from glidemq_async.queues.inspection import Inspection
from glidemq_async.queues.job_history import JobHistories
from glidemq_async.queues.limits import Limits
from glidemq_async.queues.operations import Operations, SyncQueueOperation
from glidemq_async.queues.schedulers import Schedulers
from glidemq_async.queues.signals import Signals


class SyncParts(BlockingContext[QueuePart[Data, Result]], Generic[Data, Result]):
    """The blocking methods of the parts of a queue."""

    get_job = blocking(Inspection[Data, Result].get_job)
    get_deduplication_job_id = blocking(Inspection[Data, Result].get_deduplication_job_id)
    get_jobs = blocking(Inspection[Data, Result].get_jobs)
    iter_jobs = blocking(Inspection[Data, Result].iter_jobs)
    get_job_counts = blocking(Inspection[Data, Result].get_job_counts)
    get_depth = blocking(Inspection[Data, Result].get_depth)
    count = blocking(Inspection[Data, Result].count)
    has_chunks = blocking(Inspection[Data, Result].has_chunks)
    chunks = blocking(Inspection[Data, Result].chunks)
    get_job_logs = blocking(Inspection[Data, Result].get_job_logs)
    search_jobs = blocking(Inspection[Data, Result].search_jobs)
    get_metrics = blocking(Inspection[Data, Result].get_metrics)
    get_workers = blocking(Inspection[Data, Result].get_workers)

    get_failure_groups = blocking(Failures[Data, Result].get_failure_groups)

    get_job_history = blocking(JobHistories[Data, Result].get_job_history)
    set_history = blocking(JobHistories[Data, Result].set_history)

    find = blocking(JobSearch[Data, Result].find)
    iter_find = blocking(JobSearch[Data, Result].iter_find)

    explain = blocking(Explaining[Data, Result].explain)

    revoke = blocking(Cleaning[Data, Result].revoke)
    remove = blocking(Cleaning[Data, Result].remove)
    release_deduplication = blocking(Cleaning[Data, Result].release_deduplication)
    drain = blocking(Cleaning[Data, Result].drain)
    clean = blocking(Cleaning[Data, Result].clean)
    promote_jobs = blocking(Cleaning[Data, Result].promote_jobs)
    update_result_ttl = blocking(Cleaning[Data, Result].update_result_ttl)
    retry_jobs = blocking(Cleaning[Data, Result].retry_jobs)
    obliterate = blocking(Cleaning[Data, Result].obliterate)

    upsert_job_scheduler = blocking(Schedulers[Data, Result].upsert_job_scheduler)
    pause_job_scheduler = blocking(Schedulers[Data, Result].pause_job_scheduler)
    resume_job_scheduler = blocking(Schedulers[Data, Result].resume_job_scheduler)
    get_job_scheduler = blocking(Schedulers[Data, Result].get_job_scheduler)
    get_job_schedulers = blocking(Schedulers[Data, Result].get_job_schedulers)
    remove_job_scheduler = blocking(Schedulers[Data, Result].remove_job_scheduler)
    trigger_job_scheduler = blocking(Schedulers[Data, Result].trigger_job_scheduler)

    get_dead_letter_jobs = blocking(DeadLetters[Data, Result].get_dead_letter_jobs)
    count_dead_letter_jobs = blocking(DeadLetters[Data, Result].count_dead_letter_jobs)
    replay_dead_letter_jobs = blocking(DeadLetters[Data, Result].replay_dead_letter_jobs)
    set_dead_letter_queue = blocking(DeadLetters[Data, Result].set_dead_letter_queue)
    get_dead_letter_queue = blocking(DeadLetters[Data, Result].get_dead_letter_queue)

    signal = blocking(Signals[Data, Result].signal)
    send = blocking(Signals[Data, Result].send)
    send_and_wait = blocking(Signals[Data, Result].send_and_wait)
    resume_job = blocking(Signals[Data, Result].resume_job)
    get_mailbox = blocking(Signals[Data, Result].get_mailbox)

    set_global_concurrency = blocking(Limits[Data, Result].set_global_concurrency)
    get_global_concurrency = blocking(Limits[Data, Result].get_global_concurrency)
    set_global_rate_limit = blocking(Limits[Data, Result].set_global_rate_limit)
    get_global_rate_limit = blocking(Limits[Data, Result].get_global_rate_limit)
    remove_global_rate_limit = blocking(Limits[Data, Result].remove_global_rate_limit)
    set_max_waiting = blocking(Limits[Data, Result].set_max_waiting)
    get_max_waiting = blocking(Limits[Data, Result].get_max_waiting)
    set_key_limits = blocking(Limits[Data, Result].set_key_limits)
    get_key_limits = blocking(Limits[Data, Result].get_key_limits)
    pause_key = blocking(Limits[Data, Result].pause_key)

    set_events = blocking(EventSettings[Data, Result].set_events)
    get_event_rules = blocking(EventSettings[Data, Result].get_event_rules)

    def operation(self, action: str, wanted: str | Filter, *, reason: str = "", **arguments: Any) -> SyncQueueOperation:
        """Return one change of all jobs of this queue that match a filter; see `Queue.operation`."""
        queue = cast("Operations[Data, Result]", self._owner)
        return SyncQueueOperation(queue.operation(action, wanted, reason=reason, **arguments), self._home)
