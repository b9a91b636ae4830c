"""Ways to break the content and the rules of events, each one statement."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_EVENTS: Final[dict[str, tuple[str, str]]] = {
    "the event of a progress has no value": ("  if job.value then put('v', job.value) end\n", ""),
    "the event of a progress has no key": ("  if job.key ~= '' then put('key', job.key) end\n", ""),
    "the event of a progress has a value of any size": ("#value <= LARGEST_VALUE and value", "value"),
    "a held number of events has no effect": ("tonumber(most or event_rules.MOST)", "event_rules.MOST"),
    "a released number of events stays": ("      redis.call('HDEL', base .. ':meta2', name)\n", ""),
    "a call with its own flags writes all events": (
        "  return features and features ~= '' and string.find(features, EVENT_RULES, 1, true) ~= nil\n",
        "  return false\n",
    ),
    "a kind that is switched off has events": ("for kind in pairs(rules.off) do lines[kind] = nil end", ""),
    "all kinds are switched off, and have events": (
        "      if kind ~= ALWAYS then lines[kind] = nil end\n",
        "",
    ),
    "the end of a queue can be switched off": ("if kind ~= ALWAYS then", "if true then"),
    "a rule may name the end of a queue": ("if kinds_in(value)[ALWAYS] then", "if false then"),
    "a progress that is switched off has an event": (
        "event_rules.is_on(rules, 'progress') and is_due",
        "is_due",
    ),
    "the interval of progress has no effect": ("now - last >= rules.interval", "true"),
    "a job has one progress event for ever": ("now - last >= rules.interval", "false"),
    "a progress from the future silences its job": ("not last or clock.is_ahead(last, now) or", "not last or"),
    "a thinned progress is not stored": (
        "  redis.call('HSET', base .. ':job:' .. id, 'progress', value)\n  if not is_written then return end\n",
        "  if not is_written then return end\n  redis.call('HSET', base .. ':job:' .. id, 'progress', value)\n",
    ),
    "a completed event has the size of the progress": ("result and #result}", "result and 0}"),
    "a completed event has a value although it asks for the size": ("rules.content == 'value' and #result", "#result"),
    "a completed event has a value of any size": ("#result <= event_content.LARGEST", "true"),
    "the values of a call have any size": ("call.content_bytes + #result <= MOST", "true"),
    "the events of plain jobs have no content": ("  local rules = asked(base, 'completed', call)\n", "  local rules\n"),
    "the events of jobs with records have no content": ("  local rules = asked(base, kind, call)\n", "  local rules\n"),
    "the events of keyed jobs have no key": ("and keyed.parse(route).key or ''", "and ''"),
    "a removed rule stays": ("    redis.call('HDEL', base .. ':event_rules', FIELDS[name])\n", ""),
    "a rule without effect is stored": (
        "    if value then store(base, pair[1], value) end\n",
        "    store(base, pair[1], pair[2])\n",
    ),
}
