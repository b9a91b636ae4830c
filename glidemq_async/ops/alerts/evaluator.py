"""The evaluator of alert rules: reads the queues, and stores for which of them the conditions are true."""

# Several processes may have an evaluator. One of them has the lease, and only this one evaluates the rules. A process
# that was paused for longer than its lease may report old observations. Each report therefore carries the fencing
# token of the lease, and the server refuses an outdated token. The states of all rules are in the store. The next
# process with the lease continues from them, and does not open an open episode again.

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from glidemq_async._internal.problems import problem_of
from glidemq_async.durations import from_ms
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.alerts import MOST_OBSERVATIONS, Observation, Turn
from glidemq_async.ops.alerts.conditions import MEASURES, NEW_GROUP_SECONDS
from glidemq_async.ops.alerts.delivery import DELIVERY
from glidemq_async.ops.alerts.episodes import MOST_OPEN, packed_document
from glidemq_async.ops.alerts.rules import StoredRule, rules_of
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.failures import FailureGroup, read_failures
from glidemq_async.ops.overview import Overviews
from glidemq_async.ops.queue_rows import QueueSummary
from glidemq_async.ops.server_info import ServerNode, read_server
from glidemq_async.options.stored_options import stored_form

INTERVAL_SECONDS: Final = 10.0
"""Seconds between two evaluations."""
LEASE_INTERVALS: Final = 3

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _View:
    """The observations of one evaluation. `names` are all queues. A queue that is not in `queues` was not readable."""

    at: datetime
    names: frozenset[str]
    queues: dict[str, QueueSummary]
    groups: list[FailureGroup]
    nodes: Sequence[ServerNode]


class Evaluator:
    """Evaluates the alert rules while it has the lease."""

    def __init__(self, connections: Connections, interval: float = INTERVAL_SECONDS) -> None:
        self._connections = connections
        self._interval = interval
        self._name = secrets.token_hex(8)
        self._lease_ms = round(max(interval * LEASE_INTERVALS, 1.0) * 1000)

    async def run(self, on_turn: Callable[[], Awaitable[None]]) -> None:
        """Evaluate the rules at each interval. `on_turn` is awaited before each evaluation."""
        while True:
            try:
                turn = await self._connections.alerts.alerts.begin(self._name, self._lease_ms)
                if turn.fence:
                    await on_turn()
                    await self._evaluate(turn)
            except GlideMQError as error:
                _log.warning("the alert rules cannot be evaluated now: %s", problem_of(error))
            await asyncio.sleep(self._interval)

    async def look(self) -> int:
        """Evaluate the rules once. Return the number of episodes that have opened or closed.

        Returns 0 if another process has the lease, or if there is no rule.
        """
        turn = await self._connections.alerts.alerts.begin(self._name, self._lease_ms)
        return await self._evaluate(turn) if turn.fence else 0

    async def leave(self) -> None:
        """Return the lease, so that another process can take it immediately."""
        await self._connections.alerts.alerts.begin(self._name, 0)

    async def _evaluate(self, turn: Turn) -> int:
        rules = rules_of(turn.rules)
        view = await self._view(rules)
        return sum([await self._note(turn, rule, view) for rule in rules])

    async def _view(self, rules: Sequence[StoredRule]) -> _View:
        overviews = self._connections.part(Overviews)
        names = await overviews.names()
        about_queues = [rule for rule in rules if not rule.is_about_server]
        covered = [name for name in names if any(rule.covers(name) for rule in about_queues)]
        queues = {each.name: each for each in await overviews.summaries(covered)}
        about_groups = [rule for rule in rules if rule.is_about_groups]
        failing = [
            name
            for name, each in queues.items()
            if each.failed_last_hour and any(rule.covers(name) for rule in about_groups)
        ]
        groups = await read_failures(await self._connections.readable_queues(failing))
        is_about_server = len(about_queues) < len(rules)
        nodes = (await read_server(self._connections)).nodes if is_about_server else ()
        now = await self._connections.alerts.reading.now()
        return _View(from_ms(now), frozenset(names), queues, groups, nodes)

    async def _note(self, turn: Turn, rule: StoredRule, view: _View) -> int:
        """Report the observations of one rule that can change its state. Return the number of changed episodes."""
        true = _true_targets(rule, view)
        known = {
            key.partition("\n")[2]: state for key, state in turn.states.items() if key.partition("\n")[0] == rule.name
        }
        seen = [self._true(rule, target, text) for target, text in true.items() if not _is_open(known.get(target))]
        free = max(0, MOST_OPEN - len(known))
        fresh = [each for each in seen if each.target not in known][:free]
        seen = [each for each in seen if each.target in known] + fresh
        seen += [Observation(target, False) for target in known if target not in true and _was_seen(target, view)]
        options, changes = stored_form(DELIVERY), 0
        for at in range(0, len(seen), MOST_OBSERVATIONS):
            part = seen[at : at + MOST_OBSERVATIONS]
            statuses = await self._connections.alerts.alerts.note(
                turn.fence, rule.name, rule.holds, len(rule.webhooks), options, part
            )
            changes += sum(status in {"opened", "closed"} for status in statuses)
            for each, status in zip(part, statuses, strict=True):
                if status in {"opened", "closed"}:
                    text = true.get(each.target, "the condition has ended")
                    _log.warning("alert %s has %s: %s", rule.name, status, text)
        return changes

    def _true(self, rule: StoredRule, target: str, text: str) -> Observation:
        document = packed_document(str(rule.condition), text, MEASURES[rule.condition.measure].verdict)
        return Observation(target, True, secrets.token_hex(6), document)


def _true_targets(rule: StoredRule, view: _View) -> dict[str, str]:
    """Return a text about each target for which the condition is true."""
    condition, measure = rule.condition, MEASURES[rule.condition.measure]
    if rule.is_about_groups:
        return {
            f"{group.queue}\n{group.fingerprint}": condition.describe(group.queue, _group_text(group))
            for group in view.groups
            if rule.covers(group.queue) and (view.at - group.first_at).total_seconds() < NEW_GROUP_SECONDS
        }
    if rule.is_about_server:
        figure = _memory(view.nodes, is_size=condition.kind == "size")
        return {"": condition.describe("", figure)} if condition.is_true(figure) else {}
    found: dict[str, str] = {}
    for name, queue in view.queues.items():
        if measure.read is not None and rule.covers(name) and condition.is_true(figure := measure.read(queue)):
            found[name] = condition.describe(name, figure)
    return found


def _group_text(group: FailureGroup) -> str:
    place = f" at {group.place}" if group.place else ""
    return f"{group.error_type} in {group.name}{place}"


def _memory(nodes: Sequence[ServerNode], *, is_size: bool) -> float:
    """Return the memory of the fullest server: in bytes, or as a share of its limit (0 without a limit)."""
    if is_size:
        return max((float(node.memory_bytes) for node in nodes), default=0.0)
    return max((node.memory_bytes / node.memory_limit_bytes for node in nodes if node.memory_limit_bytes), default=0.0)


def _was_seen(target: str, view: _View) -> bool:
    """Return False for an existing queue that was not readable: its condition may still be true."""
    queue = target.partition("\n")[0]
    return not queue or queue in view.queues or queue not in view.names


def _is_open(state: str | None) -> bool:
    return state is not None and state.startswith("open ")
