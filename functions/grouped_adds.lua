-- grouped_adds: adds jobs that have generated ids and need no record, in groups of equal jobs.
--   addPlain   channel number incarnation { name opts count data*count }* -> { now, first, ids, added }
--     Add plain jobs without other options than `opts`, see plain.lua.
--   addGroups  channel number incarnation { name opts extra count values }* -> { now, first, ids, added }
--     Add plain jobs and compact jobs, see compact.lua. extra: '' for plain jobs; 'k' for jobs whose only other
--     option is a key, 'p' for jobs whose only other option is a priority; otherwise the options of LIFO or prioritized
--     jobs as in addJob. values: data*count; with 'k' { key data }*count; with 'p' { priority data }*count.
-- first, ids and added as in addJob. A group has fewer arguments than the same jobs in an addJob call, and its options
-- are read once.
-- O(n). The whole call is refused when memory is full. Nothing is written before every argument has been read.

local STEP, FIRST_STEP = add.STEP, add.FIRST_STEP
local SMALL = entries.SMALL
local KEYED, PRIORITIZED = 'k', 'p'
local read_meta, seen_in = add.read_meta, add.seen_in
-- the structures that an add of plain, LIFO and prioritized jobs has to look at
local CONCERNS = {compact = true, lifo = true, prioritized = true}
local FIRST = 4                  -- the position of the first group in the arguments
local MOST_DIGITS = 9            -- of a priority

local function no_groups()
  fail('ARGUMENT', 'the argument list does not hold its groups')
end

-- Return the number of jobs in the groups of an addPlain call.
local function count_plain(args)
  local total, at = 0, FIRST
  while at <= #args do
    local count = integer('count', args[at + 2])
    if count < 1 then fail('ARGUMENT', 'a group of ' .. args[at + 2] .. ' jobs') end
    total, at = total + count, at + 3 + count
  end
  if at ~= #args + 1 or total == 0 then no_groups() end
  return total
end

-- Return a function that reserves the next n numbers of the queue and returns them as texts. total, at_once, skips: see
-- add.numbers_of.
local function reserving(base, total, at_once, skips)
  if not skips then
    return function(n)
      local last = entries.reserve(base, n)
      return whole_numbers(last - n + 1, last)
    end
  end
  local next_number = add.numbers_of(base, total, function() return at_once end, true)
  return function(n)
    local ids = {}
    for i = 1, n do ids[i] = next_number() end
    return ids
  end
end

-- Append plain jobs with the same name and options: the n jobs whose data are args[at] and the following ones. ids: the
-- numbers of the step, the first of them at ids[k + 1]; time: the end of the ids of the entries.
local function append_plain(base, args, at, n, name, opts, ids, k, added, time, call)
  local fifo, size = base .. ':fifo', #added
  local has_opts, is_leased = opts ~= '', entries.is_special('', opts)
  for i = 0, n - 1 do
    local id, data = ids[k + i + 1], args[at + i]
    if is_leased or #data > SMALL then entries.mark_special(base, tonumber(id), call) end
    if has_opts then
      redis.call('XADD', fifo, id .. time, name, data, opts, '')
    else
      redis.call('XADD', fifo, id .. time, name, data)
    end
    added[size + 1], added[size + 2] = id, name
    size = size + 2
  end
end

-- Append the first STEP jobs of the groups, and more until the budget is spent. Return how many were appended.
local function append_groups(base, args, total, reserve, added, call)
  local call_budget, at, n, left = total > STEP and budget.new() or nil, FIRST, 0, 0
  local time, ids, k = '-' .. digits(call.now), nil, 0
  while at <= #args do
    local name, opts, from, rest = args[at], args[at + 1], at + 3, tonumber(args[at + 2])
    at = from + rest
    while rest > 0 do
      if left == 0 then
        if n > 0 and budget.has_added_enough(call_budget) then return n end
        left = math.min(STEP, total - n)
        ids, k = reserve(left), 0
      end
      local some = math.min(rest, left)
      append_plain(base, args, from, some, name, opts, ids, k, added, time, call)
      n, k, left, rest, from = n + some, k + some, left - some, rest - some, from + some
    end
  end
  return n
end

-- Return the ids in the line of the event `added`.
local function ids_in(added)
  local ids, n = {}, 0
  for i = 2, #added, 2 do
    n = n + 1
    ids[n] = added[i]
  end
  return ids
end

-- End a call that has added n jobs. Return its reply.
local function ended(base, added, n, call)
  wakeup.finish(base, call)
  if added[#added - 1] - added[2] == n - 1 then return {call.now, added[2], {}, n} end
  return {call.now, '', ids_in(added), n}
end

request.register('addPlain', function(base, args)
  local is_alone = one_plain.is_alone(args)
  local total = is_alone and 1 or count_plain(args)
  local now, meta = clock.now(), read_meta(base)
  incarnation.check(args[3], meta[4])
  if meta[3] == 'keyed' then fail('INCOMPATIBLE', 'the queue is of mode keyed, and a job of this call has no key') end
  if is_alone and one_plain.fits(base, args, meta) then return one_plain.add(base, args, meta, now) end
  local call = {now = now, args = args, lines = {}, seen = seen_in(base, meta)}
  local added = events.line(call.lines, 'added')
  local n = append_groups(base, args, total, reserving(base, total, STEP, meta[2] == '1'), added, call)
  call.startable = n
  call.first = tonumber(added[2])
  return ended(base, added, n, call)
end)

-- A call of addGroups has a state { args, now, time, added, ids, sequences, k }:
--   now, time       the time of the call as text, and as the end of the ids of entries
--   added           the line of the event `added`
--   ids, sequences  numbers of the queue and of order.lua for the jobs of the step, as texts; no sequences if none of
--                   the kinds needs them
--   k               how many of them are used
-- A kind of groups is { width, add, is_sequenced, priority }: the number of values of a job; the function that adds the
-- next n jobs of the group at args[at], whose values begin at args[from]; true if the jobs need sequence numbers; and
-- the priority of all jobs as text, if their values do not contain it.

local PLAIN = {width = 1}

function PLAIN.add(base, state, at, from, n, _, call)
  local args, ids, k = state.args, state.ids, state.k
  call.first = call.first or tonumber(ids[k + 1])
  append_plain(base, args, from, n, args[at], args[at + 1], ids, k, state.added, state.time, call)
  call.startable = call.startable + n
end

local WITH_KEYS = {width = 2, add = compact_adds.keyed, is_sequenced = true}
local WITH_PRIORITIES = {width = 2, add = compact_adds.prioritized}
local LIFO = {width = 1, add = compact_adds.lifo, is_sequenced = true}

-- Return the kind of the groups with these options.
local function kind_of(text)
  if text == '' then return PLAIN end
  if text == KEYED then return WITH_KEYS end
  if text == PRIORITIZED then return WITH_PRIORITIES end
  local extra = add.extra(text)
  if not extra.compact or extra.key then fail('ARGUMENT', 'jobs with these options do not form a group') end
  return extra.lifo and LIFO or {width = 1, add = compact_adds.prioritized, priority = digits(extra.priority)}
end

-- Refuse priorities that are not whole numbers from 1 on. The n jobs of a group begin at args[from].
local function check_priorities(args, from, n)
  local known = {}
  for at = from, from + 2 * n - 2, 2 do
    local text = args[at] or ''
    if not known[text] then
      if not string.find(text, '^[1-9]%d*$') or #text > MOST_DIGITS then
        fail('ARGUMENT', 'a priority must be a whole number from 1 on, found ' .. text)
      end
      known[text] = true
    end
  end
end

-- Check the groups of an addGroups call. Return their kinds by the text of their options, and the number of their jobs.
-- mode: of the queue, nil if it has none.
local function read_groups(args, mode)
  local kinds, total, at, size = {}, 0, FIRST, #args
  while at <= size do
    local text, count = args[at + 2], integer('count', args[at + 3])
    if count < 1 then fail('ARGUMENT', 'a group of ' .. args[at + 3] .. ' jobs') end
    local kind = kinds[text]
    if not kind then
      kind = kind_of(text)
      kinds[text] = kind
    end
    if mode then add.check_fits(mode, total + 1, kind == WITH_KEYS) end
    if kind == WITH_PRIORITIES then check_priorities(args, at + 4, count) end
    total, at = total + count, at + 4 + count * kind.width
  end
  if at ~= size + 1 or total == 0 then no_groups() end
  return kinds, total
end

-- Return the part of queue_flags.at that an add of these kinds needs.
local function seen_for(base, meta, kinds)
  local seen = seen_in(base, meta)
  if kinds[KEYED] or not queue_flags.are_known(seen.features) then return queue_flags.at(base) end
  for name, is_there in pairs(queue_flags.some(base, seen.features, CONCERNS)) do seen[name] = is_there end
  return seen
end

-- Add the jobs of the first step, and of more steps until the budget is spent. Return how many were added.
local function add_groups(base, state, kinds, total, reserve, call)
  local args, step, call_budget = state.args, FIRST_STEP, total > FIRST_STEP and budget.new() or nil
  local at, n, left, size, is_sequenced = FIRST, 0, 0, #args, false
  for _, kind in pairs(kinds) do is_sequenced = is_sequenced or kind.is_sequenced end
  while at <= size do
    local kind, rest, from = kinds[args[at + 2]], tonumber(args[at + 3]), at + 4
    while rest > 0 do
      if left == 0 then
        if n > 0 then
          compact_adds.write(base, call)
          keyed.review(base, call)    -- its time counts too
          if budget.has_added_enough(call_budget) then return n end
          step = budget.fitting(call_budget, n, STEP)
        end
        left = math.min(step, total - n)
        state.ids, state.sequences, state.k = reserve(left), is_sequenced and order.several(base, call, left), 0
      end
      local some = math.min(rest, left)
      kind.add(base, state, at, from, some, kind, call)
      state.k = state.k + some
      n, left, rest, from = n + some, left - some, rest - some, from + some * kind.width
    end
    at = from
  end
  compact_adds.write(base, call)
  return n
end

request.register('addGroups', function(base, args)
  local now, meta = clock.now(), read_meta(base)
  incarnation.check(args[3], meta[4])
  local kinds, total = read_groups(args, meta[3])
  local call = {now = now, args = args, lines = {}, startable = 0, seen = seen_for(base, meta, kinds)}
  local text = digits(now)
  local state = {args = args, now = text, time = '-' .. text, added = events.line(call.lines, 'added')}
  local reserve = reserving(base, total, FIRST_STEP, meta[2] == '1')
  return ended(base, state.added, add_groups(base, state, kinds, total, reserve, call), call)
end)
