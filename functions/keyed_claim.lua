-- keyed_claim: takes jobs out of the lines of their keys for a claim. keyed.lua describes the structures.

local keyed_claim = {}
local KEYS_AT_ONCE = 64
local HINT, MEMBER = 17, 18    -- where the read hint and the id begin in a member of a line
local READ = {[105] = 'fi', [111] = 'fo'}    -- by the bytes "i" and "o"; for all others "h"

-- Collect a member that has left its line.
local function note_taken(out, member, key)
  local ids = out.ids
  local n = #ids + 1
  ids[n], out.keys[n], out.whats[n] = string.sub(member, MEMBER), key, READ[string.byte(member, HINT)]
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
  call.counts = nil
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
  -- Return how many of these first jobs of a line the bucket of the key can pay, after it has paid for them. width:
  -- the number of items of a job.
  local function pay(base, key, members, width, bucket, call)
    local tokens, is_new = keyed.tokens_of(base, key, bucket, call)
    local left, number = tokens, 0
    for i = 1, #members, width do
      local cost = keyed.cost_of(base, members[i])
      if limits.lacking(bucket, left, cost) > 0 then break end
      left, number = left - cost, number + 1
    end
    if number > 0 then
      limits.set_tokens(base .. ':keybucket:' .. key, bucket, left, call, is_new)
      call.tokens[key] = left
    end
    return number
  end

  -- Take the first n jobs out of a line, as far as the bucket can pay for them. Return { member score }…
  local function take_paid(base, key, line, n, bucket, call)
    if n > 1 then
      local number = pay(base, key, redis.call('ZRANGE', line, '0', digits(n - 1)), 1, bucket, call)
      return number > 0 and redis.call('ZPOPMIN', line, digits(number)) or {}
    end
    -- The bucket of a ready key can usually pay for its first job.
    local popped = redis.call('ZPOPMIN', line)
    if popped[1] and pay(base, key, popped, 2, bucket, call) == 0 then
      redis.call('ZADD', line, popped[2], popped[1])
      return {}
    end
    return popped
  end

  -- Return how many of n jobs the window of a key lets start now.
  local function in_window(base, key, n, limits_now, call)
    local rate, known = base .. ':keyrate:' .. key, keyed.starts_of(base, key, call)
    local left, _, rest = limits.window(rate, known, limits_now.max, limits_now.length, call.now, n)
    call.starts[key] = rest
    return left < n and left or n
  end

  local function note_starts(base, key, n, limits_now, call)
    local known = call.starts[key]
    limits.note_starts(base, base .. ':keyrate:' .. key, n, limits_now.length, call, known == 0)
    call.starts[key] = known + n
  end

  -- Take up to n jobs out of the line of a key. Return how many.
  local function take(base, key, n, limits_now, call, out)
    local line, popped = base .. ':keyq:' .. key, nil
    if limits_now.max then n = in_window(base, key, n, limits_now, call) end
    if n == 0 then return 0 end
    if limits_now.bucket then
      popped = take_paid(base, key, line, n, limits_now.bucket, call)
    else
      popped = redis.call('ZPOPMIN', line, digits(n))
    end
    for i = 1, #popped, 2 do note_taken(out, popped[i], key) end
    if popped[1] and limits_now.max then note_starts(base, key, #popped / 2, limits_now, call) end
    return #popped / 2
  end

  -- Take up to n jobs of each of these ready keys with limits, `left` jobs in all, and count them as running.
  function take_limited(base, keys, n, left, call, out)
    local started, at, rests = {}, 0, call.seen.resting
    local same, running = keyed.read_limits(base, keys, call), keyed.running_counts(base, keys, call)
    local known, again = call.key_limits, keyed.are_alike(same, call.seen) and {}
    for i = 1, #keys do
      local key = keys[i]
      local limits_now, count = same or known.keys[key], running[key]
      local room, most, taken = limits_now.concurrency - count, n, 0
      if room > 0 and rests and keyed.is_resting(base, key, limits_now, call.seen) then room = 0 end
      if most > room then most = room end
      if most > left then most = left end
      if most > 0 then taken = take(base, key, most, limits_now, call, out) end
      if taken > 0 then
        left, count = left - taken, count + taken
        running[key], started[at + 1], started[at + 2], at = count, key, digits(count), at + 2
      end
      -- A key that runs as many jobs as it may waits for the end of a run.
      if taken == 0 or taken < room and not again then
        keyed.touch(call, key)
      elseif taken < room then
        again[#again + 1] = key
        if room - taken > 1 then keyed.note_several(base, key, room - taken, call) end
      end
    end
    note_running(base, started, call)
    if again and again[1] then keyed.note_freed(again, call) end
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
