"""Bulk operations: preview, start, progress and cancel."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import Any

import msgpack

from glidemq_async._internal.waits import task_group
from glidemq_async.durations import from_ms
from glidemq_async.filters.filter import Filter
from glidemq_async.ops.audit import Change, log_change, packed_line
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.bulk.documents import Operation, Preview, Stored, packed_plan
from glidemq_async.ops.bulk.runner import operation_worker, stored_operation
from glidemq_async.ops.bulk.target_search import TargetSearch
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import OperationNotFound, OperationRefused
from glidemq_async.ops.part import OpsPart
from glidemq_async.options.validation import optional_seconds

_JOB = "operation"
WAIT_STEP = 0.2


class OperationMethods(OpsPart):
    """The methods of Ops for bulk operations."""

    async def preview(self, action: str, wanted: str | Filter, *, reason: str = "", **arguments: Any) -> Preview:
        """Count the jobs that an action would change, and store which ones they are. Changes no job.

        | Action | Arguments | Changes jobs in these states |
        |---|---|---|
        | `retry` | `force=True`: completed ones too | failed |
        | `cancel` | | all that have not ended |
        | `promote` | | delayed |
        | `delay` | `delay` in seconds | all that have not started |
        | `move` | `to`, a queue | all that have not started, and failed |
        | `delete` | | all |
        | `edit` | `data` (arguments by name), `options`, `force` | all that have not started, and failed |

        Raises FilterError, TypeError or ValueError for bad arguments, QueueNotFound, and OperationRefused for more than
        a million jobs.
        """
        call = ActionCall(action, arguments, reason)
        checked = wanted if isinstance(wanted, Filter) else Filter(wanted)
        operation_id, ticket = secrets.token_hex(6), secrets.token_urlsafe(18)
        search = TargetSearch(self._connections, operation_id, call, checked)
        await search.run()
        plan = packed_plan(call, str(checked), search.cutoff_ms, search.count, search.refused, self.actor.name)
        await self._connections.system.operations.create(operation_id, plan, _digest(ticket), search.size)
        return Preview(
            operation_id,
            ticket,
            call.name,
            str(checked),
            search.count,
            search.sample,
            from_ms(search.cutoff_ms),
            dict(search.refused),
        )

    async def start(
        self,
        operation_id: str,
        ticket: str,
        *,
        rate: float | None = None,
        stop_if_failing: float | None = 0.5,
    ) -> Operation:
        """Start a previewed operation. A second start with the same ticket returns the same operation.

        `rate` is the maximum number of jobs per second. The operation stops by itself when more than the share
        `stop_if_failing` of its restarted jobs fail again; with None it never does. A process with `ops.worker()` runs
        it.

        Raises OperationNotFound, OperationRefused for a wrong ticket or an ended operation, and ValueError.
        """
        if rate is not None and not rate > 0:
            raise ValueError(f"rate must be a number of jobs per second above 0, got {rate!r}")
        if stop_if_failing is not None and not 0 <= stop_if_failing <= 1:
            raise ValueError(f"stop_if_failing must be a share from 0 to 1, got {stop_if_failing!r}")
        stored = await stored_operation(self._connections, operation_id)
        await self._connections.open_system_queue()
        change = _change_of(stored)
        settings = {"rate": rate, "stop_if_failing": stop_if_failing, "who": self.actor.label}
        status = await self._connections.system.operations.start(
            operation_id,
            _digest(ticket),
            msgpack.packb(settings),
            _JOB,
            msgpack.packb({"operation": operation_id}),
            packed_line(self.actor, change),
        )
        if status == "missing":
            raise OperationNotFound(operation_id)
        if status == "ticket":
            raise OperationRefused(f"the ticket is not the one of operation {operation_id}; make a new preview")
        if status.startswith("state"):
            raise OperationRefused(f"operation {operation_id} was {status.removeprefix('state ')}; make a new preview")
        if status == "started":
            log_change(self.actor, change)
        return await self.operation(operation_id)

    async def operation(self, operation_id: str) -> Operation:
        """Return an operation and its progress. Raises OperationNotFound."""
        return (await stored_operation(self._connections, operation_id)).document

    async def operations(self, limit: int = 50) -> list[Operation]:
        """Return up to `limit` operations (at most 100), the newest first."""
        return await read_operations(self._connections, limit)

    async def cancel_operation(self, operation_id: str, *, reason: str = "") -> Operation:
        """Cancel an operation. Jobs that it has changed stay changed; the others are refused as `not reached`.

        Raises OperationNotFound, OperationRefused if it has ended.
        """
        change = Change("cancel_operation", target=operation_id, reason=reason)
        line = packed_line(self.actor, change)
        status = await self._connections.system.operations.end(operation_id, "cancelled", reason, line)
        if status == "missing":
            raise OperationNotFound(operation_id)
        if status != "ok":
            raise OperationRefused(f"operation {operation_id} cannot be cancelled: it is {status[6:]}")
        log_change(self.actor, change)
        return await self.operation(operation_id)

    async def wait_operation(self, operation_id: str, timeout: float | None = None) -> Operation:
        """Wait up to `timeout` seconds for the end of an operation. Raises TimeoutError, OperationNotFound."""
        async with asyncio.timeout(optional_seconds("timeout", timeout)):
            while True:
                found = await self.operation(operation_id)
                if found.state not in {"previewed", "running"}:
                    return found
                await asyncio.sleep(WAIT_STEP)

    async def run_operation(self, operation_id: str) -> Operation:
        """Run the started operations in this process until this one has ended, and return it.

        Another process may run it at the same time. Raises OperationNotFound.
        """
        worker = operation_worker(self._connections)
        async with task_group() as group:
            running = group.create_task(worker.run())
            try:
                found = await self.wait_operation(operation_id)
            finally:
                worker.stop()
            await running
        return found

    async def operation_workers(self) -> int:
        """Return the number of workers, in all processes, that run bulk operations and gave a sign of life lately.

        A worker that was killed is counted for up to a minute more.
        """
        return (await self._connections.system.summary.read()).alive


async def read_operations(connections: Connections, limit: int) -> list[Operation]:
    """Return the newest operations."""
    ids = (await connections.system.operations.list_ids())[:limit]
    records = await connections.system.operations.get(ids) if ids else []
    return [Stored(one, record).document for one, record in zip(ids, records, strict=True) if b"document" in record]


def _change_of(stored: Stored) -> Change:
    action = stored.action
    return Change(action.name, "", stored.filter, action.arguments, action.reason, stored.document.count)


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()
