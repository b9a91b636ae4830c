"""The pages about the store, dead letters and the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.ops.core import Ops
from glidemq_async.web.context import context_of, identity_of, ops_of
from glidemq_async.web.pages import formats
from glidemq_async.web.pages.rendering import render

LETTERS: Final = 20
Tag = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Letters:
    name: str
    sources: list[str]
    count: int
    jobs: list[Any]


@dataclass(frozen=True, slots=True)
class _Letter:
    id: str
    name: str
    queue: str
    cause: str
    reason: str
    attempts_made: int
    failed_at: Any


async def show_dead_letters(request: Request) -> Response:
    """Show the dead-letter queues with their newest letters."""
    ops, identity = ops_of(request), identity_of(request)
    names = identity.visible(await ops.known_queue_names())
    sources: dict[str, list[str]] = {}
    for name in names:
        target = await (await ops.queue(name)).get_dead_letter_queue()
        if target:
            sources.setdefault(target, []).append(name)
    letters = [await _letters(ops, name, found) for name, found in sorted(sources.items()) if name in names]
    return render(request, "dead_letters.html.j2", letters=letters)


async def _letters(ops: Ops, name: str, sources: list[str]) -> _Letters:
    queue = await ops.queue(name)
    jobs = await queue.get_dead_letter_jobs(0, LETTERS - 1)
    rows = [_letter(job) for job in jobs]
    return _Letters(name, sources, await queue.count(), rows)


def _letter(job: Any) -> _Letter:
    letter = job.dead_letter
    return _Letter(job.id, job.name, letter.queue, letter.cause, letter.reason, letter.attempts_made, letter.failed_at)


@dataclass(frozen=True, slots=True)
class _Node:
    title: str
    tags: list[Tag]
    used: int | None
    most: int | None
    pairs: list[tuple[str, str]]


async def show_store(request: Request) -> Response:
    """Show the servers of the store."""
    info = await ops_of(request).server()
    nodes = [_node(each) for each in info.nodes]
    if not nodes:
        nodes = [_Node(info.url, [], None, None, [("Prefix", info.prefix)])]
    return render(request, "store.html.j2", nodes=nodes, findings=[])


def _node(node: Any) -> _Node:
    is_kept = node.eviction in {"", "noeviction"}
    tags = [
        ("keeps data on disk", "t-good", "check") if node.is_persistent else ("only in memory", "t-warn", "alert"),
        ("never evicts", "t-good", "check") if is_kept else (f"evicts: {node.eviction}", "t-bad", "cross"),
    ]
    if node.last_save_failed:
        tags.append(("the last save failed", "t-bad", "cross"))
    pairs = [
        ("Product", f"{node.product} {node.version}"),
        ("Role", f"{node.role}, {node.replicas} replicas"),
        ("Up for", formats.duration(node.uptime_seconds)),
        ("Clients", formats.number(node.clients)),
        ("Commands per second", formats.number(node.commands_per_second)),
    ]
    return _Node(node.address, tags, node.memory_bytes, node.memory_limit_bytes, pairs)


async def show_audit(request: Request) -> Response:
    """Show the audit lines, the newest first."""
    context_of(request).require("viewer")
    page = await ops_of(request).audit.read(50, request.query_params.get("cursor") or None)
    return render(request, "audit.html.j2", page=page)
