-- queue: opens and pauses a queue.
--   openQueue  mode mark dead_letter [access] -> { layout, mode, paused, schedulers, incarnation [rules] }   idempotent
--     mode '' = the mode of the queue; mark: the incarnation of a queue that begins with this call, see
--     incarnation.lua; dead_letter: the queue that receives copies of dead letters, '' = unchanged; access "1": also
--     return the ACL rules for channels that the user lacks. If the user lacks a rule for a command or the store keys,
--     the call is refused with ACCESS.
--   setPaused  channel number "1" | "0" -> "ok"
-- A `meta` of another program, layout or mode is refused with INCOMPATIBLE, and nothing is written.
--   meta  hash  owner, layout, incarnation, mode ("global" | "keyed"), paused, numeric_ids, logs and touched (once
--         used), limits and key_limits (while there are any), events, keep_completed, keep_failed, turn (the source of
--         a claim that came first), schedulers (once used), the state of the sweep and of the outbox: dead_letter,
--         relaying, outbox_last; planned (see writes.lua);
--         features (see queue_flags.lua)

local OWNER = 'glidemq_async'
local LAYOUT = '2'
local OURS = {'events', 'seen_at', 'schedulers', 'dead_letter', 'relaying', 'outbox_last', 'turn', 'numeric_ids',
  'touched', 'keep_completed', 'keep_failed', 'limits', 'key_limits', 'planned',
  'features'}

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
    local stream = redis.call('TYPE', base .. ':fifo').ok
    if stream ~= 'none' and stream ~= 'stream' then
      refuse(base, 'a queue of ' .. OWNER, 'a foreign key ' .. base .. ':fifo')
    end
    return false
  end
  if kind ~= 'hash' then refuse(base, 'a queue of ' .. OWNER, 'a ' .. kind .. ' at ' .. key) end
  local meta = redis.call('HMGET', key, 'owner', 'layout', 'mode')
  -- After FLUSHALL or an obliteration, other calls may create it again, without an owner but with one of these fields.
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
  entries.ensure_fifo_group(base)
  entries.ensure_active_group(base)
  queue_flags.compare(base)
  -- Each call reads a dozen fields. The server stores a small hash as a list and would search it for each of them.
  redis.call('HSET', key, SEP, WIDENER)
  redis.call('HDEL', key, SEP)
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
