-- journals: the recorded steps of a job's runs. steps.lua has the calls.
--   steps:<id>  hash  identity -> a step as its client encoded it. A client derives the identity from the name, the
--                     arguments and the count of equal calls, so a later run finds the step, in any order of its calls.
--   stepped     hash  id -> "<steps> <bytes> <fence>": jobs with a journal, the number and size of its steps, and the
--                     fencing token of the last run before the job was requeued by hand (0: it never was)
-- A journal is removed together with its job. The journal of a completed job is its history: it remains for a day, or
-- for a minute if it is large. A queue without steps has no `stepped`, and pays nothing.

local journals = {}
local KEPT_MS, LARGE_KEPT_MS = '86400000', '60000'
local MOST_KEPT = 1048576        -- bytes of a journal that is not large

-- Return the number of steps, their size, and the fencing token in `stepped`. Return nil if the job has no journal.
function journals.size_of(base, id)
  local kept = redis.call('HGET', base .. ':stepped', id)
  if not kept then return nil end
  local count, bytes, fence = string.match(kept, '^(%d+) (%d+) (%d+)$')
  return tonumber(count or 0), tonumber(bytes or 0), fence or '0'
end

function journals.store_size(base, id, count, bytes, fence, seen)
  local text = digits(count) .. ' ' .. digits(bytes) .. ' ' .. fence
  redis.call('HSET', queue_flags.create(base, 'stepped', seen), id, text)
end

-- Add the steps { identity value }* in args[first..last] to the journal of a job. limits: nil, or { steps, bytes } that
-- it may have. Return false if it would have more; then nothing is written.
function journals.add(base, id, args, first, last, seen, limits)
  local key = base .. ':steps:' .. id
  local count, bytes, fence = journals.size_of(base, id)
  local is_new = not count
  if is_new then count, bytes, fence = 0, 0, '0' end
  for i = first, last, 2 do
    local identity, size = args[i], #args[i + 1]
    -- A repeated call finds its own steps, which count once.
    local before = is_new and 0 or redis.call('HSTRLEN', key, identity)
    if before == 0 then count, bytes = count + 1, bytes + #identity + size else bytes = bytes + size - before end
  end
  if limits and (count > limits[1] or bytes > limits[2]) then return false end
  if is_new then
    redis.call('UNLINK', key)    -- the journal of an earlier job with this id
    if not seen.logs then redis.call('HSETNX', base .. ':meta2', 'logs', '1') end
    seen.logs = true
  end
  redis.call('HSET', key, unpack(args, first, last))
  journals.store_size(base, id, count, bytes, fence, seen)
  return true
end

-- Remove the journals of these jobs.
function journals.remove(base, ids)
  if in_chunks('HDEL', base .. ':stepped', nil, ids) == 0 then return end
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = base .. ':steps:' .. id end
  in_chunks('UNLINK', nil, nil, keys)
end

-- Let the journal of a completed job expire.
function journals.keep_history(base, id)
  local count, bytes = journals.size_of(base, id)
  if not count then return end
  -- A large one expires later too: freeing it here would hold up the server, because many jobs end in one call.
  redis.call('PEXPIRE', base .. ':steps:' .. id, bytes > MOST_KEPT and LARGE_KEPT_MS or KEPT_MS)
end

-- Prepare the journal of a job that had ended and runs again. After a failure, the next run continues from the journal,
-- and repeats the steps that failed at the stored fencing token or before. A completed job starts with an empty
-- journal.
function journals.reopen(base, id, state, seen)
  local count, bytes = journals.size_of(base, id)
  if not count then return end
  if state == 'completed' then
    journals.remove(base, {id})
  else
    local claim = redis.call('HGET', base .. ':job:' .. id, 'claim')
    journals.store_size(base, id, count, bytes, string.match(claim or '0', '^%d+'), seen)
  end
end
