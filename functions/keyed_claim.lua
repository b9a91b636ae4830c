-- keyed_claim: takes jobs out of the lines of their keys for a claim. keyed.lua describes the structures.

local keyed_claim = {}
local KEYS_AT_ONCE = 64
local HINT, MEMBER = 17, 18    -- where the read hint and the id begin in a member of a line
local READ = {i = 'fi', o = 'fo', h = 'h', c = 'h'}

-- Collect a member that has left its line.
local function note_taken(out, member, key)
  local n = #out.ids + 1
  out.ids[n], out.keys[n], out.whats[n] = string.sub(member, MEMBER), key, READ[string.sub(member, HINT, HINT)]
end

-- Write how many jobs of these keys run: { key number }…
local function note_running(base, started, call)
  if not started[1] then return end
  local is_new = not call.seen.running
  local hash = queue_flags.create(base, 'running', call.seen)
  if is_new then redis.call('HSET', hash, SEP, WIDENER) end
  redis.call('HSET', hash, unpack(started))
  if is_new then redis.call('HDEL', hash, SEP) end
end

-- Take the first job of each of these keys, which have no limits. Each key then waits for the end of that run.
local function take_first(base, popped, call, out)
  local started = {}
  for i = 1, #popped do
    local key = popped[i]
    local first = redis.call('ZPOPMIN', base .. ':keyq:' .. key)[1]
    if first then
      local n = #started
      note_taken(out, first, key)
      started[n + 1], started[n + 2] = key, '1'
    else
      keyed.touch(call, key)
    end
  end
  note_running(base, started, call)
end

local take_limited

do
  -- Pay for up to n of the first jobs in a line. Return how many the bucket of the key can pay.
  local function pay(base, key, queue, bucket, n, call)
    local paid = base .. ':keybucket:' .. key
    local left, number = limits.tokens_in(paid, bucket, call.now), 0
    for _, member in ipairs(redis.call('ZRANGE', queue, '0', digits(n - 1))) do
      local cost = keyed.cost_of(base, member)
      if limits.lacking(bucket, left, cost) > 0 then break end
      left, number = left - cost, number + 1
    end
    if number > 0 then limits.set_tokens(paid, bucket, left, call.now) end
    return number
  end

  -- Take up to n jobs of a ready key with limits. Return how many. running: how many of its jobs run already.
  local function take(base, key, n, running, call, out)
    local limits_now = keyed.limits_of(base, key, call)
    local queue, rate = base .. ':keyq:' .. key, base .. ':keyrate:' .. key
    local room, taken = keyed.room(base, key, limits_now, running, call), 0
    local most = math.min(n, room)
    if limits_now.max and most > 0 then
      most = math.min(most, (limits.window(rate, limits_now.max, limits_now.length, call.now, most)))
    end
    if limits_now.bucket and most > 0 then most = pay(base, key, queue, limits_now.bucket, most, call) end
    if most > 0 then
      local popped = redis.call('ZPOPMIN', queue, digits(most))
      for i = 1, #popped, 2 do note_taken(out, popped[i], key) end
      taken = #popped / 2
    end
    if limits_now.max and taken > 0 then limits.note_starts(base, rate, taken, limits_now.length, call) end
    -- A key that runs as many jobs as it may waits for the end of a run.
    if taken == 0 or taken < room then keyed.touch(call, key) end
    return taken
  end

  -- Take up to n jobs of each of these ready keys with limits, `left` jobs in all, and count them as running.
  function take_limited(base, keys, n, left, call, out)
    local started = {}
    keyed.read_limits(base, keys, call)
    local running = keyed.running_counts(base, keys, call)
    for _, key in ipairs(keys) do
      local taken = take(base, key, math.min(n, left), running[key], call, out)
      left = left - taken
      local at = #started
      if taken > 0 then started[at + 1], started[at + 2] = key, digits(running[key] + taken) end
    end
    note_running(base, started, call)
  end
end

-- Take up to `count` jobs, key by key in turn. Return { ids, keys, whats }; whats: how to read each record.
function keyed_claim.pop(base, count, call)
  local out = {ids = {}, keys = {}, whats = {}}
  while #out.ids < count do
    local left = count - #out.ids
    local popped = take_lowest(base .. ':ready', math.min(left, KEYS_AT_ONCE))
    if #popped == 0 then break end
    if call.seen.limited then
      take_limited(base, popped, math.max(1, math.floor(left / #popped)), left, call, out)
    else
      take_first(base, popped, call, out)
    end
    keyed.review(base, call)
  end
  in_chunks('ZREM', base .. ':keyed', nil, out.ids)
  return out
end
