-- queue: opening a queue, and pausing it.
--   openQueue  mode mark dead_letter [access] -> { layout, mode, paused, schedulers, incarnation [rules] }   idempotent
--     mode '' = whatever the queue is; mark: what a queue that begins with this call is called, see incarnation.lua;
--     dead_letter: the queue that dead letters are moved to as well, '' = as it is; access "1": also answer which ACL
--     rules for channels the user lacks. A user who lacks a rule for a command or the keys is refused with ACCESS.
--   setPaused  lane number "1" | "0" -> "ok"
-- A `meta` that is not ours, of another layout or mode, is refused with INCOMPATIBLE and nothing is written.
--   meta  hash  owner, layout, incarnation, mode ("global" | "keyed"), paused, numeric_ids, logs and touched (once
--               used), limits and key_limits (while there are), events, keep_completed, keep_failed, turn (which source
--               of a claim came first), schedulers (once used), the state of the sweep, and of the outbox: dead_letter,
--               relaying, outbox_last; planned (see writes.lua)

local OWNER = 'glidemq_async'
local LAYOUT = '1'
local OURS = {'events', 'seen_at', 'schedulers', 'dead_letter', 'relaying', 'outbox_last', 'turn', 'numeric_ids',
  'touched', 'keep_completed', 'keep_failed', 'limits', 'key_limits', 'planned'}

local function refuse(base, asked, found)
  fail('INCOMPATIBLE', base .. ': asked for ' .. asked .. ', found ' .. found)
end

local function has_field_of_ours(key)
  for _, value in ipairs(redis.call('HMGET', key, unpack(OURS))) do
    if value then return true end
  end
  return false
end

local function check_meta(base, mode)
  local key = base .. ':meta'
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    local stream = redis.call('TYPE', base .. ':stream').ok
    if stream ~= 'none' and stream ~= 'stream' then
      refuse(base, 'a queue of ' .. OWNER, 'a foreign key ' .. base .. ':stream')
    end
    return false
  end
  if kind ~= 'hash' then refuse(base, 'a queue of ' .. OWNER, 'a ' .. kind .. ' at ' .. key) end
  local meta = redis.call('HMGET', key, 'owner', 'layout', 'mode')
  -- After FLUSHALL or an obliteration our own calls may make it anew, without an owner but with one of these fields.
  local is_ours = meta[1] == OWNER or (not meta[1] and has_field_of_ours(key))
  if not is_ours then
    refuse(base, 'a queue of ' .. OWNER, 'data of ' .. (meta[1] or 'another library'))
  end
  if meta[2] and meta[2] ~= LAYOUT then refuse(base, 'layout ' .. LAYOUT, 'layout ' .. meta[2]) end
  if mode ~= '' and meta[3] and meta[3] ~= mode then refuse(base, 'mode ' .. mode, 'mode ' .. meta[3]) end
  return true
end

register('openQueue', function(base, args)
  local mode, key = args[1], base .. ':meta'
  local rules = access.check(base)
  check_meta(base, mode)
  if not redis.call('HGET', key, 'owner') then
    redis.call('HSET', key, 'owner', OWNER, 'layout', LAYOUT)
  end
  if args[2] and args[2] ~= '' then redis.call('HSETNX', key, 'incarnation', args[2]) end
  if mode ~= '' then redis.call('HSETNX', key, 'mode', mode) end
  if args[3] and args[3] ~= '' then redis.call('HSET', key, 'dead_letter', args[3]) end
  entries.ensure_group(base .. ':stream')
  entries.ensure_group(base .. ':lane')
  local answer = redis.call('HMGET', key, 'layout', 'mode', 'paused', 'schedulers', 'incarnation')
  if args[4] == '1' then answer[6] = rules end
  return answer
end, {'allow-oom'})

request.register('setPaused', function(base, args)
  local paused, meta = args[3], base .. ':meta'
  if (redis.call('HGET', meta, 'paused') or '0') == paused then return 'ok' end
  redis.call('HSET', meta, 'paused', paused)
  local call = queue_flags.call(base)
  events.note(call.lines, paused == '1' and 'paused' or 'resumed', '')
  if paused == '0' then call.startable = locations.ready_count(base) end
  wakeup.finish(base, call)
  return 'ok'
end, {'allow-oom'})
