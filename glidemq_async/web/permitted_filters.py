"""Filters that a user may apply: only to visible queues, and to payloads only with the right to see them."""

from __future__ import annotations

import json
import re
from typing import Final

from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.ops.access import PAYLOADS, AccessDenied
from glidemq_async.ops.bulk.documents import Operation
from glidemq_async.ops.core import Ops
from glidemq_async.web.context import RequestContext

PRIVATE_TERMS: Final = frozenset({"data", "result", "error", "reason", "progress"})
"""Fields of filters that tell something about payloads."""


async def permitted_filter(context: RequestContext, ops: Ops, text: str) -> Filter:
    """Return a filter that the user may apply.

    Raises FilterError, and AccessDenied if it may select queues that the user does not see, or asks about payloads
    without the right.
    """
    wanted = Filter(text)
    identity = context.identity
    if not identity.payloads and any(_is_private(term.field) for term in wanted.terms):
        raise AccessDenied(identity.name, PAYLOADS)
    if not identity.sees_all:
        plan = FilterPlan(wanted)
        for queue in await ops.known_queue_names():
            if plan.may_be_in(queue):
                context.require("viewer", queue)
    return wanted


async def sees_operation(context: RequestContext, ops: Ops, operation: Operation) -> bool:
    """Return whether the user may apply the filter of an operation, and so may see the operation."""
    try:
        await permitted_filter(context, ops, operation.filter)
    except AccessDenied:
        return False
    return True


async def narrowed_filter(context: RequestContext, ops: Ops, text: str) -> Filter | None:
    """Return a filter limited to the queues that the user sees, None if the user sees no queue.

    Raises FilterError, and AccessDenied if it asks about payloads without the right.
    """
    if context.identity.sees_all:
        return await permitted_filter(context, ops, text)
    names = context.identity.visible(await ops.known_queue_names())
    if not names:
        return None
    Filter(text)  # The place of a mistake is reported in the text of the user.
    queues = ",".join(json.dumps(name, ensure_ascii=False) for name in names)
    return await permitted_filter(context, ops, f"{text} queue:{queues}".strip())


def _is_private(field: str) -> bool:
    return re.split(r"[.\[]", field)[0] in PRIVATE_TERMS
