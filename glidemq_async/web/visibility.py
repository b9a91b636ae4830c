"""The part of a document that an identity may see: its queues, and payloads only with the right to see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any, Final, cast

from glidemq_async.ops.access import Identity
from glidemq_async.ops.graph_parts import GraphNode
from glidemq_async.ops.graphs import FlowGraph
from glidemq_async.ops.looking import Pulse
from glidemq_async.ops.overview import Overview, only
from glidemq_async.ops.rows import JobDetail
from glidemq_async.ops.waterfall import Waterfall
from glidemq_async.queues.explanation import Explanation, without_children, without_error


def visible_part(document: Any, identity: Identity) -> Any:
    """Return the part of a document of the operations core that an identity may see."""
    if isinstance(document, Pulse):
        return Pulse(_overview(document.overview, identity)).document
    if isinstance(document, Overview):
        return _overview(document, identity)
    if isinstance(document, FlowGraph):
        return replace(document, nodes=tuple(_node(each, identity) for each in document.nodes))
    if isinstance(document, Waterfall):
        return _waterfall(document, identity)
    if isinstance(document, list | tuple):
        rows = [each for each in cast("list[Any]", document) if _is_seen(each, identity)]
        return [visible_part(each, identity) for each in rows]
    if isinstance(document, Explanation):
        return _explanation(document, identity)
    if isinstance(document, JobDetail):
        document = replace(document, parents=tuple(each for each in document.parents if identity.sees(each.queue)))
    return document if identity.payloads else without_payloads(document)


def _overview(document: Overview, identity: Identity) -> Overview:
    if not identity.sees_all:
        document = only(document, identity.visible(each.name for each in document.queues))
    failures = tuple(visible_part(document.failures, identity))
    audit = document.audit if identity.payloads else tuple(without_payloads(line) for line in document.audit)
    return replace(document, failures=failures, audit=audit)


def _explanation(document: Explanation, identity: Identity) -> Explanation:
    # A child may be in a queue that the user does not see.
    document = document if identity.sees_all else without_children(document)
    return document if identity.payloads else without_error(document)


def _node(node: GraphNode, identity: Identity) -> GraphNode:
    """Return a node of a graph. A job in a queue that the user does not see keeps only its state."""
    if not identity.sees(node.queue):
        return replace(node, queue="", id="", name="hidden", reason="")
    return node if identity.payloads else replace(node, reason="")


def _waterfall(document: Waterfall, identity: Identity) -> Waterfall:
    # Details are errors, but the details of children are ids. A child may be in a queue that the user does not
    # see.
    rows = [
        row if (identity.sees_all if row.kind == "child" else identity.payloads) else replace(row, detail="")
        for row in document.rows
    ]
    return replace(document, rows=tuple(rows))


def _is_seen(row: Any, identity: Identity) -> bool:
    queue = getattr(row, "queue", None) or getattr(row, "name", None)
    return identity.sees_all or (isinstance(queue, str) and identity.sees(queue))


HIDDEN: Final[Mapping[str, object]] = {
    "data": None,
    "progress": None,
    "return_value": None,
    "stacktrace": None,
    "logs": (),
    "log": (),
    "failed_reason": None,
    "error": None,
    "message": "",
    "headers": {},
    "options": {},
    "dead_letter": None,
}
"""The fields with payloads, and the value that replaces each."""
PRIVATE_ARGUMENTS: Final = frozenset({"data", "options"})
"""The arguments of changes that have payloads."""


def without_payloads(document: Any) -> Any:
    """Return a document whose fields with payloads are empty."""
    if not is_dataclass(document) or isinstance(document, type):
        return document
    names: Any = document.__dataclass_fields__
    hidden = {name: value for name, value in HIDDEN.items() if name in names}
    if "arguments" in names:
        arguments: Mapping[str, object] = getattr(document, "arguments")  # noqa: B009 - not every document has them
        hidden["arguments"] = {name: value for name, value in arguments.items() if name not in PRIVATE_ARGUMENTS}
    nested = {
        name: tuple(without_payloads(each) for each in cast("list[Any]", value))
        for name in names
        if name not in hidden and isinstance(value := getattr(document, name), list | tuple)
    }
    inner = {
        name: without_payloads(value)
        for name in names
        if name not in hidden and is_dataclass(value := getattr(document, name)) and not isinstance(value, type)
    }
    return replace(document, **hidden, **nested, **inner)
