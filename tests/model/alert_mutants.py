"""Ways to break alerts, each one statement."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_ALERTS: Final[dict[str, tuple[str, str]]] = {
    "an episode opens before its time": ("if now - since >= holds.open then", "if true then"),
    "an episode closes before its time": (
        "if now - since >= holds.close then return nil, 'closed' end",
        "if true then return nil, 'closed' end",
    ),
    "a condition that ends keeps its time": (
        "if not episode then return nil end",
        "if not episode then return held end",
    ),
    "a condition that returns does not stop the close": (
        "if episode then return {state = 'open', since = now, episode = episode} end",
        "if episode then return held end",
    ),
    "an outdated evaluator is accepted": (
        "redis.call('HGET', base .. ':alert_lease', 'fence') == args[3]",
        "true",
    ),
    "a removed rule is evaluated": ("\n      and redis.call('HEXISTS', base .. ':alerts', rule) == 1", ""),
    "two processes have the lease": ("if not is_mine and is_held or redis.call('EXISTS'", "if redis.call('EXISTS'"),
    "a lease from the future is kept": (" and not clock.is_ahead(ends - length, now)", ""),
    "a new holder has the fencing token of the last one": ("(is_mine and is_held and 0 or 1)", "0"),
    "the end of an episode is not notified": ("if change then notify(", "if change == 'opened' then notify("),
    "only the first webhook is notified": ("for number = 1, webhooks do", "for number = 1, math.min(1, webhooks) do"),
    "the episodes of a removed rule stay open": (
        "if episode then close(base, episode, 'the rule was removed', now) end",
        "",
    ),
    "the status of a notification is lost": ("'n:' .. args[4], string.sub(args[5], 1, 500))", "'n:', '')"),
}
