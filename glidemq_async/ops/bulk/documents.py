"""Previews and operations, as the faces show them, and their stored form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.functions.calling import Record
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.documents import as_document
from glidemq_async.ops.rows import JobRow

OperationState: TypeAlias = Literal["previewed", "running", "done", "cancelled", "stopped"]
NOT_REACHED = "not reached"
"""The reason for the jobs that an operation had not handled when it was cancelled or stopped."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The jobs that an operation would handle, as they were when they were counted.

    `count` is the number of jobs that match the filter and were added up to `cutoff`, and `sample` has the first ones.
    `refused` counts the jobs that the action cannot change, by the reason. Pass `operation_id` and `ticket` to
    `Ops.start` within 15 minutes. Only these jobs are changed, whatever is added later.
    """

    operation_id: str
    ticket: str
    action: str
    filter: str
    count: int
    sample: list[JobRow]
    cutoff: datetime
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """A bulk operation: `done` jobs are changed, and `refused` counts the others by the reason.

    At the end, `done` and all of `refused` add up to `count`. `rate` is in jobs per second, None for the fastest.
    """

    id: str
    action: str
    filter: str
    arguments: Mapping[str, Any]
    state: OperationState
    count: int
    done: int
    refused: Mapping[str, int]
    rate: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    actor: str
    reason: str
    stop_reason: str
    cutoff: datetime


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
