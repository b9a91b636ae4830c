-- flows: jobs that depend on other jobs. A parent starts after all of its children have ended. plans.lua describes what
-- is stored, and flow_jobs.lua changes the jobs.
--   stageFlow  stamp number page…     Keep pages of a large plan, from this number on, for the addFlow of this stamp.
--             They are forgotten after ten minutes. A repeated call does no harm.
--   addFlow   channel number incarnation root stamp total staged n id*n page… -> { now, id, status, rest }
--     Store the plan of a flow in the queue of node 0, its home, and begin to make its jobs.
--     root    the id of node 0, '' for a generated one; it is also the id of the flow
--     stamp   a unique text of this flow; a message of an earlier flow with the same id is ignored
--     total   the number of nodes; parents have lower numbers than their children
--     staged  the number of pages that stageFlow keeps; their numbers follow the pages of this call
--     id      the other custom ids of the flow in this queue; no job with one of them may exist
--     page    cmsgpack { number of its first node, { { base key, '' = this queue; id, '' = derived from the flow; name;
--             data; opts; extra as for addJob; policy; parents; children } … } }
--     status  "added"; "duplicate" or "completed": node 0 exists; "taken": another node exists, with its id;
--             "forgotten": not all staged pages are there. The last four write nothing.
--     rest    1: work or outbox entries are left, and the caller relays the outbox
--   advanceFlows  -> 0 | 1     Do a step of the work in `flow_work`. Return 1 while some is left. A repeated call does
--             no harm.

local flows = {}
local MAKE = 'm'
local CANCEL_STEP, PARENTS_STEP = 32, 32
local PARENTS_CHECKED = 16      -- checking this number of parents costs as much as cancelling a child
local POSTED_BYTES = 1048576

local key_of, edge_of, parse_edge, has_edge = plans.key_of, plans.edge_of, plans.parse_edge, plans.has_edge
local push_work, unpacked, node_of, children_of = plans.push_work, plans.unpacked, plans.node_of, plans.children_of
local has_ended, is_needless, note_ends, ended = plans.has_ended, plans.is_needless, plans.note_ends, plans.ended
local resolve_parents = plans.resolve_parents
local report, enter, make = flow_jobs.report, flow_jobs.enter, flow_jobs.make
local carry_out, tell = flow_jobs.carry_out, flow_jobs.tell

-- The kinds of work, by the letters that plans.lua lists.
local work = {}

-- Return a page of a plan, nil if there is none. The addFlow of the plan has unpacked its first page already: Redis
-- hashes each text that Lua gets, 1 ms for a mebibyte of data.
local function page_of(key, staged, page, field, call)
  local first = call.first_page
  if page == 1 and first and first.key == key then return first.rows end
  local packed = redis.call('HGET', key, field) or redis.call('HGET', staged, field)
  return packed and (unpacked(packed) or {0, {}})
end

function work.m(base, key, flow, stamp, page, _, call)
  local field, next_field, staged = 'p' .. digits(page), 'p' .. digits(page + 1), key_of(base, stamp)
  local rows, known = page_of(key, staged, page, field, call), {}
  if not rows then return end
  redis.call('HDEL', key, field)
  redis.call('HDEL', staged, field)
  if redis.call('HEXISTS', key, next_field) + redis.call('HEXISTS', staged, next_field) > 0 then
    push_work(base, 'm', page + 1, 0, flow, call)
  end
  for i, row in ipairs(rows[2]) do make(base, key, flow, stamp, rows[1] + i - 1, row, known, call) end
end

function work.r(base, key, flow, stamp, number, _, call)
  if has_ended(key, number) then return end
  local doomed, node = redis.call('HGET', key, 'd' .. digits(number)), node_of(key, number)
  if not node then return end
  local reason = doomed and 'child_failed: ' .. doomed or ''
  tell(base, flow, stamp, number, node, doomed and 'f' or 'r', reason, call)
end

work.f = work.r

function work.s(base, key, flow, stamp, _, _, call)
  local node = node_of(key, 0)
  local mark = node and redis.call('HGET', base .. ':flowed', node[2])
  if has_edge(mark, edge_of('', flow, stamp, 0)) then flow_jobs.resume(base, node[2], call) end
end

function work.p(base, key, flow, _, number, at, call)
  local node, how = node_of(key, number), redis.call('HGET', key, 'e' .. digits(number))
  if not node or not how then return end
  local last = math.min(at + PARENTS_STEP, #node[5])
  if last < #node[5] then push_work(base, 'p', number, last, flow, call) end
  resolve_parents(base, key, flow, node, how, at + 1, last, call)
end

-- Return the live children of a node for one step, { number, node, children that it waits for }, and the position where
-- the next step begins. Positions count from the end of the list, because the first children usually run already. When
-- a running child is revoked, its slot becomes free. If the first children were stopped first, another queue would
-- start the next children before the messages that stop them arrive.
local function live_children(key, children, at)
  local found, cost, fields, met, read = {}, 0, {}, {}, 0
  for i = at, math.min(at + CANCEL_STEP, #children) - 1 do
    local n = digits(children[#children - i])
    fields[#fields + 1], fields[#fields + 2], fields[#fields + 3] = n, 'e' .. n, 'w' .. n
  end
  local values = fields[1] and redis.call('HMGET', key, unpack(fields)) or fields
  while read < #fields and cost < CANCEL_STEP do
    local child = children[#children - at]
    local node = not values[read + 2] and not met[child] and unpacked(values[read + 1])
    -- A child without a node is not made yet. work.m will find that no parent needs it.
    if node then found[#found + 1] = {child, node, tonumber(values[read + 3] or 0)} end
    met[child], at, read = true, at + 1, read + 3
    cost = cost + 1 + (node and #node[5] / PARENTS_CHECKED or 0)
  end
  return found, at
end

-- Return the nodes of this list that no parent needs any more, their numbers, and the numbers of the parents among
-- them.
local function needless_among(key, list)
  local found, numbers, parents, known = {}, {}, {}, {}
  for _, one in ipairs(list) do
    if is_needless(key, one[2][5], known) then
      found[#found + 1], numbers[#numbers + 1] = one, one[1]
      if one[3] > 0 then parents[#parents + 1] = one[1] end
    end
  end
  return found, numbers, parents
end

-- Return true if a call should leave the rest of the work to another call.
local function is_enough(call)
  return budget.has_settled_enough(call.flow_budget) or (call.seen.posted or 0) > POSTED_BYTES
    or keyed.has_touched_many(call)
end

-- Cancel the children of a node from a position on. Most children have no children of their own. A step has read the
-- list of all children, so it continues with the next part until it meets a child with children or its budget is spent.
function work.c(base, key, flow, stamp, number, at, call)
  local children, live, stops = children_of(key, number), nil, nil
  repeat
    live, at = live_children(key, children, at)
    local found, numbers, parents = needless_among(key, live)
    stops = at >= #children or parents[1] ~= nil
    -- This work is a stack. The rest is pushed first, so the work that this step adds is done before it: depth first.
    if at < #children and stops then push_work(base, 'c', number, at, flow, call) end
    if found[1] then
      note_ends(key, numbers, 'fcancelled')
      for _, parent in ipairs(parents) do push_work(base, 'c', parent, 0, flow, call) end
      flow_jobs.cancel(base, flow, stamp, found, call)
    end
    if not stops and is_enough(call) then
      push_work(base, 'c', number, at, flow, call)
      stops = true
    end
  until stops
end

-- Return true if there is work that can be done. Jobs of other queues are not made while the outbox is full. All other
-- work is done: it ends jobs that exist, so their number limits it.
function wakeup.can_advance(base, seen)
  local top = redis.call('LINDEX', base .. ':flow_work', -1)
  if not top then return false end
  return string.sub(top, 1, 1) ~= MAKE or not outbox.full(base, seen)
end

-- Do the work that is left, until a millisecond has passed, in addFlow since the call began. Sets call.ends_jobs if the
-- rest may cancel jobs. The call then claims nothing, so that no job starts which this work will cancel.
function wakeup.advance_flows(base, call)
  local key = base .. ':flow_work'
  call.flow_budget = call.flow_budget or budget.new()
  repeat
    local item = wakeup.can_advance(base, call.seen) and redis.call('RPOP', key)
    if not item then break end
    local op, number, at, flow = string.match(item, '^(%a) (%d+) (%d+) (.*)$')
    local plan = key_of(base, flow)
    local stamp = redis.call('HGET', plan, 'stamp')
    if stamp then work[op](base, plan, flow, stamp, tonumber(number), tonumber(at), call) end
    local top = redis.call('LINDEX', key, -1)
    call.seen.flow_work = top and true or nil
    call.ends_jobs = top and string.sub(top, 1, 1) ~= MAKE
  until not top or is_enough(call)
end

-- Receive an outbox entry of another queue that belongs to a flow. job: as in inbox.lua.
function flows.receive(base, job, call)
  local message = job.extra.message
  if message then
    if message[1] ~= 'e' then return carry_out(base, message, call) end
    local edge = parse_edge(message[3])
    return ended(base, edge, message[4], message[5], call)
  end
  local given = job.extra.flow
  job.extra.flow = nil
  job.home, job.flow, job.stamp, job.node, job.parents, job.is_parent = unpack(given)
  local refused = enter(base, job, call)
  if refused then
    report(base, job.id, edge_of(job.home, job.flow, job.stamp, job.node), 'f', refused, call)
  end
end

-- Return true if an outbox entry belongs to a flow.
function flows.is_of_flow(extra)
  return extra and (extra.message or extra.flow) and true or false
end

-- Return the first of these ids that is in use.
local function taken_among(base, args, from, last)
  for i = from, last do
    if plain.location(base, args[i]) then return args[i] end
  end
end

-- Return why node 0 cannot be added, or nil.
local function status_of_root(base, id)
  if id == '' then return nil end
  local status = add.is_taken(base, id)
  if status then return status end
  local live = redis.call('HGET', key_of(base, id), 'live')
  return live and tonumber(live) > 0 and 'duplicate' or nil
end

local MOST_CHECKED, MOST_PAGES = 1000, 10000
local STAGED_MS = '600000'

register('stageFlow', function(base, args)
  local key, first, write = key_of(base, args[1]), integer('number', args[2]), {}
  for i = 3, #args do
    write[#write + 1], write[#write + 2] = 'p' .. digits(first + i - 3), args[i]
  end
  in_chunks('HSET', key, nil, write)
  redis.call('PEXPIRE', key, STAGED_MS)
  return 1
end)

request.register('addFlow', function(base, args)
  local root, stamp, total = args[4], args[5], integer('total', args[6])
  local staged, n = integer('staged', args[7]), integer('count', args[8])
  local pages = #args - 8 - n
  if n < 0 or n > MOST_CHECKED or pages < 1 or pages > MOST_PAGES or total < 1 then
    fail('ARGUMENT', 'the argument list does not hold ' .. n .. ' ids and a plan')
  end
  incarnation.check(args[3], redis.call('HGET', base .. ':meta2', 'incarnation'))
  local flow_budget, rows = budget.new(), cmsgpack.unpack(args[9 + n])
  add.check_mode(redis.call('HGET', base .. ':meta2', 'mode'), 1, {add.extra(rows[2][1][6]) or {}})
  local call = queue_flags.call(base)
  local status = status_of_root(base, root)
  if status then return {call.now, root, status} end
  local taken = taken_among(base, args, 9, 8 + n)
  if taken then return {call.now, taken, 'taken'} end
  if staged > 0 then
    if redis.call('HLEN', key_of(base, stamp)) ~= staged then return {call.now, root, 'forgotten'} end
    redis.call('PERSIST', key_of(base, stamp))
  end
  local flow = root ~= '' and root or add.number(base)
  local key, write = key_of(base, flow), {'stamp', stamp, 'live', digits(total), 'nodes', digits(total)}
  redis.call('UNLINK', key)
  for i = 1, pages do
    write[#write + 1], write[#write + 2] = 'p' .. digits(i), args[8 + n + i]
  end
  in_chunks('HSET', key, nil, write)
  push_work(base, 'm', 1, 0, flow, call)
  call.first_page, call.flow_budget = {key = key, rows = rows}, flow_budget
  wakeup.finish(base, call)
  return {call.now, flow, 'added', (call.seen.flow_work or call.seen.posted) and 1 or 0}
end)

register('advanceFlows', function(base)
  local call = queue_flags.call(base)
  if not call.seen.flow_work then return 0 end
  wakeup.finish(base, call)
  return wakeup.can_advance(base, call.seen) and 1 or 0
end, {'allow-oom'})
