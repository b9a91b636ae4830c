"""Ways to break topics, each one statement. The random topics must detect each of them."""

from __future__ import annotations

from typing import Final

TOPIC_MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "jobs are added at another position of the cursor": (
        "  if feed[1] ~= from then return {'moved', '', 0, 0} end\n",
        "",
    ),
    "the cursor does not move": (
        "  redis.call('HSET', key, 'cursor', reached, 'holder', digits(call.now + HOLD_MS) .. ' ' .. holder)\n",
        "",
    ),
    "the cursor is after the end of the topic": (
        "  local reached = last < n and place_at(places, last) or to\n",
        "  local reached = last < n and place_at(places, last) or string.gsub(to, '^%d+', '9000000000000', 1)\n",
    ),
    "a call that ends early moves the cursor to its end": (
        "  local reached = last < n and place_at(places, last) or to\n",
        "  local reached = to\n",
    ),
    "lost messages are not counted": (
        "      if seen == 0 then lost = math.max(0, own - n - 1) end\n",
        "",
    ),
    "the first message after a position is skipped": (
        "    local messages = redis.call('XRANGE', key, '(' .. entry, '+', 'COUNT', step)\n    for _, one",
        "    local messages = redis.call('XRANGE', key, entry .. '1', '+', 'COUNT', step)\n    for _, one",
    ),
    "a wildcard fits no token": (
        "(token ~= '*' and token ~= tokens[i])",
        "(token ~= tokens[i])",
    ),
    "an exclusion is a pattern": (
        "      found = (not wanted[1] or any(wanted, tokens)) and not any(refused, tokens)\n",
        "      found = not wanted[1] or any(wanted, tokens) or any(refused, tokens)\n",
    ),
    "messages are removed that a subscription has not read": (
        "    local counts = flat[i] ~= name or not entry\n",
        "    local counts = not entry\n",
    ),
    "a read ends after more rows than asked, and forgets them": (
        "      if #found == rows or call_budget.bytes >= call_budget.most then return found, entry, n, lost end\n",
        "      if #found > rows then found[#found] = nil return found, entry, n, lost end\n",
    ),
    "a read after a rewind moves the position that the topic keeps": (
        "    if epoch >= row[5] then row[2], row[6] = entry .. ' ' .. digits(number), '' end\n",
        "    row[2], row[6] = entry .. ' ' .. digits(number), ''\n",
    ),
    "numbers begin again": (
        "    local fields = {'n', digits(total + i), 's',",
        "    local fields = {'n', digits(i), 's',",
    ),
    "a replay begins one message late": (
        "  return redis.call('XREVRANGE', key, '(' .. first[1], '-', 'COUNT', 1)[1][1] .. ' ' .. number\n",
        "  return first[1] .. ' ' .. number\n",
    ),
    "more jobs wait than the backlog": (
        "  for _, name in ipairs({'returned', 'lifo', 'prioritized', 'keyed', 'scheduled'}) do\n    waiting",
        "  for _, name in ipairs({'returned', 'lifo', 'prioritized', 'scheduled'}) do\n    waiting",
    ),
}
