-- dedup: of several adds with the same deduplication id, one job.
--   dedup:{d}  string  "<instant it ends, 0 = none> <id of the job that owns it>"
--   deduped    hash    id -> d, of owners whose end frees d (modes simple and debounce)
-- Modes   simple    a duplicate while the owner has not ended (at most ttl)
--         throttle  a duplicate until ttl after the owner's add, whatever became of it
--         debounce  replaces the owner while that has not started; else a new owner
--   job:{id}   field dedup  the same text with d instead of the id, of a job that may own d again when it starts anew
-- The stored instant decides; the key's own expiry only collects what nobody asks for again.

local dedup = {}
local KEPT_LONGER_MS = 60000

-- Owners that end or go away free their id.
function dedup.forget(base, ids)
  local marks = base .. ':deduped'
  for _, id in ipairs(ids) do
    local d = redis.call('HGET', marks, id)
    if d then
      local key = base .. ':dedup:' .. d
      local kept = redis.call('GET', key)
      if kept and string.match(kept, '^%d+ (.*)$') == id then redis.call('UNLINK', key) end
      redis.call('HDEL', marks, id)
    end
  end
end

-- The owner that stands in the way of an add, or nil. wanted: { id, ttl, mode }.
function dedup.owner(base, wanted, now)
  local kept = redis.call('GET', base .. ':dedup:' .. wanted.id)
  if not kept then return nil end
  local ends, owner = string.match(kept, '^(%d+) (.*)$')
  ends = tonumber(ends)
  if ends ~= 0 and ends <= now then return nil end
  return owner
end

local function take(base, d, ends, id, call)
  local key = base .. ':dedup:' .. d
  redis.call('SET', key, digits(ends) .. ' ' .. id)
  if ends ~= 0 then redis.call('PEXPIRE', key, digits(ends - call.now + KEPT_LONGER_MS)) end
end

local function mark(base, d, id, call)
  redis.call('HSET', base .. ':deduped', id, d)
  call.seen.deduped = true
end

-- The job that is being added owns its deduplication id. Answers its record's field, nil for a throttle: that one lasts
-- whatever becomes of the job.
function dedup.own(base, wanted, id, call)
  local ends = wanted.ttl and wanted.mode ~= 'debounce' and call.now + wanted.ttl or 0
  take(base, wanted.id, ends, id, call)
  if wanted.mode == 'throttle' then return nil end
  mark(base, wanted.id, id, call)
  return digits(ends) .. ' ' .. wanted.id
end

-- A job that had ended starts anew: it owns its id again, unless its time is over or another one owns it.
function dedup.own_again(base, id, call)
  local kept = redis.call('HGET', base .. ':job:' .. id, 'dedup')
  if not kept then return end
  local ends, d = string.match(kept, '^(%d+) (.*)$')
  ends = tonumber(ends)
  if (ends ~= 0 and ends <= call.now) or dedup.owner(base, {id = d}, call.now) then return end
  take(base, d, ends, id, call)
  mark(base, d, id, call)
end
