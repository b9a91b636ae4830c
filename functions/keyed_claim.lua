-- keyed_claim: takes jobs out of the lines of their keys for a claim. keyed.lua describes the structures.

local keyed_claim = {}
local KEYS_AT_ONCE = 64
local HINT, MEMBER = 17, 18    -- where the read hint and the id begin in a member of a line
local READ = {i = 'fi', o = 'fo', h = 'h'}

-- Collect a member that has left its line.
local function note_taken(out, member, key)
  local n = #out.ids + 1
  out.ids[n], out.keys[n], out.whats[n] = string.sub(member, MEMBER), key, READ[string.sub(member, HINT, HINT)]
end

local take_first

do
  -- Note that each of these keys, which have no limits, has one running job now.
  local function note_started(base, keys, call)
    local is_new, started = not call.seen.running, {}
    local hash = queue_flags.create(base, 'running', call.seen)
    for i, key in ipairs(keys) do started[2 * i - 1], started[2 * i] = key, '1' end
    if is_new then redis.call('HSET', hash, SEP, WIDENER) end
    redis.call('HSET', hash, unpack(started))
    if is_new then redis.call('HDEL', hash, SEP) end
  end

  -- Take the first job of each of these keys, which have no limits. Each key then waits for the end of that run.
  function take_first(base, popped, call, out)
    local started = {}
    for i = 1, #popped, 2 do
      local key = popped[i]
      local first = redis.call('ZPOPMIN', base .. ':keyq:' .. key)[1]
      if first then
        note_taken(out, first, key)
        started[#started + 1] = key
      else
        keyed.touch(call, key)
      end
    end
    if started[1] then note_started(base, started, call) end
  end
end

-- Take up to n jobs of a ready key with limits, and count them as running.
local function take(base, key, n, call, out)
  local limits_now = keyed.limits_of(base, key, call)
  local queue = base .. ':keyq:' .. key
  n = math.min(n, keyed.room(base, key, limits_now, call))
  if limits_now.max then
    n = math.min(n, (limits.window(base .. ':keyrate:' .. key, limits_now.max, limits_now.length, call.now)))
  end
  local bucket, paid, taken = limits_now.bucket, base .. ':keybucket:' .. key, 0
  while taken < n do
    if bucket then
      if redis.call('ZCARD', queue) == 0 then break end
      local cost = keyed.cost_of_first(base, queue)
      if limits.affordable_at(paid, bucket, cost, call.now) > call.now then break end
      limits.pay(paid, bucket, cost, call.now)
    end
    -- Without a bucket, one command takes all of them.
    local popped = redis.call('ZPOPMIN', queue, bucket and '1' or digits(n))
    for i = 1, #popped, 2 do
      note_taken(out, popped[i], key)
      taken = taken + 1
    end
    if not bucket then break end
  end
  if taken > 0 then
    redis.call('HINCRBY', queue_flags.create(base, 'running', call.seen), key, digits(taken))
  end
  if limits_now.max and taken > 0 then
    limits.note_starts(base, base .. ':keyrate:' .. key, taken, limits_now.length, call)
  end
  -- A key that runs one job at a time waits for the end of that run.
  if limits_now.concurrency or taken == 0 then keyed.touch(call, key) end
end

-- Take up to `count` jobs, key by key in turn. Return { ids, keys, whats }; whats: how to read each record.
function keyed_claim.pop(base, count, call)
  local out = {ids = {}, keys = {}, whats = {}}
  while #out.ids < count do
    local left = count - #out.ids
    local popped = redis.call('ZPOPMIN', base .. ':ready', digits(math.min(left, KEYS_AT_ONCE)))
    if #popped == 0 then break end
    if call.seen.limited then
      local share = math.max(1, math.floor(left * 2 / #popped))
      for i = 1, #popped, 2 do take(base, popped[i], math.min(share, count - #out.ids), call, out) end
    else
      take_first(base, popped, call, out)
    end
    keyed.review(base, call)
  end
  in_chunks('ZREM', base .. ':keyed', nil, out.ids)
  return out
end
