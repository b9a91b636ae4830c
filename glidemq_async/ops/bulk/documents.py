"""Previews and operations, as the faces show them, and their stored form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.functions.calling import Record
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.documents import as_document
from glidemq_async.queues.operations import Operation, OperationState, Preview

__all__ = ["NOT_REACHED", "Operation", "OperationState", "Preview", "Stored", "packed_plan"]

NOT_REACHED = "not reached"
"""The reason for the jobs that an operation had not handled when it was cancelled or stopped."""


class Stored:
    """An operation as the store keeps it, for its runner."""

    def __init__(self, operation_id: str, record: Record) -> None:
        plan = cast("dict[str, Any]", msgpack.unpackb(record[b"document"]))
        settings = cast("dict[str, Any]", msgpack.unpackb(record.get(b"settings", b"\x80")))
        self.id = operation_id
        self.filter = str(plan["filter"])
        self.cutoff_ms = int(plan["cutoff_ms"])
        self.action = ActionCall(plan["action"], json.loads(plan["arguments"]), plan["reason"])
        self.state: OperationState = cast("OperationState", record[b"state"].decode())
        self.position = int(record[b"position"])
        self.chunk = int(record[b"chunk"])
        self.size = int(record[b"size"])
        self.rate: float | None = settings.get("rate")
        self.stop_if_failing: float | None = settings.get("stop_if_failing")
        self.started_by = str(settings.get("who") or plan["actor"])
        """The person who has started the operation, for the histories of its jobs."""
        self.document = _document(operation_id, record, plan, self)


def packed_plan(
    action: ActionCall, wanted: str, cutoff_ms: int, count: int, refused: Mapping[str, int], actor: str
) -> bytes:
    """Return the stored form of what a preview decides."""
    plan = {
        "action": action.name,
        "arguments": json.dumps(as_document(action.arguments)),
        "filter": wanted,
        "cutoff_ms": cutoff_ms,
        "count": count,
        "refused": dict(refused),
        "actor": actor,
        "reason": action.reason,
    }
    return msgpack.packb(plan)


def _document(operation_id: str, record: Record, plan: Mapping[str, Any], stored: Stored) -> Operation:
    refused: dict[str, int] = dict(plan["refused"])
    for field, value in record.items():
        if field.startswith(b"r:"):
            reason = field[2:].decode()
            refused[reason] = refused.get(reason, 0) + int(value)
    left = stored.size - stored.position
    if left and stored.state in {"cancelled", "stopped"}:
        refused[NOT_REACHED] = left
    return Operation(
        operation_id,
        stored.action.name,
        stored.filter,
        stored.action.arguments,
        stored.state,
        int(plan["count"]),
        int(record[b"done"]),
        refused,
        stored.rate,
        from_ms(int(record[b"created"])),
        _instant(record, b"started"),
        _instant(record, b"ended"),
        str(plan["actor"]),
        stored.action.reason,
        record.get(b"stop_reason", b"").decode(errors="replace"),
        from_ms(stored.cutoff_ms),
    )


def _instant(record: Record, field: bytes) -> datetime | None:
    return from_ms(int(record[field])) if field in record else None
