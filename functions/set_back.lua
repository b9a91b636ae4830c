-- set_back: corrects stored instants after the server's clock was set back, by NTP or by a failover to a server that is
-- behind. Most files detect an instant in the future themselves (clock.is_ahead). The rest is corrected here, by the
-- next sweep: instants that mean "this long from now" move back with the clock. Instants that a user may have named do
-- not: a delayed job, the next attempt of a job, a fire time of a scheduler.

local set_back = {}
local MOST = 1000                -- of each structure, as far as the budget goes
local PIECE = 100

-- Change each score of a zset that is in the future to the result of `moved`. Members that the budget does not cover
-- end later by as much as the clock was set back. last: the highest score that may change (default: all).
local function move(key, now, moved, call_budget, last)
  if budget.is_spent(call_budget) then return end
  local found = redis.call('ZRANGEBYSCORE', key, '(' .. digits(now), last or '+inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  for from = 1, #found, 2 * PIECE do
    local members = {}
    for i = from, math.min(from + 2 * PIECE - 1, #found), 2 do
      members[#members + 1], members[#members + 2] = digits(moved(tonumber(found[i + 1]))), found[i]
    end
    redis.call('ZADD', key, unpack(members))
    if budget.is_spent(call_budget) then return end
  end
end

-- Move the stored instants back by `by` ms.
local function mend(base, by, call, call_budget)
  local now = call.now
  local function earlier(instant) return math.max(now, instant - by) end
  local function at_present() return now end
  -- The most harmful ones come first, in case the budget is spent.
  move(base .. ':alive', now, at_present, call_budget)
  move(base .. ':stopping', now, earlier, call_budget)
  move(base .. ':pauses', now, earlier, call_budget)
  move(base .. ':sleeping', now, at_present, call_budget)    -- the next claim computes when they may really start
  move(base .. ':expiry', now, earlier, call_budget)
  move(base .. ':suspended', now, earlier, call_budget, '(' .. digits(clock.NEVER))
  move(base .. ':held', now, earlier, call_budget)
  move(base .. ':completed', now, earlier, call_budget)
  move(base .. ':failed', now, earlier, call_budget)
  local gate = tonumber(redis.call('HGET', base .. ':limits', 'gate') or nil)
  if gate and gate > now then redis.call('HSET', base .. ':limits', 'gate', digits(earlier(gate))) end
end

-- Correct the stored instants if the clock was set back since the last sweep. Call this before any instant is compared.
function set_back.mend(base, call, call_budget)
  local by = tonumber(redis.call('HGET', base .. ':meta2', 'set_back') or nil)
  if not by then return end
  redis.call('HDEL', base .. ':meta2', 'set_back')
  mend(base, by, call, call_budget)
end
