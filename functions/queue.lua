-- queue: opens and pauses a queue.
--   openQueue  mode mark dead_letter [access] -> { layout, mode, paused, schedulers, incarnation [rules] }   idempotent
--     mode '' = the mode of the queue; mark: the incarnation of a queue that begins with this call, see
--     incarnation.lua; dead_letter: the queue that receives copies of dead letters, '' = unchanged; access "1": also
--     return the ACL rules for channels that the user lacks. If the user lacks a rule for a command or the store keys,
--     the call is refused with ACCESS.
--   queueExists  -> 1 | 0     creates nothing
--   setPaused  channel number "1" | "0" [until by] -> "ok"    until: ms, 0 = until the queue is resumed; by: see
--              settings.lua
-- Data of another program, a later layout or another mode are refused with INCOMPATIBLE, and nothing is written. A
-- queue of layout 1 is refused with MIGRATE until migrateQueue has converted it.
--   meta2  hash  owner, layout, incarnation, mode ("global" | "keyed"), paused, numeric_ids, logs and touched (once
--         used), limits and key_limits (while there are any), events, keep_completed, keep_failed, turn (the source of
--         a claim that came first), schedulers (once used), dead_letter (see dead_letters.lua), the state of the sweep
--         (see stalled.lua) and of the outbox (see outbox.lua), planned (see writes.lua), features (see
--         queue_flags.lua), migrating (see migration.lua)

local function check_settings(base, mode)
  local key, wanted = base .. ':meta2', 'a queue of ' .. layout.OWNER
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    local stream = redis.call('TYPE', base .. ':fifo').ok
    if stream ~= 'none' and stream ~= 'stream' then layout.refuse(base, wanted, 'a foreign key ' .. base .. ':fifo') end
    return
  end
  if kind ~= 'hash' then layout.refuse(base, wanted, 'a ' .. kind .. ' at ' .. key) end
  local meta = redis.call('HMGET', key, 'owner', 'layout', 'mode', 'migrating')
  if not layout.is_ours(key, meta[1]) then layout.refuse(base, wanted, 'data of ' .. (meta[1] or 'another library')) end
  if meta[2] and meta[2] ~= layout.NUMBER then
    layout.refuse(base, 'layout ' .. layout.NUMBER, 'layout ' .. meta[2])
  end
  if meta[4] then layout.require_migration(base) end
  if mode ~= '' and meta[3] and meta[3] ~= mode then layout.refuse(base, 'mode ' .. mode, 'mode ' .. meta[3]) end
end

-- Raise an error unless there are no data, or a queue of layout 2 with this mode.
local function check_data(base, mode)
  local found = layout.find(base)
  if found == 'old' then layout.require_migration(base) end
  check_settings(base, mode)
  return found
end

register('openQueue', function(base, args)
  local mode, key = args[1], base .. ':meta2'
  local rules = access.check(base)
  if check_data(base, mode) == 'none' then layout.write_notice(base) end
  if not redis.call('HGET', key, 'owner') then
    redis.call('HSET', key, 'owner', layout.OWNER, 'layout', layout.NUMBER)
  end
  if args[2] and args[2] ~= '' then redis.call('HSETNX', key, 'incarnation', args[2]) end
  if mode ~= '' then redis.call('HSETNX', key, 'mode', mode) end
  if args[3] and args[3] ~= '' then redis.call('HSET', key, 'dead_letter', args[3]) end
  entries.ensure_fifo_group(base)
  queue_flags.compare(base)
  -- Each call reads a dozen fields. The server stores a small hash as a list and would search it for each of them.
  redis.call('HSET', key, SEP, WIDENER)
  redis.call('HDEL', key, SEP)
  local answer = redis.call('HMGET', key, 'layout', 'mode', 'paused', 'schedulers', 'incarnation')
  if args[4] == '1' then answer[6] = rules end
  return answer
end, {'allow-oom'})

register('queueExists', function(base)
  return redis.call('EXISTS', base .. ':meta')
end, {'no-writes'})

request.register('setPaused', function(base, args)
  local pauses, ends, by = args[3] == '1', integer('until', args[4] or '0'), settings.author(args[5])
  local call = queue_flags.call(base)
  if not call.seen.paused and not pauses then return 'ok' end
  local value = pauses and (ends > 0 and '1 ' .. digits(ends) or '1') or '0'
  if redis.call('HGET', base .. ':meta2', 'paused') ~= value or by then
    settings.note_hold(base, 'paused', pauses and value or '', by, call.now)
  end
  local paused_before = call.seen.paused
  redis.call('HSET', base .. ':meta2', 'paused', value)
  call.seen.paused = pauses and (ends > 0 and ends or true)
  if pauses ~= (paused_before and true or false) then
    events.note(call.lines, pauses and 'paused' or 'resumed', '')
  end
  if not pauses then call.startable = locations.ready_count(base) end
  wakeup.finish(base, call)
  if ends > 0 then wakeup.due_changed(base, nil, call) end
  return 'ok'
end, {'allow-oom'})
