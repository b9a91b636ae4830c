-- dedup: of several adds with the same deduplication id, one job.
--   dedup:{d}  string  "<instant it ends, 0 = none> <id of the job that owns it>"
--   deduped    hash    id -> d, of owners whose end frees d (modes simple and debounce)
-- Modes   simple    a duplicate while the owner has not ended (at most ttl)
--         throttle  a duplicate until ttl after the owner's add, whatever became of it
--         debounce  replaces the owner while that has not started; else a new owner
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

function dedup.own(base, wanted, id, call)
  local key, ends = base .. ':dedup:' .. wanted.id, wanted.ttl and call.now + wanted.ttl or 0
  if wanted.mode == 'debounce' then ends = 0 end
  redis.call('SET', key, digits(ends) .. ' ' .. id)
  if ends ~= 0 then redis.call('PEXPIRE', key, wanted.ttl + KEPT_LONGER_MS) end
  if wanted.mode ~= 'throttle' then
    redis.call('HSET', base .. ':deduped', id, wanted.id)
    call.seen.deduped = true
  end
end
