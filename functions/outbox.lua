-- outbox: jobs that must be added to another queue, which may be in another cluster slot.
--   outbox  stream  to (the target's base key) id name data opts extra letter: the arguments of the target's
--           `deliverJobs`, see inbox.lua
--     id  if it ends with "/", the entry's own id is appended, so that each entry has a unique id
--   meta2  hash  relaying: "<until ms> <holder>", the worker that relays now; outbox_last: the last entry of an outbox
--         that was deleted because it was empty
-- The call that decides on an entry also writes it. Any worker of the queue relays it afterwards: it adds the job to
-- the target, then removes the entry. The target ignores entries that it has received before. So nothing is added
-- twice, even if a relay dies between the two steps or two workers relay at the same time. An empty outbox is deleted.
--   relayOutbox  holder after n entry*n -> { last entry | '', flat { entry to id name data opts extra letter }, work,
--       newest }
--     Remove the n delivered entries, and return the entries after `after` ('' = all), up to 100 or 1 MiB. The result
--     is empty at the end of the outbox, and while another worker relays. A repeated call has no second effect.
--     holder  the worker; '': a client that needs the entries delivered now, which relays even while a worker does
--     work    1 while work of flows is left, which the relay does with `advanceFlows`, see flows.lua
--     newest  for a client, the newest entry; otherwise ''

local outbox = {}

do
  local FIELDS = {'to', 'id', 'name', 'data', 'opts', 'extra', 'letter'}
  local MOST = 100000
  local STEP = 100
  local STEP_BYTES = 1048576
  local HOLD_MS = 5000

  -- Return true if the outbox must not grow. Otherwise a target that cannot be reached would let it fill the memory.
  function outbox.full(base, seen)
    return seen.outbox and redis.call('XLEN', base .. ':outbox') >= MOST
  end

  -- Return the id for the first entry of a new outbox. It is above every id of an earlier outbox, even within one
  -- millisecond or after the clock was set back. Otherwise targets would ignore the entry as a known one.
  local function first_entry(base, now)
    local last = redis.call('HGET', base .. ':meta2', 'outbox_last')
    if not last then return '*' end
    local ms, sequence = string.match(last, '^(%d+)-(%d+)$')
    return tonumber(ms) < now and '*' or ms .. '-' .. digits(sequence + 1)
  end

  -- Append one entry. values: in the order of FIELDS. seen.posted counts the bytes. The reply of the call informs its
  -- worker that entries must be relayed, and a call that has posted many bytes ends earlier.
  function outbox.push(base, values, call)
    local fields, bytes, seen = {}, 0, call.seen
    for i, name in ipairs(FIELDS) do
      fields[2 * i - 1], fields[2 * i] = name, values[i]
      bytes = bytes + #values[i]
    end
    local entry = seen.outbox and '*' or first_entry(base, call.now)
    redis.call('XADD', queue_flags.create(base, 'outbox', seen), entry, unpack(fields))
    seen.posted = (seen.posted or 0) + bytes
  end

  local function held_by_another(base, holder, now)
    local relaying = redis.call('HGET', base .. ':meta2', 'relaying')
    if not relaying then return false end
    local till, name = string.match(relaying, '^(%d+) (.*)$')
    till = tonumber(till)
    return name ~= holder and till > now and not clock.is_ahead(till - HOLD_MS, now)
  end

  local function let_go(base)
    local key, meta = base .. ':outbox', base .. ':meta2'
    redis.call('HDEL', meta, 'relaying')
    if not exists(key) or redis.call('XLEN', key) > 0 then return end
    local info = redis.call('XINFO', 'STREAM', key)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then redis.call('HSET', meta, 'outbox_last', info[i + 1]) end
    end
    redis.call('UNLINK', key)
  end

  -- Return the last entry that was read ('' without any) and the rows. This reads one entry at a time, because an entry
  -- may be as large as a payload, and the reply ends after 1 MiB.
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
    local is_worker = holder ~= ''
    if is_worker and held_by_another(base, holder, now) then return {'', {}, 0, ''} end
    local found = read(key, after)
    found[3] = wakeup.can_advance(base, {outbox = true}) and 1 or 0
    local newest = not is_worker and redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    found[4] = newest and newest[1] or ''
    if not found[2][1] then
      let_go(base)
    elseif is_worker then
      redis.call('HSET', base .. ':meta2', 'relaying', digits(now + HOLD_MS) .. ' ' .. holder)
    end
    return found
  end, {'allow-oom'})
end
