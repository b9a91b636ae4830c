-- set_back: the server's clock was set back, by NTP or by a failover to a server that is behind.
-- Most files see by themselves that an instant lies ahead (clock.is_ahead). What is left is mended here, by the sweep
-- that comes first: instants that were said as "so long from now" move back with the clock. What may be an instant
-- that a user named does not: a delayed job, the next attempt of a job, a slot of a scheduler.

local set_back = {}
local MOST = 1000                -- of each structure, as far as the budget goes
local PIECE = 100

-- Members of a zset with a score beyond now, each with the score that `moved` answers. What the budget leaves ends
-- later by as much as the clock was set back.
local function move(key, now, moved, it)
  if budget.is_spent(it) then return end
  local found = redis.call('ZRANGEBYSCORE', key, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  for from = 1, #found, 2 * PIECE do
    local members = {}
    for i = from, math.min(from + 2 * PIECE - 1, #found), 2 do
      members[#members + 1], members[#members + 2] = digits(moved(tonumber(found[i + 1]))), found[i]
    end
    redis.call('ZADD', key, unpack(members))
    if budget.is_spent(it) then return end
  end
end

-- by: how many ms.
local function mend(base, by, call, it)
  local now = call.now
  local function earlier(instant) return math.max(now, instant - by) end
  local function at_present() return now end
  -- In the order of what it would cost to leave them.
  move(base .. ':alive', now, at_present, it)
  move(base .. ':pauses', now, earlier, it)
  move(base .. ':sleeping', now, at_present, it)    -- the next claim asks when they may really start
  move(base .. ':expiry', now, earlier, it)
  move(base .. ':held', now, earlier, it)
  move(base .. ':completed', now, earlier, it)
  move(base .. ':failed', now, earlier, it)
  local gate = tonumber(redis.call('HGET', base .. ':limits', 'gate') or nil)
  if gate and gate > now then redis.call('HSET', base .. ':limits', 'gate', digits(earlier(gate))) end
end

-- Mend what is left to mend since the last sweep. To be called before anything is judged by an instant.
function set_back.mend(base, call, it)
  local by = tonumber(redis.call('HGET', base .. ':meta', 'set_back') or nil)
  if not by then return end
  redis.call('HDEL', base .. ':meta', 'set_back')
  mend(base, by, call, it)
end
