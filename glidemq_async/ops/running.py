"""The worker of the operations core: runs bulk operations, evaluates alert rules, and sends notifications."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from typing_extensions import override

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.errors import GlideMQError
from glidemq_async.ops.alerts.delivery import delivery_worker
from glidemq_async.ops.alerts.evaluator import INTERVAL_SECONDS, Evaluator
from glidemq_async.ops.alerts.webhooks import permitted_hosts
from glidemq_async.ops.bulk.runner import operation_worker
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.part import OpsPart
from glidemq_async.options.validation import positive_seconds
from glidemq_async.worker.lifecycle import Runs
from glidemq_async.worker.worker import Worker

DEFAULT_CONCURRENCY: Final = 4


class OpsWorker(Runs):
    """Runs the work of the operations core in the background. Created by `Ops.worker`.

    `await worker.run()` works until SIGTERM, SIGINT or `stop()`. `async with worker` works in the background of the
    block.
    """

    def __init__(
        self,
        connections: Connections,
        concurrency: int,
        lock_duration: float,
        alert_interval: float | None,
        hosts: Sequence[str] | None,
    ) -> None:
        super().__init__(handle_signals=True)
        self._connections = connections
        self._hosts = hosts
        self._operations = operation_worker(connections, concurrency, lock_duration)
        self._operations.on("closing", partial(self._break_off_with, self._operations))
        self._operations.on("closed", self.stop)
        self._evaluator = None if alert_interval is None else Evaluator(connections, alert_interval)
        self._deliveries: Worker[Any, Any] | None = None
        self._background = BackgroundTasks()

    def __repr__(self) -> str:
        return f"<OpsWorker {self.name}>"

    @property
    def name(self) -> str:
        """The name of the worker of operations."""
        return self._operations.name

    @override
    def stop(self, *, immediately: bool = False) -> None:
        super().stop()
        self._operations.stop(immediately=immediately)

    @override
    async def _start(self) -> None:
        await self._operations.start()
        if self._evaluator is not None:
            self._background.start(self._evaluator.run(self._start_deliveries))

    async def _start_deliveries(self) -> None:
        # A worker costs a subscription and polls, so it exists only where rules are evaluated.
        if self._deliveries is None:
            worker = delivery_worker(self._connections, self._hosts)
            try:
                await worker.start()
            except BaseException:
                await worker.close()
                raise
            self._deliveries = worker

    @override
    async def _run_until_empty(self) -> None:
        await self._operations.until_empty()

    @override
    async def _close(self) -> None:
        await self._background.close()
        if self._deliveries is not None:
            await self._deliveries.close()
            with suppress(GlideMQError):
                if self._evaluator is not None:
                    await self._evaluator.leave()
        await self._operations.close()


class RunningMethods(OpsPart):
    """The method of Ops that does the work of the operations core."""

    def worker(
        self,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        lock_duration: float = 30.0,
        alert_interval: float | None = INTERVAL_SECONDS,
        webhook_hosts: Sequence[str] | None = None,
    ) -> OpsWorker:
        """Return a worker that runs bulk operations, evaluates alert rules, and sends their notifications.

        Any number of processes may have one. `concurrency` is the number of bulk operations that it runs at the same
        time. If a process is killed, another one continues each of its operations after `lock_duration` seconds. One
        process at a time evaluates the rules, every `alert_interval` seconds. With None, this worker never does.
        `webhook_hosts` are patterns of the only hosts that may receive webhooks (default: $GLIDEMQ_WEBHOOK_HOSTS, or
        all).
        """
        interval = None if alert_interval is None else positive_seconds("alert_interval", alert_interval)
        return OpsWorker(self._connections, concurrency, lock_duration, interval, permitted_hosts(webhook_hosts))
