"""The limits and the rules of events that code declares for a queue. Workers store them when they start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from glidemq_async.functions.settings import Author
from glidemq_async.options.validation import positive_number
from glidemq_async.queues.event_rules import EVENT_RULES, change_stored_rules
from glidemq_async.queues.limits import Limits, QueueLimits, change_stored_limits, limit_form, stored_settings
from glidemq_async.queues.rates import RateLimit, TokenBucket, stored_limit

LIMITS: Final = frozenset({"concurrency", "rate", "max_waiting", "bucket"})
"""The names of the settings that are limits."""
_DECLARED: Final = LIMITS | EVENT_RULES


def queue_declaration(limits: QueueLimits) -> dict[str, str]:
    """Return the declared settings of a queue in stored form, by name."""
    found: dict[str, str] = {}
    if limits.concurrency is not None:
        found["concurrency"] = str(limits.concurrency)
    if limits.rate_limit is not None:
        found["rate"] = stored_limit(limits.rate_limit)
    if limits.max_waiting is not None:
        found["max_waiting"] = str(limits.max_waiting)
    return found


def key_declaration(
    concurrency: int | None, rate_limit: RateLimit | None, token_bucket: TokenBucket | None
) -> dict[str, str]:
    """Return the declared settings of an ordering key in stored form, by name. Raises TypeError or ValueError."""
    found: dict[str, str] = {}
    if concurrency is not None:
        found["concurrency"] = str(positive_number("concurrency", concurrency))
    if rate_limit is not None:
        found["rate"] = limit_form("rate_limit", rate_limit, RateLimit)
    if token_bucket is not None:
        found["bucket"] = limit_form("token_bucket", token_bucket, TokenBucket)
    return found


async def declare_limits(queue: Limits[Any, Any], who: str, declared: Mapping[str, str]) -> None:
    """Store the declarations of the code, and remove stored declarations that are not in `declared`.

    The keys of `declared` are "<name>" for a setting of the queue, and "<name> <key>" for a setting of an ordering key.
    `who` is the author of the declarations. Holds of operators continue to apply.
    """
    stored = (await stored_settings(queue)).declared
    before = {name: one.value for name, one in stored.items() if name.partition(" ")[0] in _DECLARED}
    # An equal declaration is not stored again, so its author remains the version of the code that declared it first.
    changes: dict[str | None, dict[str, str]] = defaultdict(dict)
    rules: dict[str, str] = {}
    for setting in sorted(declared.keys() | before.keys()):
        value = declared.get(setting, "")
        if value != before.get(setting):
            name, has_key, key = setting.partition(" ")
            of_name = rules if name in EVENT_RULES else changes[key if has_key else None]
            of_name[name] = value
    if rules:
        await change_stored_rules(queue, Author("code", who), rules)
    for limited, limits in changes.items():
        await change_stored_limits(queue, Author("code", who), limited, limits)
