-- tokens: the access tokens of the web app. Its base key is the one of the queue `system/ops`.
--   putToken     channel number digest expires record -> 1 | 0   0: there are as many tokens as may exist. digest: of
--                the token itself; expires: ms, 0 = never; record: msgpack, at most 4 KiB
--   getToken     digest -> record | ''       '' for an unknown or expired token
--   listTokens   cursor -> { next cursor, { digest record }… }   also expired ones, until the next token is stored.
--                The cursor "0" starts and ends. Earlier builds send none, and get all rows without one.
--   removeToken  channel number digest -> 1 | 0
--   store:
--     tokens  hash  digest -> `<expires ms> <record>`; at most 500

do
  local MOST, MOST_BYTES, LISTED = 500, 4096, 100

  local function is_over(stored, now)
    local expires = tonumber(string.match(stored, '^%d+'))
    return expires > 0 and expires <= now
  end

  local function record_of(stored)
    return string.sub(stored, string.find(stored, ' ', 1, true) + 1)    -- faster than matching a large record
  end

  local function rows_of(base)
    return redis.call('HGETALL', base .. ':tokens')
  end

  request.register('putToken', function(base, args)
    local digest, expires, packed = args[3], integer('expires', args[4]), args[5]
    if #digest + #packed > MOST_BYTES then fail('ARGUMENT', 'a token has at most ' .. MOST_BYTES .. ' bytes') end
    local flat, now, over = rows_of(base), clock.now(), {}
    for i = 1, #flat, 2 do
      if is_over(flat[i + 1], now) then over[#over + 1] = flat[i] end
    end
    if #flat / 2 - #over >= MOST then return 0 end
    if over[1] then redis.call('HDEL', base .. ':tokens', unpack(over)) end
    redis.call('HSET', base .. ':tokens', digest, digits(expires) .. ' ' .. packed)
    return 1
  end)

  register('getToken', function(base, args)
    local stored = redis.call('HGET', base .. ':tokens', args[1])
    if not stored or is_over(stored, clock.now()) then return '' end
    return record_of(stored)
  end, {'no-writes'})

  register('listTokens', function(base, args)
    local page = args[1] and redis.call('HSCAN', base .. ':tokens', args[1], 'COUNT', LISTED)
    local flat, rows = page and page[2] or rows_of(base), {}
    for i = 1, #flat, 2 do rows[#rows + 1] = {flat[i], record_of(flat[i + 1])} end
    return page and {page[1], rows} or rows
  end, {'no-writes'})

  request.register('removeToken', function(base, args)
    return redis.call('HDEL', base .. ':tokens', args[3])
  end, {'allow-oom'})
end
