-- outbox: what must reach another queue, which may lie in another cluster slot.
--   outbox  stream  to (the target's base key) id name data opts extra letter: what its `deliverJobs` takes, see
--                   inbox.lua
--     id  one that ends with "/" gets the entry's own id behind it, so that each entry has a name of its own
--   meta  hash  relaying: "<until ms> <holder>", who relays at present; outbox_last: the last entry of an outbox that
--               is gone
-- The entry is written by the call that decides on it; any worker of the queue relays it afterwards: it adds to the
-- target, then takes the entry out. The target refuses what it was given before, so a relay that died between the two,
-- or two at once, add nothing twice. The key is gone when there is nothing to relay.
--   relayOutbox  holder after n entry*n -> { last entry | '', flat { entry to id name data opts extra letter } }
--     Takes out the n entries that were delivered and reads the ones that stand after `after` ('' = all), up to 100 or
--     1 MiB. Nothing comes at the end of the outbox, and while somebody else relays. Sent twice it does the same.

local outbox = {}

do
  local FIELDS = {'to', 'id', 'name', 'data', 'opts', 'extra', 'letter'}
  local MOST = 100000
  local STEP = 100
  local STEP_BYTES = 1048576
  local HOLD_MS = 5000

  -- Whether another entry would be one too many: a target that cannot be reached must not fill the memory.
  function outbox.full(base, seen)
    return seen.outbox and redis.call('XLEN', base .. ':outbox') >= MOST
  end

  -- The entry that the first one of a new outbox gets: never one that an earlier outbox gave, even when both stood in
  -- the same millisecond or the clock was set back. Targets would take it for one they know.
  local function first_entry(base, now)
    local last = redis.call('HGET', base .. ':meta', 'outbox_last')
    if not last then return '*' end
    local ms, sequence = string.match(last, '^(%d+)-(%d+)$')
    return tonumber(ms) < now and '*' or ms .. '-' .. digits(sequence + 1)
  end

  -- Append one entry; values in the order of FIELDS. seen.posted counts the bytes: the reply of the call tells its
  -- worker that there is something to relay, and a call that posts much ends earlier.
  function outbox.push(base, values, call)
    local fields, bytes, seen = {}, 0, call.seen
    for i, name in ipairs(FIELDS) do
      fields[2 * i - 1], fields[2 * i] = name, values[i]
      bytes = bytes + #values[i]
    end
    redis.call('XADD', base .. ':outbox', seen.outbox and '*' or first_entry(base, call.now), unpack(fields))
    seen.outbox, seen.posted = true, (seen.posted or 0) + bytes
  end

  local function held_by_another(base, holder, now)
    local relaying = redis.call('HGET', base .. ':meta', 'relaying')
    if not relaying then return false end
    local till, name = string.match(relaying, '^(%d+) (.*)$')
    till = tonumber(till)
    return name ~= holder and till > now and not clock.is_ahead(till - HOLD_MS, now)
  end

  local function let_go(base)
    local key, meta = base .. ':outbox', base .. ':meta'
    redis.call('HDEL', meta, 'relaying')
    if not exists(key) or redis.call('XLEN', key) > 0 then return end
    local info = redis.call('XINFO', 'STREAM', key)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then redis.call('HSET', meta, 'outbox_last', info[i + 1]) end
    end
    redis.call('UNLINK', key)
  end

  -- Read one entry at a time: an entry may be as large as a payload, and the answer ends after 1 MiB. Answers the last
  -- entry ('' without any) and the rows.
  local function read(key, after)
    local rows, bytes, last = {}, 0, after
    for _ = 1, STEP do
      local entry = redis.call('XRANGE', key, last == '' and '-' or '(' .. last, '+', 'COUNT', 1)[1]
      if not entry then break end
      last = entry[1]
      rows[#rows + 1] = last
      for i = 1, #FIELDS do
        local value = entry[2][2 * i]
        if FIELDS[i] == 'id' and string.sub(value, -1) == '/' then value = value .. last end
        rows[#rows + 1] = value
        bytes = bytes + #value
      end
      if bytes >= STEP_BYTES then break end
    end
    return {rows[1] and last or '', rows}
  end

  register('relayOutbox', function(base, args)
    local holder, after, n, key = args[1], args[2], integer('count', args[3]), base .. ':outbox'
    if #args ~= 3 + n then fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' entries') end
    local now, done = clock.now(), {}
    for i = 1, n do done[i] = args[3 + i] end
    in_chunks('XDEL', key, nil, done)
    if held_by_another(base, holder, now) then return {'', {}} end
    local found = read(key, after)
    if not found[2][1] then
      let_go(base)
      return found
    end
    redis.call('HSET', base .. ':meta', 'relaying', digits(now + HOLD_MS) .. ' ' .. holder)
    return found
  end, {'allow-oom'})
end
