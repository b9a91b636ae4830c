-- audit: the changes that people made to the queues of a prefix. Its base key is the one of the queue `system/ops`.
--   writeAudit  channel number line -> entry         line: msgpack of an audit line, at most 8 KiB
--   endAudit    channel number entry line -> entry   replaces the line that a change wrote when it began
--   readAudit   before count -> { next entry | '', flat { entry line } }
--     The newest lines first, those before the entry `before` ('' = all). At most 200, or 512 KiB.
--   store:
--     audit  stream  field line; the newest 10,000 lines of the last 90 days

local audit = {}
do
  local MOST, KEPT_MS, MOST_BYTES, MOST_READ, TRIMMED = 10000, 90 * 86400000, 8192, 200, 1000

  -- Refuse a line that is too long. For functions that append it after other writes.
  function audit.check(line)
    if #line > MOST_BYTES then fail('ARGUMENT', 'an audit line has at most ' .. MOST_BYTES .. ' bytes') end
  end

  -- Append a checked line. Return its entry.
  function audit.append(base, line)
    local key = base .. ':audit'
    local entry = redis.call('XADD', key, 'MAXLEN', digits(MOST), '*', 'line', line)
    redis.call('XTRIM', key, 'MINID', '~', digits(math.max(0, clock.now() - KEPT_MS)), 'LIMIT', TRIMMED)
    return entry
  end

  request.register('writeAudit', function(base, args)
    audit.check(args[3])
    return audit.append(base, args[3])
  end, {'allow-oom'})

  request.register('endAudit', function(base, args)
    audit.check(args[4])
    redis.call('XDEL', base .. ':audit', args[3])
    return audit.append(base, args[4])
  end, {'allow-oom'})

  register('readAudit', function(base, args)
    local before, most, rows, bytes = args[1], math.min(integer('count', args[2]), MOST_READ), {}, 0
    if string.match(before, '^0+%-0+$') then return {'', {}} end    -- the server refuses a range before the first entry
    local oldest = digits(math.max(0, clock.now() - KEPT_MS))
    local found = redis.call('XREVRANGE', base .. ':audit', before == '' and '+' or '(' .. before, oldest,
      'COUNT', most)
    for i, entry in ipairs(found) do
      rows[2 * i - 1], rows[2 * i] = entry[1], entry[2][2]
      bytes = bytes + #entry[2][2]
      if bytes > 524288 then return {entry[1], rows} end
    end
    return {#found == most and found[most] and found[most][1] or '', rows}
  end, {'no-writes'})
end
