"""A worker for the messages of a topic, with the names of glide-mq."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from typing_extensions import override

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.validation import whole_number
from glidemq_async.storage import StorageLike
from glidemq_async.topics.feeding import DEFAULT_BACKLOG, FeedSource
from glidemq_async.topics.subjects import check_patterns, stored_start, subscription_queue
from glidemq_async.topics.topic import Topic
from glidemq_async.worker.batches import Processor
from glidemq_async.worker.options import WorkerKeywords, WorkerOptions
from glidemq_async.worker.worker import Worker

_GLIDE_STARTS = {"$": "now", "0-0": "beginning", "0": "beginning"}


class BroadcastWorker(Worker[Any, Any]):
    """Runs a job for each message of a topic that fits, at most `concurrency` at a time.

    - `topic`: the name of the Topic or Broadcast.
    - `processor` takes a Job. `job.name` is the subject, `job.data` the data, and `job.headers["message_id"]` the id of
      the message.
    - `subscription`: its name. Workers with the same name share the messages, and each name gets all of them.
    - `subjects`: patterns, `*` for one token, a final `>` for one or more, `!` in front of exclusions. None: all.
    - `start_from`: where a new subscription begins: "now" or "$", "beginning" or "0-0", an instant with a time zone, or
      the id of a message.
    - `job_options`: the options of the jobs, for example `JobOptions(attempts=5)`.
    - `backlog`: the number of waiting jobs above which further messages stay in the topic (default: 1,000).

    All other parameters, methods and errors are the same as for Worker. The queue is named `<topic>.<subscription>`.
    """

    def __init__(
        self,
        topic: str,
        processor: Processor[Any, Any],
        storage: StorageLike = None,
        *,
        subscription: str,
        subjects: Sequence[str] | None = None,
        start_from: str | datetime = "now",
        job_options: JobOptions | None = None,
        backlog: int = DEFAULT_BACKLOG,
        options: WorkerOptions | None = None,
        **keywords: Unpack[WorkerKeywords],
    ) -> None:
        start = _GLIDE_STARTS.get(start_from, start_from) if isinstance(start_from, str) else start_from
        patterns, place = check_patterns(subjects or ()), stored_start(start)
        super().__init__(subscription_queue(topic, subscription), processor, storage, options=options, **keywords)
        of_topic = {name: value for name, value in keywords.items() if name in _OF_TOPICS}
        self._topic = Topic(topic, self.storage, **{"prefix": DEFAULT_PREFIX, **of_topic})  # type: ignore[arg-type]
        self._source = FeedSource(
            open_topic=lambda: self._topic,
            topic_name=topic,
            name=subscription,
            patterns=patterns,
            start=place,
            backlog=whole_number("backlog", backlog, least=1),
            options=job_options or JobOptions(),
        )

    @override
    def __repr__(self) -> str:
        return super().__repr__().replace("<Worker", "<BroadcastWorker", 1)


_OF_TOPICS = frozenset({"prefix", "serializer", "codecs"})
