"""The children of a job in a flow: their values and their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import JobNotFound
from glidemq_async.functions.children import ChildRow
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.flow import FlowRef, JobRef
from glidemq_async.stored.names import QueueKeys


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The children of a job, by how they ended.

    `completed` have results, and `pending` have not ended. `failed` has those whose failure counts for the job (the
    policies "fail", "wait" and "collect"), and `ignored` those with the policy "ignore"; both with the reason. Failed
    children with the policy "remove" are in none of them.
    """

    completed: tuple[JobRef, ...] = ()
    pending: tuple[JobRef, ...] = ()
    failed: Mapping[JobRef, str] = field(default_factory=dict[JobRef, str])
    ignored: Mapping[JobRef, str] = field(default_factory=dict[JobRef, str])


async def read_children(client: QueueClient, job_id: str, ref: FlowRef | None) -> list[ChildRow]:
    """Return the children of a job: the ones of its flow, then the ones that its runs have added.

    Raises JobNotFound if one of the plans has been removed.
    """
    rows: list[ChildRow] | None = []
    if ref is not None:
        home = client.at(ref.home) if ref.home else client
        rows = await home.functions.children.read(ref.flow, ref.stamp, ref.node)
    # An empty stamp: the server knows the plan of the children that runs of the job have added.
    added = None if rows is None else await client.functions.children.read(job_id, "", 0)
    if rows is None or added is None:
        raise JobNotFound(
            f"the children of job {job_id!r} are not known any more: the plan of a flow is kept for a day after its "
            "last job has ended; read them before"
        )
    return rows + added


def values_of_children(client: QueueClient, rows: list[ChildRow]) -> dict[JobRef, Any]:
    """Return the results of the completed children, and the failures of those with the policy "collect"."""
    values: dict[JobRef, Any] = {}
    for row in rows:
        if row.ending == "c":
            values[_ref(row)] = client.decode(row.value, "result", row.name, row.id, row.base)
        elif row.ending == "f" and row.policy == "c":
            values[_ref(row)] = stored_failure(None, row.value.decode(errors="replace"))
    return values


def dependencies_of(rows: list[ChildRow]) -> Dependencies:
    """Return the children by how they ended."""
    failed: dict[JobRef, str] = {}
    ignored: dict[JobRef, str] = {}
    for row in rows:
        if row.ending == "f" and row.policy != "r":
            (ignored if row.policy == "i" else failed)[_ref(row)] = row.value.decode(errors="replace")
    return Dependencies(
        tuple(_ref(row) for row in rows if row.ending == "c"),
        tuple(_ref(row) for row in rows if not row.ending),
        failed,
        ignored,
    )


def _ref(row: ChildRow) -> JobRef:
    return JobRef(QueueKeys.of(row.base).queue, row.id)
