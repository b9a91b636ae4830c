"""Alert rules, and their stored form."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.functions.alerts import Holds
from glidemq_async.ops.access import checked_patterns
from glidemq_async.ops.alerts.conditions import MEMORY, NEW_GROUP, Condition, parse_condition
from glidemq_async.ops.alerts.webhooks import check_url, masked
from glidemq_async.stored.names import check_id

WebhookFormat: TypeAlias = Literal["json", "slack"]
MOST_WEBHOOKS: Final = 5
LONGEST_NAME: Final = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert rule.

    `condition` is its text with all defaults, `queues` are patterns of names. Of `webhooks` only the server is shown,
    because the rest of an address often contains a secret. `at` is the time of the last change, and `who` made it.
    """

    name: str
    condition: str
    queues: tuple[str, ...]
    webhooks: tuple[str, ...]
    format: WebhookFormat
    note: str
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredAlert:
    """A rule that was set. `secret` signs its requests. It is None unless it was generated now."""

    rule: AlertRule
    secret: str | None


@dataclass(frozen=True, slots=True)
class AlertRules:
    """The alert rules. `evaluated_at` is the last time that a process evaluated them, and `evaluator` that process.

    Rules are evaluated in processes with `ops.worker()`; None means that there was none.
    """

    rules: tuple[AlertRule, ...]
    evaluator: str
    evaluated_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """A rule as the store keeps it, with its addresses and its secret."""

    name: str
    condition: Condition
    queues: tuple[str, ...]
    webhooks: tuple[str, ...] = ()
    secret: str = ""
    format: WebhookFormat = "json"
    note: str = ""
    who: str = ""
    at_ms: int = 0

    @classmethod
    def read(cls, name: str, packed: bytes) -> StoredRule:
        """Return a rule from its stored form."""
        row = cast("dict[str, Any]", msgpack.unpackb(packed))
        return cls(
            name=name,
            condition=parse_condition(row["condition"]),
            queues=tuple(row["queues"]),
            webhooks=tuple(row["webhooks"]),
            secret=row["secret"],
            format=row["format"],
            note=row["note"],
            who=row["who"],
            at_ms=row["at"],
        )

    def packed(self) -> bytes:
        """Return the stored form."""
        return msgpack.packb(
            {
                "condition": str(self.condition),
                "queues": self.queues,
                "webhooks": self.webhooks,
                "secret": self.secret,
                "format": self.format,
                "note": self.note,
                "who": self.who,
                "at": self.at_ms,
            }
        )

    @property
    def document(self) -> AlertRule:
        """The rule without its secrets."""
        return AlertRule(
            self.name,
            str(self.condition),
            self.queues,
            tuple(map(masked, self.webhooks)),
            self.format,
            self.note,
            self.who,
            from_ms(self.at_ms),
        )

    @property
    def holds(self) -> Holds:
        """The times in ms for which the condition must be true before an episode opens, and false before it closes."""
        hold = round(self.condition.hold * 1000)
        return Holds(hold, hold)

    def covers(self, queue: str) -> bool:
        """Return whether the rule is about a queue."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)

    @property
    def is_about_server(self) -> bool:
        """True if the rule is about the server instead of queues."""
        return self.condition.measure == MEMORY

    @property
    def is_about_groups(self) -> bool:
        """True if the rule is about failure groups."""
        return self.condition.measure == NEW_GROUP


def check_rule_name(name: str) -> str:
    """Return the name of a rule. Raises TypeError or ValueError."""
    if len(check_id("the name of a rule", name)) > LONGEST_NAME:
        raise ValueError(f"the name of a rule has at most {LONGEST_NAME} characters, got {len(name)}")
    return name


def check_format(value: str) -> WebhookFormat:
    """Return the format of the content of notifications. Raises ValueError, which suggests the nearest."""
    known = get_args(WebhookFormat)
    if value not in known:
        close = get_close_matches(str(value), known, 1, 0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"the formats are {', '.join(known)}"
        raise ValueError(f"there is no format {value!r}: {hint}")
    return cast("WebhookFormat", value)


def check_webhooks(webhooks: Sequence[str], hosts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the addresses of a rule. Raises TypeError, ValueError, and WebhookRefused."""
    if isinstance(webhooks, str):
        raise TypeError("webhooks must be a list of URLs, got a single text")
    if len(webhooks) > MOST_WEBHOOKS:
        raise ValueError(f"a rule has at most {MOST_WEBHOOKS} webhooks, got {len(webhooks)}")
    return tuple(check_url(url, hosts) for url in dict.fromkeys(webhooks))


def check_queues(queues: Sequence[str], condition: Condition) -> tuple[str, ...]:
    """Return the patterns of a rule. Raises TypeError or ValueError."""
    patterns = checked_patterns(queues)
    if condition.measure == MEMORY and patterns != ("*",):
        raise ValueError(f"{MEMORY} is a figure of the server and belongs to no queue; leave out the queues")
    return patterns


def rules_of(stored: Mapping[str, bytes]) -> list[StoredRule]:
    """Return stored rules, by name, without the ones of a newer version that cannot be read."""
    found: list[StoredRule] = []
    for name, packed in sorted(stored.items()):
        try:
            found.append(StoredRule.read(name, packed))
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("alert rule %s cannot be read: %s", name, error)
    return found
