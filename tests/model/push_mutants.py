"""Small defects of pushes in the Lua, as pairs of texts."""

from __future__ import annotations

from typing import Final

MUTANTS_OF_PUSHES: Final[dict[str, tuple[str, str]]] = {
    "a lost push is not returned by the next call": (
        "  local missed = not string.find(flags, 'g', 1, true) and push.tokens_in(reply)\n",
        "  local missed = nil\n",
    ),
    "a push that has arrived is returned again": (
        "local missed = not string.find(flags, 'g', 1, true) and push.tokens_in(reply)",
        "local missed = push.tokens_in(reply)",
    ),
    "a lost push takes no slot": ("  caller.slots = math.max(0, caller.slots - out.n)\n", ""),
    "a lost push counts as a stall": (
        "  for _, text in ipairs(push.tokens_in(kept) or {}) do tokens[#tokens + 1] = text end\n",
        "",
    ),
    "a push passes over released jobs": (
        "  if seen.returned or seen.lifo or seen.ready",
        "  if seen.lifo or seen.ready",
    ),
    "a push exceeds the limits of the queue": (" or seen.ready or seen.limits then", " or seen.ready then"),
    "a push claims a job of an earlier add": (
        "  if tonumber(string.match(rows[1][1], '^%d+')) < first then return nil end\n",
        "",
    ),
    "a pushed job can still expire": (
        "  if pushed.may_expire then redis.call('ZREM', base .. ':expiry', unpack(started)) end\n",
        "",
    ),
    "a push to a dead worker keeps its claim": (
        "  elseif pushed and pushed.rows then\n    push.undo",
        "  elseif false then\n    push.undo",
    ),
    "an undone push skips its jobs": (
        "'SETID', base .. ':fifo', GROUP, digits(before)",
        "'SETID', base .. ':fifo', GROUP, digits(before + #raw)",
    ),
    "a worker without pushes is pushed to": ("string.byte(reply, -1) ~= ACCEPTS", "string.byte(reply, -1) == PUSHED"),
    "a resumed job keeps the fencing token of its last run": (
        "  redis.call('HSET', key, 'place', 'active ' .. token, 'claim', fence .. ' '",
        "  redis.call('HSET', key, 'place', 'active ' .. token, 'claim', digits(fence - 1) .. ' '",
    ),
    "a resumed job that is pushed has no event": ("  line[#line + 1] = id\n  return true\n", "  return true\n"),
    "a pushed job has no event": ("    line[#line + 1] = started[i]\n", ""),
    "one added job claims a job of an earlier add": ("  if rows[1][1] ~= entry then\n", "  if false then\n"),
    "one job that is pushed to a dead worker keeps its claim": ("    push.undo(base, {{entry}})\n", ""),
    "one pushed job has no event": ("name .. '\\nactive' .. SEP .. id, 2, call", "name, 1, call"),
    "one added job wakes no worker that does not accept pushes": (
        "  if is_pushed == false then wakeup.wake(base, 1, call) end\n",
        "",
    ),
    "a compact job that is pushed stays in its line": ("  take(base, call.alone_in, id, call)\n", ""),
    "the lost push of a compact job is not returned": (
        "  push.note(base, consumer, {claim_tokens.series(pushed.token, id)}, pushed.lock, call)\n",
        "",
    ),
}
