-- inbox: the receiving end of another queue's outbox.
--   deliverJobs  lane number n { token id name data opts extra letter }*n -> flat { position, word }
--     Adds jobs as `addJob` does, each token once, whoever sends it and however often. word: why a position (from 1) was
--     not added: "seen", or what addJob says. letter: '' or what a dead letter carries, see dead_letters.lua.
--   inbox  zset  token -> when it came, ms; the last 10,000
--   moved  zset  id -> failed ms: dead letters of other queues that have not ended here; the newest 100,000

local inbox = {}
local letters = {}

do
  local FIELDS = 7
  local MOST_TOKENS = 10000
  local MOST_MOVED = 100000
  local MOST_JOBS = 200
  local DROP_STEP = 1000

  -- Which of these tokens came before, by position.
  function inbox.known(base, tokens)
    local known, met = redis.call('ZMSCORE', base .. ':inbox', unpack(tokens)), {}
    for i, token in ipairs(tokens) do
      known[i] = known[i] or met[token]
      met[token] = true
    end
    return known
  end

  function inbox.remember(base, tokens, now)
    local key, members = base .. ':inbox', {}
    for i, token in ipairs(tokens) do
      members[2 * i - 1], members[2 * i] = now, token
    end
    in_chunks('ZADD', key, nil, members)
    redis.call('ZREMRANGEBYRANK', key, 0, -MOST_TOKENS - 1)
  end

  -- Delete moved letters that nobody works on. Answers how many.
  function letters.drop(base, ids, call)
    local dropped = 0
    for _, id in ipairs(ids) do
      local state = record.place(base, id)
      if state and state ~= 'active' then
        jobs.remove(base, id, call)
        dropped = dropped + 1
      elseif not state then
        record.lost(base, id)
      end
    end
    return dropped
  end

  -- Keep the newest; those that are being worked on end by themselves.
  local function cap(base, call)
    local key = base .. ':moved'
    local over = math.min(redis.call('ZCARD', key) - MOST_MOVED, DROP_STEP)
    if over <= 0 then return end
    local oldest = redis.call('ZRANGE', key, 0, over - 1)
    letters.drop(base, oldest, call)
    in_chunks('ZREM', key, nil, oldest)
  end

  local function parse(args)
    local n = integer('count', args[3])
    if n < 1 or n > MOST_JOBS or #args ~= 3 + n * FIELDS then
      fail('ARGUMENT', 'the argument list does not hold ' .. args[3] .. ' jobs')
    end
    local failed_at, instants = {}, {}
    for i = 1, n do
      local letter = args[3 + i * FIELDS]
      if letter ~= '' then failed_at[i] = integer('failed', cmsgpack.unpack(letter)[6]) end
    end
    return n, failed_at
  end

  -- Note where an added job comes from.
  local function mark(base, id, letter, failed_at)
    redis.call('HSET', base .. ':job:' .. id, 'letter', letter)
    redis.call('ZADD', base .. ':moved', digits(failed_at), id)
  end

  local function deliver(base, args)
    local n, failed_at = parse(args)
    local tokens, answer, positions, list = {}, {}, {}, {args[1], args[2], 0}
    for i = 1, n do tokens[i] = args[4 + (i - 1) * FIELDS] end
    local known = inbox.known(base, tokens)
    for i = 1, n do
      if known[i] then
        answer[#answer + 1] = i
        answer[#answer + 1] = 'seen'
      else
        positions[#positions + 1] = i
        for field = 2, 6 do list[#list + 1] = args[3 + (i - 1) * FIELDS + field] end
      end
    end
    if #positions == 0 then return answer end
    list[3] = #positions
    local refused, outcomes = {}, add.jobs(base, list)[4]
    for i = 1, #outcomes, 2 do
      local position = positions[outcomes[i]]
      refused[position] = true
      answer[#answer + 1] = position
      answer[#answer + 1] = outcomes[i + 1]
    end
    local now, moved = clock.now(), false
    inbox.remember(base, tokens, now)
    for _, i in ipairs(positions) do
      if failed_at[i] and not refused[i] then
        local at = 3 + (i - 1) * FIELDS
        mark(base, args[at + 2], args[at + 7], failed_at[i])
        moved = true
      end
    end
    if moved then
      -- Claims read the whole record then, letter included.
      redis.call('HSET', base .. ':meta', 'touched', '1')
      local call = {now = now, lines = {}, seen = glance.at(base)}
      cap(base, call)
      events.write(base, call.lines, now)
    end
    return answer
  end

  request.register('deliverJobs', deliver)
end
