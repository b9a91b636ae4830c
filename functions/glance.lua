-- glance: what a call must know of its queue before it works, learned with two commands.
-- Every command inside a function costs a microsecond or more, so a feature that a queue does not use must not cost
-- one: its structure does not exist then, and one EXISTS tells so for all of them.

local glance = {}
local STRUCTURES = {'waiters', 'expiry', 'revoking', 'held', 'returned', 'scheduled', 'outbox', 'moved'}

-- Answers { paused, touched, keep = { completed, failed }, <structure> = true if it exists }. A call notes here what it
-- creates itself.
function glance.at(base)
  local meta = redis.call('HMGET', base .. ':meta', 'paused', 'keep_completed', 'keep_failed', 'touched', 'dead_letter')
  local seen = {paused = meta[1] == '1', touched = meta[4] == '1',
    dead_letter = meta[5] and meta[5] ~= '' and meta[5] or nil,
    keep = {completed = meta[2] or '', failed = meta[3] or ''}}
  local keys = {}
  for i, name in ipairs(STRUCTURES) do keys[i] = base .. ':' .. name end
  if redis.call('EXISTS', unpack(keys)) == 0 then return seen end
  for i, name in ipairs(STRUCTURES) do
    if exists(keys[i]) then seen[name] = true end
  end
  return seen
end
