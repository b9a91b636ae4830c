-- results: the outcomes of completed plain jobs, and how long they are kept.
--   results  hash  number -> "<ended ms> <started ms> <result>". The name, data and options are in the entry of `fifo`,
--                  which stays there for as long.
--   meta2    horizon: plain jobs with a number below it are not in `results`, and none of them is added to it
-- The retention of completed jobs is a number of jobs and an age. Completed plain jobs and the records in `completed`
-- count together, and the oldest job of both is removed first. Within `results` the horizon rises, so jobs are removed
-- in the order in which they were added: one HDEL and one XTRIM then remove all jobs of a call. A job that completes
-- long after its neighbours does not fit this order: it would be removed together with them, or they would be kept for
-- as long as it. Such a job gets a record instead (results.is_late, and completing.lua), and is removed from
-- `completed` by the time of its end. A job that is held for a client (`held` in finish.lua) gets a record when the
-- horizon passes it.

local results = {}
local PASSED_AT_ONCE = 500
local MOST_STEPS = 64            -- other jobs use numbers too, and each step ends at such a gap
local MOST_HELD = 32             -- held jobs that get a record in a call

-- Return the first number that is kept.
local function horizon_of(seen)
  return seen.horizon or 1
end

-- Return when a job ended, from its value in `results`.
local function ended_at(kept)
  return tonumber(string.match(kept, '^%d+'))
end

-- Return true if a completed job cannot be kept in `results`. newest: the highest number that completes in this call;
-- count: how many jobs the retention keeps, -1 = all of them.
function results.is_late(base, number, newest, count, seen)
  local horizon, half = horizon_of(seen), count / 2
  if number < horizon then return true end
  if count < 0 or newest - number <= half and number >= horizon + half then return false end
  if newest - number > half then return true end
  -- The horizon is near. It reaches this number soon if many jobs are kept, because most of them have higher numbers.
  seen.kept = seen.kept or results.count(base, seen)
  return seen.kept > half
end

-- Store the outcomes of completed jobs: flat { number value }.
function results.store(base, flat, seen)
  if not flat[1] then return end
  in_chunks('HSET', queue_flags.create(base, 'results', seen), nil, flat)
  seen.results, seen.kept = true, nil
end

do
  -- Delete the entries with these numbers from `fifo`, except entries of active runs. last: exclusive.
  local function delete_entries(base, from, last)
    local fifo, before = base .. ':fifo', digits(last - 1)
    local row = redis.pcall('XPENDING', fifo, GROUP, '-', before, 1)
    if row.err or not row[1] then
      redis.call('XTRIM', fifo, 'MINID', digits(last))
      return
    end
    redis.call('XTRIM', fifo, 'MINID', row[1][1])
    local running, gone = {}, {}
    for _, pending in ipairs(redis.call('XPENDING', fifo, GROUP, digits(from), before, PASSED_AT_ONCE)) do
      running[pending[1]] = true
    end
    for _, entry in ipairs(redis.call('XRANGE', fifo, digits(from), before)) do
      if not running[entry[1]] then gone[#gone + 1] = entry[1] end
    end
    if gone[1] then in_chunks('XDEL', fifo, nil, gone) end
  end

  -- Give records to the held jobs among these numbers. Return how many got one. A call gives only a limited number of
  -- records: the second value is the number of the first held job without one, nil if all have one.
  local function record_held(base, numbers, seen)
    seen.passed = seen.passed or {}
    local given, passed = 0, seen.passed
    for i, instant in ipairs(redis.call('ZMSCORE', base .. ':held', unpack(numbers))) do
      local kept = instant and redis.call('HGET', base .. ':results', numbers[i])
      if kept and #passed >= 2 * MOST_HELD then return given, numbers[i] end
      local ended = kept and plain.record_held(base, numbers[i], kept)
      if ended then passed[#passed + 1], passed[#passed + 2], given = ended, numbers[i], given + 1 end
    end
    return given, nil
  end

  -- Raise the horizon until `surplus` jobs have left, but by PASSED_AT_ONCE numbers at most, and not beyond `beyond`.
  -- Return how many have left.
  local function raise(base, surplus, beyond, seen)
    local from, removed = horizon_of(seen), 0
    local last = math.min(from + math.min(surplus, PASSED_AT_ONCE), beyond)
    if last <= from then return 0 end
    local numbers, before = whole_numbers(from, last - 1), nil
    if seen.held then
      removed, before = record_held(base, numbers, seen)
      if before then
        last = tonumber(before)
        for i = last - from + 1, #numbers do numbers[i] = nil end
      end
      if last == from then return removed end
    end
    removed = removed + in_chunks('HDEL', base .. ':results', nil, numbers)
    delete_entries(base, from, last)
    -- Other jobs use numbers too, so the next entry may be far away.
    if removed < #numbers then
      local rest = redis.call('XRANGE', base .. ':fifo', digits(last), '+', 'COUNT', 1)[1]
      if rest then last = math.max(last, math.min(beyond, tonumber(plain.id_of(rest[1])))) end
    end
    seen.horizon = last
    redis.call('HSET', base .. ':meta2', 'horizon', digits(last))
    return removed
  end

  -- Return the number that follows the last delivered entry. All numbers below it have left or were delivered.
  local function first_undelivered(base)
    local last = entries.group_of(base .. ':fifo')['last-delivered-id']
    return last and tonumber(string.match(last, '^%d+')) + 1 or 1
  end

  -- Remove up to `most` of the oldest jobs in `results`. Return their number. beyond: a number that was not delivered
  -- yet, if the caller knows one.
  function results.remove_oldest(base, most, seen, beyond)
    local removed, before = 0, nil
    -- Everything before a job that has just completed was delivered. That is usually enough, and saves a command.
    local newest = not beyond and seen.newest
    beyond = beyond or newest or first_undelivered(base)
    for _ = 1, MOST_STEPS do
      before = horizon_of(seen)
      removed = removed + raise(base, most - removed, beyond, seen)
      if removed >= most then break end
      if horizon_of(seen) == before then
        if not newest then break end
        newest, beyond = nil, first_undelivered(base)
      end
    end
    return removed
  end
end

-- Add the held jobs that the horizon has passed in this call to `completed`. This comes after the retention of the
-- call: finish.lua walks through `completed` by rank, and would meet these jobs a second time.
function results.keep_held(base, seen)
  if not seen.passed or not seen.passed[1] then return end
  in_chunks('ZADD', base .. ':completed', nil, seen.passed)
  seen.passed = nil
end

-- Return the number of kept outcomes.
function results.count(base, seen)
  return seen.results and redis.call('HLEN', base .. ':results') or 0
end

do
  local ENTRIES_A_STEP, STEPS = 8, 32

  -- Return the number of the first kept job, and when it ended, ms. Return nil if none is kept.
  function results.first(base, seen)
    if not seen.results then return nil end
    local fifo, from = base .. ':fifo', digits(horizon_of(seen))
    -- Most often nothing else has used this number.
    local next_kept = redis.call('HGET', base .. ':results', from)
    if next_kept then return horizon_of(seen), ended_at(next_kept) end
    for _ = 1, STEPS do
      local found = redis.call('XRANGE', fifo, from, '+', 'COUNT', ENTRIES_A_STEP)
      for _, entry in ipairs(found) do
        local number = plain.id_of(entry[1])
        local kept = redis.call('HGET', base .. ':results', number)
        if kept then return tonumber(number), ended_at(kept) end
      end
      if #found < ENTRIES_A_STEP then return nil end
      from = '(' .. found[#found][1]
    end
    return nil
  end
end

do
  local NUMBERS_A_STEP = 32

  -- Return how many of the kept jobs from this number on ended at this instant or before, without a younger one between
  -- them.
  local function count_old(base, from, instant, most)
    local numbers, old = whole_numbers(from, from + math.min(most, NUMBERS_A_STEP) - 1), 0
    local kept = redis.call('HMGET', base .. ':results', unpack(numbers))
    for i = 1, #numbers do
      if kept[i] and ended_at(kept[i]) > instant then return old end
      if kept[i] then old = old + 1 end
    end
    return old
  end

  -- Remove up to `most` of the oldest jobs that ended at this instant or before. Return their number. first, ended: of
  -- results.first, if the caller has called it.
  function results.remove_before(base, instant, most, seen, first, ended)
    local removed = 0
    while removed < most do
      if not first then first, ended = results.first(base, seen) end
      if not first or ended > instant then break end
      local gone = results.remove_oldest(base, count_old(base, first, instant, most - removed), seen)
      if gone == 0 then break end
      removed, first = removed + gone, nil
    end
    return removed
  end
end
