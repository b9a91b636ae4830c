-- steps: the calls that record and read the steps of jobs. journals.lua describes how they are stored.
--   recordSteps  consumer n { id entry most_steps most_bytes count { identity value }*count }*n -> { status }*
--     Record the steps of n runs, at most MOST_STEPS. entry: the lease token of the run; consumer: its worker, '' if
--     unknown, see updates.lua. A repeated call has no second effect. If the call ended early, the reply has fewer
--     than n statuses, and the other steps were not recorded.
--     status "ok"; nothing was written for any other one: "missing"; "stale", the run has lost the job; "full", the
--     journal would have more than most_steps steps or most_bytes bytes
--   receiveSignal  consumer id entry most_steps most_bytes 1 identity value signal -> status
--     Take a signal out of the mailbox of a running job, and record the step that receives it. signal: as it is stored.
--     A repeated call has no second effect. status as above, or "gone": the mailbox does not have the signal
--   readSteps    id cursor -> { next cursor | '', fencing token, flat { identity value } }
--     Read a page of a journal. cursor: '' at first. A step may be on two pages. fencing token: steps that failed in
--     runs up to this one are to be repeated, because the job was requeued after them.

local MOST_STEPS = 250
local PAGE_BYTES, MOST_IN_PAGE = 262144, 1500
local LARGE = 32768               -- mean size of a step, in bytes, from which each step is read by itself
local REPLY = 'workflow.reply' .. SEP .. '='
local MOST_REPLY = 65536          -- bytes of a reply that is published; a larger one is read from the journal

-- Check the arguments. Return the position of each group.
local function parse(args)
  local at, groups, total = 3, {}, 0
  for g = 1, integer('number of groups', args[2]) do
    local count = integer('count', args[at + 4])
    if count < 1 or at + 4 + 2 * count > #args then fail('ARGUMENT', 'there are not ' .. count .. ' steps') end
    if not string.find(args[at + 1], '^[plk]%d+%-%d+$') then fail('ARGUMENT', 'not a lease token: ' .. args[at + 1]) end
    integer('number of steps', args[at + 2])
    integer('number of bytes', args[at + 3])
    groups[g], total = at, total + count
    at = at + 5 + 2 * count
  end
  if total > MOST_STEPS then fail('ARGUMENT', 'at most ' .. MOST_STEPS .. ' steps in a call, found ' .. total) end
  return groups
end

-- Publish the replies among the steps in args[first..last]: the senders of the signals wait for them. The message is
-- the identity, SEP and the step. It contains the step, because the journal of a job that ends now may be removed
-- before a sender reads it.
local function publish_replies(base, id, args, first, last)
  for i = first, last, 2 do
    if string.sub(args[i], 1, #REPLY) == REPLY then
      local fits = #args[i + 1] <= MOST_REPLY
      chunks.publish(base, id, fits and args[i] .. SEP .. args[i + 1] or 'changed')
    end
  end
end

-- Record the steps of the group at args[at]. Return the status.
local function write(base, args, at, seen)
  local limits = {tonumber(args[at + 2]), tonumber(args[at + 3])}
  local first, last = at + 5, at + 4 + 2 * args[at + 4]
  if not journals.add(base, args[at], args, first, last, seen, limits) then return 'full' end
  publish_replies(base, args[at], args, first, last)
  return 'ok'
end

-- Return "missing" or "stale" if the run at args[at] has lost the job, otherwise nil. A plain job gets a record then.
local function refusal(base, args, at, call)
  local id, entry = args[at], args[at + 1]
  local state, found = plain.location(base, id)
  if not state then return 'missing' end
  local row = runs.row(base, id, entry)
  if entries.fenced then
    if state ~= 'active' or found ~= entry then return 'stale' end
    if args[1] ~= '' and row and row[2] ~= args[1] then return 'stale' end
  end
  if row and redis.call('HEXISTS', base .. ':job:' .. id, 'claim') == 0 then
    plain.record_pending(base, row, call)
  end
end

register('recordSteps', function(base, args)
  local groups, call_budget, answer, call = parse(args), budget.new(), {}, queue_flags.call(base)
  for g, at in ipairs(groups) do
    if g > 1 and budget.has_settled_enough(call_budget) then break end
    answer[g] = refusal(base, args, at, call) or write(base, args, at, call.seen)
  end
  return answer
end)

register('receiveSignal', function(base, args)
  if args[6] ~= '1' or #args ~= 9 then fail('ARGUMENT', 'a signal is received by one step') end
  integer('number of steps', args[4])
  integer('number of bytes', args[5])
  local call, id = queue_flags.call(base), args[2]
  local refused = refusal(base, args, 2, call)
  if refused then return refused end
  -- The value contains the run and the time, so only a repeated call has the same one.
  if journals.size_of(base, id) and redis.call('HGET', base .. ':steps:' .. id, args[7]) == args[8] then return 'ok' end
  if not signals.has(base, id, args[9], call.seen) then return 'gone' end
  local status = write(base, args, 2, call.seen)
  if status == 'ok' then signals.remove(base, id, args[9], call.seen) end
  return status
end)

-- Return a page of a journal with few, large steps: the steps with identities after this one, in their order. HSCAN
-- would return all steps in the same bucket of the hash, however large they are.
local function read_large(key, after)
  local names, page, bytes = redis.call('HKEYS', key), {}, 0
  table.sort(names)
  for i, name in ipairs(names) do
    if name > after then
      local value = redis.call('HGET', key, name)
      page[#page + 1], page[#page + 2], bytes = name, value, bytes + #value
      if bytes >= PAGE_BYTES then return i < #names and 'k' .. name or '', page end
    end
  end
  return '', page
end

-- Return a page of a journal of small steps. mean: the mean size of a step.
local function scan(key, cursor, mean)
  local count = math.max(1, math.min(MOST_IN_PAGE, math.floor(PAGE_BYTES / math.max(1, mean))))
  local page = redis.call('HSCAN', key, digits(cursor), 'COUNT', digits(count))
  return page[1] ~= '0' and page[1] or '', page[2]
end

register('readSteps', function(base, args)
  local id, after = args[1], string.match(args[2], '^k(.*)$')
  local cursor = after and 0 or integer('cursor', args[2] == '' and '0' or args[2])
  local count, bytes, fence = journals.size_of(base, id)
  if not count then return {'', '0', {}} end
  local key, mean, page = base .. ':steps:' .. id, bytes / math.max(1, count), nil
  if after or (args[2] == '' and mean >= LARGE) then
    cursor, page = read_large(key, after or '')
  else
    cursor, page = scan(key, cursor, mean)
  end
  return {cursor, fence, page}
end, {'no-writes'})
