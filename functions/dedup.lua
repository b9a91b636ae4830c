-- dedup: stores one job for several adds with the same deduplication id.
--   dedup:{d}  string  "<end in ms, 0 = none> <id of the owner>". The owner is the job that has the deduplication id.
--              SEP and an id follow if a successor waits for the owner, see successors.lua. With a ttl the first field
--              is "<end in ms>-<start in ms>".
--   deduped    hash    id -> d, of owners whose end frees d (all modes but throttle), and of their successors; or SEP
--              and a scheduler whose next fire time depends on the end of this job, see schedulers.lua
-- Modes   simple     an add is a duplicate until the owner has ended (at most for ttl)
--         throttle   an add is a duplicate for ttl after the owner's add, even if the owner has ended
--         debounce   an add replaces the owner if that has not started; otherwise it becomes the new owner
--         keep_last  an add passes its data to the owner if that has not started; otherwise to its successor
--   job:{id}   field dedup  the same text with d instead of the id, of a job that may own d again when it is started
--              anew
-- The stored end decides. The expiry of the store key only removes windows that no call looks at any more.

local dedup = {}
local KEPT_LONGER_MS = 60000
local SCHEDULER = 31              -- SEP

-- Return the end of a stored window in ms (0: it does not end by time), and the rest of the text.
local function parse(text, now)
  local ends, taken, rest = string.match(text, '^(%d+)%-?(%d*) (.*)$')
  -- A start in the future means that the clock was set back. The window counts as over.
  if taken ~= '' and clock.is_ahead(tonumber(taken), now) then return now, rest end
  return tonumber(ends), rest
end

-- Return the first field of a stored window.
local function window(ends, call)
  return ends == 0 and '0' or digits(ends) .. '-' .. digits(call.now)
end

-- Return the end of the window, its owner and the successor or nil. Return nil when d has no owner.
local function kept(base, d, now)
  local text = redis.call('GET', base .. ':dedup:' .. d)
  if not text then return nil end
  local ends, rest = parse(text, now)
  local owner, successor = string.match(rest, '^([^\31]*)\31?(.*)$')
  return ends, owner, successor ~= '' and successor or nil
end

-- Pass d on from an owner that has ended to its successor, which may start now. Without a successor, free d.
local function pass_on(base, d, successor, call)
  local key = base .. ':dedup:' .. d
  if successor and dedup.start_next(base, successor, call) then
    redis.call('SET', key, '0 ' .. successor)
  else
    redis.call('UNLINK', key)
  end
end

-- Free the deduplication ids of owners that end or are removed, and of successors likewise.
function dedup.forget(base, ids, call)
  local marks, owned = base .. ':deduped', {}
  for _, id in ipairs(ids) do
    local d = redis.call('HGET', marks, id)
    if d then
      redis.call('HDEL', marks, id)
      local _, owner, successor = kept(base, d, call.now)
      if string.byte(d) == SCHEDULER then
        dedup.reschedule(base, string.sub(d, 2), id, call)
      elseif owner == id and successor then
        owned[#owned + 1] = d
      elseif owner == id then
        redis.call('UNLINK', base .. ':dedup:' .. d)
      elseif successor == id then
        redis.call('SET', base .. ':dedup:' .. d, '0 ' .. owner)
      end
    end
  end
  -- This must come after the loop, because an owner and its successor may both be in `ids`.
  for _, d in ipairs(owned) do
    local _, _, successor = kept(base, d, call.now)
    pass_on(base, d, successor, call)
  end
end

-- Return the owner that blocks an add and its successor, or nil. wanted: { id, ttl, mode }.
function dedup.owner(base, wanted, now)
  local ends, owner, successor = kept(base, wanted.id, now)
  if not ends or (ends ~= 0 and ends <= now) then return nil end
  return owner, successor
end

local function mark(base, d, id, call)
  redis.call('HSET', queue_flags.create(base, 'deduped', call.seen), id, d)
end

-- Make another job the owner. If a successor waited for the previous owner, it starts now.
local function take(base, d, ends, id, call)
  local key = base .. ':dedup:' .. d
  local before = redis.call('SET', key, window(ends, call) .. ' ' .. id, 'GET')
  local successor = before and string.match(before, '\31(.*)$')
  if successor then
    redis.call('HDEL', base .. ':deduped', successor)
    dedup.start_next(base, successor, call)
  end
  if ends ~= 0 then redis.call('PEXPIRE', key, digits(ends - call.now + KEPT_LONGER_MS)) end
end

-- Make the job that is being added the owner. Return the field for its record, nil for throttle: that window continues
-- whatever happens to the job.
function dedup.own(base, wanted, id, call)
  local ends = wanted.ttl and wanted.mode ~= 'debounce' and call.now + wanted.ttl or 0
  take(base, wanted.id, ends, id, call)
  if wanted.mode == 'throttle' then return nil end
  mark(base, wanted.id, id, call)
  return window(ends, call) .. ' ' .. wanted.id
end

-- Make the job that is being added the successor of the owner. Return the field for its record.
function dedup.follow(base, d, owner, id, call)
  redis.call('SET', base .. ':dedup:' .. d, '0 ' .. owner .. SEP .. id)
  mark(base, d, owner, call)
  mark(base, d, id, call)
  return '0 ' .. d
end

-- Make a job that had ended and is started anew the owner again, unless the window is over or another job is the owner.
function dedup.own_again(base, id, call)
  local text = redis.call('HGET', base .. ':job:' .. id, 'dedup')
  if not text then return end
  local ends, d = parse(text, call.now)
  if (ends ~= 0 and ends <= call.now) or dedup.owner(base, {id = d}, call.now) then return end
  take(base, d, ends, id, call)
  mark(base, d, id, call)
end

-- Free d although its owner has not ended. Return true if d had an owner.
function dedup.release(base, d, call)
  local ends, owner, successor = kept(base, d, call.now)
  if not ends then return false end
  redis.call('UNLINK', base .. ':dedup:' .. d)
  redis.call('HDEL', base .. ':deduped', owner, successor or owner)
  if successor then dedup.start_next(base, successor, call) end
  return ends == 0 or ends > call.now
end
