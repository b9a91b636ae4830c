-- runs: the runs of jobs that did not wait in `fifo`. The token of such a run is "l<ms>-<number>", or "k<ms>-<number>"
-- for a keyed job: the time of its claim, and a number that no other run of the queue has. (The run of a job that
-- waited in `fifo` is a pending entry there, see entries.lua.)
--   runs       zset  "<ms>-<number>l <job>", or "<ms>-<number>k <job>" SEP "<key>" -> the number of the worker
--   renewed    hash  token -> when the worker last renewed the lease, ms; " r" follows if the worker has named the run.
--                    A run without a field has the lease that began with its claim.
--   consumers  hash  "c<consumer>" -> the number of this worker, "n<number>" -> the worker with this number
--   meta2      claimed: the last block of numbers; consumers: the last number of a worker
-- The number of a run is the number of its block and three digits. The runs of a block begin together, in the order of
-- their numbers.
-- One command starts the runs of a step, and one command ends them. ZREM replies how many of them were in `runs`. A
-- reclaimed, returned or removed job has lost its run, so this number shows if every run still held its lease, as XACK
-- does for `fifo`.
-- The runs of a worker are neighbours, the oldest first. While no lease was renewed, a sweep therefore stops at the
-- first run of a worker that is too young.

local runs = {RENEWED = 2}
local MOST = 1000                -- jobs of a block
local SEARCHED = 1000            -- a renewal does not read all runs of a worker that has this number of them or more
local FIFO, KEYED = 112, 107     -- the bytes "p" and "k", the first ones of tokens

-- Return the number of a worker. It gets one before its first run.
function runs.number_of(base, consumer, call)
  local numbers = call.numbers
  if not numbers then
    numbers = {}
    call.numbers = numbers
  end
  local number = numbers[consumer]
  if number then return number end
  local key = base .. ':consumers'
  number = redis.call('HGET', key, 'c' .. consumer)
  if not number then
    number = digits(redis.call('HINCRBY', base .. ':meta2', 'consumers', '1'))
    redis.call('HSET', key, 'c' .. consumer, number, 'n' .. number, consumer)
  end
  numbers[consumer] = number
  return number
end

-- Return the number of a worker, nil if it has none.
local function known_number(base, consumer)
  return redis.call('HGET', base .. ':consumers', 'c' .. consumer) or nil
end

-- Return the worker with a number. A number without a worker was damaged by hand.
local function consumer_named(base, number)
  return redis.call('HGET', base .. ':consumers', 'n' .. number) or ''
end

-- Return the token, the job and the key of a member; nil as the key of a job without one. Return nil for a member that
-- was written by hand.
function runs.parts_of(member)
  local raw, prefix, rest = string.match(member, '^(%d+%-%d+)([lk]) (.*)$')
  if prefix == 'l' then return 'l' .. raw, rest, nil end
  local at = prefix and string.find(rest, SEP, 1, true)
  if at then return 'k' .. raw, string.sub(rest, 1, at - 1), string.sub(rest, at + 1) end
end

-- Return the token in a member, also in one that a caller sent.
function runs.token_in(member)
  local raw, prefix = string.match(member, '^(%d+%-%d+)([lk]) ')
  return raw and prefix .. raw or ''
end

-- Return the member with a token, nil if there is none. This searches all runs. A caller that knows the job and its key
-- makes the member instead.
function runs.find(base, token)
  local cursor = '0'
  repeat
    local step = redis.call('ZSCAN', base .. ':runs', cursor, 'MATCH', string.sub(token, 2) .. '?*', 'COUNT', '1000')
    if step[2][1] then return step[2][1] end
    cursor = step[1]
  until cursor == '0'
end

-- Return the member of a run. key: nil if the caller does not know it.
local function member_of(base, id, token, key)
  local raw = string.sub(token, 2)
  if string.byte(token) ~= KEYED then return raw .. 'l ' .. id end
  return raw .. 'k ' .. id .. SEP .. (key or runs.key_of(base, id, token) or '')
end

-- Begin the runs of up to MOST jobs. Return the beginning of the numbers in their tokens, which end with three digits.
function runs.block(base)
  return digits(redis.call('HINCRBY', base .. ':meta2', 'claimed', '1'))
end

-- Write the runs { number of the worker, member }…
function runs.add(base, flat)
  local key = base .. ':runs'
  local widen = #flat >= 2 * MANY and not exists(key)
  if widen then redis.call('ZADD', key, '0', WIDENER) end
  in_chunks('ZADD', key, nil, flat)
  if widen then redis.call('ZREM', key, WIDENER) end
end

-- Start the runs of these jobs. keys: of keyed jobs, by position. Return their tokens.
function runs.start(base, consumer, ids, keys, call)
  local worker, tokens, flat, head = runs.number_of(base, consumer, call), {}, {}, nil
  for i = 1, #ids do
    local nth = (i - 1) % MOST
    if nth == 0 then head = digits(call.now) .. '-' .. runs.block(base) end
    local raw = head .. three_digits(nth)
    tokens[i] = (keys and 'k' or 'l') .. raw
    flat[2 * i - 1], flat[2 * i] = worker, keys and raw .. 'k ' .. ids[i] .. SEP .. keys[i] or raw .. 'l ' .. ids[i]
  end
  runs.add(base, flat)
  return tokens
end

-- End runs. ids, tokens, keys: by position; keys[i] is nil or false if the caller does not know it. Return how many of
-- them were in `runs`.
function runs.remove(base, ids, tokens, keys)
  local members = {}
  for i = 1, #ids do members[i] = member_of(base, ids[i], tokens[i], keys[i] or nil) end
  in_chunks('HDEL', base .. ':renewed', nil, tokens)
  return in_chunks('ZREM', base .. ':runs', nil, members)
end

-- End the runs of these members. Return how many of them were in `runs`.
function runs.remove_members(base, members, seen)
  if seen.renewed then
    local tokens = {}
    for i, member in ipairs(members) do tokens[i] = runs.token_in(member) end
    in_chunks('HDEL', base .. ':renewed', nil, tokens)
  end
  return in_chunks('ZREM', base .. ':runs', nil, members)
end

-- Return the keys of those runs that held their lease until runs.remove ended them. found: how many did. The state of a
-- job shows if its run did. A job without a record, which was deleted by hand, has no state. If `found` does not decide
-- about such runs either, stopping.lua counts the runs of their keys.
function runs.held_keys(base, ids, tokens, keys, found)
  local held, lost, named, missing = {}, {}, {}, 0
  for i, token in ipairs(tokens) do
    local state, at = plain.location(base, ids[i])
    if not named[token] and (not state or state == 'active' and at == token) then
      if state then found = found - 1 else missing = missing + 1 end
      if keys[i] then
        local list = state and held or lost
        list[#list + 1] = keys[i]
      end
    end
    named[token] = true
  end
  if found < missing then lost = found > 0 and runs.uncounted(base, lost, held) or {} end
  for _, key in ipairs(lost) do held[#held + 1] = key end
  return held
end

-- A row describes a running job, like a row of XPENDING: { entry of `fifo` without its prefix, or token; worker; ms
-- since the last renewal; RENEWED if the worker has named the run }. For runs outside of `fifo` the job and its key
-- follow. Such a row has `is_ahead`: true if its instant is in the future, because the clock was set back.

-- Return the rows of members of `runs`, with the time since their claim or their last renewal.
local function rows_of(base, members, consumer, now)
  local tokens, rows = {}, {}
  for _, member in ipairs(members) do
    local token, id, key = runs.parts_of(member)
    if token then tokens[#tokens + 1], rows[#rows + 1] = token, {token, consumer, 0, 1, id, key} end
  end
  local renewed = tokens[1] and redis.call('HMGET', base .. ':renewed', unpack(tokens)) or {}
  for i, row in ipairs(rows) do
    local since, mark = string.match(renewed[i] or '', '^(%d+)( ?r?)$')
    local idle = now - (since or string.match(row[1], '^.(%d+)'))
    row[3], row.is_ahead = math.max(0, idle), idle < 0
    if mark == ' r' then row[4] = runs.RENEWED end
  end
  return rows
end

-- Return the row of a running job, nil if it is not there. entry: its token. The job may have lost its record.
function runs.row(base, id, entry)
  if string.byte(entry) == FIFO then return entries.pending_row(base .. ':fifo', string.sub(entry, 2)) end
  local member = member_of(base, id, entry)
  local number = redis.call('ZSCORE', base .. ':runs', member)
  if not number then return nil end
  return rows_of(base, {member}, consumer_named(base, digits(tonumber(number))), clock.now())[1]
end

-- Return the worker that runs a job under this token, nil if the job does not run.
function runs.consumer_of(base, id, entry)
  local row = runs.row(base, id, entry)
  return row and row[2]
end

-- Return the job of a row, its key if it has one, its token, and the fields of an entry of `fifo`. Return nil if its
-- entry is missing.
function runs.job_of(base, row)
  if row[5] then return row[5], row[6], row[1] end
  return entries.find(base .. ':fifo', row[1])
end

-- Remove the entry or the run of a row.
function runs.drop(base, row)
  if not row[5] then return entries.drop(base .. ':fifo', {row[1]}) end
  runs.remove(base, {row[5]}, {row[1]}, {row[6]})
end

-- Return the number of running jobs.
function runs.count(base)
  return entries.pending_count(base .. ':fifo') + redis.call('ZCARD', base .. ':runs')
end

-- Return the number of jobs of a worker that run outside of `fifo`.
function runs.count_of(base, consumer)
  local number = known_number(base, consumer)
  return number and redis.call('ZCOUNT', base .. ':runs', number, number) or 0
end

-- Return that number for each of these workers, at most 1,000.
function runs.counts_of(base, consumers)
  local fields, counts, key = {}, {}, base .. ':runs'
  if not exists(key) then
    for i = 1, #consumers do counts[i] = 0 end
    return counts
  end
  for i = 1, #consumers do fields[i] = 'c' .. consumers[i] end
  for i, number in ipairs(redis.call('HMGET', base .. ':consumers', unpack(fields))) do
    counts[i] = number and redis.call('ZCOUNT', key, number, number) or 0
  end
  return counts
end

-- Return up to n rows of a worker, the oldest ones.
function runs.rows_of_worker(base, consumer, n, now)
  local number = known_number(base, consumer)
  if not number then return {} end
  local members = redis.call('ZRANGEBYSCORE', base .. ':runs', number, number, 'LIMIT', '0', digits(n))
  return rows_of(base, members, consumer, now)
end

-- Return up to n rows from a rank on, in the order of `runs`.
function runs.rows_from(base, rank, n, now)
  local found, rows = redis.call('ZRANGE', base .. ':runs', digits(rank), digits(rank + n - 1), 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    rows[#rows + 1] = rows_of(base, {found[i]}, consumer_named(base, digits(tonumber(found[i + 1]))), now)[1]
  end
  return rows
end

-- Return the jobs from a rank on, and the keys of the keyed ones by job. from, last: ranks as texts.
function runs.jobs_from(base, from, last, backwards)
  local ids, keys = {}, {}
  for i, member in ipairs(redis.call(backwards and 'ZREVRANGE' or 'ZRANGE', base .. ':runs', from, last)) do
    local _, id, key = runs.parts_of(member)
    ids[i], keys[i] = id or member, key or false
  end
  return ids, keys
end

-- Store that the leases of runs were renewed. received: their worker has named them.
function runs.note_renewals(base, tokens, received, now)
  local flat, mark = {}, digits(now) .. (received and ' r' or '')
  for i, token in ipairs(tokens) do flat[2 * i - 1], flat[2 * i] = token, mark end
  if flat[1] then in_chunks('HSET', queue_flags.create(base, 'renewed'), nil, flat) end
end

-- Return the rank of the first run that was claimed at this instant or later. The runs from rank `low` to before `high`
-- belong to one worker.
local function rank_of(key, low, high, instant)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', key, digits(middle), digits(middle))[1]
    if tonumber(string.match(member, '^%d+') or 0) < instant then low = middle + 1 else high = middle end
  end
  return low
end

-- Return the members of those runs of a worker that were claimed from `first` to `last`, ms; all of its members if
-- these are few.
local function members_between(base, number, first, last)
  local key = base .. ':runs'
  local count = redis.call('ZCOUNT', key, number, number)
  if count < SEARCHED then return redis.call('ZRANGEBYSCORE', key, number, number) end
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. number)
  local high = low + count
  low = rank_of(key, low, high, first)
  high = rank_of(key, low, high, last + 1)
  return low < high and redis.call('ZRANGE', key, digits(low), digits(high - 1)) or {}
end

-- Renew the runs of a worker that have these tokens. received: the worker has named them. Return the tokens that were
-- renewed.
function runs.renew(base, consumer, tokens, received, now)
  local number = tokens[1] and known_number(base, consumer)
  if not number then return {} end
  local named, renewed, first, last = {}, {}, math.huge, 0
  for _, token in ipairs(tokens) do
    local claimed = tonumber(string.match(token, '^.(%d+)') or 0)
    named[token], first, last = true, math.min(first, claimed), math.max(last, claimed)
  end
  for _, member in ipairs(members_between(base, number, first, last)) do
    local token = runs.token_in(member)
    if named[token] then renewed[#renewed + 1] = token end
  end
  runs.note_renewals(base, renewed, received, now)
  return renewed
end

-- Let the leases of those rows begin now whose claim or renewal is in the future.
local function mend_instants(base, rows, now)
  local named, others = {}, {}
  for _, row in ipairs(rows) do
    local list = row[4] == runs.RENEWED and named or others
    if row.is_ahead then list[#list + 1] = row[1] end
  end
  runs.note_renewals(base, named, true, now)
  runs.note_renewals(base, others, false, now)
end

-- Return true if a lease of this worker's runs may end before the lease of an older run: a lease was renewed, or a run
-- began in the future.
local function is_out_of_order(base, number, now)
  if exists(base .. ':renewed') then return true end
  local last = digits(redis.call('ZCOUNT', base .. ':runs', '-inf', number) - 1)
  local newest = redis.call('ZRANGE', base .. ':runs', last, last)[1]
  return newest and tonumber(string.match(newest, '^%d+') or 0) > now
end

-- Return up to n members of a worker after the first `passed` ones. (LIMIT would walk through these.)
local function members_after(base, number, passed, n)
  local key = base .. ':runs'
  local first = redis.call('ZCOUNT', key, '-inf', '(' .. number)
  local count = math.min(n, redis.call('ZCOUNT', key, number, number) - passed)
  if count <= 0 then return {} end
  return redis.call('ZRANGE', key, digits(first + passed), digits(first + passed + count - 1))
end

-- Return the positions of those members whose lease began `shortest` ms ago or earlier, or begins in the future.
local function positions_to_check(base, members, shortest, now)
  local tokens, positions = {}, {}
  for i, member in ipairs(members) do tokens[i] = runs.token_in(member) end
  for i, mark in ipairs(tokens[1] and redis.call('HMGET', base .. ':renewed', unpack(tokens)) or {}) do
    local idle = now - (string.match(mark or members[i], '^%d+') or 0)
    if idle >= shortest or idle < 0 then positions[#positions + 1] = i end
  end
  return positions
end

-- Return the positions of the members before the first one that was claimed less than `shortest` ms ago.
local function positions_of_oldest(members, shortest, now)
  local positions = {}
  for i, member in ipairs(members) do
    if now - (string.match(member, '^%d+') or 0) < shortest then break end
    positions[i] = i
  end
  return positions
end

-- Find the next worker with runs. Return five values: up to n rows of its runs that may have lost their lease; the
-- number of the worker; how many of its runs were skipped; how many were read after them; and true if it has no more
-- such runs. If no worker is left, the second value is nil.
--   position  "<number of a worker> <number of its runs to skip>", '' at the beginning
--   shortest  no lease is shorter than this, ms
--   row.at    the position of the row's run among the runs that this call has read
function runs.old_ones(base, position, n, shortest, now)
  local number, passed = string.match(position, '^(%d+) (%d+)$')
  local first = redis.call('ZRANGEBYSCORE', base .. ':runs', number or '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  if not first[1] then return {}, nil end
  local found = digits(tonumber(first[2]))
  if found ~= number then passed = '0' end
  local members = members_after(base, found, tonumber(passed), n)
  local is_last, positions = #members < n, nil
  if is_out_of_order(base, found, now) then
    positions = positions_to_check(base, members, shortest, now)
  else
    positions = positions_of_oldest(members, shortest, now)
    is_last = is_last or #positions < #members
  end
  local old, at, dropped = {}, {}, 0
  for _, i in ipairs(positions) do
    if runs.parts_of(members[i]) then
      old[#old + 1], at[#at + 1] = members[i], i - dropped
    else
      redis.call('ZREM', base .. ':runs', members[i])
      dropped = dropped + 1
    end
  end
  local rows = rows_of(base, old, consumer_named(base, found), now)
  for i, row in ipairs(rows) do row.at = at[i] end
  mend_instants(base, rows, now)
  return rows, tonumber(found), tonumber(passed), #members - dropped, is_last
end

-- Return the tokens of all runs, as a set.
function runs.tokens(base)
  local set = {}
  for _, member in ipairs(redis.call('ZRANGE', base .. ':runs', '0', '-1')) do set[runs.token_in(member)] = true end
  return set
end

-- Forget the number of a worker that has no runs.
function runs.forget(base, consumer)
  local number = known_number(base, consumer)
  if number then redis.call('HDEL', base .. ':consumers', 'c' .. consumer, 'n' .. number) end
end
