-- keyed_claim: takes jobs out of the lines of their keys for a claim. keyed.lua describes the structures.

local keyed_claim = {}
local KEYS_AT_ONCE = 64
local HINT, MEMBER = 17, 18    -- where the read hint and the id begin in a member of a line, see key_lines.lua
local READ = {[105] = 'fi', [111] = 'fo'}    -- by the bytes "i" and "o"; for all others "h"

-- Return how to read the records of a batch, from the members that have left their lines. Most batches are read without
-- it.
function keyed_claim.whats_of(members)
  local whats = {}
  for i, member in ipairs(members) do whats[i] = READ[string.byte(member, HINT)] or 'h' end
  return whats
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
-- texts: of their lines, nil if these are not known
local function take_first(base, popped, texts, call, out)
  call.counts = nil
  local firsts, started, at, sub = key_lines.pop(base, popped, texts), {}, 0, string.sub
  local ids, keys, members, n = out.ids, out.keys, out.members, #out.ids
  for i = 1, #popped do
    local key, first = popped[i], firsts[i]
    if first then
      n = n + 1
      ids[n], keys[n], members[n] = sub(first, MEMBER), key, first
      started[at + 1], started[at + 2], at = key, '1', at + 2
    else
      keyed.touch(call, key)
    end
  end
  note_running(base, started, call)
end

local take_limited

do
  -- Return how many of the jobs of these items the bucket of the key can pay, after it has paid for them.
  local function pay(base, key, items, bucket, call)
    local tokens, is_new = keyed.tokens_of(base, key, bucket, call)
    local left, number = tokens, 0
    for i = 1, #items do
      local cost = keyed.cost_of(base, line_texts.member_of(items[i]))
      if limits.lacking(bucket, left, cost) > 0 then break end
      left, number = left - cost, number + 1
    end
    if number > 0 then
      limits.set_tokens(base .. ':keybucket:' .. key, bucket, left, call, is_new)
      call.tokens[key] = left
    end
    return number
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

  -- Take up to n jobs out of the line of a key. Return how many, and the text of the others. text: see key_lines.lua
  local function take(base, key, n, text, limits_now, call, out)
    if limits_now.max then n = in_window(base, key, n, limits_now, call) end
    if n == 0 then return 0, text end
    local items, left = key_lines.cut(base, key, text, n)
    local taken = limits_now.bucket and pay(base, key, items, limits_now.bucket, call) or #items
    local before = #out.ids
    for i = 1, taken do
      local member = line_texts.member_of(items[i])
      out.ids[before + i], out.keys[before + i], out.members[before + i] = string.sub(member, MEMBER), key, member
    end
    if taken > 0 and limits_now.max then note_starts(base, key, taken, limits_now, call) end
    return taken, key_lines.uncut(items, taken + 1, left)
  end

  -- Take up to n jobs of each of these ready keys with limits, `left` jobs in all, and count them as running.
  function take_limited(base, keys, n, left, call, out)
    local started, at, rests = {}, 0, call.seen.resting
    local texts, changed, emptied, c = key_lines.read(base, keys), {}, {}, 0
    local same, running = keyed.read_limits(base, keys, call), keyed.running_counts(base, keys, call)
    local known, again = call.key_limits, keyed.are_alike(same, call.seen) and {}
    for i = 1, #keys do
      local key = keys[i]
      local limits_now, count = same or known.keys[key], running[key]
      local room, most, taken = limits_now.concurrency - count, n, 0
      local text, rest = texts[i], nil
      if room > 0 and rests and keyed.is_resting(base, key, limits_now, call.seen) then room = 0 end
      if most > room then most = room end
      if most > left then most = left end
      if most > 0 then
        text = text or key_lines.find_old(base, key)
        taken, rest = take(base, key, most, text, limits_now, call, out)
        if not rest then
          emptied[#emptied + 1] = key
        elseif rest ~= text then
          changed[c + 1], changed[c + 2], c = key, rest, c + 2
        end
      end
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
    key_lines.store(base, changed, emptied)
    note_running(base, started, call)
    if again and again[1] then keyed.note_freed(again, call) end
  end
end

-- Take up to `count` jobs, key by key in turn. Return { ids, keys, members }.
function keyed_claim.pop(base, count, call)
  local out = {ids = {}, keys = {}, members = {}}
  while #out.ids < count do
    local left = count - #out.ids
    local popped, texts = keyed.take_keys(base, math.min(left, KEYS_AT_ONCE), call)
    if #popped == 0 then break end
    if call.seen.limited then
      take_limited(base, popped, math.max(1, math.floor(left / #popped)), left, call, out)
    else
      take_first(base, popped, texts, call, out)
    end
    keyed.review(base, call, true)
  end
  in_chunks('ZREM', base .. ':keyed', nil, out.ids)
  return out
end
