-- keyed_reviews: puts the keys that a call has touched into `ready`, `sleeping` or neither. keyed.lua describes these
-- structures and says when they are correct.

local AT_ONCE = 16

-- Note which of the touched keys have waiting jobs.
local function note_waiting(base, touched)
  local unknown = {}
  for i = 1, #touched do
    local key = touched[i]
    if not touched[key] then unknown[#unknown + 1] = key end
  end
  if not unknown[1] then return end
  for i, waits in ipairs(key_lines.waiting(base, unknown)) do touched[unknown[i]] = waits and true end
end

-- Return how many jobs of the touched keys run, by key, as far as the review needs to know that.
local function running_among(base, touched, call)
  if not call.seen.running then return call.counts or {} end
  local asked = {}
  for i = 1, #touched do
    if touched[touched[i]] then asked[#asked + 1] = touched[i] end
  end
  return keyed.running_counts(base, asked, call)
end

-- Return how many jobs of ready keys are startable in addition to the first one of each, see keyed.note_several.
local function more_startable(base, call)
  local n = 0
  for key, left in pairs(call.several) do
    n = n + math.max(0, math.min(left, key_lines.length(base, key)) - 1)
  end
  call.several = nil
  return n
end

-- Add keys to `ready`: { turn key }… may_be_new: true if the call may have taken the last key from `ready`.
local function note_ready(base, ready, seen, may_be_new)
  -- Calls review a few keys with limits at a time, and such keys often stay in `ready` while their jobs run.
  local widen = (may_be_new or not seen.ready) and #ready >= 2 * (seen.limited and MANY or AT_ONCE)
  local key = queue_flags.create(base, 'ready', seen)
  if widen then redis.call('ZADD', key, '0', WIDENER) end
  in_chunks('ZADD', key, 'NX', ready)
  if widen then redis.call('ZREM', key, WIDENER) end
end

-- Note the keys that wait for their window or their bucket: { instant key }…
local function note_sleeping(base, sleeping, call)
  if not sleeping[1] then return end
  in_chunks('ZADD', queue_flags.create(base, 'sleeping', call.seen), nil, sleeping)
  call.slept = true
end

-- Return true if a claim may keep freed keys out of `ready`. Without limits, a job of each key ran until now, so none
-- of them is in `ready`. But a call that has read limits may have ended the last run and forgotten them. A freed key
-- may then be in `ready`, because it had room before the limits were removed and no review has come since.
local function may_keep(base, call)
  local seen = call.seen
  return not (seen.limited or call.key_limits or seen.sleeping or queue_flags.may_have_old_lines(base))
end

-- Keep the keys that have waiting jobs for the claim of this call. texts: of their lines
local function keep_freed(keys, texts, call)
  local freed, n = {keys = {}, texts = {}, from = 1}, 0
  for i = 1, #keys do
    if texts[i] then
      n = n + 1
      freed.keys[n], freed.texts[n] = keys[i], texts[i]
    end
  end
  if n > 0 then call.freed = freed end
  call.startable = call.startable + n
end

-- Put the keys that a claim has left into `ready`.
function keyed.write_freed(base, call)
  local freed, ready, n = call.freed, {}, 0
  call.freed = nil
  for i = freed.from, #freed.keys do
    ready[n + 1], ready[n + 2], n = order.next(base, call), freed.keys[i], n + 2
  end
  note_ready(base, ready, call.seen, true)
end

-- Take up to n keys that a claim may start jobs of. Return them, and the texts of their lines if these are known.
function keyed.take_keys(base, n, call)
  local freed = call.freed
  local keys = (call.seen.ready or not freed) and take_lowest(base .. ':ready', n) or {}
  if keys[1] or not freed then return keys, nil end
  local from, last = freed.from, math.min(freed.from + n - 1, #freed.keys)
  freed.from = last + 1
  if last == #freed.keys then call.freed = nil end
  if from == 1 and not call.freed then return freed.keys, freed.texts end
  return {unpack(freed.keys, from, last)}, {unpack(freed.texts, from, last)}
end

-- Put the keys of keyed.note_freed that have waiting jobs into `ready`, or into `sleeping` if their windows or their
-- buckets do not let a job start now. keeps: see keyed.review
local function review_ended(base, keys, call, keeps)
  local waiting, ready, not_ready, sleeping = key_lines.waiting(base, keys), {}, {}, {}
  local n, seen, now, timed, at = 0, call.seen, call.now, keyed.timed_limits(base, call), call.now
  if keeps and may_keep(base, call) then return keep_freed(keys, waiting, call) end
  -- Without limits, the keys are not in `ready`, because a job of each ran until now.
  local was_ready = seen.ready and seen.limited
  for i = 1, #keys do
    local waits = waiting[i]
    if waits and timed then at = keyed.open_at(base, keys[i], timed, call) end
    if waits and at == now then
      ready[n + 1], ready[n + 2], n = order.next(base, call), keys[i], n + 2
    elseif was_ready then
      not_ready[#not_ready + 1] = keys[i]
    end
    if waits and at > now then sleeping[#sleeping + 1], sleeping[#sleeping + 2] = digits(at), keys[i] end
  end
  call.startable = call.startable + n / 2
  if call.several then call.startable = call.startable + more_startable(base, call) end
  in_chunks('ZREM', base .. ':ready', nil, not_ready)
  if seen.sleeping then in_chunks('ZREM', base .. ':sleeping', nil, keys) end
  if n > 0 then note_ready(base, ready, seen) end
  note_sleeping(base, sleeping, call)
end

-- Sort the touched keys into the lists of keyed.review, if no key has limits, rests or is paused.
local function sort(base, touched, running, call, into)
  local ready, not_ready, n, was_ready = into.ready, into.not_ready, 0, call.seen.ready
  for i = 1, #touched do
    local key = touched[i]
    local waits = touched[key]
    if waits and (running[key] or 0) == 0 then
      ready[n + 1], ready[n + 2], n = waits ~= true and waits or order.next(base, call), key, n + 2
    elseif was_ready then
      not_ready[#not_ready + 1] = key
    end
  end
  call.startable = call.startable + n / 2
  if call.seen.sleeping then into.awake = touched end
end

-- Do the same if keys have limits, rest or are paused.
local function sort_limited(base, touched, running, call, into)
  local seen, now, n = call.seen, call.now, 0
  local ready, not_ready, sleeping, awake = into.ready, into.not_ready, into.sleeping, into.awake
  local was_ready, had_sleeping, rests, pauses = seen.ready, seen.sleeping, seen.resting, seen.pauses
  local same, known = keyed.read_limits(base, touched, call), call.key_limits
  for i = 1, #touched do
    local key = touched[i]
    local waits, left, at = touched[key], 0, now
    if waits then
      local limits_now = same or known.keys[key]
      left = limits_now.concurrency - (running[key] or 0)
      if left > 0 and rests and keyed.is_resting(base, key, limits_now, seen) then left = 0 end
      if left > 0 and (pauses or limits_now.is_timed) then at = keyed.open_at(base, key, limits_now, call) end
    end
    if left > 0 and at == now then
      ready[n + 1], ready[n + 2], n = waits ~= true and waits or order.next(base, call), key, n + 2
      if left > 1 then keyed.note_several(base, key, left, call) end
    elseif was_ready then
      not_ready[#not_ready + 1] = key
    end
    if left > 0 and at > now then
      sleeping[#sleeping + 1], sleeping[#sleeping + 2] = digits(at), key
    elseif had_sleeping then
      awake[#awake + 1] = key
    end
  end
  call.startable = call.startable + n / 2
  if call.several then call.startable = call.startable + more_startable(base, call) end
end

-- Return a list { turn key }… without the keys at some positions, which are in `ready`.
local function without(ready, positions)
  local others, n = {}, 0
  for i = 1, #ready / 2 do
    if not positions[i] then others[n + 1], others[n + 2], n = ready[2 * i - 1], ready[2 * i], n + 2 end
  end
  return others
end

-- Write the lines of the new jobs. Put their keys into `ready`, or touch them if this may be wrong.
function keyed.write_fresh(base, call)
  local fresh, seen = call.fresh, call.seen
  local keys, ready = fresh.keys, fresh.ready
  call.fresh = nil
  local n, behind = key_lines.append(base, keys, fresh.lines)
  local is_costly = keyed.is_costly(seen)
  if seen.running or seen.sleeping or is_costly then
    local skips = not is_costly or keyed.skips_reviews(base, call)
    for i = 1, #keys do
      if not (skips and behind[i]) then keyed.touch(call, keys[i], ready[2 * i - 1]) end
    end
    return
  end
  call.startable = call.startable + n
  note_ready(base, next(behind) and without(ready, behind) or ready, seen)
end

-- Put every touched key into `ready`, `sleeping` or neither. A function calls this last, before it wakes workers or
-- claims. keeps: true if the call claims next. It then takes freed keys from call.freed, and they cause no changes of
-- `ready`. The review at the end of the claim writes the keys that are left.
function keyed.review(base, call, keeps)
  local seen, ended = call.seen, call.ended
  keyed.write_entered(base, call)
  local touched = call.touched
  -- Each function that changes the line of a key also touches the key. The texts in call.freed may then be old.
  if call.freed and (touched or ended or not keeps) then keyed.write_freed(base, call) end
  if ended then
    call.ended = nil
    review_ended(base, ended, call, keeps and not touched)
  end
  if not touched then return end
  note_waiting(base, touched)
  local into, running = {ready = {}, not_ready = {}, sleeping = {}, awake = {}}, running_among(base, touched, call)
  call.touched = nil
  if keyed.is_costly(seen) then
    sort_limited(base, touched, running, call, into)
  else
    sort(base, touched, running, call, into)
  end
  in_chunks('ZREM', base .. ':ready', nil, into.not_ready)
  in_chunks('ZREM', base .. ':sleeping', nil, into.awake)
  if into.ready[1] then note_ready(base, into.ready, seen) end
  note_sleeping(base, into.sleeping, call)
end
