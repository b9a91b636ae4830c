-- dedup: of several adds with the same deduplication id, one job.
--   dedup:{d}  string  "<instant it ends, 0 = none> <id of the job that owns it>", and SEP and the id of the job that
--                      comes after that one, if there is one: see successors.lua. With a ttl the first word is
--                      "<instant it ends>-<instant it was taken>"
--   deduped    hash    id -> d, of owners whose end frees d (all modes but throttle), and of their successors; or SEP
--                      and a job scheduler whose next slot comes after the end of this job, see schedulers.lua
-- Modes   simple     a duplicate while the owner has not ended (at most ttl)
--         throttle   a duplicate until ttl after the owner's add, whatever became of it
--         debounce   replaces the owner while that has not started; else a new owner
--         keep_last  gives its data to the owner while that has not started; else to its successor
--   job:{id}   field dedup  the same text with d instead of the id, of a job that may own d again when it starts anew
-- The stored instant decides; the key's own expiry only collects what nobody asks for again.

local dedup = {}
local KEPT_LONGER_MS = 60000
local SCHEDULER = 31              -- SEP

-- The instant when a stored window ends (0: it does not end by time), and the rest of the text.
local function parse(text, now)
  local ends, taken, rest = string.match(text, '^(%d+)%-?(%d*) (.*)$')
  -- Taken at an instant that lies ahead: the clock was set back since, and the window is over.
  if taken ~= '' and clock.is_ahead(tonumber(taken), now) then return now, rest end
  return tonumber(ends), rest
end

-- The first word of a stored window.
local function window(ends, call)
  return ends == 0 and '0' or digits(ends) .. '-' .. digits(call.now)
end

-- When it ends, the owner, and the successor or nil; nil when nobody owns d.
local function kept(base, d, now)
  local text = redis.call('GET', base .. ':dedup:' .. d)
  if not text then return nil end
  local ends, rest = parse(text, now)
  local owner, successor = string.match(rest, '^([^\31]*)\31?(.*)$')
  return ends, owner, successor ~= '' and successor or nil
end

-- The owner has ended: its successor owns d now and may start, or d is free.
local function pass_on(base, d, successor, call)
  local key = base .. ':dedup:' .. d
  if successor and dedup.start_next(base, successor, call) then
    redis.call('SET', key, '0 ' .. successor)
  else
    redis.call('UNLINK', key)
  end
end

-- Owners that end or go away free their id; so do successors theirs.
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
  -- Only now: an owner and its successor may go together.
  for _, d in ipairs(owned) do
    local _, _, successor = kept(base, d, call.now)
    pass_on(base, d, successor, call)
  end
end

-- The owner that stands in the way of an add and its successor, or nil. wanted: { id, ttl, mode }.
function dedup.owner(base, wanted, now)
  local ends, owner, successor = kept(base, wanted.id, now)
  if not ends or (ends ~= 0 and ends <= now) then return nil end
  return owner, successor
end

local function mark(base, d, id, call)
  redis.call('HSET', base .. ':deduped', id, d)
  call.seen.deduped = true
end

-- Nobody comes after a job whose id another one takes over: a successor that waits for it starts.
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

-- The job that is being added owns its deduplication id. Answers its record's field, nil for a throttle: that one lasts
-- whatever becomes of the job.
function dedup.own(base, wanted, id, call)
  local ends = wanted.ttl and wanted.mode ~= 'debounce' and call.now + wanted.ttl or 0
  take(base, wanted.id, ends, id, call)
  if wanted.mode == 'throttle' then return nil end
  mark(base, wanted.id, id, call)
  return window(ends, call) .. ' ' .. wanted.id
end

-- The job that is being added comes after the owner, whatever ended the id before. Answers its record's field.
function dedup.follow(base, d, owner, id, call)
  redis.call('SET', base .. ':dedup:' .. d, '0 ' .. owner .. SEP .. id)
  mark(base, d, owner, call)
  mark(base, d, id, call)
  return '0 ' .. d
end

-- A job that had ended starts anew: it owns its id again, unless its time is over or another one owns it.
function dedup.own_again(base, id, call)
  local text = redis.call('HGET', base .. ':job:' .. id, 'dedup')
  if not text then return end
  local ends, d = parse(text, call.now)
  if (ends ~= 0 and ends <= call.now) or dedup.owner(base, {id = d}, call.now) then return end
  take(base, d, ends, id, call)
  mark(base, d, id, call)
end

-- Free d although its owner has not ended. Answers whether somebody owned it.
function dedup.release(base, d, call)
  local ends, owner, successor = kept(base, d, call.now)
  if not ends then return false end
  redis.call('UNLINK', base .. ':dedup:' .. d)
  redis.call('HDEL', base .. ':deduped', owner, successor or owner)
  if successor then dedup.start_next(base, successor, call) end
  return ends == 0 or ends > call.now
end
